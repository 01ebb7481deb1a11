"""Groups as their coordinator describes them, of all four kinds, in one shape. Sends a broker one request a kind.

Knows the requests and what their answers mean; not which groups are read, nor what is made of them. A group whose row
has an error is left out: it has moved, changed its kind or may not be described, and is read again later.

What a member of the classic protocol joined with, and what it was assigned, are bytes that clients write
(`ConsumerProtocolSubscription` and `ConsumerProtocolAssignment` of Kafka). The row of such a group changes as the group
rebalances, so what was read of the row is stored with its bytes.
"""

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from kafka.errors import IncompatibleBrokerVersion, NoError, for_code

from assignor_core.live import PartitionKey
from streaming.cluster.group_messages import (
    ConsumerGroupDescribeRequest,
    DescribeShareGroupOffsetsRequest,
    ShareGroupDescribeRequest,
    StreamsGroupDescribeRequest,
)
from streaming.cluster.wire import Reader, decoded

CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
"""Kafka's names of the group types (`ListGroups` from version 5 on)."""
DEAD = "Dead"
UNKNOWN_OFFSET = -1
PARTITIONS_MAX = 100_000
"""Partitions that are read of one member. Clients write what the members of a group own."""
TEXT_MAX, TEXT_END = 249, 40
"""Characters of a name that a client chose, as many as the name of a topic may have; so many are of its end."""
SHARE_VERSION_MIN = 1
"""Version 0 was the early access of 4.0, whose messages differ."""
THROTTLED, WITH_OPERATIONS, WITH_INSTANCE_ID, FLEXIBLE, WITH_MESSAGE = 1, 3, 4, 5, 6
"""DescribeGroups: the first version of each."""
VERSION_MAX = 6
OWNED_FROM, GENERATION_FROM, RACK_FROM = 1, 2, 3
"""The first version of a subscription that names each."""
NO_GENERATION = -1
GENERATION_MAX = 2**31 - 1
KEPT_MAX, KEPT_BYTES_MAX = 100_000, 128 << 10
"""Groups whose rows are kept, and bytes of such a row; all are forgotten where there are more groups."""
Joined = tuple[int, str | None]
"""(Generation before, or NO_GENERATION; rack)."""


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """One member. `target` is what it shall own: None where the protocol has none, or none of its own."""

    member_id: str
    client_id: str
    owned: tuple[PartitionKey, ...] = ()
    target: tuple[PartitionKey, ...] | None = None
    group_instance_id: str | None = None
    rack_id: str | None = None
    subscribed_topic_regex: str | None = None
    client_host: str | None = None
    """Host of the client, without the slash that brokers write before it."""
    unread: int = 0
    """Partitions beyond PARTITIONS_MAX."""


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """One group. `generation_id` is the group epoch where the coordinator has one; None where it is unknown."""

    state: str | None
    members: tuple[DescribedMember, ...] = ()
    generation_id: int | None = None
    assignor: str | None = None
    topology_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ShareOffsets:
    """How far a group has read: start offsets, and lags where the broker sends them (share groups, 4.2 and newer).

    `lags` has None where the broker does not know the lag; a partition that is absent was sent without one. `unread`
    are partitions of the group without a start offset.
    """

    starts: Mapping[PartitionKey, int]
    lags: Mapping[PartitionKey, int | None] = field(default_factory=dict)
    unread: tuple[PartitionKey, ...] = ()

    @property
    def partitions(self) -> tuple[PartitionKey, ...]:
        """All partitions that the group has."""
        return (*self.starts, *self.unread)


