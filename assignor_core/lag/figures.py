"""The figures that verdicts rest on, measured for all partitions at once over one look-back. Judges nothing.

Time is what is looked back over, never a number of commits: a commit a message would make that a look at seconds.
"""

from dataclasses import dataclass, fields

import numpy as np

from assignor_core.errors import InputError
from assignor_core.lag.history import (
    POINTS_PER_WINDOW,
    Flags,
    Floats,
    Ints,
    LagHistory,
    commits_seen,
    lag_seconds,
    last_true,
    log_end_drops,
)


@dataclass(frozen=True, slots=True)
class LagPolicy:
    """What counts; `window_ms` is also how long records may wait before anything is wrong."""

    window_ms: int = 60_000
    windows: int = 10
    """Look-back of a verdict."""
    completeness_min: float = 0.5
    """Least share of those windows that must have been seen."""
    lag_allowed_records: int = 0
    shrink_min: float = 0.05
    """Lag that shrinks by less than this share from one half of the look-back to the other is not being caught up."""

    def __post_init__(self) -> None:
        if self.window_ms < 1 or self.windows < 2:
            raise InputError(f"lag policy: windows must be 2 or more of 1 ms, found {self.windows} of {self.window_ms}")


@dataclass(frozen=True, slots=True)
class LagFigures:
    """P figures; NaN where unknown, records and milliseconds unless the name says otherwise."""

    lag_records: Floats
    lag_low_before: Floats
    """Least lag of the earlier half of the look-back; what a consumer that commits rarely gets down to."""
    lag_low_lately: Floats
    lag_seconds: Floats
    completeness: Floats
    """Share of the look-back's windows that were seen."""
    stuck_ms: Floats
    """For how long at least records have been waiting without any commit."""
    commit_gap_ms: Floats
    """Longest that records waited for a commit that then came."""
    rewound_records: Floats
    """By how much the committed offset is below the highest it had."""
    consumed_per_sec: Floats
    produced_per_sec: Floats


def measure(history: LagHistory, policy: LagPolicy, *, until_ms: float) -> LagFigures:
    """Figures of the look-back that ends at `until_ms`; a partition that was not seen in it has none.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> history = LagHistory(np.array([0]), row(0, 10, 20, 30), row(5, 5, 5, 5), row(5, 9, 12, 15))
    >>> figures = measure(history, LagPolicy(window_ms=20, windows=2), until_ms=30)
    >>> figures.lag_records, figures.stuck_ms, figures.completeness
    (array([10.]), array([20.]), array([1.]))
    """
    partitions = len(history.starts)
    seen, looked = _look_back(history, until_ms - policy.windows * policy.window_ms, until_ms)
    if not len(seen):
        return LagFigures(*(np.full(partitions, np.nan) for _ in fields(LagFigures)))
    lag = np.maximum(looked.log_end - looked.committed, 0.0)
    stuck, gap = _waits(looked, lag <= policy.lag_allowed_records)
    before, lately = _lows(looked, lag)
    highest = np.fmax.reduceat(looked.committed, looked.starts)
    figures = LagFigures(
        lag_records=lag[looked.newest],
        lag_low_before=before,
        lag_low_lately=lately,
        lag_seconds=lag_seconds(looked),
        completeness=np.minimum(1.0, looked.counts / (POINTS_PER_WINDOW * policy.windows)),
        stuck_ms=stuck,
        commit_gap_ms=gap,
        rewound_records=highest - looked.committed[looked.newest],
        consumed_per_sec=_rate(looked, looked.committed),
        produced_per_sec=_rate(looked, looked.log_end),
    )
    return _spread(figures, seen, partitions)


def _spread(figures: LagFigures, seen: Ints, partitions: int) -> LagFigures:
    """Figures of the partitions seen as figures of all."""
    columns = {}
    for field in fields(LagFigures):
        columns[field.name] = np.full(partitions, np.nan)
        columns[field.name][seen] = getattr(figures, field.name)
    return LagFigures(**columns)


def _look_back(history: LagHistory, after_ms: float, until_ms: float) -> tuple[Ints, LagHistory]:
    """Points in (after, until] of the log as it is now: a log end that drops is a new topic of the old name.

    Which partitions have any comes first. Cut by time before anything else: a history is three times as long.
    """
    seen, points = _kept(history, (history.time_ms > after_ms) & (history.time_ms <= until_ms))
    dropped = log_end_drops(points)
    if not dropped.any():
        return seen, points
    began = np.repeat(last_true(dropped, points.starts), points.counts)
    return seen, _kept(points, np.arange(len(dropped)) >= began)[1]


def _kept(history: LagHistory, kept: Flags) -> tuple[Ints, LagHistory]:
    """History of these points, and the partitions that have any."""
    counts = np.add.reduceat(kept, history.starts, dtype=np.int64)
    seen = np.flatnonzero(counts)
    starts = np.cumsum(counts[seen]) - counts[seen]
    return seen, LagHistory(starts, history.time_ms[kept], history.committed[kept], history.log_end[kept])


def _waits(history: LagHistory, caught_up: Flags) -> tuple[Floats, Floats]:
    """P lengths of the wait under way, and of the longest wait that a commit ended, ms."""
    times, starts, newest = history.time_ms, history.starts, history.newest
    committed = commits_seen(history)
    # After a commit records wait from that point on; after a point without lag, from the next at the earliest.
    next_ms = times[np.minimum(np.arange(len(times)) + 1, np.repeat(newest, history.counts))]
    since_ms = np.where(caught_up, next_ms, times)
    resets = committed | caught_up
    resets[starts] = True
    reset = np.maximum.accumulate(np.where(resets, np.arange(len(times)), 0))
    stuck = np.maximum(times[newest] - since_ms[reset[newest]], 0.0)
    previous = np.maximum(np.arange(len(times)) - 1, 0)
    waited = np.where(committed, times - since_ms[reset[previous]], 0.0)
    return stuck, np.maximum.reduceat(np.maximum(waited, 0.0), starts)


def _lows(history: LagHistory, lag: Floats) -> tuple[Floats, Floats]:
    """P least lags of the earlier and of the later half of the points."""
    halves = np.column_stack((history.starts, history.starts + history.counts // 2)).ravel()
    lows = np.fmin.reduceat(lag, halves)
    return lows[0::2], lows[1::2]


def _rate(history: LagHistory, offsets: Floats) -> Floats:
    """P rates from the first to the newest point, per second; NaN within a moment."""
    seconds = (history.time_ms[history.newest] - history.time_ms[history.starts]) / 1000
    grown = np.maximum(offsets[history.newest] - offsets[history.starts], 0.0)
    rate: Floats = np.where(seconds > 0, grown / np.where(seconds > 0, seconds, 1.0), np.nan)
    return rate
