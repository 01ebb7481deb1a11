"""What a plug-in claims, and what it gives the group when it leads, with the coordinator of kafka-python."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataResponse

from assignor_core.assignors.wire import Subscription, encode_sticky_user_data, encode_subscription
from assignor_core.errors import MalformedBytes
from streaming.consumer import CooperativeLoadAware, CooperativeSticky, LoadAware, Range, RoundRobin, Sticky

Owned = list[tuple[str, int]]


class OfflineCoordinator(ConsumerCoordinator):  # type: ignore[misc]  # kafka-python has no types here
    """kafka-python's coordinator without a network: a member that got `assigned` in generation 4."""

    def __init__(self, assignor: Any, topics: list[str], assigned: Owned) -> None:
        self.config = {"enable_auto_commit": False, "group_id": "g", "api_version": (3, 0)}
        self._subscription = SubscriptionState()
        self._subscription.subscribe(topics)
        self._subscription.assign_from_subscribed([TopicPartition(*pair) for pair in assigned])
        self._assignors = {assignor.name: assignor}
        self._rebalance_protocol = max(assignor.supported_protocols(), default=RebalanceProtocol.EAGER)
        self._generation = Generation(4, "member", assignor.name)
        self._joined_subscription = set(topics)
        self._assignment_snapshot = self._metadata_snapshot = None
        self.rejoin_needed = False
        topics_of = {topic: [p for t, p in assigned if t == topic] for topic in topics}
        assignor.on_assignment(ConsumerProtocolAssignment(1, list(topics_of.items()), b""), 4)

    def join(self) -> ConsumerProtocolSubscription:
        """What goes into the next JoinGroup."""
        asyncio.run(self._on_join_prepare_async(self._generation.generation_id, self._generation.member_id))
        ((_, metadata),) = self.group_protocols()
        return metadata


def claimed(metadata: ConsumerProtocolSubscription) -> Owned:
    return [(entry.topic, partition) for entry in metadata.owned_partitions for partition in entry.partitions]


ASSIGNED: Owned = [("t", 1), ("t", 3), ("u", 0)]


def test_a_member_that_stays_claims_what_it_has() -> None:
    metadata = OfflineCoordinator(CooperativeSticky(), ["t", "u"], ASSIGNED).join()
    assert (claimed(metadata), metadata.generation_id) == (ASSIGNED, 4)


def test_a_topic_that_is_read_no_longer_is_not_claimed() -> None:
    coordinator = OfflineCoordinator(CooperativeSticky(), ["t", "u"], ASSIGNED)
    coordinator._subscription.change_subscription(["u"])
    assert claimed(coordinator.join()) == [("u", 0)]


def test_a_topic_that_was_given_up_and_is_read_again_is_not_claimed() -> None:
    """Two joins, the first without the topic; no assignment came between them."""
    coordinator = OfflineCoordinator(CooperativeSticky(), ["t", "u"], ASSIGNED)
    coordinator._subscription.change_subscription(["u"])
    coordinator.join()
    coordinator._subscription.change_subscription(["t", "u"])
    assert claimed(coordinator.join()) == [("u", 0)]


@pytest.mark.parametrize("member_id", ["", "member"])
def test_a_member_that_lost_its_membership_claims_nothing(member_id: str) -> None:
    """By an unknown member id, or by an illegal generation, which leaves the member its id."""
    coordinator = OfflineCoordinator(CooperativeSticky(), ["t", "u"], ASSIGNED)
    coordinator._generation = Generation(-1, member_id, None)
    metadata = coordinator.join()
    assert (claimed(metadata), metadata.generation_id) == ([], -1)


def test_membership_lost_between_two_joins_leaves_the_claims_without_a_generation() -> None:
    """kafka-python prepares a rejoin once: the consumer still has its partitions, and revokes what others get."""
    coordinator = OfflineCoordinator(CooperativeSticky(), ["t", "u"], ASSIGNED)
    coordinator.join()
    coordinator._generation = Generation(-1, "", None)
    ((_, metadata),) = coordinator.group_protocols()
    assert (claimed(metadata), metadata.generation_id) == (ASSIGNED, -1)


def test_an_assignor_that_extends_ours_claims_the_same() -> None:
    class Extended(CooperativeSticky):
        def metadata(self, topics: Any) -> ConsumerProtocolSubscription:
            return super().metadata(topics)

    coordinator = OfflineCoordinator(Extended(), ["t", "u"], ASSIGNED)
    coordinator._subscription.change_subscription(["u"])
    assert claimed(coordinator.join()) == [("u", 0)]


def test_without_a_coordinator_topics_that_are_read_no_longer_are_left_out() -> None:
    assignor = CooperativeSticky()
    OfflineCoordinator(assignor, ["t", "u"], ASSIGNED)
    metadata = assignor.metadata({"t"})
    assert (claimed(metadata), metadata.generation_id) == ([("t", 1), ("t", 3)], 4)


def test_an_eager_member_reports_its_last_assignment_in_its_user_data_only() -> None:
    metadata = OfflineCoordinator(Sticky(), ["t", "u"], ASSIGNED).join()
    assert claimed(metadata) == []
    assert len(metadata.user_data) > 8


@pytest.mark.parametrize("assignor", [Range, RoundRobin, Sticky, CooperativeSticky])
def test_a_join_is_wanted_until_it_has_ended(assignor: Callable[[], Any]) -> None:
    """A poll may time out between JoinGroup and its answer; the next one has to go on."""
    coordinator = OfflineCoordinator(assignor(), ["t", "u"], ASSIGNED)
    assert not coordinator.need_rejoin()
    coordinator._subscription.change_subscription(["u"])
    assert coordinator.need_rejoin()
    coordinator.join()
    assert coordinator.need_rejoin()


