"""Groups of the newer protocols: ConsumerGroupDescribe (KIP-848), ShareGroupDescribe and share offsets (KIP-932)."""

from collections.abc import Callable, Mapping
from typing import Any

from streaming.cluster import group_messages as messages
from tests.fleet.api import LOADING, OK, Api
from tests.fleet.api_groups import NOT_COORDINATOR, NOT_FOUND
from tests.fleet.fleet import Fleet
from tests.fleet.groups import CONSUMER, SHARE, FleetGroup, FleetMember

CONSUMER_GROUP = messages.ConsumerGroupDescribeResponse.DescribedGroup
SHARE_GROUP = messages.ShareGroupDescribeResponse.DescribedGroup
OFFSETS = messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
NO_OPERATIONS = -(2**31)
DONE = 1
"""So many records past the start offset are acknowledged already."""
HAS_NO_MEMBERS: dict[str, Any] = {
    "group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": [],
    "authorized_operations": NO_OPERATIONS,
}  # fmt: skip


def _error(fleet: Fleet, broker: int, name: str, group_type: str) -> int:
    """Whether this broker describes the group by this request."""
    group = fleet.groups.get(name)
    if group is None or group.group_type != group_type:
        return NOT_FOUND
    return OK if group.coordinator == broker else NOT_COORDINATOR


def _described(
    fleet: Fleet, broker: int, request: Any, group_type: str, made: Callable[[FleetGroup], dict[str, Any]]
) -> list[dict[str, Any]]:
    rows = []
    for name in request.group_ids:
        error = _error(fleet, broker, name, group_type)
        shown = made(fleet.groups[name]) if error == OK else HAS_NO_MEMBERS
        rows.append({"error_code": error, "error_message": None, "group_id": name, **shown})
    return rows


def _consumer_groups(fleet: Fleet, broker: int, request: Any) -> Any:
    rows = _described(fleet, broker, request, CONSUMER, _consumer_group)
    return messages.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[CONSUMER_GROUP(**row) for row in rows])


def _consumer_group(group: FleetGroup) -> dict[str, Any]:
    of = CONSUMER_GROUP.Member
    members = [
        of(
            **_member(group, member), instance_id=member.group_instance_id, subscribed_topic_regex=None, member_type=1,
            assignment=_assignment(of.Assignment, member.owned),
            target_assignment=_assignment(of.Assignment, member.owned),
        )
        for member in group.members
    ]  # fmt: skip
    return {**_of_group(group), "members": members}


def _of_group(group: FleetGroup) -> dict[str, Any]:
    return {
        "group_state": group.state, "group_epoch": group.epoch, "assignment_epoch": group.epoch,
        "assignor_name": group.protocol, "authorized_operations": NO_OPERATIONS,
    }  # fmt: skip


def _member(group: FleetGroup, member: FleetMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id, "rack_id": None, "member_epoch": group.epoch, "client_id": member.client_id,
        "client_host": member.client_host, "subscribed_topic_names": sorted(member.owned),
    }  # fmt: skip


def _assignment(of: Any, owned: Mapping[str, list[int]]) -> Any:
    return of(
        topic_partitions=[
            of.TopicPartitions(topic_id=None, topic_name=topic, partitions=list(numbers))
            for topic, numbers in owned.items()
        ]
    )


def _share_groups(fleet: Fleet, broker: int, request: Any) -> Any:
    rows = _described(fleet, broker, request, SHARE, _share_group)
    return messages.ShareGroupDescribeResponse(throttle_time_ms=0, groups=[SHARE_GROUP(**row) for row in rows])


def _share_group(group: FleetGroup) -> dict[str, Any]:
    of = SHARE_GROUP.Member
    members = [
        of(**_member(group, member), assignment=_assignment(of.Assignment, member.owned)) for member in group.members
    ]
    return {**_of_group(group), "members": members}


def _share_offsets(fleet: Fleet, broker: int, request: Any) -> Any:
    """All partitions that the group reads; what it has committed are its start offsets."""
    groups = []
    for asked in request.groups:
        error = _error(fleet, broker, asked.group_id, SHARE)
        committed = fleet.committed(fleet.groups[asked.group_id]) if error == OK else {}
        topics = [_share_topic(fleet, topic, dict(rows)) for topic, rows in committed.items()]
        groups.append(OFFSETS(group_id=asked.group_id, topics=topics, error_code=error, error_message=None))
    return messages.DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


def _share_topic(fleet: Fleet, topic: str, starts: Mapping[int, int]) -> Any:
    of = OFFSETS.DescribeShareGroupOffsetsResponseTopic
    made = of.DescribeShareGroupOffsetsResponsePartition
    partitions = [
        made(
            partition_index=number, start_offset=start, leader_epoch=0, error_code=OK, error_message=None,
            lag=fleet.offsets(topic, fleet.contents.topics[topic].partitions[number])[1] - start - DONE,
        )
        for number, start in starts.items()
    ]  # fmt: skip
    return of(topic_name=topic, topic_id=None, partitions=partitions)


def _refused(response: Any, group: Any) -> Callable[[Fleet, int, Any], Any]:
    def refuse(_fleet: Fleet, _broker: int, request: Any) -> Any:
        rows = [
            group(error_code=LOADING, error_message=None, group_id=name, **HAS_NO_MEMBERS) for name in request.group_ids
        ]
        return response(throttle_time_ms=0, groups=rows)

    return refuse


APIS = (
    Api(
        messages.ConsumerGroupDescribeRequest, (0, 1), _consumer_groups,
        _refused(messages.ConsumerGroupDescribeResponse, CONSUMER_GROUP),
    ),
    Api(
        messages.ShareGroupDescribeRequest, (1, 1), _share_groups,
        _refused(messages.ShareGroupDescribeResponse, SHARE_GROUP),
    ),
    Api(messages.DescribeShareGroupOffsetsRequest, (0, 1), _share_offsets),
)  # fmt: skip
