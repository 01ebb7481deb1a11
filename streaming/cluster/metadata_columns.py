"""Decodes Metadata into columns: brokers with their racks, and every partition with its leader and replicas.

kafka-python makes an object of each partition; docs/decisions has the figures, and a test compares each version.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from streaming.cluster.metadata_rows import FLEXIBLE, Head, TopicRow, read_head, read_topic
from streaming.cluster.wire_reader import Reader, decoded

Ints = npt.NDArray[np.int64]


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
