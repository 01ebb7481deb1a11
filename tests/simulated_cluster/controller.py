"""What Kafka's controller does with placement: reassignments, cancelling, elections, in-sync replicas, fencing.

The rules are those of Kafka 4 (`ReplicationControlManager`, `PartitionChangeBuilder`), held against real brokers by
`tests/conformance`. Errors are names as clients show them; a refused partition changes nothing.

How a reassignment goes: `replicas` becomes the target followed by those to be removed, in order of their ids. From
Kafka 4.3 on a reassignment ends once the added replicas are in sync, even if a replica that stays is not; if fewer are
added than removed, and in every case before Kafka 4.3 (KAFKA-19975), it ends only once the whole target is in sync. If
it is cancelled, the replicas being added go and the others stay in the order they have then, which need not be the
order of before.

From Kafka 4.4 on the controller refuses a target with a broker whose log dirs are all cordoned, even where that broker
holds the replica already.

If the target is changed back to the replicas of before, the same replicas are both added and removed: such a
reassignment never ends. Only cancelling it does.
"""

from assignor_core.live import NO_LEADER, PartitionKey
from tests.simulated_cluster.state import (
    CORDONED_BROKERS_REFUSED,
    LAST_IN_SYNC_MAY_LEAVE,
    STAYING_REPLICAS_MAY_LAG,
    ClusterContents,
    Release,
    Replica,
    SimulatedPartition,
)

UNKNOWN_PARTITION = "UnknownTopicOrPartitionError"
INVALID_ASSIGNMENT = "InvalidReplicationAssignmentError"
NOT_IN_PROGRESS = "NoReassignmentInProgressError"
NOT_NEEDED = "ElectionNotNeededError"
NOT_AVAILABLE = "PreferredLeaderNotAvailableError"


def reassign(contents: ClusterContents, key: PartitionKey, target: tuple[int, ...] | None) -> str | None:
    """Start, change or (with None) cancel the reassignment of one partition; the name of the error, or None."""
    partition = contents.partition(key)
    if partition is None:
        return UNKNOWN_PARTITION
    return _cancel(contents, key, partition) if target is None else _start(contents, key, partition, target)


def elect_preferred(contents: ClusterContents, key: PartitionKey) -> str | None:
    """Make the first replica the leader if it is in sync; the name of the error, or None."""
    partition = contents.partition(key)
    if partition is None:
        return UNKNOWN_PARTITION
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return NOT_NEEDED
    if preferred not in partition.isr or not contents.holds_online(preferred, partition):
        return NOT_AVAILABLE
    contents.changes += 1
    _lead(partition, preferred)
    return None


def join_isr(contents: ClusterContents, key: PartitionKey, broker_id: int) -> None:
    """A replica has caught up. This may end the reassignment."""
    partition = contents.topics[key[0]].partitions[key[1]]
    if broker_id not in partition.isr:
        _change(contents, key, isr=(*partition.isr, broker_id))


def leave_isr(contents: ClusterContents, key: PartitionKey, broker_id: int) -> None:
    """A replica is gone or too far behind; below `min.insync.replicas` it stays eligible as a leader (KIP-966). Before
    Kafka 4.1 the last in-sync replica stays in the ISR instead.
    """
    partition = contents.topics[key[0]].partitions[key[1]]
    others = tuple(member for member in partition.isr if member != broker_id)
    keeps_last = contents.release < LAST_IN_SYNC_MAY_LEAVE
    _change(contents, key, isr=partition.isr if keeps_last and not others else others)


def elect_where_needed(contents: ClusterContents, key: PartitionKey) -> None:
    """A clean election if the leader can't lead any more, or if there is none."""
    _change(contents, key)


def fence(contents: ClusterContents, broker_id: int) -> None:
    """The broker's session is over: it leads nothing and leaves the in-sync replicas."""
    contents.brokers[broker_id].fenced = True
    contents.changes += 1
    for key, partition in contents.partitions():
        if broker_id in partition.isr or partition.leader == broker_id:
            leave_isr(contents, key, broker_id)


def unfence(contents: ClusterContents, broker_id: int, *, after_crash: bool) -> None:
    """The broker is back: it leads where nobody else can; else it catches up first.

    After a crash it may have lost what was not flushed: it is no eligible leader any more. The last leader of a
    partition is elected again all the same if there is no other.
    """
    contents.brokers[broker_id].fenced = False
    contents.changes += 1
    for _, partition in contents.partitions():
        if after_crash:
            partition.eligible_leaders = tuple(row for row in partition.eligible_leaders if row != broker_id)
    elect_where_offline(contents)


def elect_where_offline(contents: ClusterContents) -> None:
    """A broker or a log dir is back: of partitions without a leader each gets one that may lead, if there is any."""
    for key, partition in contents.partitions():
        if partition.leader == NO_LEADER:
            elect_where_needed(contents, key)


def choose_log_dir(contents: ClusterContents, broker_id: int) -> int:
    """The log dir with the fewest replicas, as Kafka places them: of those that are not cordoned, else of all.

    Where every dir is offline the broker is gone: the replica is made in one of them when that is repaired.
    """
    broker = contents.brokers[broker_id]
    if len(broker.log_dirs) == 1:
        return 0
    counts = [0] * len(broker.log_dirs)
    for topic in contents.topics.values():  # in any order: `partitions` would list all anew for each one that is made
        for partition in topic.partitions.values():
            if (copy := partition.copies.get(broker_id)) is not None:
                counts[copy.log_dir] += 1
    all_dirs = range(len(broker.log_dirs))
    candidates = [index for index in all_dirs if not broker.log_dirs[index].cordoned] or all_dirs
    return min(candidates, key=lambda index: (broker.log_dirs[index].offline, counts[index], index))


