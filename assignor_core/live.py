"""What a cluster's metadata says of its partitions right now: replicas, leader, ISR, reassignment under way.

The planner works on `model.ClusterState` (placement and load); `reconcile` works on this view (placement and motion).
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assignor_core.wording import counted

PartitionKey = tuple[str, int]
"""(topic, partition)."""
ReplicaKey = tuple[int, PartitionKey]
"""(broker, (topic, partition))."""

T = TypeVar("T")

NO_LEADER = -1
"""Kafka's leader id of a partition that is offline."""


@dataclass(frozen=True, slots=True)
class Reassignment:
    """One that the controller lists, with the replicas of a partition as in `LivePartition`."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Replicas once it is over.

        >>> Reassignment((2, 1), adding_replicas=(2,), removing_replicas=(1,)).target_replicas
        (2,)
        """
        return tuple(broker for broker in self.replicas if broker not in self.removing_replicas)


@dataclass(frozen=True, slots=True)
class LivePartition:
    """One partition; while it is reassigned `replicas` holds the target replicas first, then those to be removed."""

    replicas: tuple[int, ...]
    leader: int
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is under way, whoever started it."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """Replicas once the reassignment under way is over.

        >>> LivePartition((2, 1), 1, (1,), adding_replicas=(2,), removing_replicas=(1,)).target_replicas
        (2,)
        """
        return Reassignment(self.replicas, self.adding_replicas, self.removing_replicas).target_replicas

    @property
    def awaited_replicas(self) -> tuple[int, ...]:
        """Replicas that stay, are out of sync, and hold up a reassignment whose added replicas are all in sync. Before
        Kafka 4.3 each reassignment waits for such replicas, later one that removes more replicas than it adds.

        >>> LivePartition((3, 2, 1), 1, (1, 3), adding_replicas=(3,), removing_replicas=(1,)).awaited_replicas
        (2,)
        """
        if not self.reassigning or not set(self.adding_replicas) <= set(self.isr):
            return ()
        return tuple(broker for broker in self.target_replicas if broker not in self.isr)

    @property
    def reassignment(self) -> Reassignment | None:
        """The one that is under way; None where there is none."""
        if not self.reassigning:
            return None
        return Reassignment(self.replicas, self.adding_replicas, self.removing_replicas)

    def with_reassignment(self, moving: Reassignment | None) -> "LivePartition":
        """A broker's metadata completed by the controller's list: its replicas count while a reassignment is listed."""
        return LivePartition(
            replicas=moving.replicas if moving else self.replicas,
            leader=self.leader,
            isr=self.isr,
            adding_replicas=moving.adding_replicas if moving else (),
            removing_replicas=moving.removing_replicas if moving else (),
        )


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """Brokers that are alive, and every partition, or those that somebody has asked about."""

    cluster_id: str
    broker_racks: Mapping[int, str | None]
    partitions: Mapping[PartitionKey, LivePartition]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own id by topic, where brokers show one: a topic that is made again has another."""
    listed: Mapping[PartitionKey, Reassignment] = field(default_factory=dict)
    """All reassignments that the controller lists, of any partition: of topics that nobody asked about, and of those
    that the client may not describe. Kafka shows the list to whoever may describe the cluster.
    """
    reassignments_hidden: bool = False
    """Whether the cluster refused to list them: then none are known, though some may be under way."""
    hidden_topics: frozenset[str] = frozenset()
    """Topics asked about by name that the client may not describe: whether they are there, nobody says."""
    _derived: dict[Hashable, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def once(self, name: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` makes of this cluster alone, kept under `name`: a walk over all partitions is costly, and the
        same cluster is often asked again.
        """
        if name not in self._derived:
            self._derived[name] = compute()
        value: T = self._derived[name]
        return value

    def reassigning(self) -> frozenset[PartitionKey]:
        """Partitions that are being reassigned, by anybody."""
        return self.once(
            "reassigning", lambda: frozenset(key for key, row in self.partitions.items() if row.reassigning)
        )

    def waiting_for_brokers(self) -> frozenset[PartitionKey]:
        """Returns the reassigned partitions that only the return of a broker that is away can advance: without a leader
        nothing is copied, and Kafka refuses to cancel, as no replica of before is in sync.

        >>> moving = LivePartition((2, 1), NO_LEADER, (), adding_replicas=(2,), removing_replicas=(1,))
        >>> sorted(LiveCluster("c", {2: None}, {("t", 0): moving}).waiting_for_brokers())
        [('t', 0)]
        """
        return frozenset(
            key
            for key in self.reassigning()
            if self.partitions[key].leader == NO_LEADER and set(self.partitions[key].replicas) - set(self.broker_racks)
        )

    def hosts_away(self) -> frozenset[int]:
        """Brokers that hold replicas and are not alive."""
        return self.once("hosts_away", lambda: frozenset(self.replica_counts().keys() - self.broker_racks.keys()))

    def replica_counts(self) -> Mapping[int, int]:
        """Replicas by broker, of brokers that have any."""
        return self.once(
            "replica_counts", lambda: Counter(broker for row in self.partitions.values() for broker in row.replicas)
        )


def offline(live: LiveCluster, lost: Collection[int] = ()) -> list[PartitionKey]:
    """Partitions without a leader, sorted. One with a replica on a broker of `lost` doesn't count: it waits for that
    broker, and no other can bring it back.

    >>> live = LiveCluster("c", {1: None}, {("t", 0): LivePartition((1, 2), NO_LEADER, ())})
    >>> offline(live), offline(live, lost=(2,))
    ([('t', 0)], [])
    """
    away = frozenset(lost)
    rows = live.partitions.items()
    return sorted(key for key, row in rows if row.leader == NO_LEADER and away.isdisjoint(row.replicas))


def lagging(live: LiveCluster, lost: Collection[int] = (), ours: Collection[PartitionKey] = ()) -> list[PartitionKey]:
    """Partitions with a leader and with replicas out of sync on brokers other than `lost`, sorted.

    One that is being reassigned or is one of `ours` doesn't count: new replicas are behind until they are copied.

    >>> live = LiveCluster("c", {1: None, 2: None}, {("t", 0): LivePartition((1, 2), 1, (1,))})
    >>> lagging(live), lagging(live, lost=(2,)), lagging(live, ours=[("t", 0)])
    ([('t', 0)], [], [])
    """
    away, moving = frozenset(lost), frozenset(ours)
    return sorted(
        key
        for key, row in live.partitions.items()
        if len(row.isr) < len(row.replicas)
        and row.leader != NO_LEADER
        and key not in moving
        and not row.reassigning
        and not away.issuperset(set(row.replicas) - set(row.isr))
    )


RELIEF_MAX_AWAY_SHARE = 0.40
"""By default replicas are not re-created while a larger share of the brokers is offline: that is an outage, its end
brings them back, and the rest can't carry them all. Cruise Control's `fixable.failed.broker.percentage.threshold`.
"""


def too_many_away(away: int, alive: int, max_share: float) -> str | None:
    """Why no replicas are re-created while so many brokers are away and alive, in words; None if they may be.

    >>> too_many_away(1, 2, 0.4), too_many_away(3, 3, 0.4)
    (None, '3 of 6 brokers are away, replicas are re-created while at most 40% are')
    """
    if away <= max_share * (away + alive):
        return None
    return f"{away} of {away + alive} brokers are away, replicas are re-created while at most {max_share:.0%} are"


def partition_name(key: PartitionKey) -> str:
    """The name that Kafka's tools show.

    >>> partition_name(("orders", 3))
    'orders-3'
    """
    return f"{key[0]}-{key[1]}"


def offline_text(partitions: Sequence[PartitionKey]) -> str:
    """Partitions without a leader, in words.

    >>> offline_text([("t", 0), ("t", 1)])
    '2 partitions are offline, first t-0'
    """
    return (
        f"{counted(len(partitions), 'partition is', 'partitions are')} offline, first {partition_name(partitions[0])}"
    )


def lagging_text(count: int, first: PartitionKey) -> str:
    """Partitions with replicas out of sync, in words.

    >>> lagging_text(1, ("t", 0))
    '1 partition is under-replicated, first t-0'
    """
    return f"{counted(count, 'partition is', 'partitions are')} under-replicated, first {partition_name(first)}"


def replica_name(replica: ReplicaKey) -> str:
    """A partition with the broker of one of its replicas.

    >>> replica_name((2, ("orders", 3)))
    'orders-3 on broker 2'
    """
    return f"{partition_name(replica[1])} on broker {replica[0]}"