OWNED_BY_OTHER: Owned = [("u", 0), ("u", 1), ("u", 2)]
ASSIGNORS = [Sticky(), CooperativeSticky(), LoadAware(lambda _: {}), CooperativeLoadAware(lambda _: {})]


def metadata_of(**partitions: int) -> ClusterMetadata:
    """Metadata of topics with so many partitions."""
    partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    cluster = ClusterMetadata()
    cluster._partitions = {
        topic: {
            number: partition(
                error_code=0, partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1],
                offline_replicas=[],
            )
            for number in range(count)
        }
        for topic, count in partitions.items()
    }  # fmt: skip
    cluster.set_topics(set(partitions))
    return cluster


def joining(member_id: str, topics: list[str], owned: Owned) -> Any:
    """A member that joins with what it got in generation 4, as any of the strategies has it."""
    entry = ConsumerProtocolSubscription.TopicPartition
    subscription = ConsumerProtocolSubscription(
        version=3, topics=topics, user_data=encode_sticky_user_data(owned, 4),
        owned_partitions=[entry(topic=topic, partitions=[number]) for topic, number in owned], generation_id=4,
        rack_id=None,
    )  # fmt: skip
    return SimpleNamespace(member_id=member_id, group_instance_id=None, metadata=subscription.encode())


def led(assignor: Any, cluster: ClusterMetadata, members: Sequence[Any]) -> dict[str, Owned]:
    """What each member gets where "leader" leads, which reads t alone."""
    coordinator = OfflineCoordinator(assignor, ["t"], [("t", 0), ("t", 1)])
    coordinator._cluster = cluster
    assignments = coordinator._perform_assignment("leader", assignor.name, members)
    return {name: sorted((tp.topic, tp.partition) for tp in one.partitions()) for name, one in assignments.items()}


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)
def test_a_new_leader_leaves_others_what_they_own_of_topics_that_it_does_not_read(assignor: Any) -> None:
    """kafka-python asks for their metadata only now: it has come when the leader joins again."""
    members = [joining("leader", ["t"], [("t", 0), ("t", 1)]), joining("other", ["t", "u"], OWNED_BY_OTHER)]
    assert led(assignor, metadata_of(t=2), members)["other"] == OWNED_BY_OTHER


def test_where_metadata_has_the_topic_it_decides_how_many_partitions_there_are() -> None:
    members = [joining("leader", ["t"], [("t", 0), ("t", 1)]), joining("other", ["t", "u"], OWNED_BY_OTHER)]
    assert led(CooperativeSticky(), metadata_of(t=2, u=2), members)["other"] == OWNED_BY_OTHER[:2]


@pytest.mark.parametrize("number", [-1, 1_000_000, 2**31 - 1])
def test_claims_of_partitions_that_no_topic_has_make_none(number: int) -> None:
    owned = [*OWNED_BY_OTHER, ("u", number)]
    members = [joining("leader", ["t"], [("t", 0), ("t", 1)]), joining("other", ["t", "u"], owned)]
    assert led(CooperativeSticky(), metadata_of(t=2), members)["other"] == OWNED_BY_OTHER


WHOLE = encode_subscription(Subscription(("t",), b"x", (("t", 1),), 7, "r"))
AFTER_TOPICS = 2 + 4 + 3
VERSION_1 = (1).to_bytes(2, "big")


class Coordinator(ConsumerCoordinator):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's, of which only joining and leading are there."""

    def __init__(self) -> None:
        """Nothing of the real one: it would connect."""

    def __del__(self) -> None:
        """The real one would leave its group."""

    def request_rejoin(self) -> None:
        """No broker is asked."""

    def join(self) -> None:
        Range().metadata(["t"])

    def lead(self, *members: tuple[str, bytes]) -> Any:
        rows = [SimpleNamespace(member_id=member_id, metadata=metadata) for member_id, metadata in members]
        return self._perform_assignment("a", "range", rows)

    def _perform_assignment(self, _leader_id: str, _protocol: str, members: Any) -> Any:
        """Decodes what all members have sent, with which kafka-python's coordinator begins, too."""
        return {row.member_id: ConsumerProtocolSubscription.decode(row.metadata) for row in members}


@pytest.mark.parametrize(
    "short",
    [
        pytest.param(VERSION_1 + WHOLE[2 : AFTER_TOPICS + 5], id="kafka-go: version 1 without owned partitions"),
        pytest.param(WHOLE[: AFTER_TOPICS + 5 + 15], id="version 3 without generation and rack"),
        pytest.param(WHOLE[: AFTER_TOPICS + 5 + 15 + 4], id="version 3 without rack"),
        pytest.param(WHOLE[:AFTER_TOPICS], id="topics alone"),
    ],
)
def test_a_member_with_short_metadata_is_read(short: bytes) -> None:
    coordinator = Coordinator()
    coordinator.join()
    coordinator.join()
    read = coordinator.lead(("a", WHOLE), ("b", short))
    assert (read["a"].topics, read["a"].generation_id) == (["t"], 7)
    assert read["b"].topics == ["t"]


@pytest.mark.parametrize("broken", [b"", WHOLE[:5], WHOLE[: AFTER_TOPICS + 2], WHOLE[: AFTER_TOPICS + 5 + 15 + 2]])
def test_a_member_that_can_not_be_read_is_named(broken: bytes) -> None:
    coordinator = Coordinator()
    coordinator.join()
    with pytest.raises(MalformedBytes, match="group member b: subscription: "):
        coordinator.lead(("a", WHOLE), ("b", broken))
