"""Bytes of the consumer protocol: subscriptions, assignments and the sticky assignors' user data. Knows no strategy.

Big-endian, an int16 version first where there is one; a version above ours is read and written as ours, as Kafka does.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assignor_core.assignors.contract import NO_GENERATION, TopicPartition
from assignor_core.errors import InputError, MalformedBytes
from assignor_core.ordering import utf16_order

VERSION_MAX = 3


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member sends when it joins; fields newer than the version of the bytes have their defaults.

    A `generation_id` below 0 is none; NO_GENERATION where Kafka has an empty Optional.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Assignment that a member gets from the leader."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def encode_subscription(subscription: Subscription, version: int = VERSION_MAX) -> bytes:
    """Kafka's bytes: topics and owned partitions sorted.

    >>> encode_subscription(Subscription(("t",)), 0).hex()
    '000000000001000174ffffffff'
    """
    version = _writable(version)
    parts = [_int16(version), _array(map(_string, sorted(subscription.topics, key=utf16_order)))]
    parts.append(_bytes(subscription.user_data))
    if version >= 1:
        ordered = sorted(subscription.owned_partitions, key=lambda tp: (utf16_order(tp[0]), tp[1]))
        parts.append(_topics(ordered))
    if version >= 2:
        parts.append(_int32(subscription.generation_id))
    if version >= 3:
        parts.append(_int16(-1) if subscription.rack_id is None else _string(subscription.rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> Subscription:
    """Raises MalformedBytes. Fields after the topics may be missing, as some clients name a version and leave fields of
    it out: kafka-go writes version 1 without owned partitions. franz-go and sarama read such bytes, too.
    """
    reader = _Reader(data, "subscription")
    version = reader.version()
    topics = tuple(reader.string("topic") for _ in range(reader.length("topics")))
    return Subscription(
        topics,
        reader.optional_bytes("user_data") if reader.left() else None,
        tuple(reader.topic_partitions("owned_partitions")) if version >= 1 and reader.left() else (),
        reader.int32("generation_id") if version >= 2 and reader.left() else NO_GENERATION,
        # Kafka takes an empty rack for none.
        (reader.optional_string("rack_id") or None) if version >= 3 and reader.left() else None,
    )


def encode_assignment(assignment: Assignment, version: int = VERSION_MAX) -> bytes:
    """Kafka's bytes: topics in the order in which they come first, each once.

    >>> encode_assignment(Assignment((("t", 0), ("u", 0), ("t", 1)))).hex()
    '0003000000020001740000000200000000000000010001750000000100000000ffffffff'
    """
    return _int16(_writable(version)) + _topics(assignment.partitions) + _bytes(assignment.user_data)


def encode_sticky_user_data(owned: Sequence[TopicPartition], generation_id: int | None = None) -> bytes:
    """Schema v1, or v0 without a generation; each topic once (their order, a hash map's in Java, has no meaning)."""
    return _topics(owned) + (b"" if generation_id is None else _int32(generation_id))


def decode_sticky_user_data(data: bytes | None) -> tuple[tuple[TopicPartition, ...], int]:
    """Owned partitions and generation. As in Kafka: v1, else v0, and bytes that can't be read own nothing."""
    if not data:
        return (), NO_GENERATION
    reader = _Reader(data, "sticky user data")
    try:
        owned = tuple(reader.topic_partitions("owned_partitions"))
    except MalformedBytes:
        return (), NO_GENERATION
    return owned, reader.int32("generation") if reader.left() >= 4 else NO_GENERATION


def cooperative_generation(subscription: Subscription) -> int:
    """The generation of a cooperative member: its field, else its user data, else none."""
    if subscription.generation_id >= 0:
        return subscription.generation_id
    if subscription.user_data is None or len(subscription.user_data) < 4:
        return NO_GENERATION
    return _Reader(subscription.user_data, "cooperative user data").int32("generation")


class _Reader:
    """Reads from the front; every error names what was being read."""

    def __init__(self, data: bytes, name: str) -> None:
        self._data = data
        self._name = name
        self._at = 0

    def left(self) -> int:
        return len(self._data) - self._at

    def version(self) -> int:
        version = self._number("version", ">h")
        if version < 0:
            raise MalformedBytes(f"{self._name}: version is {version}, must be 0 or more")
        return min(version, VERSION_MAX)

    def int32(self, field: str) -> int:
        return self._number(field, ">i")

    def length(self, field: str) -> int:
        count = self.int32(f"length of {field}")
        # Each element takes 2 bytes or more: an absurd length is refused before anything is read.
        if not 0 <= count <= self.left() // 2:
            raise MalformedBytes(f"{self._name}: length of {field} is {count}, {self.left()} bytes are left")
        return count

    def string(self, field: str) -> str:
        text = self.optional_string(field)
        if text is None:
            raise MalformedBytes(f"{self._name}: {field} is null, must be a string")
        return text

    def optional_string(self, field: str) -> str | None:
        length = self._number(f"length of {field}", ">h")
        if length == -1:
            return None
        try:
            return self._take(length, field).decode()
        except UnicodeDecodeError:
            raise MalformedBytes(f"{self._name}: {field} is not UTF-8") from None

    def optional_bytes(self, field: str) -> bytes | None:
        length = self.int32(f"length of {field}")
        return None if length == -1 else self._take(length, field)

    def topic_partitions(self, field: str) -> list[TopicPartition]:
        read: list[TopicPartition] = []
        for _ in range(self.length(field)):
            topic = self.string(f"topic of {field}")
            count = self.length(f"partitions of {topic!r} in {field}")
            numbers = struct.unpack(f">{count}i", self._take(4 * count, field))
            read.extend((topic, partition) for partition in numbers)
        return read

    def _number(self, field: str, layout: str) -> int:
        (number,) = struct.unpack(layout, self._take(struct.calcsize(layout), field))
        return int(number)

    def _take(self, size: int, field: str) -> bytes:
        if not 0 <= size <= self.left():
            raise MalformedBytes(f"{self._name}: {field} needs {size} bytes, {self.left()} are left")
        self._at += size
        return self._data[self._at - size : self._at]


def _writable(version: int) -> int:
    """Returns the version to read by: the newest known version for newer ones."""
    if version < 0:
        raise InputError(f"version is {version}, must be 0 or more")
    return min(version, VERSION_MAX)


def _int16(number: int) -> bytes:
    return struct.pack(">h", number)


def _int32(number: int) -> bytes:
    return struct.pack(">i", number)


def _string(text: str) -> bytes:
    data = text.encode()
    return _int16(len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return _int32(-1) if data is None else _int32(len(data)) + data


def _array(elements: Iterable[bytes]) -> bytes:
    listed = list(elements)
    return _int32(len(listed)) + b"".join(listed)


def _topics(partitions: Iterable[TopicPartition]) -> bytes:
    numbers_of: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers_of.setdefault(topic, []).append(number)
    return _array(_string(topic) + _array(map(_int32, numbers)) for topic, numbers in numbers_of.items())
