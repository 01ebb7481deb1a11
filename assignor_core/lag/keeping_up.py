"""Which consumers are OK at a glance: most are, at each evaluation, and all figures cost several times as much.

Follows from the rules of `verdicts`: what is OK here is OK there, at once and as a verdict. The reverse does not hold.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from assignor_core.lag.figures import LagPolicy
from assignor_core.lag.history import POINTS_PER_WINDOW, Flags, Floats, Ints, LagAnswers
from assignor_core.lag.newest_first import Point


@dataclass(frozen=True, slots=True)
class Course:
    """What the look-back shows of P partitions in short."""

    committed_max: Floats
    """NaN where it is unknown at any point."""
    shrinks: Flags
    """The log's end drops between two points: the topic was deleted and made again."""
    seen: Ints
    """Points in the look-back."""
    committed_min: Floats
    """NaN where it is unknown at any point."""
    committed_before: Floats
    """Committed offset at the sample before the newest; NaN where it is unknown."""

    @classmethod
    def of(cls, points: Iterable[Point], policy: LagPolicy, *, now_ms: float) -> Self:
        """Summarizes one or more points, oldest first, that cover the look-back which ends at `now_ms`."""
        after_ms = now_ms - policy.windows * policy.window_ms
        greatest = least = end_before = time_before = newest = before = np.zeros(0)
        shrinks, seen = np.zeros(0, dtype=bool), np.zeros(0, dtype=np.int64)
        for time_ms, committed, log_end in points:
            if not len(seen):
                seen, shrinks = np.zeros(len(time_ms), dtype=np.int64), np.zeros(len(time_ms), dtype=bool)
                greatest, least, end_before, newest = committed.copy(), committed.copy(), log_end, committed
                time_before, before = time_ms, np.full(len(time_ms), np.nan)
            np.maximum(greatest, committed, out=greatest)
            np.minimum(least, committed, out=least)
            np.logical_or(shrinks, log_end < end_before, out=shrinks)
            np.add(seen, time_ms > after_ms, out=seen)
            before = np.where(time_ms > time_before, newest, before)
            is_there = ~np.isnan(time_ms)
            newest, time_before = np.where(is_there, committed, newest), np.where(is_there, time_ms, time_before)
            # A window in which the topic was away, or the partition was not seen, hides no drop.
            end_before = np.where(np.isnan(log_end), end_before, log_end)
        return cls(greatest, shrinks, seen, least, before)


def keeps_up(
    newest: Point, course: Course, age: LagAnswers, commit: LagAnswers, left_over: Flags, policy: LagPolicy, *,
    now_ms: float, log_start: Floats | None = None,
) -> Flags:  # fmt: skip
    """P flags. `newest` is the newest point, not after `now_ms`; `age` of the lag, s, and `commit`, the newest one, ms,
    may be of some of the newest points.

    Caught up, or active: read and committed within a window, never set back, seen for long enough, on one topic. A
    commit above the log end, or below the `log_start` at any time, is looked at more closely.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> points = [(row(at), row(read), row(end)) for at, read, end in ((0, 0, 9), (30e3, 40, 50), (60e3, 70, 80))]
    >>> from assignor_core.lag.newest_first import LagTrace
    >>> trace = LagTrace.of(*points[2])
    >>> trace.add(points[1])
    >>> policy, left_over = LagPolicy(windows=2), np.array([False])
    >>> course = Course.of(points, policy, now_ms=60e3)
    >>> keeps_up(points[2], course, trace.age(), trace.commit(), left_over, policy, now_ms=60e3)
    array([ True])
    """
    time_ms, committed, log_end = newest
    lag = np.maximum(log_end - committed, 0.0)
    caught_up = (lag <= 0) & (time_ms > now_ms - policy.windows * policy.window_ms)
    young = age.is_final & (age.values <= policy.window_ms / 1000)
    commits = commit.is_final & (commit.values >= time_ms - policy.window_ms)
    # With an offset that is unknown at some point the highest one is NaN: no comparison with it holds.
    advances = (course.committed_max <= committed) & ~course.shrinks
    seen = course.seen / (POINTS_PER_WINDOW * policy.windows) >= policy.completeness_min
    within = (committed <= log_end) | ((course.committed_before <= log_end) & ~course.shrinks)
    if log_start is not None:
        within &= ~(log_start > course.committed_min)
    return within & (caught_up | (young & commits & advances & seen & ~left_over))
