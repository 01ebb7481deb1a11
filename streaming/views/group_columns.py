"""Windows of `group_lag` as columns of numbers: half the memory of the rows, without a text or an object for each.

Owns how a row becomes a number of its group and partition, how offsets are kept, which rows of a window are those of
given keys, and sums over rows that share a key. Knows neither tables nor verdicts.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from assignor_core.lag import LagHistory, LagStatus
from assignor_core.lag.history import Flags, Floats, Ints
from assignor_core.lag.newest_first import Point
from streaming.errors import TableUnavailable
from streaming.tables import as_floats, as_whole

PARTITION_BITS, TOPIC_BITS, GROUP_BITS = 24, 19, 20
"""Bits of partition, topic and group in the number of a partition as a group reads it: with the sign 64 in all."""
NAMES_SPARE = 10_000
"""Names that are gone are kept up to so many and as many as are in use."""
KNOWN_MAX = 3
"""Arrays of keys that a window is compared with: partitions that come and go make new ones."""
_PARTITION_MASK = (1 << PARTITION_BITS) - 1
_INT32 = np.iinfo(np.int32)
UNKNOWN = _INT32.min
KEY = ("group_id", "topic", "partition")
OFFSETS = (
    *KEY, "log_end_offset", "log_end_offset_first", "window_start", "first_event_time_ms", "last_event_time_ms",
    "committed_offset", "committed_offset_first", "log_start_offset",
)  # fmt: skip
"""Columns of earlier windows that verdicts and the age of a lag need."""
_KEPT = ("log_end_offset", "committed_offset_first", "committed_offset", "log_start_offset")
"""Columns that a window holds as differences to the first sample's log end."""
Pair = tuple[Floats, Floats]
"""Values of first and newest sample."""


class Names:
    """Numbers of names, from 0 on in the order of their first use."""

    def __init__(self, what: str, bits: int) -> None:
        self._what = what
        self._most = 1 << bits
        self._codes: dict[str, int] = {}
        self._array = pa.array([], pa.string())

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, names: pa.ChunkedArray) -> Ints:
        """The number of each name; raises TableUnavailable where there are too many of them."""
        encoded = names.combine_chunks().dictionary_encode()
        places = encoded.indices.to_numpy()
        # The dictionary may be that of the file, with names that no row has here.
        used = np.flatnonzero(np.bincount(places, minlength=len(encoded.dictionary)))
        texts = encoded.dictionary.take(pa.array(used))
        numbers = np.zeros(len(encoded.dictionary), dtype=np.int64)
        numbers[used] = self._numbers(texts)
        if len(self._codes) > self._most:
            raise TableUnavailable(f"table group_lag holds more than {self._most:,} {self._what} at a time")
        codes: Ints = numbers[places]
        return codes

    def _numbers(self, texts: pa.Array) -> Ints:
        """The number of each text. One by one only those that are new, as a rule none."""
        numbers = pc.index_in(texts, value_set=self.array())
        new = pc.filter(texts, pc.is_null(numbers))
        if len(new):
            for name in new.to_pylist():
                self._codes.setdefault(name, len(self._codes))
            self._array = pa.array(self._codes, pa.string())
            numbers = pc.index_in(texts, value_set=self._array)
        listed: Ints = numbers.to_numpy()
        return listed

    def known(self, names: Iterable[str]) -> Ints:
        """Numbers of those of the names that have one."""
        return np.array([self._codes[name] for name in names if name in self._codes], dtype=np.int64)

    def array(self) -> pa.Array:
        """All names, in the order of their numbers."""
        return self._array


