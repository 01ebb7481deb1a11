"""How much of the movements under way is copied: the sizes that brokers show of the replicas that are being made.

Only brokers that receive are asked, and only about partitions on their way. An answer of the last seconds does, as
events may come at each tick (see `disk_looks`).
"""

from collections.abc import Mapping

from assignor_core.disks import replica_sizes
from assignor_core.execution.progress import Progress
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from streaming.control.disk_looks import DiskLooks

ReplicaBytes = Mapping[tuple[int, PartitionKey], int]
"""Size of replicas by (broker, partition)."""


class CopiedBytes:
    """What was read lately, for one execution."""

    def __init__(self, looks: DiskLooks) -> None:
        self._looks = looks

    def read(
        self, plan: Plan, live: LiveCluster, progress: Mapping[PartitionKey, Progress], *, now_ms: int
    ) -> ReplicaBytes:
        """Replicas that movements under way have added so far; raises ClusterUnreachable, ClusterRequestFailed."""
        wanted: dict[int, set[PartitionKey]] = {}
        for row in plan.movements:
            if _may_hold_copies(row, live, progress[row.key]):
                for broker in set(row.new_replicas) - set(row.old_replicas):
                    wanted.setdefault(broker, set()).add(row.key)
        if not wanted:
            return {}
        return replica_sizes(self._looks.read(wanted, set().union(*wanted.values()), now_ms=now_ms))


def _may_hold_copies(movement: Movement, live: LiveCluster, state: Progress) -> bool:
    """Returns whether the movement is on its way: moving, or between two steps of a staged move."""
    if state is not Progress.PENDING:
        return state is Progress.MOVING
    return live.partitions[movement.key].replicas != movement.old_replicas
