"""Making the input topics on a cluster that refuses: one line that says what, and for rights who can tell which."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient
from kafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidReplicationFactorError,
    KafkaConnectionError,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
)

from streaming.cluster.topics import create_input_topics
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, RebalancerError
from streaming.settings import TopicSettings

REFUSED = "the cluster refused to create topic rebalancer.byte-rate"
HINT = "; `rebalancer check --role collect` names the rights it needs"


@dataclass
class Cluster:
    """As much of an admin client as is used: two brokers, one of them fenced, and no topic."""

    answer: type[KafkaError] | None = None
    message: str | None = None
    raised: KafkaError | OSError | None = None
    listing: KafkaError | None = None
    created: list[dict[str, Any]] = field(default_factory=list)

    def describe_cluster(self) -> dict[str, Any]:
        return {"brokers": [{"broker_id": 1, "rack": None}, {"broker_id": 2, "rack": None, "is_fenced": True}]}

    def list_topics(self) -> list[str]:
        if self.listing:
            raise self.listing
        return ["orders"]

    def create_topics(self, topics: dict[str, Any], *, raise_errors: bool) -> dict[str, Any]:
        assert not raise_errors
        if self.raised:
            raise self.raised
        self.created.append(topics)
        code = self.answer.errno if self.answer else 0
        return {"topics": [{"error_code": code, "error_message": self.message} for _ in topics]}


def ensure(cluster: Cluster) -> None:
    create_input_topics(cast(KafkaAdminClient, cluster), TopicSettings())


def test_missing_topics_are_made_with_no_more_replicas_than_brokers_alive() -> None:
    cluster = Cluster()
    ensure(cluster)
    assert [(name, row["replication_factor"]) for made in cluster.created for name, row in made.items()] == [
        ("rebalancer.byte-rate", 1),
        ("rebalancer.consumer-lag", 1),
    ]


def test_a_topic_that_was_made_meanwhile_is_as_good() -> None:
    ensure(Cluster(TopicAlreadyExistsError))


LATE = "no answer when asked to create topic rebalancer.byte-rate (RequestTimedOutError)"


@pytest.mark.parametrize(
    ("cluster", "kind", "message"),
    [
        (Cluster(TopicAuthorizationFailedError, "Authorization failed."), ClusterRequestFailed,
         f"{REFUSED}: TopicAuthorizationFailedError (Authorization failed){HINT}"),
        (Cluster(InvalidReplicationFactorError, "Unable to replicate\nthe partition 3 time(s)."), ClusterRequestFailed,
         f"{REFUSED}: InvalidReplicationFactorError (Unable to replicate the partition 3 time(s))"),
        (Cluster(raised=NotControllerError("Failed to find active controller id!")), ClusterRequestFailed,
         f"{REFUSED}: NotControllerError"),
        (Cluster(raised=RequestTimedOutError()), ClusterUnreachable, LATE),
        (Cluster(RequestTimedOutError, "The topic may have been created."), ClusterUnreachable, LATE),
        (Cluster(listing=KafkaConnectionError()), ClusterUnreachable,
         "no answer when asked to list brokers and topics (KafkaConnectionError)"),
        (Cluster(listing=ClusterAuthorizationFailedError()), ClusterRequestFailed,
         f"the cluster refused to list brokers and topics: ClusterAuthorizationFailedError{HINT}"),
    ],
)  # fmt: skip
def test_a_refusal_is_one_line(cluster: Cluster, kind: type[RebalancerError], message: str) -> None:
    with pytest.raises(kind) as caught:
        ensure(cluster)
    assert str(caught.value) == message
