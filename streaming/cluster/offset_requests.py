"""Writes ListOffsets requests, as kafka-python takes some 3 us a partition to do it.

A broker is asked about all that it leads twice a look, and at the next look again. These requests differ in the
timestamp of their rows alone, so that what stands between the timestamps is written once.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence

from streaming.cluster.answer_columns import OFFSETS_FLEXIBLE, OFFSETS_WITH_EPOCH

LATEST, EARLIEST, EARLIEST_LOCAL, NOT_UPLOADED = -1, -2, -4, -6
"""Kafka's timestamps of the log end, the log start, the first offset on the leader's disk (KIP-405), and the first one
that is not in remote storage yet (KIP-1023).
"""
VERSION_MAX = 11
WITH_ISOLATION, WITH_LOCAL, WITH_TIMEOUT, WITH_NOT_UPLOADED = 2, 8, 10, 11
"""The first version of each."""
TIMEOUT_MS = 10_000
ANY_REPLICA, NO_EPOCH = -1, -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels: with the second one the log end is the last stable offset."""
Led = Mapping[str, Sequence[int]]
"""Numbers of partitions by topic."""


class OffsetRequest:
    """The fields of versions 1 to 11 of requests about the same partitions. For many threads."""

    def __init__(self, led: Led, isolation_level: int = READ_UNCOMMITTED) -> None:
        self.led = led
        self._isolation_level = isolation_level
        self._between: dict[int, tuple[bytes, ...]] = {}
        """What stands before, between and after the timestamps, by version."""

    def body(self, version: int, timestamp: int) -> bytes:
        """The request for this timestamp.

        A broker that knows only older versions than 8 has no tiered storage: it is asked for the log start instead.
        """
        if timestamp == EARLIEST_LOCAL and version < WITH_LOCAL:
            timestamp = EARLIEST
        between = self._between.get(version)
        if between is None:
            between = self._between[version] = tuple(_between_timestamps(version, self.led, self._isolation_level))
        return struct.pack(">q", timestamp).join(between)


class OffsetRequests:
    """The request to each broker, kept for as long as it is asked about the same partitions. For many threads."""

    def __init__(self) -> None:
        self._by_broker: dict[int, OffsetRequest] = {}

    def of(self, broker: int, led: Led, timestamp: int) -> OffsetRequest:
        """Returns the request to `broker` for the partitions `led`, which do not change once they were handed in."""
        kept = self._by_broker.get(broker)
        if kept is not None and kept.led == led:
            return kept
        request = OffsetRequest(led)
        if timestamp != EARLIEST:  # log starts are asked of other partitions at each look
            self._by_broker[broker] = request
        return request


def _between_timestamps(version: int, led: Led, isolation_level: int) -> Iterator[bytes]:
    flexible = version >= OFFSETS_FLEXIBLE
    tags = b"\x00" if flexible else b""
    epoch = struct.pack(">i", NO_EPOCH) if version >= OFFSETS_WITH_EPOCH else b""
    before = struct.pack(">i", ANY_REPLICA)
    before += bytes([isolation_level]) if version >= WITH_ISOLATION else b""
    before += _length(len(led), flexible=flexible)
    for topic, numbers in led.items():
        name = topic.encode()
        before += _varint(len(name) + 1) if flexible else struct.pack(">h", len(name))
        before += name + _length(len(numbers), flexible=flexible)
        for number in numbers:
            yield before + struct.pack(">i", number) + epoch
            before = tags  # of the row
        before += tags  # of the topic
    yield before + (struct.pack(">i", TIMEOUT_MS) if version >= WITH_TIMEOUT else b"") + tags


def _length(count: int, *, flexible: bool) -> bytes:
    return _varint(count + 1) if flexible else struct.pack(">i", count)


def _varint(value: int) -> bytes:
    """An unsigned number of seven bits a byte, the lowest first (KIP-482)."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
