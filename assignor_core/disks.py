"""Disks of brokers as the brokers report them, and how many bytes may still be copied to a broker.

A broker has one or several log dirs. Kafka puts a new replica into the log dir with the fewest partitions, whatever is
free there (LogManager.nextLogDirs). Nobody can choose, so a broker has no more room than the fullest of the log dirs
that may be chosen: those that are online and not cordoned (KIP-1066). Each log dir is taken to have a volume of its
own; where several share one, the bound holds all the same, as it counts everything in each of them.

A part of every volume is a reserve that copies never touch: producers go on writing, and a full log dir goes offline
with all its replicas. Replicas that are not in sync still grow to the size of the largest one. What they lack counts as
taken; of a replica that has no log dir yet, in every log dir. What future replicas lack counts as taken, too.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from assignor_core.live import LiveCluster, PartitionKey, ReplicaKey


@dataclass(frozen=True, slots=True)
class FutureReplica:
    """A copy that a broker makes in another of its log dirs (KIP-113). It takes the replica's place once it has all."""

    size_bytes: int
    lag_offsets: int = 0
    """By how many offsets it is behind the replica that it is to replace."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log dir of a broker, by the names of Kafka's DescribeLogDirs."""

    path: str
    total_bytes: int | None = None
    """Size of its volume; None on brokers before 3.3 (KIP-827)."""
    usable_bytes: int | None = None
    """What is free on its volume; None on brokers before 3.3."""
    replica_bytes: Mapping[PartitionKey, int] = field(default_factory=dict)
    """Log size of each replica in it; copies under way within the broker (future replicas) are left out."""
    is_offline: bool = False
    is_cordoned: bool | None = False
    """Gets no new replicas (KIP-1066); None on brokers before 4.3, which know no cordon."""
    future_replicas: Mapping[PartitionKey, FutureReplica] = field(default_factory=dict)
    """Copies that the broker makes in it of replicas in its other log dirs."""

    @property
    def takes_replicas(self) -> bool:
        """Whether Kafka puts replicas into it."""
        return not self.is_offline and not self.is_cordoned

    @property
    def used_share(self) -> float | None:
        """How full its volume is, 0 to 1, whoever fills it; None where it does not show that.

        >>> LogDirDescription("/a", 1000, 250).used_share
        0.75
        """
        if not self.total_bytes or self.usable_bytes is None:
            return None
        return 1.0 - min(self.usable_bytes, self.total_bytes) / self.total_bytes


class Uploads(NamedTuple):
    """How far remote storage has got with logs, where new replicas begin behind what is uploaded (KIP-1023)."""

    brokers: frozenset[int]
    """Brokers whose new replicas do; those of others begin where the leader's disk does."""
    waiting: Mapping[PartitionKey, float]
    """Part of the log on the leader's disk that is not uploaded yet, 0 to 1; of other partitions it is unknown."""


NO_UPLOADS = Uploads(frozenset(), MappingProxyType({}))


LogDirs = Mapping[int, Sequence[LogDirDescription]]
"""Log dirs by broker: none of a broker that does not show them; a broker that did not answer is left out."""


def replica_sizes(log_dirs: LogDirs) -> dict[ReplicaKey, int]:
    """Log size in bytes by (broker, partition)."""
    return {
        (broker, key): size
        for broker, rows in log_dirs.items()
        for row in rows
        for key, size in row.replica_bytes.items()
    }


def largest_replicas(log_dirs: LogDirs) -> dict[PartitionKey, int]:
    """Log size in bytes of the largest replica of each partition: what a new replica will hold."""
    largest: dict[PartitionKey, int] = {}
    for rows in log_dirs.values():
        for log_dir in rows:
            for key, size in log_dir.replica_bytes.items():
                if size > largest.get(key, -1):
                    largest[key] = size
    return largest


def catching_up(live: LiveCluster, brokers: Collection[int]) -> dict[int, list[PartitionKey]]:
    """Partitions whose replica on one of `brokers` is not in sync, whoever has placed it there; by broker."""
    behind: dict[int, list[PartitionKey]] = {broker: [] for broker in brokers}
    for key, partition in live.partitions.items():
        if len(partition.isr) < len(partition.replicas):
            for broker in partition.replicas:
                if broker in behind and broker not in partition.isr:
                    behind[broker].append(key)
    return behind


def behind_within(live: LiveCluster, log_dirs: LogDirs, brokers: Collection[int]) -> dict[int, list[PartitionKey]]:
    """Partitions that catch up on these brokers, by broker: replicas that a log dir shows, and those that are being
    added. A replica in a log dir that is offline is left out: it can't catch up.
    """
    behind = catching_up(live, log_dirs.keys() & set(brokers))
    for broker, keys in behind.items():
        held = {key for row in log_dirs[broker] for key in row.replica_bytes}
        behind[broker] = [key for key in keys if key in held or broker in live.partitions[key].adding_replicas]
    return behind


