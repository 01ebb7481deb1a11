"""The figures that verdicts rest on, measured for all partitions at once over one look-back. Judges nothing.

Time is what is looked back over, never a number of commits: a commit a message would make that a look at seconds. Waits
for a commit are measured over all points that are given: how often a consumer commits shows in hours.
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
from assignor_core.lag.waits import EarlierWaits, measure_waits

TRANSACTION_MARKERS_MAX = 10
"""Most records at the end of a log, never read by the group, that count as transaction markers."""
CATCH_UP_WAIT_WINDOWS = 2
"""A consumer that waits longer before it commits shows no rate at which it catches up."""


@dataclass(frozen=True, slots=True)
class LagPolicy:
    """What counts; `window_ms` is also how long records may wait before anything is wrong."""

    window_ms: int = 60_000
    windows: int = 10
    """Number of windows that a verdict looks back over."""
    completeness_min: float = 0.5
    """Least share of the look-back's windows in which a partition must have been seen."""
    shrink_min: float = 0.05
    """Lag that shrinks by less than this share from one half of the look-back to the other is not being caught up."""
    usual_wait_factor: float = 1.25
    """A wait for a commit is too long at this many times the usual one."""
    unlearned_windows: float = 8.0
    """Windows that a member has for its first commit: how often a new member commits is unknown."""

    def __post_init__(self) -> None:
        if self.window_ms < 1 or self.windows < 2:
            raise InputError(f"lag policy: windows must be 2 or more of 1 ms, found {self.windows} of {self.window_ms}")

    @property
    def look_back_ms(self) -> int:
        """Length of the look-back."""
        return self.windows * self.window_ms


@dataclass(frozen=True, slots=True)
class LagFigures:
    """P figures; NaN where unknown, records and milliseconds unless the name says otherwise."""

    lag_records: Floats
    """Records that can still be read: those below the log start are deleted."""
    lag_low_before: Floats
    """Least lag of the earlier half of the look-back; what a consumer that commits rarely gets down to."""
    lag_low_lately: Floats
    lag_high_lately: Floats
    lag_seconds: Floats
    completeness: Floats
    """Share of the look-back's windows that were seen."""
    stuck_ms: Floats
    """For how long at least records have been waiting without any commit."""
    commit_gap_ms: Floats
    """Longest that records waited in the look-back for a commit that then came."""
    usual_wait_ms: Floats
    """How long records wait for a commit by habit; NaN where no commit was seen."""
    commits: Floats
    """How many commits were seen in all points."""
    uncommitted_ms: Floats
    """How long at least nothing is committed although records arrive; 0 where something is, or none arrive."""
    rewound_records: Floats
    """How far, in records, the committed offset is below its highest earlier value."""
    beyond_records: Floats
    """By how much the committed offset is above the log end; NaN where one sample alone shows that. Offsets are
    fetched after log ends: a commit counts as beyond the end if a later sample still has an end below it."""
    lost_records: Floats
    """Most records that were deleted in the look-back before they were read."""
    markers: Floats
    """Records at the log end that are taken for transaction markers; 0 where none are."""
    consumed_per_sec: Floats
    """Records/s that the group has read since its offset was last set back."""
    produced_per_sec: Floats


