"""Decodes Metadata into columns: brokers with their racks, and every partition with its leader and replicas.

kafka-python makes an object of each partition; docs/decisions has the figures, and a test compares each version.
"""

import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

import numpy as np
import numpy.typing as npt

from streaming.cluster.wire_reader import Reader, decoded

Ints = npt.NDArray[np.int64]

WITH_CLUSTER_ID, THROTTLED, WITH_OFFLINE, WITH_EPOCH = 2, 3, 5, 7
"""The first version of each."""
WITH_OPERATIONS, FLEXIBLE, WITH_TOPIC_ID = 8, 9, 10
SEVERAL_BYTES = 0x80
"""From here on a length of flexible versions has more than one byte."""
VERSION_MIN, VERSION_MAX = 1, 13

Partition = tuple[int, int, tuple[int, ...]]
"""(number, leader, replicas)."""


@dataclass(frozen=True, eq=False)
class ClusterMetadata:
    """What one broker shows. Topics in order of their names, and partitions in order of topic and number.

    `topic` is the place of each partition's topic. The replicas of partition i are
    `replica_broker[replicas_begin[i] : replicas_begin[i + 1]]`, the preferred leader first.
    """

    racks: dict[int, str | None]
    """Of brokers that are alive, lowest id first."""
    cluster_id: str
    topics: tuple[str, ...]
    topic_ids: tuple[str, ...]
    topic: Ints
    number: Ints
    leader: Ints
    replicas_begin: Ints
    replica_broker: Ints

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
            reader.skip(4 if version >= THROTTLED else 0)
            racks = dict(sorted(_broker(reader) for _ in range(reader.length())))
            cluster_id = reader.text() if version >= WITH_CLUSTER_ID else ""
            reader.skip(4)  # the controller
            topics = body[reader.place :]
            if self._before is not None and self._before[0] == version and self._topics == topics:
                before = self._before[1]
                is_same = (before.racks, before.cluster_id) == (racks, cluster_id)
                metadata = before if is_same else replace(before, racks=racks, cluster_id=cluster_id)
            else:
                rows = sorted(_topic(reader, version) for _ in range(reader.length()))
                metadata = _columns(racks, cluster_id, [row for row in rows if row[0]])
            self._before, self._topics = (version, metadata), topics
            return metadata

        return decoded(decode, body, flexible=version >= FLEXIBLE)


def _broker(reader: Reader) -> tuple[int, str | None]:
    broker = reader.int32()
    reader.text_bytes()
    reader.skip(4)
    rack = reader.text() or None
    reader.tags()
    return broker, rack


def _topic(reader: Reader, version: int) -> tuple[str, str, list[Partition]]:
    """(Name, id, partitions)."""
    reader.skip(2)
    name = reader.text()
    topic_id = str(UUID(bytes=reader.taken(16))) if version >= WITH_TOPIC_ID else "None"
    reader.skip(1)
    partitions = sorted(_partition(reader, version) for _ in range(reader.length()))
    reader.skip(4 if version >= WITH_OPERATIONS else 0)
    reader.tags()
    return name, topic_id, partitions


def _partition(reader: Reader, version: int) -> Partition:
    place = reader.place
    number, leader = struct.unpack_from(">ii", reader.body, place + 2)
    reader.skip(14 if version >= WITH_EPOCH else 10)
    plain = _plain_replicas(reader.body, reader.place) if version >= FLEXIBLE else None
    if plain is not None:
        replicas, reader.place = plain
        return number, leader, replicas
    count = reader.length()
    replicas = struct.unpack_from(f">{count}i", reader.body, reader.place)
    reader.skip(4 * count)
    reader.skip(4 * reader.length())  # in sync
    if version >= WITH_OFFLINE:
        reader.skip(4 * reader.length())
    reader.tags()
    return number, leader, replicas


def _plain_replicas(body: bytes, place: int) -> tuple[tuple[int, ...], int] | None:
    """(Replicas, where the next partition begins) of a flexible version; None for long lists or tagged fields."""
    in_sync = place + 4 * body[place] - 3
    offline = in_sync + 4 * body[in_sync] - 3
    end = offline + 4 * body[offline] - 3
    if body[end] or not all(0 < body[at] < SEVERAL_BYTES for at in (place, in_sync, offline)):
        return None
    return struct.unpack_from(f">{body[place] - 1}i", body, place + 1), end + 1


def _columns(
    racks: dict[int, str | None], cluster_id: str, topics: list[tuple[str, str, list[Partition]]]
) -> ClusterMetadata:
    rows = [row for _, _, partitions in topics for row in partitions]
    counts = [len(partitions) for _, _, partitions in topics]
    return ClusterMetadata(
        racks,
        cluster_id,
        tuple(name for name, _, _ in topics),
        tuple(topic_id for _, topic_id, _ in topics),
        np.repeat(np.arange(len(topics)), np.array(counts, dtype=np.int64)),
        np.array([number for number, _, _ in rows], dtype=np.int64),
        np.array([leader for _, leader, _ in rows], dtype=np.int64),
        np.cumsum([0, *(len(replicas) for _, _, replicas in rows)], dtype=np.int64),
        np.array([broker for _, _, replicas in rows for broker in replicas], dtype=np.int64),
    )
