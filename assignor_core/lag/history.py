"""What earlier windows show of a group's partitions: how old the lag is, and when an offset was last committed.

Columns of points, two a window: its first and its newest sample. What happened before the oldest point is unknown, so
both answers are bounds there: the lag is at least, the commit at the latest, that old. Knows no verdict.
"""

from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

Number = TypeVar("Number", np.float64, np.int64, np.bool_)

POINTS_PER_WINDOW = 2


def next_read(committed: Floats, log_start: Floats) -> Floats:
    """Offsets of the next records to be read: the committed ones, or the log starts that are above these."""
    return np.where(log_start > committed, log_start, committed)


@dataclass(frozen=True, slots=True)
class LagHistory:
    """N points of P partitions, one partition after another, oldest point first; `starts` (P) are their first points.

    No partition is without points. Offsets are NaN where unknown, times ms since 1970 UTC. Without `log_start` no log
    start is known.
    """

    starts: Ints
    time_ms: Floats
    committed: Floats
    log_end: Floats
    log_start: Floats | None = None
    counts: Ints = field(init=False)
    """P numbers of points."""
    newest: Ints = field(init=False)
    """P indices of the newest points."""

    def __post_init__(self) -> None:
        counts = np.diff(np.append(self.starts, len(self.time_ms)))
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "newest", self.starts + counts - 1)

    def of(self, partitions: Flags) -> Self:
        """Returns the history of the flagged `partitions`, of which there is at least one."""
        kept, counts = self.spread(partitions), self.counts[partitions]
        return self.points(np.cumsum(counts) - counts, kept)

    def points(self, starts: Ints, kept: Flags) -> Self:
        """Returns the points flagged in `kept` as the history of partitions whose first points are at `starts`."""
        log_start = None if self.log_start is None else self.log_start[kept]
        return type(self)(starts, self.time_ms[kept], self.committed[kept], self.log_end[kept], log_start)

    @property
    def read_to(self) -> Floats:
        """N offsets of the next record to be read: the committed one, or the log start if that is above it.

        Records between a commit and the log start are deleted: nobody reads them any more.
        """
        return self.committed if self.log_start is None else next_read(self.committed, self.log_start)

    @property
    def lag(self) -> Floats:
        """N records that wait; NaN where nothing is committed, or the log end is unknown."""
        return np.maximum(self.log_end - self.read_to, 0.0)

    @property
    def below_start(self) -> Floats:
        """N numbers of records that were deleted before they were read."""
        if self.log_start is None:
            return np.zeros(len(self.time_ms))
        return np.fmax(self.log_start - self.committed, 0.0)

    def spread(self, values: NDArray[Number]) -> NDArray[Number]:
        """P values of partitions as N values of their points."""
        return np.repeat(values, self.counts)


@dataclass(frozen=True, slots=True)
class LagAnswers:
    """P answers, NaN where unknown, and which of them no older point would change: the others are bounds."""

    values: Floats
    is_final: Flags


def lag_seconds(history: LagHistory) -> Floats:
    """P ages of the next record to be read, seconds; 0 without lag, NaN where nothing is committed.

    The log's end passed the committed offset between two points; in between it is taken to have grown evenly. Points
    before the log's end drops are of another topic of the same name.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> ends = row(0, 100, 100, 200)  # 150 was the log's end halfway through the second minute
    >>> lag_seconds(LagHistory(np.array([0]), row(0, 60e3, 60e3, 120e3), row(0, 0, 0, 150), ends))
    array([30.])
    """
    return lag_age(history).values


def lag_age(history: LagHistory) -> LagAnswers:
    """Returns P ages as `lag_seconds` does, and for which partitions the points go back far enough."""
    times, ends, starts = history.time_ms, history.log_end, history.starts
    newest = history.newest
    committed = history.read_to[newest]
    began = last_true(log_end_drops(history), starts)
    reached = last_true(ends <= history.spread(committed), starts)
    reached = np.where(reached < began, -1, reached)
    before = np.where(reached < 0, np.maximum(starts, began), reached)
    after = np.minimum(before + 1, newest)
    grown = ends[after] - ends[before]
    share = np.where(grown > 0, (committed - ends[before]) / np.where(grown > 0, grown, 1.0), 0.0)
    passed_ms = times[before] + np.clip(share, 0.0, 1.0) * (times[after] - times[before])
    age: Floats = np.where(reached == newest, 0.0, (times[newest] - passed_ms) / 1000)
    unknown = np.isnan(committed)
    return LagAnswers(np.where(unknown, np.nan, age), unknown | (reached >= 0) | (began >= 0))


def last_commit_ms(history: LagHistory) -> Floats:
    """P times of the newest commit seen, or of the oldest point where none was seen; NaN as in `lag_seconds`."""
    return newest_commit(history).values


def newest_commit(history: LagHistory) -> LagAnswers:
    """Returns P times as `last_commit_ms` does, and for which partitions a commit was seen, or nothing is committed."""
    seen = last_true(commits_seen(history), history.starts)
    unknown = np.isnan(history.committed[history.newest])
    times_ms = history.time_ms[np.where(seen < 0, history.starts, seen)]
    return LagAnswers(np.where(unknown, np.nan, times_ms), unknown | (seen >= 0))


def commits_seen(history: LagHistory) -> Flags:
    """N flags: the committed offset is another than at the point before; a partition's first point has none before."""
    offsets = history.committed
    changed = np.zeros(len(offsets), dtype=bool)
    # Unknown beside unknown is no change.
    changed[1:] = (offsets[1:] != offsets[:-1]) & ~(np.isnan(offsets[1:]) & np.isnan(offsets[:-1]))
    changed[history.starts] = False
    return changed


def log_end_drops(history: LagHistory) -> Flags:
    """N flags: the log's end is below the one that was known last before: the topic was deleted and made again.

    >>> ends = np.array([5.0, np.nan, 2.0, 3.0, 1.0])  # of two partitions
    >>> log_end_drops(LagHistory(np.array([0, 3]), ends, ends, ends)).tolist()
    [False, False, True, False, True]
    """
    known = np.flatnonzero(~np.isnan(history.log_end))
    ends = history.log_end[known]
    lower = np.flatnonzero(ends[1:] < ends[:-1]) + 1
    drops = np.zeros(len(history.log_end), dtype=bool)
    # Most logs only grow: which partition a point is of is looked up for the others alone.
    partition_before, partition = (np.searchsorted(history.starts, known[at], "right") for at in (lower - 1, lower))
    drops[known[lower[partition == partition_before]]] = True
    return drops


def last_true(flags: Flags, starts: Ints) -> Ints:
    """Index of the last true flag of each partition, -1 where there is none."""
    return np.maximum.reduceat(np.where(flags, np.arange(len(flags)), -1), starts)
