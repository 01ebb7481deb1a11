"""Verdicts on partitions from windows of `group_lag`, in vectors, each window asked for no more than is needed of it.

Most partitions are OK at a glance; only the others are evaluated by all rules, and only lags and commits that are older
than the newest windows are looked for in older ones. Knows neither tables nor names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from assignor_core.lag import Course, LagPolicy, LagStatus, LagTrace, Standing, evaluate, keeps_up
from assignor_core.lag.history import Flags, Floats, Ints
from streaming.views.lag_columns import LagWindow
from streaming.views.lag_points import history_of, points_of, points_of_newest_first

CURRENT_WINDOWS = 2
"""A partition without a sample in this many windows before the newest is no longer the group's."""
VERDICT_WINDOWS = LagPolicy().windows + 2
"""So many windows before the newest a verdict looks at, the one before at one more; the age of a lag at far more."""
BLOCK = 8_192
"""Partitions that are looked at together: their points fit into the processor's cache."""
EVALUATED_BLOCK = 2_048
"""Partitions that are evaluated together. All their points are kept at a time: of more the memory would go back to the
system, and come from it again with each block."""


@dataclass(frozen=True, slots=True)
class Judged:
    """P partitions: what is shown of all of them. NaN where unknown."""

    status: Ints
    """As `LagStatus`."""
    at_once: Ints
    committed_offset: Floats
    log_end_offset: Floats
    last_event_time_ms: Floats
    lag_seconds: Floats
    lag_seconds_is_final: Flags
    """False where an older window than those given may show the lag to be older."""
    commit_ms: Floats


@dataclass(frozen=True, slots=True)
class _Glance:
    """What the newest windows show of P partitions, and which of them are not OK at a glance."""

    trace: LagTrace
    is_doubtful: Flags

    @classmethod
    def joined(cls, glances: Sequence[Self]) -> Self:
        trace = LagTrace.joined([glance.trace for glance in glances])
        return cls(trace, np.concatenate([glance.is_doubtful for glance in glances]))


def judged(windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, *, now_ms: int) -> Judged:
    """Verdicts of these partitions, in the order of `keys`, and what is shown of all. Windows are oldest first; each
    partition is in one of the current ones."""
    glances = [_glance(windows, keys[block], standing.of(block), policy, now_ms=now_ms) for block in _blocks(len(keys))]
    glance = _Glance.joined(glances)
    status, at_once = _statuses(windows, keys, standing, policy, glance.is_doubtful, now_ms=now_ms)
    age, commit = glance.trace.age(), glance.trace.commit()
    older = [window for window in windows if not is_current(window, windows, policy)]
    open_ = np.flatnonzero(~(age.is_final & commit.is_final))
    for part in (open_[block] for block in _blocks(len(open_))):
        trace = glance.trace.part(part)
        for point in points_of_newest_first(older, keys[part]):
            trace.add(point)
        of_part = trace.age()
        age.values[part], age.is_final[part] = of_part.values, of_part.is_final
        commit.values[part] = trace.commit().values
    time_ms, committed, log_end = glance.trace.newest
    return Judged(status, at_once, committed, log_end, time_ms, age.values, age.is_final, commit.values)


def looked_at(windows: Sequence[LagWindow], policy: LagPolicy) -> list[LagWindow]:
    """Those of the windows, oldest first, that a verdict rests on."""
    since_ms = windows[-1].start_ms - VERDICT_WINDOWS * policy.window_ms
    return [window for window in windows if window.start_ms >= since_ms]


def is_current(window: LagWindow, windows: Sequence[LagWindow], policy: LagPolicy) -> bool:
    """Whether its samples count as a partition's newest; `windows` are oldest first."""
    return window.start_ms >= windows[-1].start_ms - CURRENT_WINDOWS * policy.window_ms


def _glance(windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, *, now_ms: int) -> _Glance:
    current = [window for window in windows if is_current(window, windows, policy)]
    newest, *points = points_of_newest_first(current, keys)
    trace = LagTrace.of(*newest)
    for point in points:
        trace.add(point)
    course = Course.of(points_of(looked_at(windows, policy), keys), policy, now_ms=now_ms)
    keeping_up = keeps_up(trace.newest, course, trace.age(), trace.commit(), standing.left_over, policy, now_ms=now_ms)
    return _Glance(trace, ~keeping_up)


def _statuses(
    windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, is_doubtful: Flags, *, now_ms: int
) -> tuple[Ints, Ints]:
    """Verdicts of all, and those of the newest evaluation alone; only the doubtful ones are evaluated."""
    recent, doubtful = looked_at(windows, policy), np.flatnonzero(is_doubtful)
    status = np.full(len(keys), int(LagStatus.OK))
    at_once = status.copy()
    for part in (doubtful[block] for block in _blocks(len(doubtful), EVALUATED_BLOCK)):
        evaluated = evaluate(history_of(recent, keys[part]), standing.of(part), policy, now_ms=now_ms)
        status[part], at_once[part] = evaluated.status, evaluated.at_once
    return status, at_once


def _blocks(rows: int, block: int = BLOCK) -> Iterator[slice]:
    return (slice(begin, begin + block) for begin in range(0, rows, block))
