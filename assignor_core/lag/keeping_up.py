"""Which consumers are OK at a glance: most are, at each evaluation, and all figures cost several times as much.

Follows from the rules of `verdicts`: what is OK here is OK there, at once and as a verdict. The reverse does not hold.
"""

import numpy as np

from assignor_core.lag.figures import LagPolicy
from assignor_core.lag.history import POINTS_PER_WINDOW, Answers, Flags, LagHistory


def keeps_up(
    history: LagHistory, age: Answers, commit: Answers, left_over: Flags, policy: LagPolicy, *, now_ms: float
) -> Flags:
    """P flags. `history` covers the look-back that ends at `now_ms` and has no later point; `age` of the lag, s, and
    `commit`, the newest one, ms, may be of fewer points.

    Caught up, or active: read and committed within a window, never set back, seen for long enough, on one topic.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> history = LagHistory(np.array([0]), row(0, 30e3, 60e3, 90e3), row(0, 40, 70, 100), row(9, 50, 80, 110))
    >>> from assignor_core.lag.history import lag_age, newest_commit
    >>> policy = LagPolicy(windows=2)
    >>> keeps_up(history, lag_age(history), newest_commit(history), np.array([False]), policy, now_ms=90e3)
    array([ True])
    """
    newest = history.newest
    time_ms, committed = history.time_ms[newest], history.committed[newest]
    after_ms = now_ms - policy.windows * policy.window_ms
    lag = np.maximum(history.log_end[newest] - committed, 0.0)
    caught_up = (lag <= policy.lag_allowed_records) & (time_ms > after_ms)
    young = age.is_final & (age.values <= policy.window_ms / 1000)
    commits = commit.is_final & (commit.values >= time_ms - policy.window_ms)
    # An offset that is not known at some point makes the highest one unknown, and no comparison with it holds.
    advances = np.maximum.reduceat(history.committed, history.starts) <= committed
    return caught_up | (
        young & commits & advances & ~left_over & ~_shrinks(history) & _is_seen(history, policy, after_ms)
    )


def _shrinks(history: LagHistory) -> Flags:
    """Whether the log's end drops between any two points: the topic was deleted and made again."""
    dropped = np.zeros(len(history.log_end), dtype=bool)
    dropped[1:] = history.log_end[1:] < history.log_end[:-1]
    dropped[history.starts] = False
    shrinks: Flags = np.logical_or.reduceat(dropped, history.starts)
    return shrinks


def _is_seen(history: LagHistory, policy: LagPolicy, after_ms: float) -> Flags:
    """Whether there are enough points in the look-back."""
    counts = np.add.reduceat(history.time_ms > after_ms, history.starts, dtype=np.int64)
    seen: Flags = counts / (POINTS_PER_WINDOW * policy.windows) >= policy.completeness_min
    return seen