def rooms(
    live: LiveCluster, log_dirs: LogDirs, behind: Mapping[int, Sequence[PartitionKey]], *, reserve: float
) -> dict[int, float | None]:
    """Bytes that may still be copied to the brokers of `behind`; None where log dirs do not show what is free, or
    where nobody who answers shows how much a replica that catches up still lacks.

    `behind` is what catches up on each of them (see `catching_up`); `log_dirs` must show the leaders of that, too.
    `reserve` is the share of each volume that stays free, 0 to 1.

    >>> live = LiveCluster("c", {1: None, 2: None}, {})
    >>> log_dirs = {1: [LogDirDescription("/a", 1000, 300), LogDirDescription("/b", 1000, 250)]}
    >>> rooms(live, log_dirs, catching_up(live, (1, 2)), reserve=0.1)
    {1: 150.0, 2: None}
    """
    largest = largest_replicas(log_dirs)
    rooms_bytes: dict[int, float | None] = {}
    for broker in sorted(behind):
        rows = log_dirs.get(broker, ())
        # A replica on an offline log dir is behind, too, and is made nowhere else: only one that is being added is.
        is_whole = not any(row.is_offline for row in rows)
        expected = [key for key in behind[broker] if is_whole or broker in live.partitions[key].adding_replicas]
        full_bytes = {key: largest.get(key, 0) for key in expected}
        unknown = any(_holders_silent(live, log_dirs, key) for key in expected)
        rooms_bytes[broker] = None if unknown else least_room(rows, full_bytes, reserve)
    return rooms_bytes


def silent_brokers(live: LiveCluster, log_dirs: LogDirs) -> frozenset[int]:
    """Brokers that are alive and did not answer when all were asked for their log dirs."""
    return frozenset(live.broker_racks.keys() - log_dirs.keys())


def all_hide_log_dirs(live: LiveCluster, log_dirs: LogDirs) -> bool:
    """Whether every broker that is alive refuses to show its log dirs: then no size of a log is known.

    >>> live = LiveCluster("c", {1: None, 2: None}, {})
    >>> all_hide_log_dirs(live, {1: (), 2: ()}), all_hide_log_dirs(live, {1: ()})
    (True, False)
    """
    answered = live.broker_racks.keys() & log_dirs.keys()
    return bool(answered) and answered == live.broker_racks.keys() and not any(log_dirs[broker] for broker in answered)


def _holders_silent(live: LiveCluster, log_dirs: LogDirs, key: PartitionKey) -> bool:
    """Whether brokers with a whole replica are alive and none of them has answered."""
    whole = live.broker_racks.keys() & set(live.partitions[key].isr)
    return bool(whole) and not whole & log_dirs.keys()


def least_room(
    rows: Sequence[LogDirDescription], full_bytes: Mapping[PartitionKey, int], reserve: float
) -> float | None:
    """The least room of a log dir that Kafka may choose, in bytes; None where one does not show what is free.

    `full_bytes` is what replicas that catch up will hold.
    """
    if not rows:
        return None
    rooms_bytes = log_dir_rooms(rows, full_bytes, reserve=reserve)
    least = [rooms_bytes[row.path] for row in rows if row.takes_replicas]
    # Without a log dir that takes replicas there is no room at all.
    return None if None in least else min((room for room in least if room is not None), default=0.0)


def log_dir_rooms(
    rows: Sequence[LogDirDescription], full_bytes: Mapping[PartitionKey, int], *, reserve: float
) -> dict[str, float | None]:
    """Bytes that may still be copied to each log dir of one broker, by path; None where it doesn't show what is free.

    `full_bytes` is what replicas that catch up will hold. One that is offline or cordoned has no room.

    >>> full = LogDirDescription("/a", 1000, 120, {("t", 0): 500})
    >>> log_dir_rooms([full, LogDirDescription("/b", 1000, 900)], {}, reserve=0.1)
    {'/a': 20.0, '/b': 800.0}
    """
    sizes = {key: size for row in rows for key, size in row.replica_bytes.items()}
    unplaced = sum(size for key, size in full_bytes.items() if key not in sizes)
    rooms_bytes: dict[str, float | None] = {}
    for row in rows:
        if not row.takes_replicas:
            rooms_bytes[row.path] = 0.0
        elif row.total_bytes is None or row.usable_bytes is None:
            rooms_bytes[row.path] = None
        else:
            lacking = sum(lacking_bytes(row, sizes, full_bytes).values())
            rooms_bytes[row.path] = max(0.0, row.usable_bytes - reserve * row.total_bytes - lacking - unplaced)
    return rooms_bytes


def lacking_bytes(
    row: LogDirDescription, sizes: Mapping[PartitionKey, int], full_bytes: Mapping[PartitionKey, int]
) -> dict[PartitionKey, int]:
    """Bytes that copies in a log dir still lack, by partition: replicas that are to hold `full_bytes`, and future
    replicas, which grow to that or to the size of what they replace. `sizes` are those of the broker's replicas.

    >>> row = LogDirDescription("/a", replica_bytes={("t", 0): 30}, future_replicas={("t", 1): FutureReplica(10)})
    >>> lacking_bytes(row, {("t", 1): 50}, {("t", 0): 100})
    {('t', 0): 70, ('t', 1): 40}
    """
    lacking = {key: max(0, full_bytes[key] - size) for key, size in row.replica_bytes.items() if key in full_bytes}
    for key, future in row.future_replicas.items():
        lacking[key] = max(0, full_bytes.get(key, sizes.get(key, 0)) - future.size_bytes)
    return lacking
