"""From skew to the measured result on S3, while pipeline and control are killed again and again.

The pipeline is killed at random instants after it has written new rows, the holder of control's lease at steps of the
execution. Controls run in process namespaces of their own: to each other they look as if on two machines.
"""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.demo.measure import count_records
from streaming.demo.result import partitions_short
from streaming.demo.scenario import PARTITIONS_PER_TOPIC
from streaming.demo.story import Story, read_story
from tests.on_s3.product import ROLES, Product, product_on_s3
from tests.on_s3.recount import lags, loads, read_topic, stored_lags, stored_loads, windows_that_differ
from tests.s3 import s3_server

CONTROLS = ("control", "stand-by")
POLL_S = 0.5
LIMIT_S = 2_400.0
DRAIN_S = 300.0
SECTIONS = {
    "pipeline": {"window_ms": 10_000, "watermark_ms": 10_000, "trigger_interval_ms": 2_000, "driver_memory": "1g"},
    "collect": {"sample_interval_ms": 2_000},
    "trigger": {
        "windows_over": 2, "windows_considered": 3, "cooldown_ms": 60_000, "load_min_bytes_per_sec": 5_000,
        "resources": ["bytes_in"],
    },
    "planner": {"windows": 3},
    "control": {
        "tick_interval_ms": 1_000, "settle_windows": 2, "movements_in_flight_max": 1,
        "throttle_bytes_per_sec": 100_000, "throttle_min_bytes_per_sec": 100_000, "throttle_adaptive": False,
    },
}  # fmt: skip
"""Short windows, and a plan that is carried out slowly, one partition at a time: kills must find something to hit."""


@dataclass(slots=True)
class Run:
    """Kills that are left, and how long it took until another process went on."""

    product: Product
    chance: random.Random
    pipeline_kills: int
    control_kills: int
    story: Story = field(default_factory=Story)
    events: int = 0
    rows_after_s: list[float] = field(default_factory=list)
    """From each kill of the pipeline to its next commit."""
    taken_over_s: list[float] = field(default_factory=list)
    """From each kill of the holder to the first write of the lease by another."""
    killed_at: list[str] = field(default_factory=list)
    _pipeline_version: int = -1
    _pipeline_killed_s: float | None = None
    _strike_s: float | None = None
    _control_killed: tuple[float, str] | None = None
    _steps: int = 0

    @property
    def root(self) -> str:
        """Of the tables."""
        return self.product.settings.storage.tables

    def until_over(self) -> None:
        """To the measured result and the last kill."""
        deadline = time.monotonic() + LIMIT_S
        while not (self.story.over and len(self.rows_after_s) == self.pipeline_kills and self._controls_done()):
            if time.monotonic() > deadline:
                raise click.ClickException(f"not over within {LIMIT_S:.0f} s: {self.story.now()}; {self}")
            reader = tables.TableReader(self.root)
            self.story = read_story(reader, self.product.settings.kafka.cluster_name)
            self.events = len(reader.rows("execution", columns=["sequence"]))
            self._strike_pipeline(reader)
            self._strike_control(reader)
            self._start_what_ended()
            time.sleep(POLL_S)

    def _controls_done(self) -> bool:
        return len(self.taken_over_s) == self.control_kills

    def _strike_pipeline(self, reader: tables.TableReader) -> None:
        now_s, version = time.monotonic(), reader.version("partition_load") or 0
        if version > self._pipeline_version and self._pipeline_killed_s is not None:
            self.rows_after_s.append(now_s - self._pipeline_killed_s)
            self._pipeline_killed_s = None
            click.echo(f"pipeline: new rows {self.rows_after_s[-1]:.1f} s after kill {len(self.rows_after_s)}")
        if self._pipeline_killed_s is None and len(self.rows_after_s) < self.pipeline_kills:
            if self._strike_s is None and version > self._pipeline_version:
                self._strike_s = now_s + self.chance.uniform(0.0, 15.0)
            elif self._strike_s is not None and now_s >= self._strike_s:
                self._strike_s, self._pipeline_killed_s = None, time.monotonic()
                self.product.kill("pipeline")
                version = tables.TableReader(self.root).version("partition_load") or 0
                self.product.start("pipeline")
        self._pipeline_version = max(version, self._pipeline_version)

    def _strike_control(self, reader: tables.TableReader) -> None:
        lease = next(iter(reader.rows("lease")), None)
        if lease is None:
            return
        if self._control_killed is not None:
            killed_s, holder = self._control_killed
            if lease["holder_id"] != holder:
                self.taken_over_s.append(time.monotonic() - killed_s)
                self._control_killed = None
                click.echo(f"control: taken over {self.taken_over_s[-1]:.1f} s after the kill at {self.killed_at[-1]}")
            return
        step = self._step()
        if step <= self._steps or len(self.killed_at) >= self.control_kills:
            return
        name = next((name for name in CONTROLS if self.product.holds(name, lease)), None)
        if name is None or "standing_by" not in self.product.log_since_start(next(iter({*CONTROLS} - {name}))):
            return
        self._steps = step
        self._control_killed = (time.monotonic(), lease["holder_id"])
        self.product.kill(name)
        self.killed_at.append(self.story.event.event if self.story.event else "decided")
        self.product.start(name)

    def _step(self) -> int:
        """Counts what a kill of control is to follow: the first decision, the execution's events, the end."""
        return bool(self.story.decision) + min(self.events, 3 + self.control_kills)

    def _start_what_ended(self) -> None:
        """As a supervisor does."""
        for name, code in self.product.ended().items():
            click.echo(f"{name} ended with {code} and is started again")
            self.product.start(name)


