"""Decodes DescribeGroups: groups of the classic protocol with their members, and what each member was assigned.

What a member joined with, and what it was assigned, are bytes that clients write (`ConsumerProtocolSubscription` and
`ConsumerProtocolAssignment` of Kafka). A group's row is the same from one look to the next until it rebalances, so what
was read of it is kept with its bytes.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from assignor_core.live import PartitionKey
from streaming.cluster.described_groups import DEAD, PARTITIONS_MAX, DescribedGroup, DescribedMember, host_of
from streaming.cluster.wire_reader import Reader, decoded

THROTTLED, WITH_OPERATIONS, WITH_INSTANCE_ID, FLEXIBLE, WITH_MESSAGE = 1, 3, 4, 5, 6
"""The first version of each."""
VERSION_MAX = 6
OWNED_FROM, GENERATION_FROM, RACK_FROM = 1, 2, 3
"""The first version of a subscription that names each."""
NO_GENERATION = -1
GENERATION_MAX = 2**31 - 1
KEPT_MAX, KEPT_BYTES_MAX = 100_000, 128 << 10
"""Groups whose rows are kept, and bytes of such a row; all are forgotten where there are more groups."""

Joined = tuple[int, str | None]
"""(Generation before, or NO_GENERATION; rack)."""


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
            _skip_partitions(reader)
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


def _skip_partitions(reader: Reader) -> None:
    for _ in range(reader.length()):
        reader.text_bytes()
        reader.taken(4 * reader.length())
