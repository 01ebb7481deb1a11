"""Time passes on a simulated cluster: producers write, replicas copy, disks fill, sessions of silent brokers end.

A copy that is out of sync gets the least of its shares of: the leader's and the follower's throttle, the network of
both, the disk of the follower. Copies that press on the same limit share it evenly. Replicas in sync follow at once.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from assignor_core.live import NO_LEADER, PartitionKey
from assignor_core.throttles import FOLLOWER_RATE, LEADER_RATE
from tests.simulated_cluster import controller, log_dir_moves
from tests.simulated_cluster.state import BrokerStatus, ClusterContents, SimulatedPartition
from tests.simulated_cluster.throttling import hear, throttled_on_follower, throttled_on_leader

STEP_MS = 1_000
"""Longest step while replicas catch up or a broker is silent. One in which a replica has caught up ends with that: from
then on the others have more room.
"""
IDLE_STEP_MS = 3_600_000
"""Longest step while nothing fills a log dir."""
SESSION_TIMEOUT_MS = 9_000
"""Kafka's default of `broker.session.timeout.ms`."""
REPLICA_LAG_MAX_MS = 30_000
"""Kafka's default of `replica.lag.time.max.ms`."""

Limit = tuple[str, int]
"""What several copies share: a kind of limit, on one broker."""


@dataclass(frozen=True, slots=True)
class _Copying:
    """One replica that catches up, and how fast it may."""

    key: PartitionKey
    partition: SimulatedPartition
    follower: int
    bytes_per_sec: int


def advance(contents: ClusterContents, duration_ms: int) -> None:
    """Let `duration_ms` pass, in steps in which every rate stays as it is. `bring_up_to_date` moves the bytes of the
    last one if the cluster is at rest: most time passes while nobody looks.
    """
    end_ms = contents.now_ms + duration_ms
    while contents.now_ms < end_ms:
        if contents.now_ms >= contents.at_rest_until_ms:
            bring_up_to_date(contents)
            copying = _copying(contents)
            if copying or not _all_run(contents) or contents.moving_within:
                _take_step(contents, copying, min(STEP_MS, end_ms - contents.now_ms))
                continue
            contents.at_rest_until_ms = contents.now_ms + _room_ms(contents)
        contents.now_ms = min(end_ms, contents.at_rest_until_ms)
        if contents.now_ms == contents.at_rest_until_ms:
            bring_up_to_date(contents)
            _fail_full_log_dirs(contents)


def bring_up_to_date(contents: ClusterContents) -> None:
    """Move the bytes of the time that has passed at rest. Whoever reads bytes or changes anything calls it before."""
    passed_ms, contents.bytes_ms, contents.at_rest_until_ms = contents.now_ms - contents.bytes_ms, contents.now_ms, 0
    if passed_ms:
        _end_sessions(contents)
        _produce(contents, passed_ms)


def _take_step(contents: ClusterContents, copying: list[_Copying], longest_ms: int) -> None:
    """While replicas catch up or a broker is silent; ends early where one has caught up."""
    step_ms = min((longest_ms, *(_caught_up_ms(contents, row) for row in copying)))
    changes = contents.changes
    contents.now_ms += step_ms
    contents.bytes_ms = contents.now_ms
    _end_sessions(contents)
    _produce(contents, step_ms)
    _copy(contents, copying if contents.changes == changes else _copying(contents), step_ms)
    if contents.moving_within:
        log_dir_moves.copy_within_brokers(contents, step_ms)
    _fail_full_log_dirs(contents)


def _all_run(contents: ClusterContents) -> bool:
    return all(broker.status is BrokerStatus.RUNNING for broker in contents.brokers.values())


def _room_ms(contents: ClusterContents) -> int:
    """In how many ms from now the first log dir is full, at least, while nothing but producers fills it; 1 or more."""
    used, rates = used_bytes(contents), Counter[tuple[int, int]]()
    for key, partition in contents.partitions():
        rate = _produced_per_sec(contents, key, partition)
        if rate:
            rates.update({(broker_id, copy.log_dir): rate for broker_id, copy in partition.copies.items()})
    rooms = (
        (contents.brokers[broker_id].log_dirs[index].size_bytes - used[broker_id, index]) * 1000 // rate
        for (broker_id, index), rate in rates.items()
        if not contents.brokers[broker_id].log_dirs[index].offline
    )
    return max(1, min(rooms, default=IDLE_STEP_MS))


