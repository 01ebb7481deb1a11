"""Decodes the three answers that grow with the partitions of a cluster into columns: ListOffsets, DescribeLogDirs and
OffsetFetch.

kafka-python makes an object of each partition. Here the rows of a topic are cut out as bytes, and NumPy reads all of an
answer's rows at once. docs/decisions has the figures; a test compares each version with kafka-python's classes. A
broker may put tagged fields anywhere (KIP-482), and text into the metadata of commits: such rows are read one by one.
"""

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from assignor_core.live import PartitionKey
from streaming.cluster.wire import SEVERAL_BYTES, Reader, decoded

Ints = npt.NDArray[np.int64]

OFFSETS_FLEXIBLE, OFFSETS_WITH_EPOCH, OFFSETS_THROTTLED = 6, 4, 2
"""ListOffsets: the first version of each."""
LOG_DIRS_FLEXIBLE, LOG_DIRS_WITH_ERROR, LOG_DIRS_WITH_VOLUME, LOG_DIRS_WITH_CORDON = 2, 3, 4, 5
FETCH_FLEXIBLE, FETCH_WITH_EPOCH, FETCH_OF_MANY = 6, 5, 8
FETCH_VERSION_MAX = 9
"""Later ones name topics by their ids."""
FETCH_THROTTLED, FETCH_WITH_ERROR = 3, 2
NO_TEXT = (b"\x00\x01", b"\x00\xff")
"""All bytes of an empty or absent text's length: flexible versions have one of them, older ones two."""


@dataclass(frozen=True, slots=True)
class TopicRows:
    """Rows of partitions: `topic` is the place of each row's topic in `topics`, `rows` a structured array."""

    topics: tuple[str, ...]
    topic: Ints
    rows: npt.NDArray[np.void]

    def keys(self) -> list[PartitionKey]:
        """(Topic, partition) of each row."""
        topics = [self.topics[topic] for topic in self.topic.tolist()]
        return list(zip(topics, self.column("index").tolist(), strict=True))

    def column(self, name: str) -> Ints:
        """One field as whole numbers."""
        return self.rows[name].astype(np.int64)


@dataclass(frozen=True, slots=True)
class LogDirRows:
    """One log dir; volume figures are None on brokers before 3.3."""

    error_code: int
    path: str
    replicas: TopicRows
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool | None = None


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """What one group has committed, or the error of asking."""

    error_code: int
    partitions: TopicRows


def decode_list_offsets(version: int, body: bytes) -> TopicRows:
    """Rows of `index`, `error`, `offset`. Versions 1 to 11; raises KafkaProtocolError."""
    layout = _Layout.of(
        [("index", ">i4"), ("error", ">i2"), ("timestamp", ">i8"), ("offset", ">i8")]
        + ([("epoch", ">i4")] if version >= OFFSETS_WITH_EPOCH else []),
        flexible=version >= OFFSETS_FLEXIBLE,
    )

    def decode(reader: Reader) -> TopicRows:
        reader.skip(4 if version >= OFFSETS_THROTTLED else 0)
        return _topics(reader, layout)

    return decoded(decode, body, flexible=version >= OFFSETS_FLEXIBLE)


def decode_log_dirs(version: int, body: bytes) -> tuple[int, list[LogDirRows]]:
    """(Error code, log dirs): `index`, `size`, `lag`, `is_future`. Versions 0 to 5; raises KafkaProtocolError."""
    layout = _Layout.of(
        [("index", ">i4"), ("size", ">i8"), ("lag", ">i8"), ("is_future", "u1")], flexible=version >= LOG_DIRS_FLEXIBLE
    )

    def log_dir(reader: Reader) -> LogDirRows:
        error_code, path, replicas = reader.int16(), reader.text(), _topics(reader, layout)
        has_volume = version >= LOG_DIRS_WITH_VOLUME
        volume = (reader.int64(), reader.int64()) if has_volume else (-1, -1)
        is_cordoned = reader.taken(1) != b"\x00" if version >= LOG_DIRS_WITH_CORDON else None
        reader.tags()
        total_bytes, usable_bytes = (figure if figure >= 0 else None for figure in volume)
        return LogDirRows(error_code, path, replicas, total_bytes, usable_bytes, is_cordoned)

    def decode(reader: Reader) -> tuple[int, list[LogDirRows]]:
        reader.skip(4)
        error_code = reader.int16() if version >= LOG_DIRS_WITH_ERROR else 0
        return error_code, [log_dir(reader) for _ in range(reader.length())]

    return decoded(decode, body, flexible=version >= LOG_DIRS_FLEXIBLE)


