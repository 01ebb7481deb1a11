"""Decodes Metadata into the partitions that control decides on.

A look at a large cluster is mostly about topics that are as they were: such a topic is compared as bytes and not
decoded again. docs/fleet.md has the figures; tests compare each version with kafka-python's classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafka.errors import NoError, for_code

from assignor_core.live import LivePartition, PartitionKey
from streaming.cluster.metadata_rows import FLEXIBLE, NO_ID, WITH_ERROR, read_head, read_topic
from streaming.cluster.wire_reader import Reader, decoded

UNSET_ID = "00000000-0000-0000-0000-000000000000"


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
    # Where a topic ends is known by its own bytes alone: those of before, at this place, are all of it again.
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
