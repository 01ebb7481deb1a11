"""The soak of `bench_fleet`: collector, control and serve for minutes or hours on a fleet that never stands still.

Each minute of the brokers' time a topic with two groups comes and the oldest of them goes; every third minute a broker
dies, and comes back a minute later. Control is in mode `apply` and carries its plans out. Windows are made of the
collector's records in plain Python, as fleets serve no Fetch for Spark. The brokers' time runs as fast as the roles do.
"""

import logging
import os
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from statistics import fmean
from types import TracebackType
from typing import Any, Protocol, Self

import click
import psutil
import structlog

from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.collect.run import Collector
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.run import ControlLoop
from streaming.runtime.processes import die_with_parent
from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import SnapshotReader
from streaming.settings import Settings
from streaming.tables import to_ms
from tests.benchmarks.fleet_measuring import Figures
from tests.fleet.fleet import Fleet
from tests.fleet.groups import STABLE, FleetGroup, member_of
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.lag.windows import LoadWindows, Windows
from tests.serve.synthetic import Synthetic
from tests.simulated_cluster.state import BrokerStatus

START_MS = 1_795_236_000_000
LOOK_MS, TICK_MS, WINDOW_MS = 10_000, 5_000, 60_000
BYTE_RATE, CONSUMER_LAG = "rebalancer.byte-rate", "rebalancer.consumer-lag"
LIVES_MINUTES = 5
"""So long a topic of the soak lives."""
TOPIC_PARTITIONS = 20
DEATH_EVERY_MINUTES = 3
WARM_MINUTES = 31
"""So many windows of lag serve keeps: until so many minutes of the brokers' time have passed, it fills."""
GROWTH_MAX = 0.1
"""Most growth of a role's memory to the last quarter of the soak, as a share of what it was in `growth_figures`."""


@dataclass(slots=True)
class Feed:
    """Makes closed windows of the collector's records, as rows of the tables."""

    synthetic: Synthetic
    rates: list[bytes] = field(default_factory=list)
    lags: list[bytes] = field(default_factory=list)

    def write(self, fleet: FleetProcess, window_start_ms: int) -> None:
        """The window that began then, of what has been sent since; the rest is kept for the next one."""
        rates, lags = fleet.run(taken_records)
        self.rates += rates
        self.lags += lags
        load, lag = LoadWindows(WINDOW_MS), Windows("fleet", WINDOW_MS)
        load.add(self.rates)
        lag.add(self.lags)
        rows: dict[str, list[dict[str, Any]]] = {
            "broker_load": load.broker_rows(),
            "partition_load": load.partition_rows(),
            "group_lag": lag.rows(),
        }
        with self.synthetic.together():
            for name, made in rows.items():
                own = [row for row in made if to_ms(row["window_start"]) == window_start_ms]
                self.synthetic.append(name, [{**self.synthetic.window(window_start_ms), **row} for row in own])
        self.rates, self.lags = (
            [
                value
                for value in values
                if int(value.split(b'"event_time_ms":')[1].split(b",")[0]) >= window_start_ms + WINDOW_MS
            ]
            for values in (self.rates, self.lags)
        )


def taken_records(fleet: Fleet) -> tuple[list[bytes], list[bytes]]:
    """Records that the collector has sent since the last call, of both topics."""
    taken = fleet.kept[BYTE_RATE], fleet.kept[CONSUMER_LAG]
    fleet.kept[BYTE_RATE], fleet.kept[CONSUMER_LAG] = [], []
    return taken


