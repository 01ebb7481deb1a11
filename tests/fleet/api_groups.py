"""Consumer groups: FindCoordinator, ListGroups, DescribeGroups, OffsetFetch. Nobody joins or commits here."""

from collections.abc import Callable
from functools import partial
from typing import Any

from kafka.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    NotCoordinatorError,
)
from kafka.protocol.admin.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse
from kafka.protocol.metadata import FindCoordinatorRequest, FindCoordinatorResponse

from tests.fleet.api import LOADING, OK, Api
from tests.fleet.fleet import HOST, Fleet
from tests.fleet.groups import DEAD, FleetGroup

NOT_AVAILABLE: int = CoordinatorNotAvailableError.errno
NOT_COORDINATOR: int = NotCoordinatorError.errno
NOT_FOUND: int = GroupIdNotFoundError.errno
GROUP_OPERATIONS = frozenset({3, 6, 8, 10, 11})
NOTHING_COMMITTED = -1
NO_EPOCH = -1

Row = Any


def _coordinators(fleet: Fleet, _broker: int, request: Any) -> Any:
    """A group that doesn't exist has a coordinator all the same: the first broker."""
    rows = []
    for key in request.coordinator_keys:
        group = fleet.groups.get(key)
        broker = group.coordinator if group else min(fleet.contents.brokers)
        rows.append((key, broker, HOST, fleet.ports[broker], OK, ""))
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=rows)


def _coordinators_refused(_fleet: Fleet, _broker: int, request: Any) -> Any:
    rows = [(key, -1, "", -1, NOT_AVAILABLE, "refused") for key in request.coordinator_keys]
    return FindCoordinatorResponse(throttle_time_ms=0, coordinators=rows)


def _listed(fleet: Fleet, broker: int, request: Any) -> Any:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    rows = [
        (group.group_id, group.protocol_type, group.state, group.group_type)
        for group in fleet.coordinated_by(broker)
        if (not states or group.state.lower() in states) and (not types or group.group_type.lower() in types)
    ]
    return ListGroupsResponse(throttle_time_ms=0, error_code=OK, groups=rows)


def _list_refused(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return ListGroupsResponse(throttle_time_ms=0, error_code=LOADING, groups=[])


def _described(fleet: Fleet, broker: int, request: Any) -> Any:
    shown = bool(request.include_authorized_operations)
    rows = [_of_group(fleet, broker, name, lambda group: _description(group, shown)) for name in request.groups]
    return DescribeGroupsResponse(
        throttle_time_ms=0,
        groups=[
            row if isinstance(row, tuple) else _without_description(row, name)
            for name, row in zip(request.groups, rows, strict=True)
        ],
    )


def _describe_refused(_fleet: Fleet, _broker: int, request: Any) -> Any:
    rows = [_without_description(LOADING, name) for name in request.groups]
    return DescribeGroupsResponse(throttle_time_ms=0, groups=rows)


def _of_group(fleet: Fleet, broker: int, name: str, made: Callable[[FleetGroup], Row]) -> Row | int:
    """What `made` gives of a group; an error code where this broker doesn't coordinate it, or there is none."""
    group = fleet.groups.get(name)
    if group is None:
        return NOT_FOUND
    return made(group) if group.coordinator == broker else NOT_COORDINATOR


def _description(group: FleetGroup, shown: bool) -> Row:
    members = [
        (row.member_id, row.group_instance_id, row.client_id, row.client_host, row.metadata, row.assignment)
        for row in group.members
    ]
    operations = GROUP_OPERATIONS if shown else None
    return (OK, None, group.group_id, group.state, group.protocol_type, group.protocol, members, operations)


def _without_description(error_code: int, name: str) -> Row:
    """Of a group that doesn't exist Kafka shows that it is dead."""
    is_missing = error_code == NOT_FOUND
    message = f"Group {name} not found." if is_missing else None
    return (error_code, message, name, DEAD if is_missing else "", "", "", [], None)


def _fetched(fleet: Fleet, broker: int, request: Any) -> Any:
    """Of a group that doesn't exist nothing is committed."""
    return OffsetFetchResponse(throttle_time_ms=0, groups=[_fetched_row(fleet, broker, row) for row in request.groups])


def _fetched_row(fleet: Fleet, broker: int, asked: Any) -> Row:
    row = _of_group(fleet, broker, asked.group_id, partial(_offsets, fleet, asked.topics))
    if row == NOT_FOUND:
        return (asked.group_id, _uncommitted(asked.topics or ()), OK)
    return (asked.group_id, [], row) if row == NOT_COORDINATOR else (asked.group_id, row, OK)


def _fetch_refused(_fleet: Fleet, _broker: int, request: Any) -> Any:
    rows: list[Row] = [(asked.group_id, [], LOADING) for asked in request.groups]
    return OffsetFetchResponse(throttle_time_ms=0, groups=rows)


def _offsets(fleet: Fleet, topics: Any, group: FleetGroup) -> Row:
    """Committed offsets of the partitions asked for; of all that have one, where None is asked for."""
    committed = fleet.committed(group)
    if topics is None:
        return [
            (topic, [(number, offset, NO_EPOCH, "", OK) for number, offset in rows])
            for topic, rows in committed.items()
        ]
    by_topic = {topic: dict(rows) for topic, rows in committed.items()}
    return [
        (
            row.name,
            [
                (number, by_topic.get(row.name, {}).get(number, NOTHING_COMMITTED), NO_EPOCH, "", OK)
                for number in row.partition_indexes
            ],
        )
        for row in topics
    ]


def _uncommitted(topics: Any) -> list[Row]:
    return [
        (row.name, [(number, NOTHING_COMMITTED, NO_EPOCH, "", OK) for number in row.partition_indexes])
        for row in topics
    ]


APIS = (
    Api(FindCoordinatorRequest, (4, 6), _coordinators, _coordinators_refused),
    Api(ListGroupsRequest, (5, 5), _listed, _list_refused),
    Api(DescribeGroupsRequest, (6, 6), _described, _describe_refused),
    Api(OffsetFetchRequest, (8, 9), _fetched, _fetch_refused),
)