def _end_sessions(contents: ClusterContents) -> None:
    """The controller hears running brokers, and fences those that it has not heard for a session."""
    for broker_id, broker in sorted(contents.brokers.items()):
        if broker.running:
            broker.heartbeat_ms = contents.now_ms
        elif not broker.fenced and contents.now_ms - broker.heartbeat_ms >= SESSION_TIMEOUT_MS:
            controller.fence(contents, broker_id)


def _produce(contents: ClusterContents, step_ms: int) -> None:
    """Producers with acks=all write where enough replicas are in sync; those in sync follow at once."""
    brokers = contents.brokers
    all_run = _all_run(contents)
    for key, partition in contents.partitions():
        if partition.leader == NO_LEADER or not brokers[partition.leader].running:
            continue
        written = _produced_per_sec(contents, key, partition) * step_ms // 1000
        brokers[partition.leader].bytes_in += written
        partition.end_bytes += written
        if partition.retention_bytes is not None:
            partition.start_bytes = max(partition.start_bytes, partition.end_bytes - partition.retention_bytes)
        if all_run:
            _follow_at_once(contents, partition)
        else:
            _follow(contents, key, partition)


def _follow_at_once(contents: ClusterContents, partition: SimulatedPartition) -> None:
    """The same as `_follow` where every broker runs: whoever is in sync then is online."""
    end_bytes, leader = partition.end_bytes, partition.leader
    for broker_id in partition.isr:
        copy = partition.copies[broker_id]
        if copy.end_bytes != end_bytes and broker_id != leader:
            contents.brokers[broker_id].bytes_in += end_bytes - copy.end_bytes
            contents.brokers[leader].bytes_out += end_bytes - copy.end_bytes
        copy.end_bytes, copy.behind_since_ms = end_bytes, None
    partition.acknowledged_bytes = max(partition.acknowledged_bytes, end_bytes if partition.isr else 0)


def _produced_per_sec(contents: ClusterContents, key: PartitionKey, partition: SimulatedPartition) -> int:
    """What producers write while enough replicas are in sync."""
    enough = min(contents.topics[key[0]].min_insync_replicas, len(partition.replicas))
    return partition.bytes_in_per_sec if len(partition.isr) >= enough else 0


def _follow(contents: ClusterContents, key: PartitionKey, partition: SimulatedPartition) -> None:
    for broker_id in partition.isr:
        copy, broker = partition.copies[broker_id], contents.brokers[broker_id]
        if broker.running and contents.holds_online(broker_id, partition):
            if broker_id != partition.leader:
                broker.bytes_in += partition.end_bytes - copy.end_bytes
                contents.brokers[partition.leader].bytes_out += partition.end_bytes - copy.end_bytes
            copy.end_bytes, copy.behind_since_ms = partition.end_bytes, None
        elif copy.end_bytes < partition.end_bytes:
            copy.behind_since_ms = contents.now_ms if copy.behind_since_ms is None else copy.behind_since_ms
            if contents.now_ms - copy.behind_since_ms >= REPLICA_LAG_MAX_MS:
                controller.leave_isr(contents, key, broker_id)
    partition.acknowledged_bytes = max(
        partition.acknowledged_bytes, min((partition.copies[row].end_bytes for row in partition.isr), default=0)
    )