@dataclass(frozen=True, slots=True)
class PartitionKeys:
    """Groups, topics and partitions as sorted numbers, one of each; those of one group are neighbours."""

    groups: Names
    topics: Names

    @classmethod
    def empty(cls) -> "PartitionKeys":
        """Returns the keys of no row yet."""
        return cls(Names("groups", GROUP_BITS), Names("topics", TOPIC_BITS))

    def of(self, rows: pa.Table) -> Ints:
        """The key of each row, whose partition is at most what the contract allows; raises TableUnavailable."""
        partitions = rows["partition"].to_numpy().astype(np.int64)
        groups, topics = self.groups.codes(rows["group_id"]), self.topics.codes(rows["topic"])
        keys: Ints = (groups << TOPIC_BITS | topics) << PARTITION_BITS | partitions
        return keys

    def are_mostly_gone(self, keys: Ints) -> bool:
        """Returns whether most stored names belong to none of these keys, so that numbering should start again."""
        groups, topics, _ = _parts(keys[starts_of(of_topic(keys))])
        used = len(np.unique(groups)) + len(np.unique(topics))
        return len(self.groups) + len(self.topics) > NAMES_SPARE + 2 * used

    def are_of(self, keys: Ints, groups: Iterable[str]) -> Flags:
        """Flags of the keys that belong to these groups."""
        return np.isin(of_group(keys), self.groups.known(groups))

    def group_names(self, keys: Ints) -> list[str]:
        """Names of the groups of these keys, each once."""
        names: list[str] = self.groups.array().take(pa.array(np.unique(of_group(keys)))).to_pylist()
        return names

    def texts(self, keys: Ints) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Group, topic and partition of each key, the names as dictionaries."""
        groups, topics, partitions = _parts(keys)
        return (_named(groups, self.groups), _named(topics, self.topics), pa.array(partitions.astype(np.int32)))

    def by_name(self, keys: Ints) -> Ints:
        """Places of the keys by group, topic and partition."""
        groups, topics, partitions = _parts(keys)
        ranked = ranks(self.groups.array())[groups] << TOPIC_BITS | ranks(self.topics.array())[topics]
        return np.argsort(ranked << PARTITION_BITS | partitions)


def of_group(keys: Ints) -> Ints:
    """A number for the group of each key."""
    return keys >> (TOPIC_BITS + PARTITION_BITS)


def of_topic(keys: Ints) -> Ints:
    """A number for group and topic of each key."""
    return keys >> PARTITION_BITS


def starts_of(numbers: Ints) -> Ints:
    """Index of the first of each run of equal numbers."""
    return np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))


def _parts(keys: Ints) -> tuple[Ints, Ints, Ints]:
    topics = of_topic(keys) & ((1 << TOPIC_BITS) - 1)
    return of_group(keys), topics, keys & _PARTITION_MASK


def _named(codes: Ints, names: Names) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names.array())


def ranks(names: pa.Array) -> Ints:
    """The place of each name in the order of names."""
    ranked = np.empty(len(names), dtype=np.int64)
    ranked[pc.array_sort_indices(names).to_numpy()] = np.arange(len(names))
    return ranked


@dataclass(frozen=True, slots=True)
class _Offsets:
    """A column of offsets, NaN where unknown: as differences to another column where they fit, 4 bytes each."""

    values: Floats | NDArray[np.int32]
    has_unknown: bool

    @classmethod
    def packed(cls, values: pa.ChunkedArray, base: pa.ChunkedArray) -> "_Offsets":
        """Columns of whole numbers."""
        differences = pc.subtract(values, base)
        span = pc.min_max(differences).as_py()
        if differences.null_count > values.null_count or not _fits(span["min"]) or not _fits(span["max"]):
            return cls(_floats(values), has_unknown=values.null_count > 0)
        packed = pc.fill_null(differences.cast(pa.int32()), UNKNOWN).to_numpy()
        return cls(packed, has_unknown=values.null_count > 0)

    def at(self, places: Ints) -> "_Offsets":
        """The rows at these places."""
        return _Offsets(self.values[places], self.has_unknown)

    def shown(self, rows: slice | Ints, base: Floats) -> Floats:
        """Offsets of these rows; `base` is theirs."""
        values = self.values[rows]
        if values.dtype != np.int32:
            return values.astype(np.float64, copy=False)
        offsets: Floats = values + base
        if self.has_unknown:
            offsets[values == UNKNOWN] = np.nan
        return offsets


@dataclass(frozen=True, slots=True)
class LagWindow:
    """One window: its partitions by key, with first and newest sample."""

    start_ms: int
    keys: Ints
    """Keys of the window's partitions, sorted. Windows of the same partitions share one array."""
    newest_ms: int
    _first_ms: NDArray[np.int32]
    _last_ms: NDArray[np.int32]
    """Time of the newest sample since the window's start, ms."""
    _log_end_first: Floats
    _log_end: _Offsets
    _committed_first: _Offsets
    _committed: _Offsets
    _log_start: _Offsets
    """Log start offset of the newest sample."""

    @classmethod
    def empty(cls, start_ms: int, newest_ms: int) -> "LagWindow":
        """Returns a window of which no partition is shown, though it has a sample of then."""
        none, keys = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
        offsets = _Offsets(none, has_unknown=False)
        return cls(start_ms, keys, newest_ms, none, none, np.zeros(0), offsets, offsets, offsets, offsets)

    def points(self, rows: slice | Ints) -> tuple[Pair, Pair, Pair]:
        """Times, committed offsets and log ends of these rows."""
        base = self._log_end_first[rows]
        times = (self.start_ms + column[rows].astype(np.float64) for column in (self._first_ms, self._last_ms))
        committed = (column.shown(rows, base) for column in (self._committed_first, self._committed))
        first_ms, last_ms = times
        committed_first, committed_last = committed
        return (first_ms, last_ms), (committed_first, committed_last), (base, self._log_end.shown(rows, base))

    def log_start(self, rows: slice | Ints) -> Floats:
        """Log starts of these rows."""
        return self._log_start.shown(rows, self._log_end_first[rows])


