"""Reads an answer to Metadata, part by part: its head, and its topics with their partitions. Knows no request.

`metadata_columns` makes columns of them for the collector, `live_metadata` the partitions that control decides on.
"""

import struct
from typing import NamedTuple
from uuid import UUID

from streaming.cluster.wire_reader import Reader

WITH_CLUSTER_ID, THROTTLED, WITH_OFFLINE, WITH_EPOCH = 2, 3, 5, 7
"""The first version of each."""
WITH_OPERATIONS, FLEXIBLE, WITH_TOPIC_ID, WITH_ERROR = 8, 9, 10, 13
SEVERAL_BYTES = 0x80
"""From here on a length of flexible versions has more than one byte."""
VERSION_MIN, VERSION_MAX = 1, 13

Partition = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""(number, leader, replicas, replicas in sync)."""
NO_ID = "None"


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
    return broker, f"[{host}]:{port}" if ":" in host else f"{host}:{port}", rack


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
    """(Replicas, those in sync, where the next partition begins) of a flexible version; None for long lists or tagged
    fields.
    """
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
