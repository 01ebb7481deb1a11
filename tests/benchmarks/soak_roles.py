"""The roles that `fleet_soak` keeps busy, each in a process of its own: one step each, at a time that is handed in."""

import logging
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Protocol, Self

import psutil
import structlog

from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.collect.run import Collector
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.run import ControlLoop
from streaming.runtime.processes import die_with_parent
from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import SnapshotReader
from streaming.settings import Settings


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
