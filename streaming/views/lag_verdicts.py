"""Verdicts on partitions from windows of `group_lag`, in vectors, each window asked for no more than is needed of it.

Most partitions are OK at a glance; only the others are evaluated by all rules, and only lags and commits that are older
than the newest windows are looked for in older ones. Knows neither tables nor names.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from assignor_core.lag import Course, LagPolicy, LagStatus, LagTrace, Standing, evaluate, keeps_up
from assignor_core.lag.history import Flags, Floats, Ints
from assignor_core.lag.waits import EarlierWaits
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
    commit_seen: Flags
    """Whether any window that was looked at shows a commit."""
    earlier: EarlierWaits


EarlierOf = Callable[[Ints], EarlierWaits]
"""What earlier windows show of some keys, which are sorted."""


@dataclass(frozen=True, slots=True)
class _Glance:
    """What the newest windows show of P partitions, and which of them are not OK at a glance."""

    trace: LagTrace
    is_doubtful: Flags

    @classmethod
    def joined(cls, glances: Sequence[Self]) -> Self:
        trace = LagTrace.joined([glance.trace for glance in glances])
        return cls(trace, np.concatenate([glance.is_doubtful for glance in glances]))


def judged(
    windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, *, now_ms: int,
    earlier_of: EarlierOf | None = None,
) -> Judged:  # fmt: skip
    """Verdicts of these partitions, in the order of `keys`, and what is shown of all. Windows are oldest first; each
    partition is in one of the current ones. Earlier windows are asked for of those that would not be OK."""
    glances = [_glance(windows, keys[block], standing.of(block), policy, now_ms=now_ms) for block in _blocks(len(keys))]
    glance = _Glance.joined(glances)
    status, at_once = _statuses(windows, keys, standing, policy, np.flatnonzero(glance.is_doubtful), now_ms=now_ms)
    earlier = EarlierWaits.none(len(keys))
    if earlier_of is not None:
        waiting = np.flatnonzero((at_once > LagStatus.UNKNOWN) | (standing.left_over & (at_once != LagStatus.OK)))
        if len(waiting):
            earlier.put(waiting, earlier_of(keys[waiting]))
            standing = replace(standing, earlier=earlier)
            again = _statuses(windows, keys, standing, policy, waiting, now_ms=now_ms)
            status[waiting], at_once[waiting] = (values[waiting] for values in again)
    age, commit = glance.trace.age(), glance.trace.commit()
    older = [window for window in windows if not is_current(window, windows, policy)]
    open_ = np.flatnonzero(~(age.is_final & commit.is_final))
    for part in (open_[block] for block in _blocks(len(open_))):
        trace = glance.trace.part(part)
        for point in points_of_newest_first(older, keys[part]):
            trace.add(point)
        of_part = trace.age()
        age.values[part], age.is_final[part] = of_part.values, of_part.is_final
        of_part = trace.commit()
        commit.values[part], commit.is_final[part] = of_part.values, of_part.is_final
    commit_seen = (commit.is_final & ~np.isnan(commit.values)) | (earlier.commits > 0)
    time_ms, committed, log_end = glance.trace.newest
    return Judged(
        status, at_once, committed, log_end, time_ms, age.values, age.is_final, commit.values, commit_seen, earlier
    )


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
    trace = LagTrace.of(*newest, standing.log_start)
    for point in points:
        trace.add(point)
    course = Course.of(points_of(looked_at(windows, policy), keys), policy, now_ms=now_ms)
    keeping_up = keeps_up(
        trace.newest, course, trace.age(), trace.commit(), standing.left_over, policy, now_ms=now_ms,
        log_start=standing.log_start,
    )  # fmt: skip
    return _Glance(trace, ~keeping_up)


def _statuses(
    windows: Sequence[LagWindow], keys: Ints, standing: Standing, policy: LagPolicy, doubtful: Ints, *, now_ms: int
) -> tuple[Ints, Ints]:
    """Verdicts of all, and those of the newest evaluation alone; only the doubtful ones are evaluated.

    By all windows: how often a consumer commits shows in more of them than a verdict looks back over.
    """
    status = np.full(len(keys), int(LagStatus.OK))
    at_once = status.copy()
    for part in (doubtful[block] for block in _blocks(len(doubtful), EVALUATED_BLOCK)):
        evaluated = evaluate(history_of(windows, keys[part]), standing.of(part), policy, now_ms=now_ms)
        status[part], at_once[part] = evaluated.status, evaluated.at_once
    return status, at_once


def _blocks(rows: int, block: int = BLOCK) -> Iterator[slice]:
    return (slice(begin, begin + block) for begin in range(0, rows, block))
