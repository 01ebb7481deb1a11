"""Metadata, groups and requests of the collector's own codec are those of kafka-python's classes, in all versions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import KafkaError, KafkaProtocolError, NotControllerError, RequestTimedOutError
from kafka.protocol.admin import DescribeGroupsResponse
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from streaming.cluster.broker_reads import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    READ_COMMITTED,
    WITH_ISOLATION,
    BrokerReads,
    OffsetRequest,
    OffsetRequests,
)
from streaming.cluster.described_groups import ClassicGroups, DescribedGroup
from streaming.cluster.metadata import MetadataDecoder
from streaming.cluster.wire import RawAnswer, RawRequest, TrafficCounters
from tests.metadata_answers import metadata_answer

NAME = st.text(min_size=1, max_size=3) | st.just("n" * 200)
BROKER = st.integers(0, 2**31 - 1)
Row = tuple[Any, ...]

PARTITIONS = st.lists(
    st.tuples(st.just(0), BROKER, st.integers(-1, 9), st.just(1), st.lists(BROKER), st.lists(BROKER), st.lists(BROKER)),
    max_size=4, unique_by=lambda row: row[1],
)  # fmt: skip
BROKERS = st.lists(st.tuples(BROKER, NAME, st.just(9092), st.none() | NAME), max_size=3, unique_by=lambda row: row[0])


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(BROKERS, st.dictionaries(NAME, PARTITIONS, max_size=4), NAME, st.integers(1, 13))
def test_metadata(brokers: list[Row], topics: dict[str, list[Row]], cluster_id: str, version: int) -> None:
    answered = {name: (0, place, rows) for place, (name, rows) in enumerate(topics.items())}
    body = metadata_answer(version, answered, brokers, cluster_id=cluster_id)
    made = MetadataDecoder().decode(version, body)
    assert made.racks == {broker: rack for broker, _, _, rack in brokers}
    assert made.cluster_id == (cluster_id if version >= 2 else "")
    assert made.topics == tuple(sorted(topics))
    if version >= 10:
        ids = {name: str(UUID(int=place)) for place, name in enumerate(topics)}
        assert made.topic_ids == tuple(ids[name] for name in made.topics)
    begins = made.replicas_begin.tolist()
    shown = [
        (made.topics[topic], number, leader, made.replica_broker[begins[row] : begins[row + 1]].tolist())
        for row, (topic, number, leader) in enumerate(zip(made.topic, made.number, made.leader, strict=True))
    ]
    every = sorted((name, row[1], row[2], row[4], row[5]) for name, rows in topics.items() for row in rows)
    assert shown == [row[:4] for row in every]
    assert made.addresses == {broker: f"{host}:9092" for broker, host, _, _ in brokers if ":" not in host} | {
        broker: f"[{host}]:9092" for broker, host, _, _ in brokers if ":" in host
    }


def test_replicas_that_are_not_in_sync_are_shown_and_without_a_leader_none_is() -> None:
    rows: list[Row] = [
        (0, number, leader, 0, [1, 2, 3], in_sync, [])
        for number, (leader, in_sync) in enumerate([(1, [1, 2, 3]), (1, [3, 1]), (-1, [2]), (1, [1])])
    ]
    made = MetadataDecoder().decode(13, metadata_answer(13, {"t": (0, 1, rows)}, [(1, "h", 9092, None)]))
    assert made.out_of_sync == {1: (2,), 2: (1, 2, 3), 3: (2, 3)}


def one_topic(version: int, *, leader: int = 1, brokers: Sequence[int] = (1, 2), controller: int = 1) -> bytes:
    partition: Row = (0, 0, leader, 0, [1, 2], [1, 2], [])
    rows = [(broker, "host", 9092, None) for broker in brokers]
    return metadata_answer(version, {"t": (0, 1, [partition])}, rows, controller=controller)


@pytest.mark.parametrize("version", [1, 8, 13])
def test_metadata_is_decoded_anew_only_if_topics_or_partitions_have_changed(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoder = MetadataDecoder()
    first = decoder.decode(version, one_topic(version))
    with monkeypatch.context() as patched:
        patched.setattr("streaming.cluster.metadata.read_topic", None)
        assert decoder.decode(version, one_topic(version)) is first
        assert decoder.decode(version, one_topic(version, controller=2)) is first
        with_broker = decoder.decode(version, one_topic(version, brokers=(1, 2, 3)))
    assert list(with_broker.racks) == [1, 2, 3]
    assert with_broker.leader is first.leader
    elected = decoder.decode(version, one_topic(version, leader=2))
    assert (elected.leader.tolist(), dict(elected.led_by_broker)) == ([2], {2: {"t": [0]}})
    assert dict(first.led_by_broker) == {1: {"t": [0]}}


def test_a_torn_answer_of_metadata_is_refused_and_changes_nothing() -> None:
    decoder = MetadataDecoder()
    first = decoder.decode(13, one_topic(13))
    with pytest.raises(KafkaProtocolError):
        decoder.decode(13, one_topic(13, leader=2)[:-20])
    assert decoder.decode(13, one_topic(13)) is first


OFFSETS_LED = st.dictionaries(NAME, st.lists(BROKER, max_size=3), max_size=3).map(lambda led: dict(sorted(led.items())))


def request_of_kafka_python(led: dict[str, list[int]], version: int, timestamp: int, isolation_level: int = 0) -> bytes:
    topic_of = ListOffsetsRequest.ListOffsetsTopic
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, timeout_ms=10_000,
        topics=[
            topic_of(
                name=name,
                partitions=[
                    topic_of.ListOffsetsPartition(
                        partition_index=number, current_leader_epoch=-1,
                        # Brokers without tiered storage don't know the first local offset: it is the log start.
                        timestamp=-2 if timestamp == -4 and version < 8 else timestamp,
                    )
                    for number in numbers
                ],
            )
            for name, numbers in led.items()
        ],
    )  # fmt: skip
    return bytes(request.encode(version=version))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 2), OFFSETS_LED, st.integers(1, 11), st.sampled_from((-1, -2, -4))), max_size=6)
)
def test_requests_for_offsets_are_the_bytes_that_kafka_python_writes(
    asked: list[tuple[int, dict[str, list[int]], int, int]],
) -> None:
    requests = OffsetRequests()
    for broker, led, version, timestamp in asked:
        body = requests.of(broker, led, timestamp).body(version, timestamp)
        assert body == request_of_kafka_python(led, version, timestamp)
        if version >= WITH_ISOLATION:
            stable = OffsetRequest(led, READ_COMMITTED).body(version, timestamp)
            assert stable == request_of_kafka_python(led, version, timestamp, READ_COMMITTED)


def test_a_request_for_offsets_is_written_once_for_as_long_as_a_broker_leads_the_same_partitions() -> None:
    requests = OffsetRequests()
    first = requests.of(1, {"orders": [0, 2]}, LATEST)
    assert requests.of(1, {"orders": [1]}, EARLIEST) is not first
    assert requests.of(1, {"orders": [0, 2]}, EARLIEST_LOCAL) is first
    assert requests.of(2, {"orders": [0, 3]}, LATEST) is not first
    assert requests.of(1, {"orders": [0, 3]}, LATEST) is not first


def subscription(generation_id: int, rack_id: str | None, version: int) -> bytes:
    made = ConsumerProtocolSubscription(
        version=version, topics=["t", "u"], user_data=b"x", owned_partitions=[("t", [1, 2])],
        generation_id=generation_id, rack_id=rack_id,
    )  # fmt: skip
    return bytes(made.encode())


def described(version: int, members: list[Row], *, state: str = "Stable", error_code: int = 0) -> bytes:
    group = DescribeGroupsResponse.DescribedGroup
    rows = [
        group.DescribedGroupMember(
            member_id=member_id, group_instance_id="i", client_id="c", client_host="/h", member_metadata=joined,
            member_assignment=assigned,
        )
        for member_id, joined, assigned in members
    ]  # fmt: skip
    made = group(
        error_code=error_code, error_message=None, group_id="g", group_state=state, protocol_type="consumer",
        protocol_data="range", members=rows, authorized_operations=None,
    )  # fmt: skip
    return bytes(DescribeGroupsResponse(throttle_time_ms=0, groups=[made]).encode(version=version))


ASSIGNED = bytes(
    ConsumerProtocolAssignment(version=1, assigned_partitions=[("t", [3, 1]), ("a", [0])], user_data=None).encode()
)


@pytest.mark.parametrize("version", range(7))
def test_members_of_a_classic_group(version: int) -> None:
    groups = ClassicGroups()
    for _ in range(2):  # from bytes, and from what was kept of them
        made = groups.decode(version, described(version, [("m", subscription(4, "r", 3), ASSIGNED)]))["g"]
        (member,) = made.members
        assert (made.state, made.assignor, made.generation_id) == ("Stable", "range", 5)
        assert (member.member_id, member.client_id, member.rack_id) == ("m", "c", "r")
        assert member.group_instance_id == ("i" if version >= 4 else None)
        assert member.client_host == "h"
        assert member.owned == (("a", 0), ("t", 1), ("t", 3))


def test_of_an_assignment_without_bounds_a_part_is_read_and_the_rest_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.cluster.described_groups.PARTITIONS_MAX", 5)
    monkeypatch.setattr("streaming.cluster.described_groups.KEPT_BYTES_MAX", 100)
    many = [("t", list(range(4))), ("u", list(range(3))), ("v", [0])]
    assigned = bytes(ConsumerProtocolAssignment(version=1, assigned_partitions=many, user_data=None).encode())
    groups, row = ClassicGroups(), described(6, [("m", subscription(4, "r", 3), assigned)])
    made = groups.decode(6, row)["g"]
    (member,) = made.members
    assert (member.owned, member.unread) == ((("t", 0), ("t", 1), ("t", 2), ("t", 3), ("u", 0)), 3)
    assert groups.decode(6, row)["g"] is not made, "rows of that size are not kept"


def test_a_group_that_has_changed_since_the_last_answer_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    member = ("m", subscription(4, "r", 3), ASSIGNED)
    groups = ClassicGroups()

    def read(members: list[Row], *, version: int = 6, **options: Any) -> DescribedGroup | None:
        return groups.decode(version, described(version, members, **options)).get("g")

    first = read([member])
    assert first is not None
    assert read([member]) is first
    assert read([member], version=5) == first
    changed = [
        read([member], state="PreparingRebalance"),
        read([("m", subscription(5, "r", 3), ASSIGNED)]),
        read([("m", subscription(4, "r", 3), b"")]),
        read([member, ("n", b"", b"")]),
        read([]),
        read([member], state="Dead"),
    ]
    assert all(row != first for row in changed)
    assert read([member]) == first
    monkeypatch.setattr("streaming.cluster.described_groups.KEPT_MAX", 1)
    assert (read([member], state="Empty"), read([member])) == (replace(first, state="Empty"), first)


@pytest.mark.parametrize(
    ("joined_with", "generation_id"),
    [
        (
            [subscription(4, None, 3), subscription(-1, None, 2), subscription(4, None, 3)],
            5,
        ),  # two were there, one is new
        ([subscription(3, None, 2), subscription(4, None, 2)], 5),  # one came back and was slow to
        ([subscription(-1, None, 3)], None),  # all new
        ([subscription(2**31 - 1, None, 3)], None),  # no group has one after it
        ([subscription(2**31 - 2, None, 3)], 2**31 - 1),
        ([subscription(-7, None, 3)], None),
        ([subscription(4, None, 3), subscription(2**31 - 1, None, 3), subscription(-(2**31), None, 3)], 5),
        ([subscription(9, None, 1)], None),  # a client that doesn't send it
        ([b"", b"not to be decoded", b"\x00\x03\x7f\xff\xff\xff"], None),
    ],
)
def test_the_generation_is_read_off_what_members_joined_with(
    joined_with: list[bytes], generation_id: int | None
) -> None:
    members = [(f"m{number}", joined, b"\x00") for number, joined in enumerate(joined_with)]
    made = ClassicGroups().decode(6, described(6, members))["g"]
    assert made.generation_id == generation_id
    assert all(member.owned == () for member in made.members)


def test_a_group_that_is_gone_or_refused_is_left_out() -> None:
    assert ClassicGroups().decode(6, described(6, [], state="Dead")) == {}
    assert ClassicGroups().decode(6, described(6, [], error_code=30)) == {}


class Admin:
    """As much of the client as is used for what any broker knows: `errors` by broker, the others answer."""

    def __init__(self, errors: dict[int, KafkaError]) -> None:
        self.errors, self.asked = errors, list[int]()

    def broker_ids(self) -> list[int]:
        return [1, 2, 3]

    def ask_raw(self, broker: int, _request: RawRequest) -> RawAnswer:
        self.asked.append(broker)
        if broker in self.errors:
            raise self.errors[broker]
        return RawAnswer(9, metadata_answer(9, {}))


def test_metadata_is_asked_of_another_broker_where_one_hangs_and_of_that_one_last_from_then_on() -> None:
    admin: Any = Admin({1: RequestTimedOutError(), 2: RequestTimedOutError()})
    reads = BrokerReads(admin)
    for _ in range(20):
        assert reads.metadata().cluster_id == "c"
    silent = reads.silent_brokers().keys()
    assert silent <= {1, 2}
    assert [admin.asked.count(broker) for broker in (1, 2)] == [int(broker in silent) for broker in (1, 2)]
    assert reads.silent_brokers() == {}
    admin.errors = dict.fromkeys((1, 2, 3), RequestTimedOutError())
    with pytest.raises(RequestTimedOutError):
        reads.metadata()


def test_a_refusal_is_no_reason_to_ask_another_broker() -> None:
    admin: Any = Admin(dict.fromkeys((1, 2, 3), NotControllerError()))
    with pytest.raises(NotControllerError):
        BrokerReads(admin).metadata()
    assert len(admin.asked) == 1


def test_requests_and_bytes_are_counted_by_broker_until_they_are_taken() -> None:
    traffic = TrafficCounters()
    traffic.note(1, 10, 100)
    traffic.note(1, 20, 200)
    traffic.note(2, 1, 1)
    counted = traffic.taken()
    assert (counted[1].requests, counted[1].sent_bytes, counted[1].received_bytes) == (2, 30, 300)
    assert counted.keys() == {1, 2}
    assert traffic.taken() == {}