class GroupReads(Protocol):
    """Requests to one coordinator."""

    def ask_broker(self, broker: int, request: Any) -> Any:
        """Returns the broker's response to a request of kafka-python's; raises KafkaError."""

    def describe_classic(self, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
        """Returns groups of the classic protocol, by name; raises KafkaError."""


def describe(reads: GroupReads, broker: int, kind: str, names: Sequence[str]) -> dict[str, DescribedGroup]:
    """The groups `names` of one kind that this broker coordinates, none if it knows no such kind; raises KafkaError."""
    try:
        if kind == CONSUMER:
            return _consumer_groups(reads, broker, names)
        if kind == SHARE:
            return _share_groups(reads, broker, names)
        if kind == STREAMS:
            return _streams_groups(reads, broker, names)
    except IncompatibleBrokerVersion:
        return {}
    return reads.describe_classic(broker, names)


def host_of(sent: str) -> str | None:
    """The host or address that a member connects from; brokers write Java's form of an address, with a slash.

    >>> host_of("/10.1.2.3")
    '10.1.2.3'
    """
    return sent.removeprefix("/") or None


def bounded(text: str) -> str:
    """A name that a client chose, cut in its middle if it is long: the end of a member id is what Kafka adds to it.

    >>> len(bounded("c" * 30_000 + "-1f")), bounded("c" * 30_000 + "-1f").endswith("c-1f"), bounded("short")
    (249, True, 'short')
    """
    if len(text) <= TEXT_MAX:
        return text
    return f"{text[: TEXT_MAX - TEXT_END - 1]}…{text[-TEXT_END:]}"


def share_offsets(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, ShareOffsets]:
    """Returns the offsets of the share groups `names` that this broker coordinates; raises KafkaError."""
    asked = DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup
    request = DescribeShareGroupOffsetsRequest(groups=[asked(group_id=name, topics=None) for name in names])
    try:
        response = reads.ask_broker(broker, request)
    except IncompatibleBrokerVersion:
        return {}
    return {row.group_id: _share_offsets(row, has_lags=response.API_VERSION >= 1) for row in _sound(response.groups)}


def _sound(rows: Iterable[Any]) -> Iterator[Any]:
    return (row for row in rows if for_code(row.error_code) is NoError)


def _share_offsets(group: Any, *, has_lags: bool) -> ShareOffsets:
    every = {(topic.topic_name, row.partition_index): row for topic in group.topics for row in _sound(topic.partitions)}
    rows = {key: row for key, row in every.items() if row.start_offset > UNKNOWN_OFFSET}
    lags = {key: row.lag if row.lag > UNKNOWN_OFFSET else None for key, row in rows.items()} if has_lags else {}
    starts = {key: row.start_offset for key, row in rows.items()}
    return ShareOffsets(starts, lags, tuple(sorted(every.keys() - rows.keys())))


def _consumer_groups(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
    request = ConsumerGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)
    return {
        group.group_id: _group(
            group,
            (
                _newer_member(
                    row,
                    _partitions(row.assignment.topic_partitions),
                    _partitions(row.target_assignment.topic_partitions),
                )
                for row in group.members
            ),
        )
        for group in _sound(reads.ask_broker(broker, request).groups)
    }


def _share_groups(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
    request = ShareGroupDescribeRequest(
        group_ids=list(names), include_authorized_operations=False, min_version=SHARE_VERSION_MIN
    )
    return {
        group.group_id: _group(
            group, (_newer_member(row, _partitions(row.assignment.topic_partitions)) for row in group.members)
        )
        for group in _sound(reads.ask_broker(broker, request).groups)
    }


def _group(row: Any, members: Iterable[DescribedMember], topology_epoch: int | None = None) -> DescribedGroup:
    assignor = getattr(row, "assignor_name", None) or None  # streams groups have none
    return DescribedGroup(row.group_state or None, tuple(members), row.group_epoch, assignor, topology_epoch)


def _newer_member(
    row: Any, owned: tuple[PartitionKey, ...], target: tuple[PartitionKey, ...] | None = None
) -> DescribedMember:
    """One member of a newer protocol; members of share groups have neither an instance id nor a pattern of topics."""
    instance_id, topic_regex = (getattr(row, name, None) or None for name in ("instance_id", "subscribed_topic_regex"))
    return DescribedMember(
        row.member_id, row.client_id, owned, target, instance_id, row.rack_id, topic_regex, host_of(row.client_host)
    )


def _partitions(topics: Iterable[Any]) -> tuple[PartitionKey, ...]:
    every = ((topic.topic_name, number) for topic in topics for number in topic.partitions)
    return tuple(sorted(islice(every, PARTITIONS_MAX)))


def _streams_groups(reads: GroupReads, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
    request = StreamsGroupDescribeRequest(group_ids=list(names), include_authorized_operations=False)
    return {group.group_id: _streams_group(group) for group in _sound(reads.ask_broker(broker, request).groups)}


def _streams_group(group: Any) -> DescribedGroup:
    """What a member owns of a streams group are the partitions that its active tasks read, as far as they exist.

    A task reads the partition of its number of each topic of its subtopology that has so many.
    """
    read: dict[str, list[str]] = defaultdict(list)
    for subtopology in (group.topology.subtopologies or ()) if group.topology else ():
        internal = [topic.name for topic in subtopology.repartition_source_topics]
        read[subtopology.subtopology_id] += [*subtopology.source_topics, *internal]
    members = (
        _newer_member(row, _of_tasks(row.assignment, read), _of_tasks(row.target_assignment, read))
        for row in group.members
    )
    return _group(group, members, group.topology.epoch if group.topology else None)


def _of_tasks(assignment: Any, read: Mapping[str, Sequence[str]]) -> tuple[PartitionKey, ...]:
    every = (
        (topic, number)
        for task in assignment.active_tasks
        for topic in read.get(task.subtopology_id, ())
        for number in task.partitions
    )
    return tuple(sorted(islice(every, PARTITIONS_MAX)))


@dataclass(slots=True)
class ClassicGroups:
    """Reads answers; remembers the row of each group. For many threads."""

    _rows: dict[tuple[int, str], tuple[bytes, DescribedGroup | None]] = field(default_factory=dict)
    """The row's bytes and what they mean, by version and group."""

    def decode(self, version: int, body: bytes) -> dict[str, DescribedGroup]:
        """Groups by name, without those whose row has an error. Versions 0 to 6; raises KafkaProtocolError."""

        def group(reader: Reader) -> tuple[str, DescribedGroup | None]:
            begin, error_code = reader.place, reader.int16()
            if version >= WITH_MESSAGE:
                reader.text_bytes()
            name = reader.text()
            kept = self._rows.get((version, name))
            if kept is not None and reader.body.startswith(kept[0], begin):
                reader.place = begin + len(kept[0])
                return name, kept[1]
            state = reader.text()
            reader.text_bytes()
            assignor = reader.text()
            rows = [_member(reader, version) for _ in range(reader.length())]
            reader.skip(4 if version >= WITH_OPERATIONS else 0)
            reader.tags()
            members = tuple(member for member, _ in rows)
            generation = _generation(before for _, before in rows)
            # Only this request calls a group of another protocol Dead, as it calls one that is gone.
            is_there = not error_code and state != DEAD
            row = DescribedGroup(state or None, members, generation, assignor or None) if is_there else None
            self._keep(version, name, reader.body[begin : reader.place], row)
            return name, row

        def decode(reader: Reader) -> dict[str, DescribedGroup]:
            reader.skip(4 if version >= THROTTLED else 0)
            rows = [group(reader) for _ in range(reader.length())]
            return {name: row for name, row in rows if row is not None}

        return decoded(decode, body, flexible=version >= FLEXIBLE)

    def _keep(self, version: int, name: str, text: bytes, row: DescribedGroup | None) -> None:
        if len(self._rows) >= KEPT_MAX:
            self._rows = {}
        if len(text) <= KEPT_BYTES_MAX:
            self._rows[version, name] = text, row


def _member(reader: Reader, version: int) -> tuple[DescribedMember, int]:
    """(Member, generation that it named when it joined)."""
    member_id = reader.text()
    instance_id = reader.text() if version >= WITH_INSTANCE_ID else ""
    client_id = reader.text()
    client_host = host_of(reader.text())
    joined, assigned = (reader.taken(reader.length()) for _ in range(2))
    reader.tags()
    before, rack_id = _joined_with(joined)
    owned, unread = _assigned(assigned)
    return DescribedMember(
        member_id, client_id, owned, None, instance_id or None, rack_id, client_host=client_host, unread=unread
    ), before


def _generation(before: Iterable[int]) -> int | None:
    """The group's generation. No answer holds it, but a member that rejoins sends the one before (KIP-792).

    None if no member rejoined, or if their clients don't send it: Java's do, plain kafka-python and librdkafka don't.
    A number before which or after which no group has one is none: any client may send it.
    """
    newest = max((number for number in before if 0 <= number < GENERATION_MAX), default=None)
    return None if newest is None else newest + 1


def _joined_with(metadata: bytes) -> Joined:
    """Returns what a subscription holds; nothing where it can't be read: clients of other kinds send other bytes."""
    reader = Reader(metadata, flexible=False)
    try:
        version = reader.int16()
        for _ in range(reader.length()):
            reader.text_bytes()
        reader.taken(reader.length())
        if version >= OWNED_FROM:
            for _ in range(reader.length()):
                reader.text_bytes()
                reader.taken(4 * reader.length())
        generation = reader.int32() if version >= GENERATION_FROM else NO_GENERATION
        rack = reader.text() if version >= RACK_FROM else ""
    except (IndexError, ValueError, struct.error):
        return NO_GENERATION, None
    return generation, rack or None


def _assigned(assignment: bytes) -> tuple[tuple[PartitionKey, ...], int]:
    """(Partitions of an assignment, how many more it has); nothing where it can't be read."""
    reader = Reader(assignment, flexible=False)
    rows: list[PartitionKey] = []
    unread = 0
    try:
        reader.skip(2)
        for _ in range(reader.length()):
            topic, count = reader.text(), reader.length()
            read = min(count, PARTITIONS_MAX - len(rows))
            rows += [(topic, number) for number in struct.unpack_from(f">{read}i", reader.body, reader.place)]
            reader.taken(4 * count)
            unread += count - read
    except (IndexError, ValueError, struct.error):
        return (), 0
    return tuple(sorted(rows)), unread
