"""One role of several clusters in one process: a thread for each cluster, which no failure of another cluster ends.

A cluster whose role fails is tried again after a pause, while the other clusters continue. A cluster whose role hangs
keeps its own thread busy and no other one. At the end each thread has a limited time.

The pipelines share Spark's JVM besides, and only its end ends their process. Each of them has queries, checkpoints,
tables and an upkeep of its own, in a Spark session of its own. One query over the topics of all clusters would be
cheaper by some batches, but wrong in two ways. Spark has one watermark for a query, so the cluster that is ahead, by
its clocks or by the lag of another cluster, would make samples of the others late. And Spark plans a batch from the
newest offsets of all sources, so one cluster that does not answer would stop the windows of all clusters.

As settings change, threads of single clusters end and start, and those of the others run on.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Protocol

import structlog

from streaming.errors import RebalancerError
from streaming.settings import Settings
from streaming.settings.changes import RoleOf, parts_of, reads_the_same

log = structlog.get_logger()

RETRY_WAIT_S, RETRY_WAIT_MAX_S = 2.0, 60.0
"""The pause before a cluster is tried again; twice as long after each failure in a row, up to the second number."""
QUICK_END_S = 60.0
"""A role that ran for longer than this before it failed begins with the shortest pause again."""
END_WAIT_S = 50.0
"""How long the threads may take to end; less than the time after which `rebalancer run` kills the process."""
LOOK_INTERVAL_S = 0.5
"""Time between two looks at which threads are to run."""
JVM_ENDED = 4
"""Exit code: queries have died."""

RunOne = Callable[[Settings, threading.Event], int]
"""Runs the role of one cluster until the event is set (0) or until it has failed (another code)."""


class SharedSpark(Protocol):
    """The part of Spark's start that is used here."""

    def has_ended(self) -> bool:
        """Returns whether Spark runs no more; raises an error of ours, if it did not start."""


@dataclass(slots=True)
class _Running:
    """The thread of one cluster, which ends after `stopping` is set."""

    settings: Settings
    thread: threading.Thread
    stopping: threading.Event


@dataclass(slots=True)
class ClusterThreads:
    """Runs the role of each cluster in a thread, until `stopping` is set or the JVM has ended. Paused clusters have
    none. Only the pipelines have a `spark`.
    """

    role: str
    clusters: Mapping[str, Settings]
    run_one: RunOne
    stopping: threading.Event
    spark: SharedSpark | None = None
    _running: dict[str, _Running] = field(default_factory=dict)

    def run(self) -> int:
        """Returns the exit code. Raises SetUpIncomplete or UsageProblem if Spark does not start."""
        self._settle()
        while not self.stopping.wait(LOOK_INTERVAL_S):
            self._settle()
        for running in self._running.values():
            running.stopping.set()
        deadline_s = monotonic() + END_WAIT_S
        for running in self._running.values():
            running.thread.join(max(0.0, deadline_s - monotonic()))
        hanging = [running.thread.name for running in self._running.values() if running.thread.is_alive()]
        if hanging:
            log.error("clusters_hang", threads=hanging, waited_s=END_WAIT_S)
        return JVM_ENDED if self.spark is not None and self.spark.has_ended() else 0

    def adjust(self, clusters: Mapping[str, Settings]) -> None:
        """From now on these clusters are to run. May be called in any thread, and returns at once."""
        self.clusters = clusters

    def _settle(self) -> None:
        """Ask threads to end whose cluster is gone or has other settings; start those that are missing. A cluster's
        next thread starts when the one before has ended: both would write the same tables.
        """
        wanted = parts_of(RoleOf(self.role), self.clusters)
        for name, running in [*self._running.items()]:
            if not running.thread.is_alive():
                del self._running[name]
            elif name not in wanted or not reads_the_same(self.role, running.settings, wanted[name]):
                if not running.stopping.is_set():
                    log.info("cluster_ends", kafka_cluster=name, begins_anew=name in wanted)
                running.stopping.set()
        for name in wanted.keys() - self._running.keys():
            stopping = threading.Event()
            thread = threading.Thread(
                target=self._keep_running, args=(name, wanted[name], stopping), name=f"cluster-{name}", daemon=True
            )
            self._running[name] = _Running(wanted[name], thread, stopping)
            thread.start()

    def _keep_running(self, name: str, settings: Settings, stopping: threading.Event) -> None:
        structlog.contextvars.bind_contextvars(kafka_cluster=name)
        pause_s = RETRY_WAIT_S
        while not stopping.is_set():
            began_s = monotonic()
            self._run_once(settings, stopping)
            if stopping.is_set() or self.stopping.is_set():
                return
            if self._spark_has_ended():
                log.error("spark_ended")
                self.stopping.set()
                return
            if monotonic() - began_s >= QUICK_END_S:
                pause_s = RETRY_WAIT_S
            log.warning("cluster_is_tried_again", after_s=pause_s)
            stopping.wait(pause_s)
            pause_s = min(RETRY_WAIT_MAX_S, 2 * pause_s)

    def _spark_has_ended(self) -> bool:
        try:
            return self.spark is not None and self.spark.has_ended()
        except RebalancerError:  # it did not start; `run` raises the error
            return True

    def _run_once(self, settings: Settings, stopping: threading.Event) -> None:
        try:
            self.run_one(settings, stopping)
        except Exception as error:  # noqa: BLE001 - a bug that one cluster meets must not end the others
            log.error("cluster_failed", error=f"{type(error).__name__}: {error}")