def windows_of(rows: pa.Table, keys: PartitionKeys, known: Iterable[Ints] = ()) -> Iterator[tuple[LagWindow, Ints]]:
    """Yields each window that has rows, oldest first, and the places of its rows in the order of its keys.

    `rows` have `OFFSETS` at least. `known` are arrays of keys that a window may share.
    """
    if not rows.num_rows:
        return
    starts = rows["window_start"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
    numbers = keys.of(rows)
    base = rows["log_end_offset_first"]
    ends = _floats(base)
    offsets = [_Offsets.packed(rows[name], base) for name in _KEPT]
    times = [rows[name] for name in ("first_event_time_ms", "last_event_time_ms")]
    shared = list(known)
    for start_ms in sorted(pc.unique(starts).to_pylist()):
        sorted_keys, places = _in_order(numbers, np.flatnonzero(pc.equal(starts, start_ms).to_numpy()), shared)
        shared = [sorted_keys, *shared[:KNOWN_MAX]]
        first_ms, last_ms = (_since(column, places, start_ms) for column in times)
        yield LagWindow(
            start_ms, sorted_keys, start_ms + int(last_ms.max()), first_ms, last_ms, ends[places],
            *(column.at(places) for column in offsets),
        ), places  # fmt: skip


def _in_order(numbers: Ints, rows: Ints, known: Iterable[Ints]) -> tuple[Ints, Ints]:
    """The keys of these rows, sorted, and the rows in that order; the array of `known` that has the same keys."""
    keys = numbers[rows]
    for one in known:
        places = _places(keys, one)
        if places is not None:
            return one, rows[places]
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


def _places(keys: Ints, known: Ints) -> Ints | None:
    """Places of the keys in the order of `known`; None if they are others. A third of the time of sorting them.

    The partitions of a topic follow each other as a rule: then a key is as far from the first as its partition is.
    """
    if len(keys) != len(known):
        return None
    starts = starts_of(of_topic(known))
    topics = of_topic(known[starts])
    encoded = pa.array(of_topic(keys)).dictionary_encode()
    run = np.minimum(np.searchsorted(topics, encoded.dictionary.to_numpy()), len(topics) - 1)
    slots = np.clip(keys + (starts - known[starts])[run][encoded.indices.to_numpy()], 0, len(known) - 1)
    places = np.full(len(known), -1)
    places[slots] = np.arange(len(keys))
    return places if np.array_equal(known[slots], keys) and places.min() >= 0 else None


def _fits(value: int | None) -> bool:
    return value is None or -_INT32.max <= value <= _INT32.max


def _since(times_ms: pa.ChunkedArray, places: Ints, start_ms: int) -> NDArray[np.int32]:
    """Times of these rows since the start; one number if all are equal, as in one sample."""
    span = pc.min_max(times_ms).as_py()
    of_rows = np.array([span["min"]]) if span["min"] == span["max"] else times_ms.to_numpy()[places]
    since = np.clip(of_rows - start_ms, -_INT32.max, _INT32.max).astype(np.int32)
    return np.broadcast_to(since[0], places.shape) if (since == since[0]).all() else since


def _floats(values: pa.ChunkedArray) -> Floats:
    floats: Floats = as_floats(values).to_numpy()
    return floats


def history_of(windows: Iterable[LagWindow], keys: Ints) -> LagHistory:
    """Points of these keys in these windows, oldest window first; each key is in one of them at least.

    `keys` are sorted, and a part of all.
    """
    known = list(windows)
    # Point after point, which is how windows hold them: turned once, at the end.
    shape = (len(known), 2, len(keys))
    columns = tuple(np.empty(shape) for _ in range(4))
    present = np.ones((len(known), len(keys)), dtype=bool)
    for place, (window, wanted, rows) in enumerate(_of_keys(known, keys)):
        if not isinstance(wanted, slice):
            present[place] = wanted
        log_start = window.log_start(rows)
        for column, pair in zip(columns, (*window.points(rows), (log_start, log_start)), strict=True):
            for which in range(2):
                column[place, which, wanted] = pair[which]
    counts = 2 * present.sum(axis=0)
    turned = (column.reshape(-1, len(keys)).T for column in columns)
    if present.all():
        kept = [column.ravel() for column in turned]
    else:
        is_there = np.repeat(present, 2, axis=0).T
        kept = [column[is_there] for column in turned]
    times, committed, log_end, log_start = kept
    starts = np.cumsum(counts) - counts
    return LagHistory(starts, times, committed, log_end, _log_starts(log_start, times, starts))


def _log_starts(newest: Floats, times: Floats, starts: Ints) -> Floats:
    """Log starts of points, two a window, from those of each window's newest sample.

    A first sample has the log start that the window before shows: with a later one, records that were read and then
    deleted, as Kafka Streams does with its repartition topics, would seem to be lost.
    """
    of_windows, of_samples = newest.reshape(-1, 2), times.reshape(-1, 2)
    before = np.append(np.nan, of_windows[:-1, 1])
    before[starts // 2] = np.nan
    apart = of_samples[:, 0] < of_samples[:, 1]
    first = np.where(apart, np.fmin(before, of_windows[:, 0]), of_windows[:, 0])
    return np.column_stack((first, of_windows[:, 1])).ravel()


def points_of(windows: Iterable[LagWindow], keys: Ints) -> Iterator[Point]:
    """Yields the points of these keys in these windows, oldest window first, two a window, each of all keys; NaN for
    keys that the window lacks.
    """
    for window, wanted, rows in _of_keys(windows, keys):
        pairs = window.points(rows)
        for which in range(2):
            yield _point(wanted, pairs, which)


def points_of_newest_first(windows: Sequence[LagWindow], keys: Ints) -> Iterator[Point]:
    """The points of these keys, the newest of the newest window first; `windows` are oldest first."""
    for window, wanted, rows in _of_keys(reversed(windows), keys):
        pairs = window.points(rows)
        for which in reversed(range(2)):
            yield _point(wanted, pairs, which)


def _of_keys(windows: Iterable[LagWindow], keys: Ints) -> Iterator[tuple[LagWindow, slice | Flags, slice | Ints]]:
    """Yields each window with the keys that are in it, and their places there."""
    # Windows of the same partitions share one array of keys: it is searched once.
    places: dict[int, tuple[slice | Flags, slice | Ints]] = {}
    for window in windows:
        if id(window.keys) not in places:
            places[id(window.keys)] = _rows_of(window.keys, keys)
        wanted, rows = places[id(window.keys)]
        yield window, wanted, rows


def _rows_of(known: Ints, keys: Ints) -> tuple[slice | Flags, slice | Ints]:
    """Which keys are among the `known` ones, which are sorted, too; and their places there."""
    begin, end = (int(at) for at in np.searchsorted(known, (keys[0], keys[-1] + 1)))
    if np.array_equal(known[begin:end], keys):
        return slice(None), slice(begin, end)
    rows = np.searchsorted(known[begin:end], keys)
    wanted = np.append(known[begin:end], -1)[rows] == keys
    return (slice(None) if wanted.all() else wanted), begin + rows[wanted]


def _point(wanted: slice | Flags, pairs: Sequence[Pair], which: int) -> Point:
    time_ms, committed, log_end = (_spread(pair[which], wanted) for pair in pairs)
    return time_ms, committed, log_end


def _spread(values: Floats, wanted: slice | Flags) -> Floats:
    if isinstance(wanted, slice):
        return values
    spread = np.full(len(wanted), np.nan)
    spread[wanted] = values
    return spread


def listed(values: pa.ChunkedArray) -> list[Any]:
    """The values. Texts of a dictionary are written out first: one by one each would cost ten times as much."""
    is_encoded = pa.types.is_dictionary(values.type)
    values_listed: list[Any] = (values.cast(values.type.value_type) if is_encoded else values).to_pylist()
    return values_listed


def rows_listed(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as dicts, for some thousands of them."""
    names, columns = rows.column_names, [listed(column) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows of a picture that follow each other and share a key: what there is of each, in the order of the rows."""

    starts: Ints
    rows: int

    @classmethod
    def of(cls, rows: pa.Table, *key: str) -> "Runs":
        differs = np.zeros(rows.num_rows, dtype=bool)
        differs[:1] = True
        for name in key:
            codes = rows[name].combine_chunks().dictionary_encode().indices.to_numpy()
            differs[1:] |= codes[1:] != codes[:-1]
        return cls(np.flatnonzero(differs), rows.num_rows)

    @property
    def counts(self) -> Ints:
        return np.diff(np.append(self.starts, self.rows))

    def first(self, values: pa.ChunkedArray) -> list[Any]:
        """The value of the first row."""
        return listed(values.take(pa.array(self.starts)))

    def totals(self, values: pa.ChunkedArray) -> list[int | None]:
        """Sums of whole numbers where they are known; None where all are unknown."""
        sums = self.sums(values).tolist()
        known = np.logical_or.reduceat(pc.is_valid(values).to_numpy(), self.starts).tolist()
        return [int(total) if is_known else None for total, is_known in zip(sums, known, strict=True)]

    def sums(self, values: pa.ChunkedArray) -> Floats:
        """Sums of whole numbers, exact up to 2^53; what is unknown adds nothing."""
        # Some offsets may add up to more than 64 bits hold.
        sums: Floats = np.add.reduceat(as_floats(pc.fill_null(values, 0)).to_numpy(), self.starts)
        return sums

    def highest(self, values: pa.ChunkedArray) -> list[Any]:
        """Greatest value known; None where all are unknown."""
        highest = pa.array(np.fmax.reduceat(as_floats(values).to_numpy(), self.starts), from_pandas=True)
        listed: list[Any] = (as_whole(highest) if pa.types.is_integer(values.type) else highest).to_pylist()
        return listed

    def spread(self, values: Ints) -> Ints:
        """A value of each run for each of its rows."""
        return np.repeat(values, self.counts)

    def statuses(self, status: Ints) -> list[dict[str, int]]:
        """Rows by verdict, worst first; verdicts that none has are left out."""
        numbers = np.repeat(np.arange(len(self.starts)), self.counts) * len(LagStatus) + status
        table = np.bincount(numbers, minlength=len(self.starts) * len(LagStatus)).reshape(-1, len(LagStatus))
        worst_first = [(int(verdict), verdict.label) for verdict in reversed(LagStatus)]
        return [{label: row[number] for number, label in worst_first if row[number]} for row in table.tolist()]