def kills(pipeline_kills: int, control_kills: int, seed: int, rate: float, home: Path | None) -> None:
    """Run, print what was measured; ends with an error where anything is not as it must be."""
    with ExitStack() as stack:
        folder = home or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(s3_server())
        endpoints: dict[str, str | None] = dict.fromkeys(ROLES, store)
        product = stack.enter_context(product_on_s3(folder, store, endpoints, rate, SECTIONS))
        product.apart = CONTROLS
        for name in ROLES:
            product.start(name)
        run = Run(product, random.Random(seed), pipeline_kills, control_kills)
        run.until_over()
        product.end("collect")
        problems = _problems(run)
    click.echo(f"pipeline: new rows after {_shown(run.rows_after_s)} s")
    click.echo(f"control: killed at {', '.join(run.killed_at)}; taken over after {_shown(run.taken_over_s)} s")
    if problems:
        raise click.ClickException("; ".join(problems[:20]))
    click.echo("tables equal the recount, the plan stands, nothing is left or lost")


def _problems(run: Run) -> list[str]:
    product, root = run.product, run.root
    servers, topics = product.cluster.bootstrap_servers, product.settings.topics
    rates, lag_records = read_topic(servers, topics.byte_rate), read_topic(servers, topics.consumer_lag)
    wanted = loads(rates, product.settings.pipeline.window_ms)
    wanted_lags = lags(lag_records, product.settings.pipeline.window_ms)
    problems: list[str] = []
    _wait(lambda: not windows_that_differ(stored_loads(root), wanted), DRAIN_S)
    _wait(lambda: not windows_that_differ(stored_lags(root), wanted_lags), DRAIN_S)
    for name in ("pipeline", *CONTROLS):
        code = product.end(name)
        problems += [f"{name} ended with {code}"] if code else []
    problems += [f"loads: {line}" for line in windows_that_differ(stored_loads(root), wanted)]
    problems += [f"lags: {line}" for line in windows_that_differ(stored_lags(root), wanted_lags)]
    click.echo(f"{len(rates)} and {len(lag_records)} records, {len(wanted)} and {len(wanted_lags)} rows of windows")
    problems += _problems_of_execution(root, run.story) + _problems_of_cluster(product)
    product.traffic.end()
    report = product.traffic.report()
    assert report is not None
    counted = count_records(servers, product.scenario.topics, PARTITIONS_PER_TOPIC)
    problems += [f"records are missing in {name}" for name in partitions_short(report.acknowledged, counted)]
    return problems


def _problems_of_execution(root: str, story: Story) -> list[str]:
    rows = tables.read(root, "execution")
    problems = [f"the plan failed: {story.failed}"] if story.failed else []
    starts = Counter(row["plan_id"] for row in rows if row["event"] == "started")
    problems += [f"plan {plan[:12]} was started {count} times" for plan, count in starts.items() if count > 1]
    numbers = Counter((row["execution_id"], row["sequence"]) for row in rows)
    return problems + [f"event {key} is there {count} times" for key, count in numbers.items() if count > 1]


def _problems_of_cluster(product: Product) -> list[str]:
    """The replicas of the newest plan that was carried out stand, and nothing of it is left."""
    root = product.settings.storage.tables
    done = [row for row in tables.read(root, "execution") if row["event"] == "done"]
    newest = max(done, key=lambda row: row["event_time"])
    moves: list[dict[str, Any]] = [row for row in tables.read(root, "movement") if row["plan_id"] == newest["plan_id"]]
    admin = admin_client(product.settings.kafka)
    try:
        cluster = Cluster(admin)
        live = cluster.describe()
        problems = [
            f"{row['topic']}/{row['partition']} is at {live.partitions[(row['topic'], row['partition'])].replicas}"
            for row in moves
            if sorted(live.partitions[(row["topic"], row["partition"])].replicas) != sorted(row["new_replicas"])
        ]
        left = [f"throttle rates are left: {rates}" for rates in [cluster.throttle_rates()] if rates]
        lists = [
            f"throttle lists are left: {found}"
            for found in [cluster.throttled_replicas(product.scenario.topics)]
            if found
        ]
        return problems + left + lists + (["reassignments are left"] if live.reassigning() else [])
    finally:
        admin.close()


def _wait(condition: Callable[[], bool], limit_s: float) -> None:
    """Until it holds, or the limit is over: the caller looks again."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(1.0)


def _shown(seconds: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in seconds)
