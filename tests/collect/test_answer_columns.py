"""Answers decoded into columns are those that kafka-python's classes encode, in all versions."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import KafkaProtocolError
from kafka.protocol.admin.cluster import DescribeLogDirsResponse
from kafka.protocol.consumer import ListOffsetsResponse, OffsetFetchResponse

from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import (
    CommittedRows,
    TopicRows,
    decode_list_offsets,
    decode_log_dirs,
    decode_offset_fetch,
)
from streaming.collect.group_table import GroupTable, GroupView
from tests.collect.by_row import offset_rows

NAMES = st.text(max_size=3) | st.just("n" * 200)
INDEX = st.integers(0, 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
CODE = st.integers(-1, 130)
Row = tuple[Any, ...]


def rows_of(topics: list[tuple[str, list[Row]]]) -> list[Row]:
    """(Topic, figures) of each partition."""
    return [(name, *row) for name, rows in topics for row in rows]


def shown(made: TopicRows, *columns: str) -> list[Row]:
    values = [made.column(name).tolist() for name in columns]
    return [
        (made.topics[topic], *row) for topic, row in zip(made.topic.tolist(), zip(*values, strict=True), strict=True)
    ]


def topics_of(*figures: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, list[Row]]]]:
    return st.lists(st.tuples(NAMES, st.lists(st.tuples(*figures), max_size=4)), max_size=4)


@settings(max_examples=40, deadline=None)
@given(topics_of(INDEX, CODE, LONG, LONG, st.integers(-1, 9)), st.integers(1, 11))
def test_offsets(topics: list[tuple[str, list[Row]]], version: int) -> None:
    body = bytes(ListOffsetsResponse(throttle_time_ms=0, topics=topics).encode(version=version))
    made = decode_list_offsets(version, body)
    assert shown(made, "index", "error", "offset") == [(name, row[0], row[1], row[3]) for name, *row in rows_of(topics)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(CODE, NAMES, topics_of(INDEX, LONG, LONG, st.booleans()), LONG, LONG), max_size=3),
    CODE, st.integers(1, 5),
)  # fmt: skip
def test_log_dirs(log_dirs: list[Row], error_code: int, version: int) -> None:
    result = DescribeLogDirsResponse.DescribeLogDirsResult
    response = DescribeLogDirsResponse(throttle_time_ms=0, error_code=error_code, results=[
        result(error_code=code, log_dir=path, topics=topics, total_bytes=total, usable_bytes=usable, is_cordoned=True)
        for code, path, topics, total, usable in log_dirs
    ])  # fmt: skip
    made_code, made = decode_log_dirs(version, bytes(response.encode(version=version)))
    assert made_code == (error_code if version >= 3 else 0)
    for row, (code, path, topics, total, usable) in zip(made, log_dirs, strict=True):
        assert (row.error_code, row.path) == (code, path)
        assert shown(row.replicas, "index", "size", "lag", "is_future") == rows_of(topics)
        assert row.is_cordoned is (True if version >= 5 else None)
        volume = [figure if figure >= 0 and version >= 4 else None for figure in (total, usable)]
        assert [row.total_bytes, row.usable_bytes] == volume


COMMITS = topics_of(INDEX, LONG, st.integers(-1, 9), st.sampled_from(("", "", "", None, "m", "m" * 300)), CODE)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, st.tuples(COMMITS, CODE), min_size=1, max_size=3), st.integers(1, 9))
def test_commits(groups: dict[str, tuple[list[tuple[str, list[Row]]], int]], version: int) -> None:
    if version < 8:
        groups = {"": next(iter(groups.values()))}
    (topics, code), *_ = groups.values()
    # kafka-python takes the fields of a row in their order, and older versions have no epoch.
    old = [(name, [(row[0], row[1], *row[3:]) if version < 5 else row for row in rows]) for name, rows in topics]
    response = OffsetFetchResponse(
        throttle_time_ms=0, topics=old, error_code=code,
        groups=[(name, rows, error) for name, (rows, error) in groups.items()],
    )  # fmt: skip
    made = decode_offset_fetch(version, bytes(response.encode(version=version)))
    assert made.keys() == groups.keys()
    for name, (rows, error) in groups.items():
        assert made[name].error_code == (error if version >= 2 else 0)
        assert shown(made[name].partitions, "index", "offset", "error") == [
            (topic, row[0], row[1], row[4]) for topic, *row in rows_of(rows)
        ]


def test_tagged_fields_of_later_brokers_are_left_out() -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\x05\x00"
    rows = b"".join(bytes([0, 0, 0, index, 0, 0, *[0] * 8, *[0] * 7, index, 0, 0, 0, 0]) + tags for index in (1, 2))
    body = bytes(4) + b"\x02" + b"\x02t" + b"\x03" + rows + tags + tags
    assert shown(decode_list_offsets(11, body), "index", "error", "offset") == [("t", 1, 0, 1), ("t", 2, 0, 2)]
    plain = bytes([0, 0, 0, 3, *[0] * 7, 9, *[0] * 4, 0, 0, 0])
    body = bytes(4) + b"\x02" + b"\x02g" + b"\x02\x02t\x03" + plain + b"\x00" + plain + tags + tags + b"\x00\x00" + tags
    made: CommittedRows = decode_offset_fetch(9, body)["g"]
    assert shown(made.partitions, "index", "offset", "error") == [("t", 3, 9, 0)] * 2


@pytest.mark.parametrize("version", [1, 4, 6, 11])
def test_an_answer_that_is_torn_off_is_an_error_of_the_protocol(version: int) -> None:
    rows = [(index, 0, -1, 7, 1) for index in range(3)]
    body = bytes(ListOffsetsResponse(throttle_time_ms=0, topics=[("t", rows)]).encode(version=version))
    last = 2 if version >= 6 else 0  # tags of the topic and of the answer: nobody reads the latter
    for end in range(4, len(body) - last):
        with pytest.raises(KafkaProtocolError):
            decode_list_offsets(version, body[:end])


def test_topics_with_many_partitions_and_long_names_are_read_beside_others() -> None:
    topics = [
        ("a", [(1, 0, -1, 7, 1)]),
        ("n" * 200, [(2, 0, -1, 8, 1)]),
        ("b", [(row, 0, -1, 9, 1) for row in range(300)]),
    ]
    body = bytes(ListOffsetsResponse(throttle_time_ms=0, topics=topics).encode(version=11))
    made = shown(decode_list_offsets(11, body), "index", "offset")
    assert made == [(name, row[0], row[3]) for name, *row in rows_of(topics)]


def test_a_length_beyond_the_answer_is_refused_before_anything_is_made_of_it() -> None:
    with pytest.raises(KafkaProtocolError, match="elements announced"):
        decode_offset_fetch(9, bytes(4) + b"\xff\xff\xff\xff\x0f" + bytes(20))


COMMITTED = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), st.integers(-1, 9))


@pytest.mark.long
@given(COMMITTED, COMMITTED)
def test_it_is_the_mapping_of_partitions_that_have_an_offset(
    one: dict[PartitionKey, int], two: dict[PartitionKey, int]
) -> None:
    known, other = ({key: value for key, value in rows.items() if value >= 0} for rows in (one, two))
    rows = offset_rows(one)
    assert dict(rows) == known
    assert len(rows) == len(known)
    assert rows == known
    assert (rows == offset_rows(two)) == (known == other)
    assert (rows == other) == (known == other)


@given(st.dictionaries(st.sampled_from("xyz"), COMMITTED))
def test_a_table_has_the_same_rows_of_columns_as_of_dictionaries(groups: dict[str, dict[PartitionKey, int]]) -> None:
    made = [
        GroupTable({name: GroupView("Stable", make(rows), {}) for name, rows in groups.items()})
        for make in (offset_rows, lambda rows: {key: value for key, value in rows.items() if value >= 0})
    ]
    seen = []
    for table in made:
        rows, offsets = table.committing
        names = [rows.groups[group] for group in rows.group.tolist()]
        seen.append(set(zip(names, rows.names.keys_of_rows(), offsets.tolist(), strict=True)))
    assert seen[0] == seen[1]
    assert len(seen[0]) == sum(value >= 0 for rows in groups.values() for value in rows.values())
