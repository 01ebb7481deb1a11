"""What control makes of Kafka's answers: a refusal, a request without an answer, and what is neither."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from kafka import KafkaAdminClient, errors
from kafka.admin import ConfigResourceType
from kafka.errors import (
    ClusterAuthorizationFailedError,
    IncompatibleBrokerVersion,
    KafkaConnectionError,
    KafkaError,
    PolicyViolationError,
    RequestTimedOutError,
)
from kafka.structs import TopicPartition

from assignor_core.execution.accounting import PERMANENT
from streaming.cluster.admin import Cluster
from streaming.cluster.permissions import missing_permissions
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, ReassignmentsRefused

POLICY = str(PolicyViolationError("not here"))
TIMED_OUT = str(RequestTimedOutError("10 s"))


class Admin:
    """As much of an admin client as is used: brokers 1 and 2, and answers or an error that the test sets."""

    def __init__(self, *, raised: KafkaError | None = None) -> None:
        self.raised = raised
        self.reassigned: dict[TopicPartition, type[KafkaError] | None] = {}
        self.altered: dict[str, str] = {}
        self.hung: dict[int, KafkaError] = {}

    def describe_cluster(self) -> dict[str, Any]:
        if self.raised:
            raise self.raised
        return {"brokers": [{"broker_id": 1, "rack": None}, {"broker_id": 2, "rack": None}]}

    def log_dirs_by_broker(
        self, brokers: list[int], _partitions: object
    ) -> tuple[dict[int, Any], dict[int, KafkaError]]:
        shown: dict[int, Any] = {broker: [] for broker in brokers if broker not in self.hung}
        return shown, {broker: error for broker, error in self.hung.items() if broker in brokers}

    def alter_partition_reassignments(self, _targets: object) -> Mapping[TopicPartition, type[KafkaError] | None]:
        if self.raised:
            raise self.raised
        return self.reassigned

    def describe_configs(self, _resources: object) -> dict[str, dict[str, Any]]:
        return {}

    def alter_configs(self, resources: list[Any], **_options: object) -> dict[str, dict[str, str]]:
        kind = ConfigResourceType(resources[0].resource_type).name.lower()
        return {kind: {resource.name: self.altered.get(resource.name, "OK") for resource in resources}}


def cluster(admin: Admin) -> Cluster:
    return Cluster(cast(KafkaAdminClient, admin))


REQUESTS: list[Callable[[Admin], object]] = [
    lambda admin: cluster(admin).throttle_rates(),
    lambda admin: cluster(admin).reassign({("t", 0): (2,)}),
    lambda admin: missing_permissions(cast(KafkaAdminClient, admin), "control", input_topics=(), observes_only=False),
]


@pytest.mark.parametrize("request_of", REQUESTS)
@pytest.mark.parametrize("error", [RequestTimedOutError(), KafkaConnectionError()])
def test_a_request_that_timed_out_may_have_been_carried_out(
    request_of: Callable[[Admin], object], error: KafkaError
) -> None:
    with pytest.raises(ClusterUnreachable, match=type(error).__name__):
        request_of(Admin(raised=error))


@pytest.mark.parametrize("request_of", REQUESTS)
@pytest.mark.parametrize("error", [ClusterAuthorizationFailedError(), IncompatibleBrokerVersion()])
def test_a_refusal_names_kafkas_error(request_of: Callable[[Admin], object], error: KafkaError) -> None:
    with pytest.raises(ClusterRequestFailed, match=type(error).__name__) as caught:
        request_of(Admin(raised=error))
    assert caught.value.kafka_error == type(error).__name__
    assert ("rebalancer check --role control" in str(caught.value)) == isinstance(
        error, ClusterAuthorizationFailedError
    )


def test_a_broker_that_hangs_costs_its_own_log_dirs() -> None:
    admin = Admin()
    admin.hung = {2: RequestTimedOutError()}
    assert cluster(admin).log_dirs() == {1: ()}
    assert cluster(admin).log_dirs([2]) == {}
    admin.hung = {1: KafkaConnectionError(), 2: RequestTimedOutError()}
    with pytest.raises(ClusterUnreachable, match="no answer when asked to read log dirs"):
        cluster(admin).log_dirs()
    admin.hung = {2: ClusterAuthorizationFailedError()}
    with pytest.raises(ClusterRequestFailed, match="ClusterAuthorizationFailedError"):
        cluster(admin).log_dirs()


def test_a_partition_without_an_answer_is_not_refused() -> None:
    admin = Admin()
    admin.reassigned = {TopicPartition("t", 0): RequestTimedOutError, TopicPartition("t", 1): None}
    cluster(admin).reassign({("t", 0): (2,), ("t", 1): (2,)})
    admin.reassigned[TopicPartition("t", 1)] = PolicyViolationError
    with pytest.raises(ReassignmentsRefused) as caught:
        cluster(admin).reassign({("t", 0): (2,), ("t", 1): (2,)})
    assert caught.value.refusals == {("t", 1): "PolicyViolationError"}


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ({"1": TIMED_OUT}, ClusterUnreachable),
        ({"1": POLICY}, ClusterRequestFailed),
        ({"1": TIMED_OUT, "2": POLICY}, ClusterRequestFailed),
    ],
)
def test_a_throttle_without_an_answer_is_not_refused(answers: dict[str, str], error: type[Exception]) -> None:
    admin = Admin()
    admin.altered = answers
    with pytest.raises(error):
        cluster(admin).set_throttle_rates({1: 5, 2: 5})


@pytest.mark.parametrize("name", sorted(PERMANENT))
def test_errors_that_the_core_takes_for_permanent_are_errors_of_the_client(name: str) -> None:
    assert issubclass(getattr(errors, name), KafkaError)