def let_a_minute_happen(fleet: Fleet, minute: int) -> Counter[str]:
    """What comes and goes in this minute; returns what there is."""
    brokers = sorted(fleet.contents.brokers)
    for broker, row in fleet.contents.brokers.items():
        if row.status is BrokerStatus.DEAD:
            fleet.cluster.restart_broker(broker)
    if minute % DEATH_EVERY_MINUTES == 0:
        fleet.cluster.kill_broker(brokers[minute // DEATH_EVERY_MINUTES % len(brokers)])
    _add_topic(fleet, minute)
    gone = f"soak-{minute - LIVES_MINUTES}"
    if gone in fleet.contents.topics:
        fleet.cluster.delete_topic(gone)
        fleet.groups = {name: group for name, group in fleet.groups.items() if not name.startswith(f"{gone}-")}
    return Counter(topics=len(fleet.contents.topics), groups=len(fleet.groups))


def _add_topic(fleet: Fleet, minute: int) -> None:
    name = f"soak-{minute}"
    usable = [
        PlacementBroker(broker, row.rack)
        for broker, row in sorted(fleet.contents.brokers.items())
        if row.status is BrokerStatus.RUNNING and not row.fenced
    ]
    placed = place_replicas(usable, TOPIC_PARTITIONS, min(3, len(usable)), PlacementStart.fixed(minute % len(usable)))
    fleet.cluster.create_topic(name, placed, size_bytes=10_000_000, bytes_in_per_sec=5_000)
    keys = tuple((name, number) for number in range(TOPIC_PARTITIONS))
    for number in range(2):
        member = member_of(f"{name}-member-{number}", "soak", {name: list(range(TOPIC_PARTITIONS))}, generation_id=1)
        group = FleetGroup(
            f"{name}-group-{number}", usable[number].broker_id, STABLE, protocol="range", members=(member,), reads=keys
        )
        fleet.groups[group.group_id] = group


class Role(Protocol):
    """What is kept from one step to the next."""

    def step(self, now_ms: int) -> int:
        """One step; returns how much of its work it did."""


class Collecting:
    """The collector: a look a step; returns records."""

    def __init__(self, settings: Settings) -> None:
        window_ms = settings.pipeline.window_ms
        self._collector = Collector(
            settings.kafka, settings.topics, settings.collect, settings.storage.tables, window_ms=window_ms
        )

    def step(self, now_ms: int) -> int:
        return self._collector.sample(now_ms=now_ms)


class Controlling:
    """Control in mode `apply`: a tick a step; returns 1 while an execution is under way."""

    def __init__(self, settings: Settings) -> None:
        self._cluster = Cluster(admin_client(settings.kafka), kafka_cluster_id="fleet")
        self._settings = settings
        self._loop: ControlLoop | None = None

    def step(self, now_ms: int) -> int:
        try:
            if self._loop is None:
                self._loop = ControlLoop(self._cluster, self._settings, now_ms=now_ms)
            return int(self._loop.tick(now_ms=now_ms))
        except RETRIED_ERRORS:  # as `ControlTurns`: a broker that is away refuses requests
            return 0


class Serving:
    """Serve: a snapshot and its metrics a step; returns bytes of the metrics."""

    def __init__(self, settings: Settings) -> None:
        self._reader = SnapshotReader(settings)
        self._settings = settings
        self._exposition: Exposition | None = None

    def step(self, now_ms: int) -> int:
        snapshot = self._reader.read(now_ms)
        if self._exposition is None:
            self._exposition = Exposition(snapshot, self._settings)
        self._exposition.update(snapshot)
        return sum(map(len, self._exposition._rendered.values()))


class RoleProcess:
    """One role in a process of its own, which ends with the context."""

    def __init__(self, make: Callable[[Settings], Role], settings: Settings) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_begin)
        self._started = self._pool.submit(_start, make, settings)

    def __enter__(self) -> Self:
        self._started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def step(self, now_ms: int) -> int:
        """One step of it; raises its errors."""
        return self._pool.submit(_step, now_ms).result()

    def rss_mib(self) -> float:
        """Memory of the process now."""
        return self._pool.submit(_rss_mib).result()


_kept: dict[str, Any] = {}


def _begin() -> None:
    die_with_parent()  # a pool's process outlives one that is killed
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _start(make: Callable[[Settings], Role], settings: Settings) -> None:
    _kept["role"] = make(settings)


def _step(now_ms: int) -> int:
    done: int = _kept["role"].step(now_ms)
    return done


def _rss_mib() -> float:
    return float(psutil.Process().memory_info().rss) / 2**20


def soak(size: FleetSize, minutes: float) -> Figures:
    """Memory of each role by the minute, printed; figures of the whole."""
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        fleet = stack.enter_context(FleetProcess(partial(synthetic_fleet, size, (BYTE_RATE, CONSUMER_LAG))))
        settings = Settings.model_validate(
            {
                "kafka": {"cluster_name": "fleet", "bootstrap_servers": fleet.bootstrap_servers},
                "collect": {"jmx_endpoints": fleet.jmx_endpoints, "groups_max": size.groups + 100},
                "control": {"mode": "apply"},
                "storage": {"tables": f"{home}/tables"},
            }
        )
        makers: dict[str, Callable[[Settings], Role]] = {
            "collect": Collecting,
            "control": Controlling,
            "serve": Serving,
        }
        roles = {name: stack.enter_context(RoleProcess(make, settings)) for name, make in makers.items()}
        return _soaked(fleet, roles, Feed(Synthetic(settings.storage.tables, "fleet")), minutes)


def _soaked(fleet: FleetProcess, roles: dict[str, RoleProcess], feed: Feed, minutes: float) -> Figures:
    began_s = printed_s = time.monotonic()
    memory: dict[str, list[float]] = {name: [] for name in roles}
    passed_minutes: list[int] = []
    done: Counter[str] = Counter()
    now_ms, minute = START_MS, 0
    while time.monotonic() < began_s + minutes * 60:
        there = fleet.run(let_a_minute_happen, minute)
        for _ in range(WINDOW_MS // LOOK_MS):
            done["records"] += roles["collect"].step(now_ms)
            done["looks"] += 1
            if now_ms % WINDOW_MS == START_MS % WINDOW_MS and minute:
                feed.write(fleet, now_ms - WINDOW_MS)
            for _ in range(LOOK_MS // TICK_MS):
                done["ticks of executions"] += roles["control"].step(now_ms)
                fleet.run(Fleet.advance, TICK_MS)
                now_ms += TICK_MS
            roles["serve"].step(now_ms)
        minute += 1
        if time.monotonic() - printed_s >= 60 or minute == 1:
            printed_s = time.monotonic()
            passed_minutes.append(minute)
            for name, role in roles.items():
                memory[name].append(role.rss_mib())
            shown = ", ".join(f"{name} {values[-1]:.0f} MiB" for name, values in memory.items())
            passed = f"minute {(printed_s - began_s) / 60:.0f} ({minute} of the brokers')"
            click.echo(f"{passed}: {shown}; {dict(there)}; {dict(done)}; load average {os.getloadavg()[0]:.1f}")
    warm = bisect_right(passed_minutes, WARM_MINUTES)
    return {
        "brokers_minutes": minute,
        "looks": done["looks"],
        "records": done["records"],
        **growth_figures(memory, warm),
    }


def growth_figures(memory: Mapping[str, Sequence[float]], warm: int) -> Figures:
    """Growth of each role's memory (rows over time) to the last quarter, as a share.

    It begins with a quarter after row `warm`, or with the second quarter where that is later, or the soak too short.

    >>> growth_figures({"serve": [50.0, 90.0, 100.0, 100.0, 100.0, 100.0, 110.0, 110.0]}, warm=4)
    {'serve_rss_mib': 110.0, 'serve_growth': 0.1}
    >>> growth_figures({"serve": [50.0, 100.0, 150.0, 200.0]}, warm=4)
    {'serve_rss_mib': 200.0, 'serve_growth': 1.0}
    """
    figures: Figures = {}
    for name, values in memory.items():
        quarter = max(1, len(values) // 4)
        begin = warm if quarter <= warm <= len(values) - 2 * quarter else quarter
        early = values[begin : begin + quarter] or values
        figures[f"{name}_rss_mib"] = values[-1]
        figures[f"{name}_growth"] = round(fmean(values[-quarter:]) / fmean(early) - 1, 4)
    return figures


def has_grown(figures: Figures) -> bool:
    """Whether a role's memory grows."""
    return any(value > GROWTH_MAX for name, value in figures.items() if name.endswith("_growth"))
