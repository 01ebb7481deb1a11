"""Decodes Metadata into columns: brokers with their racks, and every partition with its leader and replicas.

kafka-python makes an object of each partition; docs/decisions has the figures, and a test compares each version.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streaming.cluster.metadata_rows import FLEXIBLE, TopicRow, read_head, read_topic
from streaming.cluster.wire_reader import Reader, decoded

Ints = npt.NDArray[np.int64]


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
            racks, cluster_id = read_head(reader, version)
            topics = body[reader.place :]
            if self._before is not None and self._before[0] == version and self._topics == topics:
                before = self._before[1]
                is_same = (before.racks, before.cluster_id) == (racks, cluster_id)
                metadata = before if is_same else replace(before, racks=racks, cluster_id=cluster_id)
            else:
                rows = sorted(read_topic(reader, version) for _ in range(reader.length()))
                metadata = _columns(racks, cluster_id, [row for row in rows if row.name])
            self._before, self._topics = (version, metadata), topics
            return metadata

        return decoded(decode, body, flexible=version >= FLEXIBLE)


def _columns(racks: dict[int, str | None], cluster_id: str, topics: list[TopicRow]) -> ClusterMetadata:
    rows = [row for topic in topics for row in topic.partitions]
    counts = [len(topic.partitions) for topic in topics]
    return ClusterMetadata(
        racks,
        cluster_id,
        tuple(topic.name for topic in topics),
        tuple(topic.topic_id for topic in topics),
        np.repeat(np.arange(len(topics)), np.array(counts, dtype=np.int64)),
        np.array([number for number, *_ in rows], dtype=np.int64),
        np.array([leader for _, leader, *_ in rows], dtype=np.int64),
        np.cumsum([0, *(len(replicas) for _, _, replicas, _ in rows)], dtype=np.int64),
        np.array([broker for _, _, replicas, _ in rows for broker in replicas], dtype=np.int64),
    )
