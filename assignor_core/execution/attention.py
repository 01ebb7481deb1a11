"""What an execution has to ask about at its next look, between two looks at the whole cluster.

A look at everything costs by the size of the cluster. The controller's list of reassignments is short and tells when a
copy has ended, so few partitions need a question of their own: those whose next step hangs on leader and in-sync
replicas, and those that hold everything back. The module decides; it asks nobody.
"""

from collections.abc import Mapping

from assignor_core.execution.progress import Progress
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey

_WATCHED = frozenset({Progress.PLACED, Progress.FOREIGN, Progress.MISSING})
"""What waits for an election, is an alarm that has to be confirmed, or may count as gone after some looks."""


def topics_in_play(progress: Mapping[PartitionKey, Progress], live: LiveCluster) -> frozenset[str]:
    """Topics of movements whose state the controller's list alone does not show.

    >>> moving = LivePartition((1, 2), 1, (1,))
    >>> live = LiveCluster("c", {}, {("t", 0): moving, ("u", 0): moving})
    >>> sorted(topics_in_play({("t", 0): Progress.PLACED, ("u", 0): Progress.PENDING}, live))
    ['t']
    """
    unlisted = (key for key, state in progress.items() if state is Progress.MOVING and key not in live.listed)
    watched = (key for key, state in progress.items() if state in _WATCHED)
    return frozenset(topic for keys in (unlisted, watched) for topic, _ in keys)


def is_troubled(partition: LivePartition, alive: frozenset[int]) -> bool:
    """Whether a partition can hold an execution back, or takes room on a disk: offline, out of sync, or on a broker
    that is away. All others change nothing about the next step, unless the plan names them; those that are being
    reassigned are in the controller's list.

    >>> alive = frozenset({1, 2})
    >>> is_troubled(LivePartition((1, 2), 1, (1, 2)), alive), is_troubled(LivePartition((1, 2), 1, (1,)), alive)
    (False, True)
    """
    return (
        partition.leader == NO_LEADER
        or len(partition.isr) < len(partition.replicas)
        or not alive.issuperset(partition.replicas)
    ) and not partition.reassigning
