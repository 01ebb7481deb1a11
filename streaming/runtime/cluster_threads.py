"""One role of several clusters in one process: a thread for each cluster, which no failure of another cluster ends.

A cluster whose role fails is tried again after a pause, while the other clusters continue. A cluster whose role hangs
keeps its own thread busy and no other one. At the end each thread has a limited time.

The pipelines share Spark's JVM besides, and only its end ends their process. Each of them has queries, checkpoints,
tables and an upkeep of its own, in a Spark session of its own. One query over the topics of all clusters would be
cheaper by some batches, but wrong in two ways. Spark has one watermark for a query, so the cluster that is ahead, by
its clocks or by the lag of another cluster, would make samples of the others late. And Spark plans a batch from the
newest offsets of all sources, so one cluster that does not answer would stop the windows of all clusters.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

import structlog

from streaming.errors import RebalancerError
from streaming.settings import Settings

log = structlog.get_logger()

RETRY_WAIT_S, RETRY_WAIT_MAX_S = 2.0, 60.0
"""The pause before a cluster is tried again; twice as long after each failure in a row, up to the second number."""
QUICK_END_S = 60.0
"""A role that ran for longer than this before it failed begins with the shortest pause again."""
END_WAIT_S = 50.0
"""How long the threads may take to end; less than the time after which `rebalancer run` kills the process."""
JVM_ENDED = 4
"""Exit code: queries have died."""

RunOne = Callable[[Settings], int]
"""Runs the role of one cluster until the end is asked for (0) or until it has failed (another code)."""


class SharedSpark(Protocol):
    """The part of Spark's start that is used here."""

    def has_ended(self) -> bool:
        """Returns whether Spark runs no more; raises an error of ours, if it did not start."""


@dataclass(slots=True)
class ClusterThreads:
    """Runs the role of each cluster in a thread, until `stopping` is set or the JVM has ended. Only the pipelines have
    a `spark`.
    """

    clusters: Mapping[str, Settings]
    spark: SharedSpark | None
    run_one: RunOne
    stopping: threading.Event

    def run(self) -> int:
        """Returns the exit code. Raises SetUpIncomplete or UsageProblem if Spark does not start."""
        threads = [
            threading.Thread(target=self._keep_running, args=(name, settings), name=f"cluster-{name}", daemon=True)
            for name, settings in self.clusters.items()
        ]
        for thread in threads:
            thread.start()
        self.stopping.wait()
        deadline_s = monotonic() + END_WAIT_S
        for thread in threads:
            thread.join(max(0.0, deadline_s - monotonic()))
        hanging = [thread.name for thread in threads if thread.is_alive()]
        if hanging:
            log.error("clusters_hang", threads=hanging, waited_s=END_WAIT_S)
        return JVM_ENDED if self.spark is not None and self.spark.has_ended() else 0

    def _keep_running(self, name: str, settings: Settings) -> None:
        structlog.contextvars.bind_contextvars(kafka_cluster=name)
        pause_s = RETRY_WAIT_S
        while not self.stopping.is_set():
            began_s = monotonic()
            self._run_once(settings)
            if self.stopping.is_set():
                return
            if self._spark_has_ended():
                log.error("spark_ended")
                self.stopping.set()
                return
            if monotonic() - began_s >= QUICK_END_S:
                pause_s = RETRY_WAIT_S
            log.warning("cluster_is_tried_again", after_s=pause_s)
            self.stopping.wait(pause_s)
            pause_s = min(RETRY_WAIT_MAX_S, 2 * pause_s)

    def _spark_has_ended(self) -> bool:
        try:
            return self.spark is not None and self.spark.has_ended()
        except RebalancerError:  # it did not start; `run` raises the error
            return True

    def _run_once(self, settings: Settings) -> None:
        try:
            self.run_one(settings)
        except Exception as error:  # noqa: BLE001 - a bug that one cluster meets must not end the others
            log.error("cluster_failed", error=f"{type(error).__name__}: {error}")