def decode_offset_fetch(version: int, body: bytes) -> dict[str, CommittedRows]:
    """`index`, `offset`, `error` by group, "" before version 8. Versions 1 to 9; raises KafkaProtocolError."""
    layout = _Layout.of(
        [("index", ">i4"), ("offset", ">i8")] + ([("epoch", ">i4")] if version >= FETCH_WITH_EPOCH else []),
        [("error", ">i2")],
        flexible=version >= FETCH_FLEXIBLE,
    )

    def group(reader: Reader) -> CommittedRows:
        partitions = _topics(reader, layout)
        row = CommittedRows(reader.int16() if version >= FETCH_WITH_ERROR else 0, partitions)
        reader.tags()
        return row

    def decode(reader: Reader) -> dict[str, CommittedRows]:
        reader.skip(4 if version >= FETCH_THROTTLED else 0)
        if version < FETCH_OF_MANY:
            return {"": group(reader)}
        return {reader.text(): group(reader) for _ in range(reader.length())}

    return decoded(decode, body, flexible=version >= FETCH_FLEXIBLE)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The bytes of one partition without text and tags: `text_at` is where a text stands, or None."""

    dtype: np.dtype[np.void]
    text_at: int | None
    text_size: int
    flexible: bool

    @classmethod
    def of(cls, before: list[Any], after: list[Any] | None = None, *, flexible: bool) -> "_Layout":
        """Fields before and after the text; None where the row has no text."""
        text_size = (1 if flexible else 2) if after is not None else 0
        pad = [("text", f"V{text_size}")] if after is not None else []
        tags = [("tags", "u1")] if flexible else []
        text_at = np.dtype(before).itemsize if after is not None else None
        return cls(np.dtype([*before, *pad, *(after or ()), *tags]), text_at, text_size, flexible)

    def is_plain(self, rows: bytes) -> bool:
        """Whether no row has a text or tags, so that all are of one size."""
        size = self.dtype.itemsize
        if self.flexible and rows[size - 1 :: size].strip(b"\x00"):
            return False
        if self.text_at is None:
            return True
        places = range(self.text_at, self.text_at + self.text_size)
        return not any(rows[place::size].strip(NO_TEXT[self.text_size - 1]) for place in places)


def _topics(reader: Reader, layout: _Layout) -> TopicRows:
    """An array of topics, each with a name and rows."""
    start, cut = reader.place, _Cut()
    try:
        is_cut = reader.flexible and _cut_plain(reader, layout, cut)
    except IndexError:
        is_cut = False
    # A row with a text or tags stands where it is looked for, as all before it are plain: so it is noticed here.
    if not is_cut or not layout.is_plain(b"".join(cut.rows)):
        reader.place, cut = start, _Cut()
        for _ in range(reader.length()):
            cut.names.append(reader.text_bytes())
            cut.counts.append(reader.length())
            cut.rows.append(_rows(reader, layout, cut.counts[-1]))
            reader.tags()
    rows = np.frombuffer(b"".join(cut.rows), layout.dtype)
    topic = np.repeat(np.arange(len(cut.names)), np.array(cut.counts, dtype=np.int64))
    return TopicRows(tuple(name.decode() for name in cut.names), topic, rows)


@dataclass(slots=True)
class _Cut:
    """Names, numbers of rows and rows of topics."""

    names: list[bytes] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    rows: list[bytes] = field(default_factory=list)


def _cut_plain(reader: Reader, layout: _Layout, cut: _Cut) -> bool:
    """Cut out topics of a flexible version as if no row had a text or tags; False where a length has several bytes.

    One loop without calls, as brokers of a large cluster hold a row or two of each of thousands of topics.
    """
    body, size, topics = reader.body, layout.dtype.itemsize, reader.length()
    place = reader.place
    for _ in range(topics):
        name_end = place + body[place]
        count = body[name_end]
        if not 0 < body[place] < SEVERAL_BYTES or not 0 < count < SEVERAL_BYTES:
            return False
        end = name_end + 1 + (count - 1) * size
        if body[end]:
            return False
        cut.names.append(body[place + 1 : name_end])
        cut.counts.append(count - 1)
        cut.rows.append(body[name_end + 1 : end])
        place = end + 1
    reader.place = place
    return True


def _rows(reader: Reader, layout: _Layout, count: int) -> bytes:
    end = reader.place + count * layout.dtype.itemsize
    rows = reader.body[reader.place : end]
    if end <= len(reader.body) and layout.is_plain(rows):
        reader.place = end
        return rows
    return b"".join(_row(reader, layout) for _ in range(count))


def _row(reader: Reader, layout: _Layout) -> bytes:
    """One row as it would be without its text and tags."""
    size, tags_size = layout.dtype.itemsize, 1 if layout.flexible else 0
    if layout.text_at is None:
        row = reader.taken(size - tags_size)
    else:
        row = reader.taken(layout.text_at) + bytes(layout.text_size)
        reader.text_bytes()
        row += reader.taken(size - tags_size - len(row))
    reader.tags()
    return row + bytes(tags_size)


class OffsetRows(Mapping[PartitionKey, int]):
    """Offset by partition that has one; `topic` is the place of each row's topic in `topics`."""

    def __init__(self, rows: TopicRows) -> None:
        offset = rows.column("offset")
        has_one = offset >= 0
        self.topics = rows.topics
        self.topic: Ints = rows.topic[has_one]
        self.number: Ints = rows.column("index")[has_one]
        self.offset: Ints = offset[has_one]

    def among(self, partitions: Mapping[str, int]) -> "OffsetRows":
        """The offsets of partitions that exist; `partitions` has the number of partitions of each topic."""
        counts = np.array([partitions.get(topic, 0) for topic in self.topics], dtype=np.int64)
        if not len(counts):
            return self
        exists = (self.number >= 0) & (self.number < counts[self.topic])
        if exists.all():
            return self
        kept = copy(self)
        kept.__dict__.pop("_by_key", None)
        kept.topic, kept.number, kept.offset = self.topic[exists], self.number[exists], self.offset[exists]
        return kept

    def __getitem__(self, key: PartitionKey) -> int:
        return self._by_key[key]

    def __iter__(self) -> Iterator[PartitionKey]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self.offset)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, OffsetRows) and self.topics == other.topics:
            same = (np.array_equal(getattr(self, name), getattr(other, name)) for name in ("topic", "number", "offset"))
            if all(same):
                return True
        return isinstance(other, Mapping) and self._by_key == dict(other)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _by_key(self) -> dict[PartitionKey, int]:
        columns = zip(self.topic.tolist(), self.number.tolist(), self.offset.tolist(), strict=True)
        return {(self.topics[topic], number): offset for topic, number, offset in columns}