def measure(
    history: LagHistory,
    policy: LagPolicy,
    *,
    until_ms: float,
    allowed_records: Floats | None = None,
    earlier: EarlierWaits | None = None,
) -> LagFigures:
    """Figures of the look-back that ends at `until_ms`; a partition that was not seen in it has none.

    `allowed_records` are P lags that count as none, `earlier` what points before this history showed.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> history = LagHistory(np.array([0]), row(0, 10, 20, 30), row(5, 5, 5, 5), row(5, 9, 12, 15))
    >>> figures = measure(history, LagPolicy(window_ms=20, windows=2), until_ms=30)
    >>> figures.lag_records, figures.stuck_ms, figures.completeness
    (array([10.]), array([20.]), array([1.]))
    """
    partitions = len(history.starts)
    after_ms = until_ms - policy.look_back_ms
    seen, looked = _of_this_log(history, (history.time_ms > after_ms) & (history.time_ms <= until_ms))
    if not len(seen):
        return LagFigures(*(np.full(partitions, np.nan) for _ in fields(LagFigures)))
    is_seen = np.zeros(partitions, dtype=bool)
    is_seen[seen] = True
    _, past = _of_this_log(history, history.spread(is_seen) & (history.time_ms <= until_ms))
    allowed = np.zeros(len(seen)) if allowed_records is None else allowed_records[seen]
    waits = measure_waits(past, past.lag <= past.spread(allowed), recent_after_ms=after_ms)
    if earlier is not None:
        waits = earlier.of(seen).before(waits, past)
    course = _since_set_back(looked)
    before, lately, high = _lows(course)
    lag, newest = looked.lag, looked.newest
    figures = LagFigures(
        lag_records=lag[newest],
        lag_low_before=before,
        lag_low_lately=lately,
        lag_high_lately=high,
        lag_seconds=lag_seconds(looked),
        completeness=np.minimum(1.0, looked.counts / (POINTS_PER_WINDOW * policy.windows)),
        stuck_ms=waits.stuck_ms,
        commit_gap_ms=waits.gap_ms,
        usual_wait_ms=waits.usual_ms,
        commits=waits.commits.astype(np.float64),
        uncommitted_ms=_uncommitted_ms(past),
        rewound_records=_rewound(looked),
        beyond_records=_beyond(looked),
        lost_records=_lost(looked),
        markers=_markers(past, waits.commits),
        consumed_per_sec=_rate(course, course.read_to),
        produced_per_sec=_rate(looked, looked.log_end),
    )
    return _spread(figures, seen, partitions)


def is_catching_up(figures: LagFigures, policy: LagPolicy) -> Flags:
    """Whether rates show when there will be no lag: each lag of the later half is below each of the earlier one.

    A consumer that commits rarely has a lag like a saw: its rates depend on where the look-back begins.
    """
    waits_ms = np.fmax(figures.commit_gap_ms, figures.usual_wait_ms)
    return (figures.lag_high_lately < figures.lag_low_before) & (waits_ms <= CATCH_UP_WAIT_WINDOWS * policy.window_ms)


def _spread(figures: LagFigures, seen: Ints, partitions: int) -> LagFigures:
    """Spreads the figures of the partitions that were seen over all P partitions; NaN for the others."""
    columns = {}
    for field in fields(LagFigures):
        columns[field.name] = np.full(partitions, np.nan)
        columns[field.name][seen] = getattr(figures, field.name)
    return LagFigures(**columns)


def _of_this_log(history: LagHistory, wanted: Flags) -> tuple[Ints, LagHistory]:
    """Partitions that have any of these points, and their points of the log as it is now.

    A log end that drops is a new topic of the old name, or a log that was cut. Which partitions have any comes first.
    """
    seen, points = _kept(history, wanted)
    dropped = log_end_drops(points)
    if not dropped.any():
        return seen, points
    return seen, _from(points, last_true(dropped, points.starts))


def _from(history: LagHistory, first: Ints) -> LagHistory:
    """History of each partition from its point `first` on; all points where that is below 0."""
    return _kept(history, np.arange(len(history.time_ms)) >= history.spread(first))[1]


def _kept(history: LagHistory, kept: Flags) -> tuple[Ints, LagHistory]:
    """History of these points, and the partitions that have any."""
    counts = np.add.reduceat(kept, history.starts, dtype=np.int64)
    seen = np.flatnonzero(counts)
    return seen, history.points(np.cumsum(counts[seen]) - counts[seen], kept)


def _since_set_back(history: LagHistory) -> LagHistory:
    """Points since the offset was last set back, or set past records that were deleted: rates start again there."""
    back = np.zeros(len(history.time_ms), dtype=bool)
    before, after = history.committed[:-1], history.committed[1:]
    back[1:] = (after < before) | ((after > before) & (history.below_start[:-1] > 0))
    back[history.starts] = False
    return _from(history, last_true(back, history.starts)) if back.any() else history


