"""What a plug-in gives the group when it leads by kafka-python's own coordinator, which knows few topics at first."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.cluster import ClusterMetadata
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.protocol.metadata import MetadataResponse

from assignor_core.assignors.wire import encode_sticky_user_data
from streaming.consumer import CooperativeLoadAware, CooperativeSticky, LoadAware, Sticky
from tests.client.test_claims import OfflineCoordinator, Owned

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
