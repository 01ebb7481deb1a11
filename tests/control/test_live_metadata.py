"""Metadata as control decodes it: the topics of kafka-python's classes in all versions, each decoded once."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.errors import ClusterAuthorizationFailedError, KafkaProtocolError
from kafka.protocol.metadata import MetadataResponse

from assignor_core.live import LivePartition
from streaming.cluster.metadata import LiveMetadata, LiveTopic
from tests.metadata_answers import metadata_answer

Row = tuple[Any, ...]

NAME = st.text(min_size=1, max_size=3) | st.just("n" * 200)
BROKER = st.integers(0, 2**31 - 1)
BROKERS = st.lists(st.tuples(BROKER, NAME, st.just(9092), st.none() | NAME), max_size=3, unique_by=lambda row: row[0])
REPLICAS = st.sampled_from(([1, 2, 3], [1, 2, 3], [], [2**31 - 1], [3, 1], list(range(130))))
PARTITION_ERRORS = st.sampled_from((0, 5, 9, 72))
PARTITION = st.tuples(PARTITION_ERRORS, BROKER, st.integers(-1, 9), st.just(1), REPLICAS, REPLICAS, REPLICAS)
PARTITIONS = st.lists(PARTITION, max_size=3, unique_by=lambda row: row[1])
TOPIC_ERRORS = st.sampled_from((0, 0, 0, 3, 5, 17, 29, 100))
TOPICS = st.dictionaries(NAME, st.tuples(TOPIC_ERRORS, st.integers(0, 3), PARTITIONS), max_size=3)


def of_kafka_python(version: int, body: bytes) -> list[LiveTopic]:
    """What its classes make of an answer."""
    topics = []
    for row in MetadataResponse[version].decode(body).to_dict()["topics"]:
        shown_id = row.get("topic_id")
        partitions = {
            (row["name"], partition["partition_index"]): LivePartition(
                tuple(partition["replica_nodes"]), partition["leader_id"], tuple(partition["isr_nodes"])
            )
            for partition in row["partitions"]
        }
        topic_id = None if shown_id == str(UUID(int=0)) else shown_id
        topics.append(LiveTopic(row["name"], topic_id, row["error_code"], partitions))
    return topics


@pytest.mark.long
@settings(max_examples=30, deadline=None)
@given(BROKERS, TOPICS, TOPICS, st.integers(1, 13), st.booleans())
def test_topics_are_those_of_kafka_pythons_classes(
    brokers: list[Row], topics: dict[str, Row], later: dict[str, Row], version: int, whole: bool
) -> None:
    metadata = LiveMetadata()
    for shown in (topics, topics | later, later, topics):
        body = metadata_answer(version, shown, brokers)
        assert metadata.decode(version, body, whole=whole) == of_kafka_python(version, body)


def topic(leader: int = 1, topic_id: int = 1, in_sync: Sequence[int] = (1, 2), error_code: int = 0) -> Row:
    return (error_code, topic_id, [(0, number, leader, 1, [1, 2], list(in_sync), []) for number in range(2)])


@pytest.mark.parametrize("version", [1, 8, 9, 12, 13])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    "changed", [topic(leader=2), topic(topic_id=3), topic(in_sync=(2,)), topic(error_code=5), (0, 1, [])]
)
def test_a_topic_is_decoded_again_once_it_has_changed(version: int, whole: bool, changed: Row) -> None:
    metadata = LiveMetadata()
    first = metadata.decode(version, metadata_answer(version, {"t": topic(), "u": topic()}), whole=whole)
    # Another order and other brokers, as another broker answers.
    same = metadata.decode(
        version, metadata_answer(version, {"u": topic(), "t": topic()}, [(1, "h", 9, None)]), whole=whole
    )
    assert (same[0], same[1]) == (first[1], first[0])
    assert same[0] is first[1]
    assert same[1] is first[0]
    body = metadata_answer(version, {"t": topic(), "u": changed})
    later = metadata.decode(version, body, whole=whole)
    assert later[0] is first[0]
    assert later == of_kafka_python(version, body)


def test_a_topic_that_is_gone_is_kept_no_longer_than_to_the_next_look_at_all() -> None:
    metadata = LiveMetadata()
    (first,) = metadata.decode(13, metadata_answer(13, {"t": topic()}), whole=True)
    metadata.decode(13, metadata_answer(13, {"u": topic()}), whole=False)
    (same,) = metadata.decode(13, metadata_answer(13, {"t": topic()}), whole=False)
    assert same is first
    metadata.decode(13, metadata_answer(13, {"u": topic()}), whole=True)
    (anew,) = metadata.decode(13, metadata_answer(13, {"t": topic()}), whole=True)
    assert anew == first
    assert anew is not first


def test_brokers_of_two_versions_answer_in_turn_while_they_are_upgraded() -> None:
    metadata = LiveMetadata()
    for version in (9, 13, 9, 12):
        body = metadata_answer(version, {"t": topic()})
        assert metadata.decode(version, body, whole=True) == of_kafka_python(version, body)


@pytest.mark.parametrize("version", [1, 5, 9, 13])
def test_a_torn_answer_is_refused_and_changes_nothing(version: int) -> None:
    metadata = LiveMetadata()
    (first,) = metadata.decode(version, metadata_answer(version, {"t": topic()}), whole=True)
    last = 1 if version >= 9 else 0  # tags of the answer: nobody reads them
    for rows in ({"t": topic()}, {"t": topic(leader=2)}):
        body = metadata_answer(version, rows)
        needed = len(body) - last - (4 if version in (9, 10) else 0)  # nor operations on the cluster
        for end in range(needed):
            with pytest.raises(KafkaProtocolError):
                metadata.decode(version, body[:end], whole=True)
    (same,) = metadata.decode(version, metadata_answer(version, {"t": topic()}), whole=True)
    assert same is first


def test_an_error_of_the_whole_answer_is_no_cluster_without_topics() -> None:
    with pytest.raises(ClusterAuthorizationFailedError):
        LiveMetadata().decode(13, metadata_answer(13, {}, error_code=ClusterAuthorizationFailedError.errno), whole=True)