def _copy(contents: ClusterContents, copying: list[_Copying], step_ms: int) -> None:
    """Move bytes to replicas that are out of sync; those that have all join the in-sync replicas."""
    for row in copying:
        copy = row.partition.copies.get(row.follower)
        if copy is None or row.partition.leader == NO_LEADER:
            continue  # another copy of the partition has ended the reassignment in this step
        copy.end_bytes = max(copy.end_bytes, row.partition.start_bytes)
        moved = min(row.bytes_per_sec * step_ms // 1000, row.partition.end_bytes - copy.end_bytes)
        copy.end_bytes += moved
        contents.brokers[row.follower].bytes_in += moved
        contents.brokers[row.partition.leader].bytes_out += moved
        if copy.end_bytes >= row.partition.end_bytes:
            copy.behind_since_ms = None
            controller.join_isr(contents, row.key, row.follower)


def _caught_up_ms(contents: ClusterContents, row: _Copying) -> int:
    """In how many ms from now the replica holds all at the present rates, within the shortest and the longest step."""
    partition = row.partition
    missing_bytes = partition.end_bytes - max(partition.copies[row.follower].end_bytes, partition.start_bytes)
    gained = row.bytes_per_sec - _produced_per_sec(contents, row.key, partition)
    exact_ms = -(-missing_bytes * 1000 // gained) if gained > 0 else STEP_MS
    return max(contents.shortest_step_ms, min(STEP_MS, exact_ms))


def _copying(contents: ClusterContents) -> list[_Copying]:
    """Replicas that catch up; those that press on the same limit share it evenly."""
    for topic in contents.topics.values():
        if topic.unheard:
            hear(topic, contents.now_ms)
    pressing = [
        (key, partition, follower, tuple(_limits(contents, key, partition.leader, follower)))
        for key, partition in contents.partitions()
        if partition.leader != NO_LEADER
        and len(partition.isr) < len(partition.replicas)
        and contents.brokers[partition.leader].running
        for follower in partition.replicas
        if follower not in partition.isr
        and contents.brokers[follower].running
        and contents.holds_online(follower, partition)
    ]
    users = Counter(limit for *_, limits in pressing for limit in limits)
    return [
        _Copying(key, partition, follower, min(_bytes_per_sec(contents, limit) // users[limit] for limit in limits))
        for key, partition, follower, limits in pressing
    ]


def _limits(contents: ClusterContents, key: PartitionKey, leader: int, follower: int) -> Iterator[Limit]:
    topic = contents.topics[key[0]]
    yield from (("sent", leader), ("received", follower), ("written", follower))
    if LEADER_RATE in contents.throttle_rates.get(leader, {}) and throttled_on_leader(topic, key[1], leader):
        yield (LEADER_RATE, leader)
    if FOLLOWER_RATE in contents.throttle_rates.get(follower, {}) and throttled_on_follower(topic, key[1], follower):
        yield (FOLLOWER_RATE, follower)


def _bytes_per_sec(contents: ClusterContents, limit: Limit) -> int:
    kind, broker_id = limit
    if kind in (LEADER_RATE, FOLLOWER_RATE):
        return contents.throttle_rates[broker_id][kind]
    broker = contents.brokers[broker_id]
    return broker.disk_bytes_per_sec if kind == "written" else broker.network_bytes_per_sec


def take_log_dir_offline(contents: ClusterContents, broker_id: int, index: int) -> None:
    """A log dir goes offline with its replicas; a broker without an online log dir ends."""
    broker = contents.brokers[broker_id]
    broker.log_dirs[index].offline = True
    contents.changes += 1
    for key, partition in contents.partitions():
        copy = partition.copies.get(broker_id)
        if copy is not None and copy.log_dir == index:
            controller.leave_isr(contents, key, broker_id)
    if all(row.offline for row in broker.log_dirs):
        broker.status = BrokerStatus.DEAD
        controller.fence(contents, broker_id)


def _fail_full_log_dirs(contents: ClusterContents) -> None:
    for (broker_id, index), used in sorted(used_bytes(contents).items()):
        broker = contents.brokers[broker_id]
        log_dir = broker.log_dirs[index]
        if broker.running and not log_dir.offline and used >= log_dir.size_bytes:
            take_log_dir_offline(contents, broker_id, index)


def used_bytes(contents: ClusterContents) -> dict[tuple[int, int], int]:
    """Bytes used by (broker, log dir)."""
    used = {
        (broker_id, index): log_dir.other_bytes
        for broker_id, broker in contents.brokers.items()
        for index, log_dir in enumerate(broker.log_dirs)
    }
    for _, partition in contents.partitions():
        start_bytes = partition.start_bytes
        for broker_id, copy in partition.copies.items():
            if copy.end_bytes > start_bytes:
                used[broker_id, copy.log_dir] += copy.end_bytes - start_bytes
            if copy.future is not None:
                used[broker_id, copy.future.log_dir] += max(0, copy.future.end_bytes - start_bytes)
    return used
