"""Verdicts on consumers: one small predicate each over the figures, in an order, for all partitions at once.

A verdict counts once it holds in two evaluations, a window apart: the milder of the two is given. The group's is that
of its worst partition. Knows neither where the figures come from nor what is done about a verdict.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

import numpy as np

from assignor_core.lag.figures import LagFigures, LagPolicy, measure
from assignor_core.lag.history import Flags, Floats, Ints, LagHistory


class LagStatus(IntEnum):
    """Verdicts, in order of severity."""

    OK = 0
    UNKNOWN = 1
    """Nothing committed, not seen for long enough, or no longer subscribed."""
    WARN = 2
    """Reads and commits, yet does not catch up."""
    STOP = 3
    """No member owns the partition, and its records wait."""
    STALL = 4
    """A member owns the partition and commits nothing, and its records wait."""
    REWIND = 5
    """Went back to an offset below one it had committed, and is not there again."""

    @property
    def label(self) -> str:
        """As metrics and JSON write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Standing:
    """P facts of partitions at their newest sample, beside their history."""

    owned: Flags
    """A member owns the partition."""
    populated: Flags
    """The group has members."""
    left_over: Flags
    """The group's members own partitions, but none of this topic: it was subscribed once."""
    log_start: Floats

    def of(self, partitions: Flags | Ints | slice) -> Self:
        """The same of some partitions."""
        owned, populated, left_over = (flags[partitions] for flags in (self.owned, self.populated, self.left_over))
        return type(self)(owned, populated, left_over, self.log_start[partitions])


@dataclass(frozen=True, slots=True)
class Evaluated:
    """P verdicts as `LagStatus`, the verdicts of the newest evaluation alone, and the figures of that one."""

    status: Ints
    at_once: Ints
    figures: LagFigures


Rule = Callable[[LagFigures, Standing, LagPolicy], Flags]


def is_caught_up(figures: LagFigures, _standing: Standing, policy: LagPolicy) -> Flags:
    """No more lag than allowed; without a commit, nothing to be read."""
    return figures.lag_records <= policy.lag_allowed_records


def is_unknown(figures: LagFigures, standing: Standing, policy: LagPolicy) -> Flags:
    """Nothing to judge by: no commit, too few windows, or a topic that was subscribed once."""
    too_few = figures.completeness < policy.completeness_min
    return np.isnan(figures.lag_records) | too_few | standing.left_over


def is_rewound(figures: LagFigures, _standing: Standing, _policy: LagPolicy) -> Flags:
    """Below the highest offset committed: every drop that was not made good, the first or the tenth."""
    return figures.rewound_records > 0


def is_stopped(figures: LagFigures, standing: Standing, policy: LagPolicy) -> Flags:
    """Records wait without a commit, longer than ever before, and nobody is there to read them."""
    return _waits_too_long(figures, policy) & ~_held(standing)


def is_stalled(figures: LagFigures, standing: Standing, policy: LagPolicy) -> Flags:
    """The same, with somebody there."""
    return _waits_too_long(figures, policy) & _held(standing)


def is_behind(figures: LagFigures, _standing: Standing, policy: LagPolicy) -> Flags:
    """Older than a window and than any wait for a commit, and at its lowest no lower than before."""
    patience_s = np.maximum(policy.window_ms, figures.commit_gap_ms) / 1000
    shrunk = figures.lag_low_lately <= (1.0 - policy.shrink_min) * figures.lag_low_before
    return (figures.lag_seconds > patience_s) & ~shrunk & (figures.lag_low_lately > policy.lag_allowed_records)


RULES: tuple[tuple[LagStatus, Rule], ...] = (
    (LagStatus.OK, is_caught_up),
    (LagStatus.UNKNOWN, is_unknown),
    (LagStatus.REWIND, is_rewound),
    (LagStatus.STOP, is_stopped),
    (LagStatus.STALL, is_stalled),
    (LagStatus.WARN, is_behind),
)
"""The first that holds is the verdict; OK if none does."""


def evaluate(history: LagHistory, standing: Standing, policy: LagPolicy, *, now_ms: float) -> Evaluated:
    """Verdicts of P partitions at `now_ms`, the newest time that is known of any of them.

    >>> row = lambda *values: np.array(values, dtype=float)
    >>> minutes, ends = np.arange(10.0), np.arange(10.0) * 500
    >>> history = LagHistory(np.array([0]), minutes * 60_000, row(0, 500, *[900] * 8), ends)
    >>> nobody, somebody = (Standing(*[np.array([held])] * 2, np.array([False]), row(0)) for held in (False, True))
    >>> policy = LagPolicy(windows=5)
    >>> [LagStatus(evaluate(history, who, policy, now_ms=540_000).status[0]).name for who in (nobody, somebody)]
    ['STOP', 'STALL']
    """
    figures, newest = _judge(history, standing, policy, now_ms)
    status = newest.copy()
    # Nothing is milder than OK: how it was before is asked of the others alone, a few as a rule.
    doubtful = newest > LagStatus.OK
    if doubtful.any():
        _, before = _judge(history.of(doubtful), standing.of(doubtful), policy, now_ms - policy.window_ms)
        status[doubtful] = np.minimum(newest[doubtful], before)
    return Evaluated(status, newest, figures)


def worst_of(status: Ints, group: Ints, groups: int) -> Ints:
    """Worst verdict of each of so many groups; `group` numbers the group of each partition."""
    worst = np.zeros(groups, dtype=np.int64)
    np.maximum.at(worst, group, status)
    return worst


def _judge(history: LagHistory, standing: Standing, policy: LagPolicy, until_ms: float) -> tuple[LagFigures, Ints]:
    figures = measure(history, policy, until_ms=until_ms)
    verdicts = np.full(len(history.starts), int(LagStatus.OK))
    # Without a commit there is no lag; with nothing in the log there is nothing to be behind of.
    decided = np.isnan(figures.lag_records) & (history.log_end[history.newest] <= standing.log_start)
    for status, rule in RULES:
        holds = rule(figures, standing, policy) & ~decided
        verdicts[holds] = int(status)
        decided |= holds
    return figures, verdicts


def _waits_too_long(figures: LagFigures, policy: LagPolicy) -> Flags:
    return figures.stuck_ms > np.maximum(policy.window_ms, figures.commit_gap_ms)


def _held(standing: Standing) -> Flags:
    """A member owns it; or one will, where members are there and their assignments are not (yet) to be read."""
    return standing.owned | standing.populated
