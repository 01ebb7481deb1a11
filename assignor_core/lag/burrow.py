"""Burrow's rules, exactly: for those who have built alerts on them (`--compat burrow`).

Known faults are kept on purpose: what they miss and where they cry wolf stands in docs/lag.md. One predicate per rule;
their order is Burrow's. Our own rules stand in `verdicts`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise


class BurrowStatus(IntEnum):
    """Burrow's status codes. ERR is the worst status that a group gets, and no partition has this status."""

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
    """Status of one partition by Burrow's rules; OK if nothing was committed or no log end is known.

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
    """Status of a group: the worst of the partitions' statuses, at most ERR; NOTFOUND without partitions."""
    return min(BurrowStatus.ERR, max(partitions, default=BurrowStatus.NOTFOUND))


def current_lag(window: BurrowWindow) -> int:
    """Newest log end less the last committed offset, not below 0."""
    return max(0, window.log_ends[-1] - window.commits[-1].offset)


def _silent(commits: Sequence[Commit], now_ms: int) -> bool:
    """Whether the time since the last commit exceeds that from first to last; Burrow's now has whole seconds."""
    last_ms = commits[-1].time_ms
    return now_ms // 1000 * 1000 - last_ms > last_ms - commits[0].time_ms


def _caught_up_lately(window: BurrowWindow) -> bool:
    """Whether the last commit reached a log end that the ring has."""
    return any(end <= window.commits[-1].offset for end in window.log_ends)


def _rewound(commits: Sequence[Commit]) -> bool:
    """Whether the offset has not returned to its value before the first drop; Burrow ignores later drops."""
    for index in range(1, len(commits)):
        held = commits[index - 1].offset
        if commits[index].offset < held:
            return all(later.offset < held for later in commits[index:])
    return False


def _lag_never_decreases(commits: Sequence[Commit]) -> bool:
    known = [commit.lag_records for commit in commits if commit.lag_records is not None]
    return all(later >= earlier for earlier, later in pairwise(known))
