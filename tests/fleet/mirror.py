"""A fleet that shows what was seen of another cluster: the same brokers, topics, logs, counters and groups."""

from collections import defaultdict

from assignor_core.live import LiveCluster, PartitionKey
from streaming.collect.group_table import GroupView
from streaming.collect.sample import ClusterSample
from tests.collect.by_row import partition_views, sizes_of
from tests.fleet.counters import Counters
from tests.fleet.fleet import RECORD_BYTES, Fleet
from tests.fleet.groups import FleetGroup, FleetMember, member_of
from tests.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.state import LogDir, Replica, SimulatedPartition, SimulatedTopic

ONE_LOG_DIR = 0


def mirrored_fleet(seen: ClusterSample, live: LiveCluster) -> Fleet:
    """Brokers have one log dir. The records of a topic are all of one size, and none was deleted."""
    cluster = SimulatedCluster.of(dict(seen.racks), cluster_id=live.cluster_id)
    for broker, disks in seen.log_dirs.items():
        assert disks.usable_bytes is not None
        cluster.contents.brokers[broker].log_dirs = [LogDir(disks.used_bytes + disks.usable_bytes)]
    record_bytes = {}
    for name in sorted({key[0] for key in partition_views(seen.partitions)}):
        keys = [key for key in partition_views(seen.partitions) if key[0] == name]
        topic = cluster.contents.topics[name] = SimulatedTopic(partition_views(seen.partitions)[keys[0]].topic_id)
        topic.partitions = {key[1]: _partition(key, seen, live) for key in sorted(keys)}
        sizes = {size for key in keys if (size := _record_bytes(key, seen))}
        assert len(sizes) <= 1, f"records of {name} differ in size: {sizes}"
        record_bytes[name] = sizes.pop() if sizes else RECORD_BYTES
    cluster.contents.topics_changed()
    groups = [_group(name, view, coordinator) for coordinator, (name, view) in enumerate(seen.groups.items(), 1)]
    return Fleet(cluster, groups, record_bytes=record_bytes, counters=_counters(seen))


def _partition(key: PartitionKey, seen: ClusterSample, live: LiveCluster) -> SimulatedPartition:
    view = partition_views(seen.partitions)[key]
    sizes = {broker: sizes_of(seen.sizes)[broker, key] for broker in view.replicas}
    copies = {broker: Replica(ONE_LOG_DIR, size) for broker, size in sizes.items()}
    partition = SimulatedPartition(view.replicas, live.partitions[key].isr, view.leader, copies)
    partition.end_bytes = partition.acknowledged_bytes = sizes[view.leader]
    return partition


def _record_bytes(key: PartitionKey, seen: ClusterSample) -> int | None:
    view = partition_views(seen.partitions)[key]
    assert view.log_start_offset == 0, f"records of {key} were deleted"
    if not view.log_end_offset:
        return None
    size, rest = divmod(sizes_of(seen.sizes)[view.leader, key], view.log_end_offset)
    assert rest == 0, f"records of {key} differ in size"
    return size


def _group(name: str, view: GroupView, coordinator: int) -> FleetGroup:
    assigned: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for (topic, number), owner in sorted(view.owners.items()):
        assigned[owner.member_id, owner.client_id][topic].append(number)
    generation_id = -1 if view.generation_id is None else view.generation_id - 1
    members: tuple[FleetMember, ...] = tuple(
        member_of(member_id, client_id, topics, generation_id=generation_id)
        for (member_id, client_id), topics in assigned.items()
    )
    return FleetGroup(
        name, coordinator, view.state, protocol=view.assignor or "", members=members, committed=dict(view.committed)
    )


def _counters(seen: ClusterSample) -> Counters:
    counters = Counters()
    for broker, counted in seen.counters.items():
        counters.totals[broker] = dict(counted.totals)
        by_stem = {"bytes_in": counted.topic_bytes_in, "bytes_out": counted.topic_bytes_out}
        topics = sorted({topic for counts in by_stem.values() for topic in counts})
        counters.topics[broker] = {
            topic: {stem: counts[topic] for stem, counts in by_stem.items() if topic in counts} for topic in topics
        }
    return counters
