"""Groups of the newer protocols as a look reads them: each kind by its own request; what is unknown stays absent."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kafka.errors import GroupIdNotFoundError, IncompatibleBrokerVersion

from assignor_core.live import PartitionKey
from streaming.cluster import group_messages as messages
from streaming.cluster.broker_reads import BrokerReads, Reads
from streaming.cluster.described_groups import ShareOffsets
from streaming.collect.group_table import GroupView, Owner, SharePositions
from streaming.collect.groups import GroupSampler
from streaming.collect.partition_table import PartitionTable
from streaming.collect.sample import SampleState
from streaming.settings import CollectSettings
from tests.collect.by_row import PartitionView, partition_table

CONSUMER_GROUP = messages.ConsumerGroupDescribeResponse.DescribedGroup
CONSUMER_MEMBER = CONSUMER_GROUP.Member
SHARE_GROUP = messages.ShareGroupDescribeResponse.DescribedGroup
STREAMS_GROUP = messages.StreamsGroupDescribeResponse.DescribedGroup
OFFSETS = messages.DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
NO_OPERATIONS = -(2**31)


def partitions(log_ends: Mapping[PartitionKey, int | None]) -> PartitionTable:
    return partition_table({key: PartitionView("id", 1, (1,), log_end_offset=end) for key, end in log_ends.items()})


PARTITIONS = partitions({("t", 0): 20, ("t", 1): 20})


@dataclass
class Broker:
    """As much of an admin client as is used: one group of one kind, and `answers` by the name of the request."""

    kind: str
    state: str = "Stable"
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def list_groups(self, broker: int) -> list[dict[str, Any]]:
        assert broker == 1
        protocol = "share" if self.kind == "share" else "consumer"
        return [{"group_id": "g", "protocol_type": protocol, "group_state": self.state, "group_type": self.kind}]

    def ask_broker(self, broker: int, request: Any) -> Any:
        """The answer as it comes out of the wire, so that what is not sent is not there."""
        assert broker == 1
        name = type(request).__name__
        self.asked.append(name)
        answer = self.answers[name]
        if isinstance(answer, Exception):
            raise answer
        response = getattr(messages, name.replace("Request", "Response"))
        return response.decode(bytes(answer.encode(version=response.max_version)), version=response.max_version)

    def cleanup_policies(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "delete")

    def committed_offsets(self, broker: int, names: Sequence[str]) -> Reads:
        assert broker == 1
        self.asked.append("OffsetFetch")
        return {name: {("t", 0): 7} for name in names}, {}


def view(broker: Broker) -> GroupView | None:
    look = SampleState({1: None}, began_ms=0, began_s=0.0, monotonic=lambda: 0.0)
    reads, listed = cast(BrokerReads, broker), {1: broker.list_groups(1)}
    return GroupSampler().read(reads, CollectSettings(), look, listed, PARTITIONS).views.get("g")


def assignment(of: Any, *partitions: int) -> Any:
    topic = of.TopicPartitions(topic_id=None, topic_name="t", partitions=list(partitions))
    return of(topic_partitions=[topic] if partitions else [])


def consumer_member(member_id: str, owned: Sequence[int], target: Sequence[int], **more: Any) -> Any:
    values = {
        "instance_id": None, "rack_id": None, "member_epoch": 7, "client_id": "c", "client_host": "/127.0.0.1",
        "subscribed_topic_names": ["t"], "subscribed_topic_regex": None, "member_type": 1,
    }  # fmt: skip
    return CONSUMER_MEMBER(
        member_id=member_id, assignment=assignment(CONSUMER_MEMBER.Assignment, *owned),
        target_assignment=assignment(CONSUMER_MEMBER.Assignment, *target), **(values | more),
    )  # fmt: skip


def consumer_group(*members: Any, error_code: int = 0) -> dict[str, Any]:
    group = CONSUMER_GROUP(
        error_code=error_code, error_message=None, group_id="g", group_state="Reconciling", group_epoch=7,
        assignment_epoch=7, assignor_name="uniform", members=list(members), authorized_operations=NO_OPERATIONS,
    )  # fmt: skip
    return {"ConsumerGroupDescribeRequest": messages.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[group])}


def test_a_group_of_the_consumer_protocol_is_read_member_by_member() -> None:
    static = consumer_member("m-1", [0], [0], instance_id="i", rack_id="r", subscribed_topic_regex="t.*")
    joining = consumer_member("m-2", [], [1])
    broker = Broker("consumer", answers=consumer_group(static, joining))
    group = view(broker)
    assert group is not None
    assert group.owners == {("t", 0): Owner("m-1", "c", "i", "r", "t.*", "127.0.0.1")}
    assert group.targets == {("t", 0): "m-1", ("t", 1): "m-2"}
    assert (group.state, group.group_type, group.generation_id) == ("Reconciling", "consumer", 7)
    assert (group.members, group.assignor) == (2, "uniform")
    assert group.committed == {("t", 0): 7}
    assert broker.asked == ["ConsumerGroupDescribeRequest", "OffsetFetch"]


def incompatible() -> Exception:
    error: Exception = IncompatibleBrokerVersion("no such request")
    return error


@pytest.mark.parametrize(
    "answers",
    [
        lambda: consumer_group(error_code=GroupIdNotFoundError.errno),  # it became a classic group just now
        lambda: {"ConsumerGroupDescribeRequest": incompatible()},
    ],
)
def test_of_a_group_that_is_not_described_members_are_unknown_and_not_none(answers: Callable[[], Any]) -> None:
    group = view(Broker("consumer", answers=answers()))
    assert group is not None
    assert (group.state, group.members, group.generation_id, group.owners) == ("Stable", None, None, {})
    assert group.committed == {("t", 0): 7}


def test_a_group_that_is_empty_has_no_members_without_being_described() -> None:
    broker = Broker("consumer", state="Empty")
    group = view(broker)
    assert group is not None
    assert (group.state, group.members) == ("Empty", 0)
    assert broker.asked == ["OffsetFetch"]


def share_group() -> Any:
    of = SHARE_GROUP.Member
    members = [
        of(member_id=name, rack_id=None, member_epoch=3, client_id="c", client_host="/127.0.0.1",
           subscribed_topic_names=["t"], assignment=assignment(of.Assignment, 0, 1))
        for name in ("m-1", "m-2", "m-3")
    ]  # fmt: skip
    group = SHARE_GROUP(
        error_code=0, error_message=None, group_id="g", group_state="Stable", group_epoch=3, assignment_epoch=3,
        assignor_name="simple", members=members, authorized_operations=NO_OPERATIONS,
    )  # fmt: skip
    return messages.ShareGroupDescribeResponse(throttle_time_ms=0, groups=[group])


def share_offsets(*rows: tuple[int, int]) -> Any:
    topic, row = OFFSETS.DescribeShareGroupOffsetsResponseTopic, None
    row = topic.DescribeShareGroupOffsetsResponsePartition
    partitions = [
        row(partition_index=number, start_offset=start, leader_epoch=0, lag=lag, error_code=0, error_message=None)
        for number, (start, lag) in enumerate(rows)
    ]
    topics = [topic(topic_name="t", topic_id=None, partitions=partitions)]
    group = OFFSETS(group_id="g", topics=topics, error_code=0, error_message=None)
    return messages.DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=[group])


def test_a_share_group_has_start_offsets_members_and_no_owners() -> None:
    answers = {
        "ShareGroupDescribeRequest": share_group(),
        "DescribeShareGroupOffsetsRequest": share_offsets((5, 12), (-1, -1)),
    }
    group = view(Broker("share", answers=answers))
    assert group is not None
    assert (group.group_type, group.members, group.generation_id, group.owners) == ("share", 3, 3, {})
    assert group.committed == {("t", 0): 8}, "12 of 20 are left: three past the start offset are done"
    assert group.share == ShareOffsets({("t", 0): 5}, {("t", 0): 12}, (("t", 1),))


def test_the_lag_of_a_share_group_is_unknown_where_the_broker_does_not_know_it() -> None:
    answers = {"ShareGroupDescribeRequest": share_group(), "DescribeShareGroupOffsetsRequest": share_offsets((5, -1))}
    group = view(Broker("share", answers=answers))
    assert group is not None
    assert (group.committed, group.share) == ({}, ShareOffsets({("t", 0): 5}, {("t", 0): None}))


def placed(positions: SharePositions, start: int, lag: int | None, log_end: int | None) -> int | None:
    offsets = ShareOffsets({("t", 0): start}, {("t", 0): lag})
    shared = GroupView("Stable", {}, {}, group_type="share", share=offsets)
    return positions.placed("g", shared, partitions({("t", 0): log_end})).committed.get(("t", 0))


def test_the_position_of_a_share_group_goes_back_only_if_its_start_offset_does() -> None:
    positions = SharePositions()
    assert placed(positions, 73, 0, 100) == 100, "the start offset stays behind what is done"
    assert placed(positions, 73, 8, 105) == 100, "three were written after the log end was read"
    assert placed(positions, 73, None, 110) is None
    assert placed(positions, 90, 2, 110) == 108
    assert placed(positions, 10, 100, 110) == 10, "the group was reset"
    positions.forget_others(())
    assert placed(positions, 10, 102, 110) == 10


def test_of_a_topic_that_was_made_again_the_position_begins_anew() -> None:
    """The start offset is behind in both logs and tells them not apart."""
    positions = SharePositions()
    assert placed(positions, 0, 0, 1_000) == 1_000
    assert placed(positions, 0, 10, 10) == 0
    assert placed(positions, 0, 500, 500) == 0
    assert placed(positions, 0, 100, 600) == 500


def test_without_lags_from_the_broker_the_position_is_the_start_offset() -> None:
    shared = GroupView("Stable", {}, {}, group_type="share", share=ShareOffsets({("t", 0): 5}))
    assert SharePositions().placed("g", shared, PARTITIONS).committed == {("t", 0): 5}


def test_a_share_group_whose_offsets_cannot_be_had_is_left_out() -> None:
    answers = {"ShareGroupDescribeRequest": incompatible(), "DescribeShareGroupOffsetsRequest": incompatible()}
    assert view(Broker("share", answers=answers)) is None


def tasks(*partitions: int) -> Any:
    of = STREAMS_GROUP.Member.Assignment
    active = [of.TaskIds(subtopology_id="0", partitions=list(partitions))]
    return of(active_tasks=active, standby_tasks=[], warmup_tasks=[])


def streams_group(*, initialised: bool = True) -> Any:
    of = STREAMS_GROUP.Topology.Subtopology
    internal = of.TopicInfo(name="g-repartition", partitions=2, replication_factor=1, topic_configs=[])
    subtopology = of(
        subtopology_id="0", source_topics=["t"], repartition_sink_topics=[], state_changelog_topics=[],
        repartition_source_topics=[internal],
    )  # fmt: skip
    member = STREAMS_GROUP.Member(
        member_id="m", member_epoch=4, instance_id=None, rack_id=None, client_id="app-1", client_host="/127.0.0.1",
        topology_epoch=2, process_id="p", user_endpoint=None, client_tags=[], task_offsets=[], task_end_offsets=[],
        assignment=tasks(0, 1), target_assignment=tasks(0), is_classic=False,
    )  # fmt: skip
    topology = STREAMS_GROUP.Topology(epoch=2, subtopologies=[subtopology]) if initialised else None
    group = STREAMS_GROUP(
        error_code=0, error_message=None, group_id="g", group_state="Stable" if initialised else "NotReady",
        group_epoch=4, assignment_epoch=4, topology=topology, members=[member], authorized_operations=NO_OPERATIONS,
    )  # fmt: skip
    return messages.StreamsGroupDescribeResponse(throttle_time_ms=0, groups=[group])


@pytest.mark.long
def test_tasks_of_a_streams_group_own_the_partitions_they_read() -> None:
    group = view(Broker("streams", answers={"StreamsGroupDescribeRequest": streams_group()}))
    assert group is not None
    assert group.owners == dict.fromkeys([("t", 0), ("t", 1)], Owner("m", "app-1", client_host="127.0.0.1")), (
        "of the topic that exists"
    )
    assert group.targets == {("t", 0): "m"}
    assert (group.group_type, group.members, group.generation_id, group.topology_epoch) == ("streams", 1, 4, 2)


def test_a_streams_group_without_its_topology_has_members_that_own_nothing() -> None:
    answers = {"StreamsGroupDescribeRequest": streams_group(initialised=False)}
    group = view(Broker("streams", answers=answers))
    assert group is not None
    assert (group.state, group.members, group.owners, group.topology_epoch) == ("NotReady", 1, {}, None)
