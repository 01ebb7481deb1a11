"""The core's assignors as plug-ins of a real kafka-python consumer, beside Java members of the same group.

    consumer = KafkaConsumer("orders", group_id="billing", partition_assignment_strategy=[CooperativeSticky()])

Names and bytes are Kafka's, so any member may lead. A plug-in remembers what its member was given last, and since which
generation, because a member reports this when it joins again; the assignment itself remembers nothing. One instance
serves one consumer.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from assignor_core.assignors import GroupSpec, MemberSpec, TopicPartition, assign
from assignor_core.assignors.wire import (
    Subscription,
    cooperative_generation,
    decode_sticky_user_data,
    encode_sticky_user_data,
)
from streaming.client.claims import Claims, claims_at_join, keep_joining, tolerate_short_metadata
from streaming.client.weights import WeightSource
from streaming.contract.records import PARTITION_MAX

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 1


class _CoreAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python has no types here
    """What all plug-ins share: joining with a v3 subscription, and leading."""

    name: ClassVar[str]
    cooperative: ClassVar[bool] = False

    def __init__(self, *, rack_id: str | None = None, weights: WeightSource | None = None) -> None:
        self._rack_id = rack_id
        self._weight_source = weights
        self._assigned = Claims()

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Cooperative strategies can't be mixed with eager ones in one consumer."""
        return [RebalanceProtocol.COOPERATIVE if self.cooperative else RebalanceProtocol.EAGER]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """What this member joins with: what its consumer still has (cooperative), since when, and its rack."""
        keep_joining()
        tolerate_short_metadata()
        topics = frozenset(topics)
        claims = claims_at_join(self._assigned, topics) if self.cooperative else self._assigned
        return ConsumerProtocolSubscription(
            version=SUBSCRIPTION_VERSION,
            topics=sorted(topics),
            user_data=self._user_data(),
            owned_partitions=_owned_entries(claims.partitions if self.cooperative else ()),
            generation_id=claims.generation_id,
            rack_id=self._rack_id,
        )

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Stores what this member reports at the next rebalance."""
        owned = tuple((tp.topic, tp.partition) for tp in assignment.partitions())
        self._assigned = Claims(owned, generation)

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Lead: assign for all members, Java's too."""
        topics = sorted({topic for member in members for topic in member.metadata.topics})
        specs = {member.member_id: self._member_spec(member) for member in members}
        spec = GroupSpec(
            _partition_counts(cluster, topics, specs.values()),
            specs,
            _partition_racks(cluster, topics),
            self._weight_source(topics) if self._weight_source else {},
        )
        result = assign(self.name, spec)
        return {
            member_id: ConsumerProtocolAssignment(ASSIGNMENT_VERSION, _grouped(partitions), b"")
            for member_id, partitions in result.assignment.items()
        }

    def _user_data(self) -> bytes:
        return b""

    def _ownership(self, subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
        return subscription.owned_partitions, cooperative_generation(subscription)

    def _member_spec(self, member: Any) -> MemberSpec:
        subscription = _subscription(member.metadata)
        owned, generation_id = self._ownership(subscription)
        return MemberSpec(
            subscription.topics, owned, generation_id, getattr(member, "group_instance_id", None), subscription.rack_id
        )


class Range(_CoreAssignor):
    """Kafka's RangeAssignor."""

    name = "range"


class RoundRobin(_CoreAssignor):
    """Kafka's RoundRobinAssignor."""

    name = "roundrobin"


class _EagerSticky(_CoreAssignor):
    """Ownership travels in the user data, as Kafka's StickyAssignor has it."""

    def _user_data(self) -> bytes:
        return encode_sticky_user_data(self._assigned.partitions, self._assigned.generation_id)

    def _ownership(self, subscription: Subscription) -> tuple[Sequence[TopicPartition], int]:
        return decode_sticky_user_data(subscription.user_data)


class Sticky(_EagerSticky):
    """Kafka's StickyAssignor."""

    name = "sticky"


class CooperativeSticky(_CoreAssignor):
    """Kafka's CooperativeStickyAssignor."""

    name = "cooperative-sticky"
    cooperative = True


class LoadAware(_EagerSticky):
    """Sticky by load, eager; all members must have it, for Kafka's clients don't know the name."""

    name = "load-aware"

    def __init__(self, weights: WeightSource, *, rack_id: str | None = None) -> None:
        super().__init__(rack_id=rack_id, weights=weights)


class CooperativeLoadAware(_CoreAssignor):
    """Sticky by load, cooperative."""

    name = "cooperative-load-aware"
    cooperative = True

    def __init__(self, weights: WeightSource, *, rack_id: str | None = None) -> None:
        super().__init__(rack_id=rack_id, weights=weights)


def _subscription(metadata: ConsumerProtocolSubscription) -> Subscription:
    """kafka-python's decoded subscription in our terms; fields its version lacks have their defaults."""
    owned = tuple(
        (entry.topic, partition) for entry in metadata.owned_partitions or () for partition in entry.partitions
    )
    user_data = bytes(metadata.user_data) if metadata.user_data else None
    return Subscription(tuple(metadata.topics), user_data, owned, metadata.generation_id, metadata.rack_id)


def _owned_entries(owned: Sequence[TopicPartition]) -> list[Any]:
    entry = ConsumerProtocolSubscription.TopicPartition
    return [entry(topic=topic, partitions=partitions) for topic, partitions in _grouped(owned)]


def _grouped(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        grouped.setdefault(topic, []).append(partition)
    return list(grouped.items())


def _partition_counts(cluster: Any, topics: Sequence[str], members: Iterable[MemberSpec]) -> dict[str, int]:
    """Partitions by topic: as metadata has them, else as many as members claim.

    A new leader has no metadata of topics that only others read. It has just asked for it, and joins again once it has
    come: until then their owners keep what they claim.
    """
    claimed: dict[str, int] = {}
    for topic, partition in (tp for member in members for tp in member.owned_partitions):
        if partition <= PARTITION_MAX:
            claimed[topic] = max(claimed.get(topic, 0), partition + 1)
    known = {topic: cluster.partitions_for_topic(topic) for topic in topics}
    return {topic: claimed.get(topic, 0) if found is None else len(found) for topic, found in known.items()}


def _partition_racks(cluster: Any, topics: Sequence[str]) -> dict[str, list[list[str | None]]]:
    """Racks of all replicas, read from a private attribute: kafka-python has no public one."""
    racks = {broker.node_id: broker.rack for broker in cluster.brokers()}
    return {
        topic: [
            [racks.get(broker_id) for broker_id in known[partition].replica_nodes] if partition in known else []
            for partition in range(len(known))
        ]
        for topic in topics
        if (known := cluster._partitions.get(topic))
    }
