"""What moves partitions: Alter- and ListPartitionReassignments, ElectLeaders, as the simulated controller does them."""

from collections.abc import Iterator, Mapping
from typing import Any

from kafka import errors
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

from assignor_core.live import PartitionKey
from tests.fleet.api import NOT_CONTROLLER, OK, Api
from tests.fleet.fleet import Fleet


def _altered(fleet: Fleet, _broker: int, request: Any) -> Any:
    targets = {
        (topic.name, row.partition_index): None if row.replicas is None else tuple(row.replicas)
        for topic in request.topics
        for row in topic.partitions
    }
    answers = fleet.cluster.reassign(targets)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=True,
        error_code=OK,
        error_message=None,
        responses=list(_by_topic(answers)),
    )


def _alter_refused(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=NOT_CONTROLLER, error_message="refused", responses=[]
    )


def _listed(fleet: Fleet, _broker: int, request: Any) -> Any:
    """All that are under way, or those of the partitions asked for."""
    moving = fleet.until_changed("moving", lambda: _moving(fleet))
    if request.topics is not None:
        asked = {(row.name, number) for row in request.topics for number in row.partition_indexes}
        moving = {key: row for key, row in moving.items() if key in asked}
    topics: dict[str, list[Any]] = {}
    for (topic, _), row in moving.items():
        topics.setdefault(topic, []).append(row)
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=OK, error_message=None, topics=list(topics.items())
    )


def _moving(fleet: Fleet) -> dict[PartitionKey, Any]:
    return {
        key: (key[1], row.replicas, row.adding_replicas, row.removing_replicas)
        for key, row in fleet.contents.partitions()
        if row.reassigning
    }


def _list_refused(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=NOT_CONTROLLER, error_message="refused", topics=[]
    )


def _elected(fleet: Fleet, _broker: int, request: Any) -> Any:
    """Preferred leaders only; without partitions in the request, those of all that have another leader."""
    if request.topic_partitions is None:
        keys = [key for key, row in fleet.contents.partitions() if row.leader != row.replicas[0]]
    else:
        keys = [(row.topic, number) for row in request.topic_partitions for number in row.partitions]
    return ElectLeadersResponse(
        throttle_time_ms=0,
        error_code=OK,
        replica_election_results=list(_by_topic(fleet.cluster.elect_preferred(keys))),
    )


def _elect_refused(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return ElectLeadersResponse(throttle_time_ms=0, error_code=NOT_CONTROLLER, replica_election_results=[])


def _by_topic(answers: Mapping[PartitionKey, str | None]) -> Iterator[tuple[str, list[Any]]]:
    """(Topic, rows of its partitions) with the codes of the errors."""
    topics: dict[str, list[Any]] = {}
    for (topic, number), error in answers.items():
        code = OK if error is None else getattr(errors, error).errno
        topics.setdefault(topic, []).append((number, code, error))
    yield from topics.items()


APIS = (
    Api(AlterPartitionReassignmentsRequest, (0, 1), _altered, _alter_refused),
    Api(ListPartitionReassignmentsRequest, (0, 0), _listed, _list_refused),
    Api(ElectLeadersRequest, (1, 2), _elected, _elect_refused),
)
