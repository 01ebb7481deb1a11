"""Requests of the steps whose tables grow with a fleet: a batch of windows, looks of control and serve, the upkeep.

Time is handed in, so a run counts as many requests on a slow machine as on a fast one. The pipeline's part writes its
tables without Spark: checkpoints, leases and the stand-by do not depend on the fleet, and `soak` counts those.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import click

from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, TABLES
from streaming.control.run import ControlLoop
from streaming.pipeline.delta_tables import DRIVER_ROWS_MAX, WindowTable, create_window_table
from streaming.settings import DAY_MS, Settings
from streaming.tables import table_uri, utc
from streaming.tables.object_stores import use_object_store
from tests.benchmarks.fleet_soak import Role, RoleProcess, Serving
from tests.benchmarks.generated import CLUSTER, NOW_MS, WINDOW_MS, GeneratedCluster, Size, open_window
from tests.pipeline.table_upkeep import TableUpkeep
from tests.s3 import BUCKET, CREDENTIALS, proxy, s3_server

WRITTEN = (BROKER_LOAD, PARTITION_LOAD, GROUP_LAG)
LOOK_MS = 10_000
"""Between two samples, and so between two batches."""
UPKEEP_WINDOWS = 15
"""From one upkeep to the next, by default."""
COUNTED_WINDOWS = 5
UNCOUNTED_WINDOWS = (UPKEEP_WINDOWS - COUNTED_WINDOWS) // 2
"""Before and after those that count: files become more from one upkeep to the next, so the middle is the mean."""
BEGAN_MS = NOW_MS - 2 * UPKEEP_WINDOWS * WINDOW_MS
COUNTED_FROM_MS = BEGAN_MS + (UPKEEP_WINDOWS + UNCOUNTED_WINDOWS) * WINDOW_MS
SMALL = 3
KINDS = ("PUT", "POST", "LIST", "GET", "HEAD", "DELETE")
BATCH, UPKEEP = "a batch in its tables", "a run of the upkeep"
CONTROL_NEWS, CONTROL_QUIET = "a look of control after a batch", "a look of control without news"
SERVE_NEWS, SERVE_QUIET = "a look of serve after a batch", "a look of serve without news"
SELDOM_SERVE = {"serve": {"refresh_interval_ms": 15_000}}
INTERVALS: dict[str, dict[str, dict[str, int]]] = {
    "by default": {},
    "serve each 15 s": SELDOM_SERVE,
    "and a batch each 30 s": {**SELDOM_SERVE, "pipeline": {"trigger_interval_ms": 30_000}},
}

Means = dict[str, dict[str, float]]
"""Requests by kind that a step takes in the mean."""


class Writing:
    """The pipeline's writes of a batch: a step brings the window of its time up to date in three tables."""

    def __init__(self, settings: Settings, *, size: Size) -> None:
        use_object_store(settings.storage)
        root = settings.storage.tables
        self._size, self._cluster = size, GeneratedCluster(size)
        self._watermark_ms = settings.pipeline.watermark_ms
        self._tables = {}
        for table in WRITTEN:
            create_window_table(root, table)
            self._tables[table.name] = WindowTable(table_uri(root, table.name), table, rows_max=DRIVER_ROWS_MAX)
        self._batch = 0

    def step(self, now_ms: int) -> int:
        """One batch."""
        self._batch += 1
        into_ms = now_ms % WINDOW_MS
        rows = open_window(self._size, self._cluster, now_ms - into_ms, samples=1 + into_ms // LOOK_MS)
        for name, table in self._tables.items():
            table.upsert(rows[name], ("q", self._batch), utc(now_ms - self._watermark_ms))
        return self._batch


class Tidying:
    """The pipeline's upkeep of those tables, rollups included; each step is one run."""

    def __init__(self, settings: Settings) -> None:
        use_object_store(settings.storage)
        self._upkeep = [
            TableUpkeep(settings.storage.tables, TABLES[table.name], settings.pipeline) for table in WRITTEN
        ]

    def step(self, now_ms: int) -> int:
        """Of all tables."""
        return sum(upkeep.run_if_due(now_ms=now_ms) for upkeep in self._upkeep)


class Deciding:
    """Control's tick, on a cluster that answers at once."""

    def __init__(self, settings: Settings, *, size: Size) -> None:
        use_object_store(settings.storage)
        self._loop = ControlLoop(GeneratedCluster(size), settings, now_ms=BEGAN_MS)

    def step(self, now_ms: int) -> int:
        """One tick."""
        return int(self._loop.tick(now_ms=now_ms))


class Showing(Serving):
    """Serve's look at all tables."""

    def __init__(self, settings: Settings) -> None:
        use_object_store(settings.storage)
        super().__init__(settings)


def cost(fleets: tuple[int, ...]) -> None:
    """Print requests by size and step."""
    os.environ.update(CREDENTIALS)
    for size in map(_size, fleets):
        began_s = time.monotonic()
        means = _of_size(size)
        shown = f"{size.brokers} brokers, {size.partitions:,} partitions, {size.groups:,} groups"
        click.echo(f"{shown}: {time.monotonic() - began_s:.0f} s; load average {os.getloadavg()[0]:.1f}")
        for step, counts in means.items():
            click.echo(f"  {step}: {_shown(counts)}")
        for name, settings in INTERVALS.items():
            click.echo(f"  all of them in a day, {name}: {_shown(of_a_day(means, Settings.model_validate(settings)))}")


def of_a_day(means: Means, settings: Settings) -> dict[str, float]:
    """Requests of a day, of the steps in `means` at the intervals of these settings."""
    batches = DAY_MS / max(settings.collect.sample_interval_ms, settings.pipeline.trigger_interval_ms)
    ticks, looks = DAY_MS / settings.control.tick_interval_ms, DAY_MS / settings.serve.refresh_interval_ms
    times = {
        BATCH: batches,
        UPKEEP: DAY_MS / settings.pipeline.maintenance_interval_ms,
        CONTROL_NEWS: min(batches, ticks),
        CONTROL_QUIET: max(0.0, ticks - batches),
        SERVE_NEWS: min(batches, looks),
        SERVE_QUIET: max(0.0, looks - batches),
    }
    return {kind: sum(times[step] * counts[kind] for step, counts in means.items()) for kind in KINDS}


def _shown(counts: Mapping[str, float]) -> str:
    return ", ".join(f"{kind} {counts[kind]:,.1f}" for kind in KINDS if counts[kind])


def _size(brokers: int) -> Size:
    """As the sizing table has it; of three brokers a small one."""
    return Size(brokers, 100, 2) if brokers == SMALL else Size(brokers, brokers * 1_000, brokers * 100)


def _of_size(size: Size) -> Means:
    """Mean requests of each kind of step, in the middle of the time between two runs of the upkeep."""
    with ExitStack() as stack:
        before = stack.enter_context(proxy(stack.enter_context(s3_server())))
        counts: Counter[str] = Counter()
        before.on_asked = lambda asked: counts.update([asked.kind])
        settings = Settings.model_validate(
            {
                "kafka": {"cluster_name": CLUSTER},
                "storage": {"tables": f"s3://{BUCKET}/cost/tables", "s3_endpoint": before.url},
                "control": {"mode": "observe"},
            }
        )
        makers: dict[str, Callable[[Settings], Role]] = {
            "batch": partial(Writing, size=size),
            "upkeep": Tidying,
            "control": partial(Deciding, size=size),
            "serve": Showing,
        }
        # Each in a process of its own: delta-rs keeps the threads of its process from running while it lists.
        roles = {name: stack.enter_context(RoleProcess(make, settings)) for name, make in makers.items()}
        steps = Steps(roles, counts)
        _write_windows(roles["batch"], BEGAN_MS, UPKEEP_WINDOWS)
        for name in ("upkeep", "control", "serve"):
            roles[name].step(BEGAN_MS + UPKEEP_WINDOWS * WINDOW_MS)
        _write_windows(roles["batch"], BEGAN_MS + UPKEEP_WINDOWS * WINDOW_MS, UNCOUNTED_WINDOWS)
        for now_ms in range(COUNTED_FROM_MS, COUNTED_FROM_MS + COUNTED_WINDOWS * WINDOW_MS, LOOK_MS):
            steps.take(BATCH, "batch", now_ms)
            steps.take(CONTROL_NEWS, "control", now_ms)
            steps.take(CONTROL_QUIET, "control", now_ms)
            steps.take(SERVE_NEWS, "serve", now_ms)
            steps.take(SERVE_QUIET, "serve", now_ms)
        _write_windows(roles["batch"], COUNTED_FROM_MS + COUNTED_WINDOWS * WINDOW_MS, UNCOUNTED_WINDOWS)
        steps.take(UPKEEP, "upkeep", NOW_MS)
        return steps.means()


def _write_windows(role: RoleProcess, since_ms: int, windows: int) -> None:
    """With one batch each, at its end: the table gets as many files as by six, and is sooner there."""
    for number in range(windows):
        role.step(since_ms + (number + 1) * WINDOW_MS - LOOK_MS)


class Steps:
    """Requests of the steps that count, by what they are."""

    def __init__(self, roles: dict[str, RoleProcess], counts: Counter[str]) -> None:
        self._roles = roles
        self._counts = counts
        self._taken: Counter[str] = Counter()
        self._totals: dict[str, Counter[str]] = {}

    def take(self, step: str, role: str, now_ms: int) -> None:
        """One step of this role."""
        self._counts.clear()
        self._roles[role].step(now_ms)
        self._taken[step] += 1
        self._totals.setdefault(step, Counter()).update(self._counts)

    def means(self) -> Means:
        """Requests of each kind that a step takes."""
        return {step: {kind: total[kind] / self._taken[step] for kind in KINDS} for step, total in self._totals.items()}
