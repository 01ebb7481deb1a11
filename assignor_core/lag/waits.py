"""How long records wait for a commit: now, lately and as a habit. Judges nothing.

A consumer commits after each message, every five seconds, with a checkpoint every ten minutes, or once an hour as a
batch. What is usual is learned from the waits that a commit has ended: a wait is usual if one as long has ended before.
One wait alone is no habit among many shorter ones: it may have been an outage. So the second longest wait is the usual
one, and the longest where fewer than three commits were seen.
"""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from assignor_core.lag.history import Flags, Floats, Ints, LagHistory, commits_seen

HABIT_COMMITS_MIN = 3
"""With fewer commits than this, the longest wait is the usual one."""


@dataclass(frozen=True, slots=True)
class Waits:
    """P waits, ms."""

    stuck_ms: Floats
    """How long at least records have been waiting without any commit."""
    gap_ms: Floats
    """Longest wait of the newest points that a commit ended; 0 where none did."""
    usual_ms: Floats
    """Length that waits have by habit; NaN where no commit was seen."""
    commits: Ints
    """How many commits were seen."""


@dataclass(frozen=True, slots=True)
class EarlierWaits:
    """What the points before a history showed of P partitions: a summary, as the points are too many to read again."""

    usual_ms: Floats
    """How long records usually wait, ms (`Waits.usual_ms`); NaN where no commit was seen, or nothing was read."""
    commits: Floats
    since_ms: Floats
    """When the records that waited at the newest earlier point began to wait, ms; NaN if no records waited."""

    @classmethod
    def none(cls, partitions: int) -> Self:
        """Returns the waits of partitions of which nothing was read."""
        return cls(np.full(partitions, np.nan), np.zeros(partitions), np.full(partitions, np.nan))

    @classmethod
    def of_history(cls, history: LagHistory, caught_up: Flags) -> Self:
        """Summarizes the waits that these points show."""
        waits = measure_waits(history, caught_up, recent_after_ms=np.inf)
        newest = history.newest
        since_ms = np.where(caught_up[newest], np.nan, history.time_ms[newest] - waits.stuck_ms)
        return cls(waits.usual_ms, waits.commits.astype(np.float64), since_ms)

    def of(self, partitions: Flags | Ints | slice) -> Self:
        """Return the earlier waits of some partitions alone."""
        return type(self)(*(getattr(self, field.name)[partitions] for field in fields(self)))

    def put(self, partitions: Ints, some: Self) -> None:
        """Replaces the summary of some partitions."""
        for field in fields(self):
            getattr(self, field.name)[partitions] = getattr(some, field.name)

    def before(self, waits: Waits, history: LagHistory) -> Waits:
        """Adds these earlier waits to the waits of a history: records that began to wait earlier have waited longer."""
        times, newest = history.time_ms, history.newest
        since_start = waits.stuck_ms >= times[newest] - times[history.starts]
        waited = np.where(since_start, np.fmax(times[newest] - self.since_ms, waits.stuck_ms), waits.stuck_ms)
        commits = waits.commits + self.commits.astype(np.int64)
        return Waits(waited, waits.gap_ms, np.fmax(waits.usual_ms, self.usual_ms), commits)


def measure_waits(history: LagHistory, caught_up: Flags, *, recent_after_ms: float) -> Waits:
    """Waits of a history; `caught_up` are N flags: nothing waits there. The newest points are those after a time.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> history = LagHistory(np.array([0]), row(0, 60, 120, 180, 240), row(0, 0, 5, 5, 9), row(9, 9, 9, 9, 12))
    >>> waits = measure_waits(history, history.lag <= 0, recent_after_ms=150)
    >>> waits.stuck_ms, waits.gap_ms, waits.usual_ms, waits.commits
    (array([0.]), array([120.]), array([120.]), array([2]))
    """
    times, starts, newest = history.time_ms, history.starts, history.newest
    committed = commits_seen(history)
    # After a commit records wait from that point on; after a point without lag, from the next at the earliest.
    next_ms = times[np.minimum(np.arange(len(times)) + 1, history.spread(newest))]
    since_ms = np.where(caught_up, next_ms, times)
    resets = committed | caught_up
    resets[starts] = True
    reset = np.maximum.accumulate(np.where(resets, np.arange(len(times)), 0))
    stuck = np.maximum(times[newest] - since_ms[reset[newest]], 0.0)
    previous = np.maximum(np.arange(len(times)) - 1, 0)
    waited = np.where(committed, np.maximum(times - since_ms[reset[previous]], 0.0), 0.0)
    commits = np.add.reduceat(committed, starts, dtype=np.int64)
    gap = np.maximum.reduceat(np.where(times > recent_after_ms, waited, 0.0), starts)
    longest, second = _two_longest(waited, history)
    usual = np.where(commits >= HABIT_COMMITS_MIN, second, longest)
    return Waits(stuck, gap, np.where(commits > 0, usual, np.nan), commits)


def _two_longest(waited: Floats, history: LagHistory) -> tuple[Floats, Floats]:
    longest = np.maximum.reduceat(waited, history.starts)
    is_longest = np.flatnonzero(waited == history.spread(longest))
    # One point of each partition: another wait of the same length is the second longest.
    _, first = np.unique(np.searchsorted(history.starts, is_longest, "right"), return_index=True)
    others = waited.copy()
    others[is_longest[first]] = 0.0
    return longest, np.maximum.reduceat(others, history.starts)
