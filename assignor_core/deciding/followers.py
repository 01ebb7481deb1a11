"""What followers serve to consumers, made part of the partitions that are planned on.

Each follower is measured by the counter of its broker, and reads of a follower come from its own rack. Whom a leader
serves no counter shows: groups' members name their racks, and what these have read divides the leader's part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assignor_core.follower_reads import Rack, reader_racks
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.model import RATE_KEYS, Load, Partition

BYTES_OUT_AT = RATE_KEYS.index("bytes_out_per_sec")


@dataclass(frozen=True, slots=True)
class FollowerLoads:
    """What is measured of partitions of which a follower serves consumers."""

    served: Mapping[PartitionKey, Mapping[int, float]] = field(default_factory=dict)
    """Mean bytes/s that each follower serves, by broker."""
    read: Mapping[PartitionKey, Mapping[Rack, float]] = field(default_factory=dict)
    """What groups read by the rack of their members, in any unit; None is of members that name no rack."""


NO_FOLLOWERS = FollowerLoads()


def read_from_followers(
    partitions: tuple[Partition, ...],
    live: LiveCluster,
    rates: Mapping[PartitionKey, tuple[float | None, ...]],
    followers: FollowerLoads,
) -> tuple[Partition, ...]:
    """`partitions`, whose bytes out are those of leaders (`rates`, by RATE_KEYS), with what followers serve besides."""
    if not followers.served:
        return partitions
    made = []
    for partition in partitions:
        key = partition.topic, partition.partition
        served, of_leader = followers.served.get(key), rates.get(key, (None,) * len(RATE_KEYS))[BYTES_OUT_AT]
        made.append(
            _read_also(partition, live, of_leader or 0.0, served, followers.read.get(key, {})) if served else partition
        )
    return tuple(made)


def _read_also(
    partition: Partition, live: LiveCluster, of_leader: float, served: Mapping[int, float], read: Mapping[Rack, float]
) -> Partition:
    leader, racks = live.partitions[partition.topic, partition.partition].leader, live.broker_racks
    of_followers = [(racks.get(broker), rate) for broker, rate in sorted(served.items()) if broker != leader]
    readers = reader_racks((racks.get(leader), of_leader), of_followers, read)
    bytes_out = _raised(partition.load.bytes_out_per_sec, of_leader, sum(rate for _, rate in of_followers))
    return replace(partition, load=replace(partition.load, bytes_out_per_sec=bytes_out), reader_racks=readers)


def _raised(load: Load, of_leader: float, more: float) -> Load:
    """What all replicas serve. Hours of the past know the leader's part alone: each is raised as the windows are."""
    if not isinstance(load, tuple):
        return load + more
    times = (of_leader + more) / of_leader if of_leader > 0 else None
    return tuple(figure + more if times is None else figure * times for figure in load)