def _start(
    contents: ClusterContents, key: PartitionKey, partition: SimulatedPartition, target: tuple[int, ...]
) -> str | None:
    if not target or len(set(target)) < len(target) or not contents.brokers.keys() >= set(target):
        return INVALID_ASSIGNMENT
    if contents.release >= CORDONED_BROKERS_REFUSED and any(contents.brokers[row].cordoned for row in target):
        return INVALID_ASSIGNMENT
    current = set(partition.replicas)
    removing = tuple(sorted(current - set(target)))
    adding = tuple(sorted(set(target) - current))
    # Kafka overwrites each list only if the new one isn't empty: a replica stays "added" if the target is changed.
    _change(
        contents,
        key,
        replicas=(*target, *removing),
        adding=adding or partition.adding_replicas,
        removing=removing or partition.removing_replicas,
    )
    return None


def _cancel(contents: ClusterContents, key: PartitionKey, partition: SimulatedPartition) -> str | None:
    if not partition.reassigning:
        return NOT_IN_PROGRESS
    kept = tuple(broker for broker in partition.replicas if broker not in partition.adding_replicas)
    in_sync = tuple(broker for broker in partition.isr if broker not in partition.adding_replicas)
    if not kept or not in_sync:
        return INVALID_ASSIGNMENT  # the election of a replica that is not in sync would lose records
    _change(contents, key, replicas=kept, isr=in_sync, adding=(), removing=())
    return None


def _change(
    contents: ClusterContents,
    key: PartitionKey,
    *,
    replicas: tuple[int, ...] | None = None,
    isr: tuple[int, ...] | None = None,
    adding: tuple[int, ...] | None = None,
    removing: tuple[int, ...] | None = None,
) -> None:
    """One change of a partition as the controller makes it: it ends what is complete, elects, and drops copies."""
    topic = contents.topics[key[0]]
    partition = topic.partitions[key[1]]
    contents.changes += 1
    before = partition.isr
    partition.replicas = partition.replicas if replicas is None else replicas
    partition.isr = partition.isr if isr is None else isr
    partition.adding_replicas = partition.adding_replicas if adding is None else adding
    partition.removing_replicas = partition.removing_replicas if removing is None else removing
    _complete(partition, contents.release)
    if contents.release >= LAST_IN_SYNC_MAY_LEAVE:
        _keep_eligible(partition, before, topic.min_insync_replicas)
    _place(contents, partition)
    _elect(contents, partition)


def _keep_eligible(partition: SimulatedPartition, isr_before: tuple[int, ...], min_insync_replicas: int) -> None:
    if len(partition.isr) >= min(min_insync_replicas, len(partition.replicas)):
        partition.eligible_leaders = ()
        return
    candidates = sorted({*partition.eligible_leaders, *isr_before} - set(partition.isr))
    partition.eligible_leaders = tuple(broker for broker in candidates if broker in partition.replicas)


def _complete(partition: SimulatedPartition, release: Release) -> None:
    """End the reassignment if enough of its target is in sync by the rule of this release."""
    adding, removing = partition.adding_replicas, partition.removing_replicas
    target = tuple(broker for broker in partition.replicas if broker not in removing)
    in_sync = tuple(broker for broker in partition.isr if broker not in removing)
    needed = set(target)
    if release >= STAYING_REPLICAS_MAY_LAG:
        needed = set(adding) | (needed if len(adding) < len(removing) else set())
    if partition.reassigning and target and in_sync and needed <= set(in_sync):
        partition.replicas, partition.isr = target, in_sync
        partition.adding_replicas = partition.removing_replicas = ()


def _place(contents: ClusterContents, partition: SimulatedPartition) -> None:
    """Make the copies that are new, empty, and delete those that went."""
    for broker in partition.replicas:
        if broker not in partition.copies:
            log_dir = choose_log_dir(contents, broker)
            partition.copies[broker] = Replica(log_dir, partition.start_bytes, behind_since_ms=contents.now_ms)
    for broker in partition.copies.keys() - set(partition.replicas):
        del partition.copies[broker]


def _elect(contents: ClusterContents, partition: SimulatedPartition) -> None:
    """Keep the leader if it is in sync and online; else the first replica that may lead does, else nobody."""
    may_lead = partition.isr or partition.eligible_leaders or (partition.last_leader,)
    able = [row for row in partition.replicas if row in may_lead and contents.holds_online(row, partition)]
    if partition.leader not in able:
        if partition.leader != NO_LEADER:
            partition.last_leader = partition.leader
        _lead(partition, able[0] if able else NO_LEADER)
    if partition.leader != NO_LEADER and not partition.isr:
        partition.isr = (partition.leader,)
        partition.eligible_leaders = tuple(row for row in partition.eligible_leaders if row != partition.leader)


def _lead(partition: SimulatedPartition, leader: int) -> None:
    """A new leader: what it does not hold is lost to all, and acknowledged bytes among it are counted."""
    if leader != NO_LEADER:
        end_bytes = partition.copies[leader].end_bytes
        partition.lost_bytes += max(0, partition.acknowledged_bytes - end_bytes)
        partition.end_bytes = end_bytes
        partition.acknowledged_bytes = min(partition.acknowledged_bytes, end_bytes)
        for copy in partition.copies.values():
            copy.end_bytes = min(copy.end_bytes, end_bytes)
    if leader != partition.leader:
        partition.leader = leader
        partition.leader_epoch += 1
