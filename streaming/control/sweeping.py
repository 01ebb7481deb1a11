"""Removes what brokers kept of the throttle of an execution that has ended: they were down at its end, or refused."""

import structlog

from assignor_core.execution.events import Event
from assignor_core.identity import another_cluster
from streaming.cluster.ports import ControlledCluster
from streaming.control.journal import Journal
from streaming.control.records import ExecutionRecord
from streaming.errors import ClusterRequestFailed

log = structlog.get_logger()

LOOK_INTERVAL_MS = 30_000
"""Time between two looks at brokers that owe: a look describes the whole cluster, and a broker may be away for days."""
REFUSED_AGAIN_MS = 600_000
"""How long a broker that refuses is left alone."""


class Sweeper:
    """Sweeps while nothing is under way: a rate that is removed could be that of another execution."""

    def __init__(self, cluster: ControlledCluster, journal: Journal) -> None:
        self._cluster = cluster
        self._journal = journal
        self._again_ms: dict[str, int] = {}
        """By execution that owes: when the next look is due."""

    def sweep(self, record: ExecutionRecord, *, now_ms: int) -> bool:
        """Remove the rates that brokers owe; True once nothing is left."""
        execution = record.execution
        if now_ms < self._again_ms.get(execution.execution_id, now_ms):
            return False
        kept = self._journal.plan_of(execution)
        other = another_cluster(kept.kafka_cluster_id if kept else None, self._cluster.describe(topics=()))
        if other is not None:
            log.warning("sweep_held", execution_id=execution.execution_id, reason=other)
            self._again_ms[execution.execution_id] = now_ms + LOOK_INTERVAL_MS
            return False
        owed = execution.throttled_brokers
        within = kept is not None and kept.plan.within_brokers
        try:
            cleared = self._cluster.clear_log_dir_rates(owed) if within else self._cluster.clear_throttle(owed, {}, {})
            left = tuple(cleared)
        except ClusterRequestFailed as error:
            log.warning("sweep_refused", execution_id=execution.execution_id, brokers=owed, error=str(error))
            self._again_ms[execution.execution_id] = now_ms + REFUSED_AGAIN_MS
            return False
        if left != owed:
            detail = f"throttle of brokers {sorted(set(owed) - set(left))} removed after the end"
            self._journal.write_event(record, Event.SWEPT, detail, now_ms=now_ms, throttled_brokers=left)
        if left:
            self._again_ms[execution.execution_id] = now_ms + LOOK_INTERVAL_MS
            return False
        self._again_ms.pop(execution.execution_id, None)
        return True
