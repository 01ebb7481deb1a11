"""What a plug-in claims when kafka-python's own coordinator asks it: what the consumer has, not what it once got."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.consumer.subscription_state import SubscriptionState
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from streaming.consumer import CooperativeSticky, Range, RoundRobin, Sticky

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
