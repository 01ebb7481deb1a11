"""Burrow's rules, exactly: for those who have built alerts on them (`--compat burrow`).

Known faults are kept on purpose: what they miss and where they cry wolf stands in docs/lag.md. One predicate per rule;
their order is Burrow's. Our own rules stand in `verdicts`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise


class BurrowStatus(IntEnum):
    """Burrow's codes; ERR is a group's only, as its partitions' worst is capped there."""

    NOTFOUND = 0
    OK = 1
    WARN = 2
    ERR = 3
    STOP = 4
    STALL = 5
    REWIND = 6


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit as Burrow stores it; `lag_records` when it was received, None of a commit that was filled in later."""

    offset: int
    time_ms: int
    lag_records: int | None


@dataclass(frozen=True, slots=True)
class BurrowWindow:
    """Both rings of one partition, oldest first: commits of the group, log ends of the topic."""

    commits: Sequence[Commit]
    log_ends: Sequence[int]


def burrow_status(window: BurrowWindow, *, now_ms: int, lag_allowed: int = 0) -> BurrowStatus:
    """Verdict of one partition; OK where nothing was committed or no log end is known.

    >>> commits = [Commit(100, 0, 5), Commit(110, 10_000, 5), Commit(120, 20_000, 5)]
    >>> burrow_status(BurrowWindow(commits, [125, 130]), now_ms=40_000), burrow_status(
    ...     BurrowWindow(commits, [125, 130]), now_ms=41_000
    ... )
    (<BurrowStatus.WARN: 2>, <BurrowStatus.STOP: 4>)
    """
    commits = window.commits
    if not commits or not window.log_ends or current_lag(window) <= lag_allowed:
        return BurrowStatus.OK
    if _silent(commits, now_ms) and not _caught_up_lately(window):
        return BurrowStatus.STOP
    if _rewound(commits):
        return BurrowStatus.REWIND
    if any(commit.lag_records is not None and commit.lag_records <= lag_allowed for commit in commits):
        return BurrowStatus.OK
    if all(commit.offset == commits[0].offset for commit in commits):
        return BurrowStatus.STALL
    return BurrowStatus.WARN if _lag_never_decreases(commits) else BurrowStatus.OK


def burrow_group_status(partitions: Iterable[BurrowStatus]) -> BurrowStatus:
    """The worst of the partitions, at most ERR; NOTFOUND of none."""
    return min(BurrowStatus.ERR, max(partitions, default=BurrowStatus.NOTFOUND))


def current_lag(window: BurrowWindow) -> int:
    """Newest log end less the last committed offset, not below 0."""
    return max(0, window.log_ends[-1] - window.commits[-1].offset)


def _silent(commits: Sequence[Commit], now_ms: int) -> bool:
    """Longer since the last commit than from the first to the last; Burrow's now has whole seconds."""
    last_ms = commits[-1].time_ms
    return now_ms // 1000 * 1000 - last_ms > last_ms - commits[0].time_ms


def _caught_up_lately(window: BurrowWindow) -> bool:
    """The last commit was at the log's end within the ring."""
    return any(end <= window.commits[-1].offset for end in window.log_ends)


def _rewound(commits: Sequence[Commit]) -> bool:
    """The first drop of the offset was never made good; Burrow looks at no later one."""
    for index in range(1, len(commits)):
        held = commits[index - 1].offset
        if commits[index].offset < held:
            return all(later.offset < held for later in commits[index:])
    return False


def _lag_never_decreases(commits: Sequence[Commit]) -> bool:
    known = [commit.lag_records for commit in commits if commit.lag_records is not None]
    return all(later >= earlier for earlier, later in pairwise(known))