def _uncommitted_ms(history: LagHistory) -> Floats:
    times, starts, newest = history.time_ms, history.starts, history.newest
    known = np.logical_or.reduceat(~np.isnan(history.committed), starts)
    arrive = history.log_end[newest] > history.log_end[starts]
    return np.where(arrive & ~known, times[newest] - times[starts], 0.0)


def _rewound(history: LagHistory) -> Floats:
    """A commit beyond the log end was never read up to: it is no offset to be set back from."""
    of_log = np.where(history.committed <= history.log_end, history.committed, np.nan)
    highest = np.fmax.reduceat(of_log, history.starts)
    newest = history.committed[history.newest]
    rewound: Floats = np.where(np.isnan(highest) & ~np.isnan(newest), 0.0, np.fmax(highest - newest, 0.0))
    return np.where(np.isnan(newest), np.nan, rewound)


def _beyond(history: LagHistory) -> Floats:
    newest = history.newest
    before = np.maximum(newest - 1, history.starts)
    # First and newest point of a window may be one sample.
    same = history.time_ms[before] == history.time_ms[newest]
    before = np.maximum(before - same, history.starts)
    beyond = np.fmax(history.committed[newest] - history.log_end[newest], 0.0)
    is_later = history.time_ms[before] < history.time_ms[newest]
    is_sure = history.committed[before] > history.log_end[newest]
    return np.where(beyond > 0, np.where(is_later, np.where(is_sure, beyond, 0.0), np.nan), 0.0)


def _lost(history: LagHistory) -> Floats:
    below = history.below_start
    return np.maximum(np.maximum.reduceat(below, history.starts) - below[history.starts], 0.0)


def _markers(history: LagHistory, commits: Ints) -> Floats:
    """The end of a transaction takes an offset and is no record. Java's client and librdkafka commit past it; others
    commit the offset after the last record, so that their lag never falls to 0. Such a lag is as small as any that
    the group had while it committed; or it is one record, and the newest commit came after that record."""
    lag, starts, newest = history.lag, history.starts, history.newest
    grown = np.zeros(len(lag), dtype=bool)
    grown[1:] = history.log_end[1:] > history.log_end[:-1]
    grown[starts] = False
    committed = commits_seen(history)
    read_after = last_true(committed, starts) >= last_true(grown, starts)
    least = np.fmin.reduceat(np.where(committed, lag, np.inf), starts)
    # Whoever was past it has read it as a record, and was set back.
    left = (lag[newest] == 1) & read_after & ~(_rewound(history) > 0)
    usual = (lag[newest] <= least) & (lag[newest] <= TRANSACTION_MARKERS_MAX) & (commits > 1)
    return np.where(left | usual, lag[newest], 0.0)


def _lows(history: LagHistory) -> tuple[Floats, Floats, Floats]:
    """P least lags of the earlier and of the later half of the points, and the greatest of the later half; NaN of
    those with fewer points than two windows have."""
    halves = np.column_stack((history.starts, history.starts + history.counts // 2)).ravel()
    lag = history.lag
    lows, highs = np.fmin.reduceat(lag, halves), np.fmax.reduceat(lag, halves)
    enough = history.counts >= 2 * POINTS_PER_WINDOW
    before, lately, high = (np.where(enough, values, np.nan) for values in (lows[0::2], lows[1::2], highs[1::2]))
    return before, lately, high


def _rate(history: LagHistory, offsets: Floats) -> Floats:
    """P rates from the first to the newest point, per second; NaN within a moment."""
    seconds = (history.time_ms[history.newest] - history.time_ms[history.starts]) / 1000
    grown = np.maximum(offsets[history.newest] - offsets[history.starts], 0.0)
    rate: Floats = np.where(seconds > 0, grown / np.where(seconds > 0, seconds, 1.0), np.nan)
    return rate
