"""Decodes Metadata: into columns for the collector, into partitions that control decides on for everybody else.

kafka-python makes an object of each partition. Here most topics of a large cluster are as they were in the answer
before: they are compared as bytes and not decoded again. docs/decisions and docs/fleet.md have the figures; tests
compare each version with kafka-python's classes.
"""

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
from kafka.errors import NoError, for_code

from assignor_core.live import LivePartition, PartitionKey
from assignor_core.wording import address_text
from streaming.cluster.wire import SEVERAL_BYTES, Reader, decoded

WITH_CLUSTER_ID, THROTTLED, WITH_OFFLINE, WITH_EPOCH = 2, 3, 5, 7
"""The first version of each."""
WITH_OPERATIONS, FLEXIBLE, WITH_TOPIC_ID, WITH_ERROR = 8, 9, 10, 13
VERSION_MIN, VERSION_MAX = 1, 13

Partition = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""(number, leader, replicas, replicas in sync)."""
NO_ID = "None"
Ints = npt.NDArray[np.int64]
UNSET_ID = "00000000-0000-0000-0000-000000000000"


class Head(NamedTuple):
    """What an answer begins with."""

    racks: dict[int, str | None]
    """Racks of brokers that are alive, lowest id first."""
    addresses: dict[int, str]
    """Addresses of brokers for clients of this listener, host:port."""
    cluster_id: str


class TopicRow(NamedTuple):
    """One topic, its partitions in order of their numbers."""

    name: str
    """Empty if the topic was asked for by its id and is not there."""
    topic_id: str
    """`NO_ID` in versions that show none."""
    error_code: int
    partitions: list[Partition]


def read_head(reader: Reader, version: int) -> Head:
    """Brokers and the id of the cluster; topics are what the reader reads next."""
    reader.skip(4 if version >= THROTTLED else 0)
    brokers = sorted(_broker(reader) for _ in range(reader.length()))
    cluster_id = reader.text() if version >= WITH_CLUSTER_ID else ""
    reader.skip(4)  # the controller
    racks = {broker: rack or None for broker, _, rack in brokers}
    return Head(racks, {broker: address for broker, address, _ in brokers}, cluster_id)


def read_topic(reader: Reader, version: int) -> TopicRow:
    """The next topic."""
    error_code = reader.int16()
    name = reader.text()
    topic_id = str(UUID(bytes=reader.taken(16))) if version >= WITH_TOPIC_ID else NO_ID
    reader.skip(1)
    partitions = sorted(_partition(reader, version) for _ in range(reader.length()))
    reader.skip(4 if version >= WITH_OPERATIONS else 0)
    reader.tags()
    return TopicRow(name, topic_id, error_code, partitions)


def _broker(reader: Reader) -> tuple[int, str, str]:
    """(Id, address, rack or nothing)."""
    broker, host, port, rack = reader.int32(), reader.text(), reader.int32(), reader.text()
    reader.tags()
    return broker, address_text(host, port), rack


def _partition(reader: Reader, version: int) -> Partition:
    place = reader.place
    number, leader = struct.unpack_from(">ii", reader.body, place + 2)
    reader.skip(14 if version >= WITH_EPOCH else 10)
    plain = _plain_replicas(reader.body, reader.place) if version >= FLEXIBLE else None
    if plain is not None:
        replicas, in_sync, reader.place = plain
        return number, leader, replicas, in_sync
    replicas, in_sync = _brokers(reader), _brokers(reader)
    if version >= WITH_OFFLINE:
        reader.skip(4 * reader.length())
    reader.tags()
    return number, leader, replicas, in_sync


def _brokers(reader: Reader) -> tuple[int, ...]:
    count = reader.length()
    brokers = struct.unpack_from(f">{count}i", reader.body, reader.place)
    reader.skip(4 * count)
    return brokers


def _plain_replicas(body: bytes, place: int) -> tuple[tuple[int, ...], tuple[int, ...], int] | None:
    """(Replicas, those in sync, where the next partition begins); None for long lists or tagged fields."""
    try:
        in_sync = place + 4 * body[place] - 3
        offline = in_sync + 4 * body[in_sync] - 3
        end = offline + 4 * body[offline] - 3
        has_tags = bool(body[end])
    except IndexError:  # a length of several bytes leads astray, perhaps behind the end
        return None
    if has_tags or not all(0 < body[at] < SEVERAL_BYTES for at in (place, in_sync, offline)):
        return None
    replicas = struct.unpack_from(f">{body[place] - 1}i", body, place + 1)
    if body[place:in_sync] == body[in_sync:offline]:  # as a rule all are in sync, in this order
        return replicas, replicas, end + 1
    return replicas, struct.unpack_from(f">{body[in_sync] - 1}i", body, in_sync + 1), end + 1


@dataclass(frozen=True, eq=False)
class ClusterMetadata:
    """What one broker shows. Topics in order of their names, and partitions in order of topic and number.

    `topic` is the place of each partition's topic. The replicas of partition i are
    `replica_broker[replicas_begin[i] : replicas_begin[i + 1]]`, the preferred leader first.
    """

    racks: dict[int, str | None]
    """Racks of the brokers that are alive, lowest id first."""
    addresses: dict[int, str]
    """Addresses of the brokers that are alive, host:port."""
    cluster_id: str
    topics: tuple[str, ...]
    topic_ids: tuple[str, ...]
    topic: Ints
    number: Ints
    leader: Ints
    replicas_begin: Ints
    replica_broker: Ints
    out_of_sync: Mapping[int, tuple[int, ...]]
    """Replicas that are not in sync by partition, where there are any; without a leader none is in sync."""

    @cached_property
    def led_by_broker(self) -> Mapping[int, Mapping[str, Sequence[int]]]:
        """Numbers of the partitions that each broker leads, by topic."""
        led: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        columns = zip(self.topic.tolist(), self.number.tolist(), self.leader.tolist(), strict=True)
        for topic, number, leader in columns:
            if leader >= 0:
                led[leader][self.topics[topic]].append(number)
        return led


class MetadataDecoder:
    """Decodes answers one after the other, with what is the same as in the answer before taken from there.

    Topics and partitions are compared as bytes: they change when a leader or a replica in sync does. Each answer names
    another broker as the controller (KIP-590), so that answers are seldom the same as a whole.
    """

    def __init__(self) -> None:
        self._topics = b""
        self._before: tuple[int, ClusterMetadata] | None = None

    def decode(self, version: int, body: bytes) -> ClusterMetadata:
        """Versions 1 to 13; raises KafkaProtocolError. Topics without a name (asked by id) are left out."""

        def decode(reader: Reader) -> ClusterMetadata:
            head = read_head(reader, version)
            topics = body[reader.place :]
            if self._before is not None and self._before[0] == version and self._topics == topics:
                before = self._before[1]
                is_same = (before.racks, before.addresses, before.cluster_id) == head
                metadata = before if is_same else replace(before, **head._asdict())
            else:
                rows = sorted(read_topic(reader, version) for _ in range(reader.length()))
                metadata = _columns(head, [row for row in rows if row.name])
            self._before, self._topics = (version, metadata), topics
            return metadata

        return decoded(decode, body, flexible=version >= FLEXIBLE)


def _columns(head: Head, topics: list[TopicRow]) -> ClusterMetadata:
    rows = [row for topic in topics for row in topic.partitions]
    counts = [len(topic.partitions) for topic in topics]
    return ClusterMetadata(
        *head,
        tuple(topic.name for topic in topics),
        tuple(topic.topic_id for topic in topics),
        np.repeat(np.arange(len(topics)), np.array(counts, dtype=np.int64)),
        np.array([number for number, *_ in rows], dtype=np.int64),
        np.array([leader for _, leader, *_ in rows], dtype=np.int64),
        np.cumsum([0, *(len(replicas) for _, _, replicas, _ in rows)], dtype=np.int64),
        np.array([broker for _, _, replicas, _ in rows for broker in replicas], dtype=np.int64),
        {
            place: tuple(broker for broker in replicas if leader < 0 or broker not in in_sync)
            for place, (_, leader, replicas, in_sync) in enumerate(rows)
            if leader < 0 or len(in_sync) < len(replicas)
        },
    )


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """One topic as a broker shows it, without reassignments: these the controller lists."""

    name: str
    topic_id: str | None
    """Id of the topic; None where the broker shows none."""
    error_code: int
    partitions: Mapping[PartitionKey, LivePartition]


class LiveMetadata:
    """Decodes answers one after the other. For many threads: they may decode a topic twice."""

    def __init__(self) -> None:
        self._version = 0
        self._known: dict[bytes, tuple[bytes, LiveTopic]] = {}
        """By the bytes that an answer's topic begins with, to its name: all its bytes, and what they say."""

    def decode(self, version: int, body: bytes, *, whole: bool) -> list[LiveTopic]:
        """Topics of an answer, in its order; `whole` if it shows all. Versions 1 to 13; raises KafkaError."""
        known = self._known if version == self._version else {}

        def decode(reader: Reader) -> list[tuple[bytes, bytes, LiveTopic]]:
            read_head(reader, version)
            rows = [_topic(reader, version, known) for _ in range(reader.length())]
            _raise_error(reader, version)
            return rows

        rows = decoded(decode, body, flexible=version >= FLEXIBLE)
        newest = {begin: (segment, topic) for begin, segment, topic in rows if topic.error_code == NoError.errno}
        self._version, self._known = version, newest if whole else known | newest
        return [topic for *_, topic in rows]


def _topic(
    reader: Reader, version: int, known: Mapping[bytes, tuple[bytes, LiveTopic]]
) -> tuple[bytes, bytes, LiveTopic]:
    """(Bytes to its name, all bytes, what they say) of the next topic."""
    place = reader.place
    reader.int16()
    reader.text_bytes()
    begin = reader.body[place : reader.place]
    reader.place = place
    # Only the bytes of a topic show where it ends. If the bytes of the last answer are here, they are all of it.
    segment, topic = known.get(begin, (b"", None))
    if topic is not None and reader.body.startswith(segment, place):
        reader.skip(len(segment))
        return begin, segment, topic
    row = read_topic(reader, version)
    topic_id = None if row.topic_id in (NO_ID, UNSET_ID) else row.topic_id
    partitions = {
        (row.name, number): LivePartition(replicas, leader, in_sync)
        for number, leader, replicas, in_sync in row.partitions
    }
    return begin, reader.body[place : reader.place], LiveTopic(row.name, topic_id, row.error_code, partitions)


def _raise_error(reader: Reader, version: int) -> None:
    """Raise the error that stands behind the topics of an answer."""
    if version >= WITH_ERROR:
        error = for_code(reader.int16())
        if error is not NoError:
            raise error
