"""How much of the movements under way is copied: the sizes that brokers show of the replicas that are being made.

Only brokers that receive are asked, and only about partitions on their way; at most every `READ_INTERVAL_MS`, as
events may come at each tick.
"""

from collections.abc import Mapping

from assignor_core.disks import replica_sizes
from assignor_core.execution.progress import Progress
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.cluster.ports import ClusterReader

READ_INTERVAL_MS = 10_000

ReplicaBytes = Mapping[tuple[int, PartitionKey], int]
"""Size of replicas by (broker, partition)."""


class CopiedBytes:
    """What was read last, for one execution."""

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self.forget()

    def forget(self) -> None:
        """From now on it is about another execution."""
        self._read_ms: int | None = None
        self._sizes: ReplicaBytes = {}

    def read(
        self, plan: Plan, live: LiveCluster, progress: Mapping[PartitionKey, Progress], *, now_ms: int
    ) -> ReplicaBytes:
        """Replicas that movements under way have added so far; raises ClusterUnreachable, ClusterRequestFailed."""
        copying = [row for row in plan.movements if _may_hold_copies(row, live, progress[row.key])]
        if not copying:
            return {}
        if self._read_ms is None or not 0 <= now_ms - self._read_ms < READ_INTERVAL_MS:
            receiving = {broker for row in copying for broker in set(row.new_replicas) - set(row.old_replicas)}
            log_dirs = self._cluster.log_dirs(receiving, [row.key for row in copying]) if receiving else {}
            self._sizes = replica_sizes(log_dirs)
            self._read_ms = now_ms
        return self._sizes


def _may_hold_copies(movement: Movement, live: LiveCluster, state: Progress) -> bool:
    """Whether it is on its way: moving, or between two steps of a staged move."""
    if state is not Progress.PENDING:
        return state is Progress.MOVING
    return live.partitions[movement.key].replicas != movement.old_replicas
