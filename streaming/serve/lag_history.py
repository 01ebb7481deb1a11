"""What the windows before tell about a group's partitions: how old the lag is, and when an offset was last committed.

Pure, on columns. Each window gives two points of a partition: its first and its newest sample. What happened before the
oldest point is unknown, so both answers are bounds there: the lag is at least, the commit at the latest, that old.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class History:
    """N windows of P partitions, one partition after another, oldest window first; P starts index the N rows.

    Offsets are NaN where unknown, times ms since 1970 UTC.
    """

    starts: Ints
    first_ms: Floats
    last_ms: Floats
    committed_first: Floats
    committed: Floats
    end_first: Floats
    end: Floats


def lag_seconds(history: History) -> Floats:
    """P ages of the next record to be read, seconds; 0 without lag, NaN where nothing is committed.

    The log's end passed the committed offset between two points; in between it is taken to have grown evenly.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> times, committed = (row(0, 60e3), row(60e3, 120e3)), (row(0, 0), row(0, 150))
    >>> ends = (row(0, 100), row(100, 200))  # 150 was the log's end halfway through the second window
    >>> lag_seconds(History(np.array([0]), *times, *committed, *ends))
    array([30.])
    """
    times, ends = _points(history.first_ms, history.last_ms), _points(history.end_first, history.end)
    starts, counts = history.starts * 2, _counts(history.starts, len(history.end)) * 2
    newest = starts + counts - 1
    committed = history.committed[newest // 2]
    reached = _last_true(ends <= np.repeat(committed, counts), starts)
    before = np.where(reached < 0, starts, reached)
    after = np.minimum(before + 1, newest)
    grown = ends[after] - ends[before]
    share = np.where(grown > 0, (committed - ends[before]) / np.where(grown > 0, grown, 1.0), 0.0)
    passed_ms = times[before] + np.clip(share, 0.0, 1.0) * (times[after] - times[before])
    age: Floats = np.where(reached == newest, 0.0, (times[newest] - passed_ms) / 1000)
    return np.where(np.isnan(committed), np.nan, age)


def last_commit_ms(history: History) -> Floats:
    """P times of the newest commit seen, or of the oldest point where none was seen; NaN as in `lag_seconds`."""
    times, offsets = _points(history.first_ms, history.last_ms), _points(history.committed_first, history.committed)
    starts = history.starts * 2
    changed = np.zeros(len(offsets), dtype=bool)
    changed[1:] = offsets[1:] != offsets[:-1]
    changed[starts] = False
    # Unknown beside unknown is no change.
    changed[1:] &= ~(np.isnan(offsets[1:]) & np.isnan(offsets[:-1]))
    found = _last_true(changed, starts)
    newest = starts + _counts(history.starts, len(history.end)) * 2 - 1
    return np.where(np.isnan(offsets[newest]), np.nan, times[np.where(found < 0, starts, found)])


def _points(first: Floats, last: Floats) -> Floats:
    return np.column_stack((first, last)).ravel()


def _counts(starts: Ints, total: int) -> Ints:
    return np.diff(np.append(starts, total))


def _last_true(flags: NDArray[np.bool_], starts: Ints) -> Ints:
    """Index of the last true flag of each partition, -1 where there is none."""
    return np.maximum.reduceat(np.where(flags, np.arange(len(flags)), -1), starts)
