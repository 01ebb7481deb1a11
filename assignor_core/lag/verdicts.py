"""Verdicts on consumers: numbered rules, one small predicate each over the figures, for all partitions at once.

The first rule that holds gives the verdict. It counts once it holds in two evaluations, a window apart: the milder of
the two is given. What is certain counts at once. The group's verdict is that of its worst partition. Knows neither
where the figures come from nor what is done about a verdict.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import NamedTuple, Self

import numpy as np

from assignor_core.lag.figures import LagFigures, LagPolicy, measure
from assignor_core.lag.history import Flags, Floats, Ints, LagHistory
from assignor_core.lag.waits import EarlierWaits


class LagStatus(IntEnum):
    """Verdicts, in order of severity."""

    OK = 0
    UNKNOWN = 1
    """The group has committed nothing, was not seen for long enough, shows no members, or is no longer subscribed."""
    WARN = 2
    """Reads and commits, yet does not catch up; or records were deleted before it read them."""
    STOP = 3
    """No member owns the partition, and its records wait."""
    STALL = 4
    """A member owns the partition and commits nothing, and its records wait."""
    REWIND = 5
    """Went back to an offset below one it had committed, and is not there again."""

    @property
    def label(self) -> str:
        """Name of the status as metrics and JSON write it."""
        return self.name.lower()


NOT_GIVEN: Mapping[str, bool | float] = {
    "orphaned": False, "obscure": False, "held_back": False, "allowed_records": 0.0, "allowed_ms": 0.0,
    "reads_from_ms": -np.inf, "reads_until_ms": np.inf,
}  # fmt: skip
"""Values of the facts of a `Standing` that are not given."""


@dataclass(frozen=True, slots=True)
class Standing:
    """P facts of partitions at their newest sample, beside their history. Facts that are not given are not so."""

    owned: Flags
    """A member owns the partition."""
    populated: Flags
    """The group has members."""
    left_over: Flags
    """The group's members own partitions, but none of this topic: it was subscribed once."""
    log_start: Floats
    orphaned: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """The group's members own partitions of this topic, and nobody owns this one."""
    obscure: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Neither members nor a state of the group are shown, as in samples of other exporters."""
    held_back: Flags = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """An open transaction is known to hold readers back: what waits at the log end is no transaction marker."""
    allowed_records: Floats = field(default_factory=lambda: np.zeros(0))
    """Records of lag that count as no lag."""
    allowed_ms: Floats = field(default_factory=lambda: np.zeros(0))
    """Milliseconds that records may always wait for a commit."""
    reads_from_ms: Floats = field(default_factory=lambda: np.zeros(0))
    """Start of the newest time in which the group is to read; -inf of a group without a schedule."""
    reads_until_ms: Floats = field(default_factory=lambda: np.zeros(0))
    """End of the newest time in which the group is to read; +inf of a group without a schedule."""
    earlier: EarlierWaits = field(default_factory=lambda: EarlierWaits.none(0))
    """Summary of the waits at points before the history."""

    def __post_init__(self) -> None:
        size = len(self.owned)
        for name, value in NOT_GIVEN.items():
            if len(getattr(self, name)) != size:
                object.__setattr__(self, name, np.full(size, value))
        if len(self.earlier.usual_ms) != size:
            object.__setattr__(self, "earlier", EarlierWaits.none(size))

    def of(self, partitions: Flags | Ints | slice) -> Self:
        """Return the case of some partitions alone."""
        columns = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "earlier"}
        some = {name: column[partitions] for name, column in columns.items()}
        return replace(self, **some, earlier=self.earlier.of(partitions))

    @property
    def held(self) -> Flags:
        """A member owns it; or one will, where members are there and their assignments are not (yet) to be read."""
        return self.owned | (self.populated & ~self.left_over & ~self.orphaned)

    @property
    def has_members_unknown(self) -> Flags:
        """Whether a member owns it is not shown."""
        return self.obscure & ~self.owned


@dataclass(frozen=True, slots=True)
class Evaluated:
    """P verdicts as `LagStatus`, the verdicts of the newest evaluation alone, and the figures of that one."""

    status: Ints
    at_once: Ints
    figures: LagFigures


@dataclass(frozen=True, slots=True)
class LagCase:
    """The facts that rules judge: P partitions at one evaluation."""

    figures: LagFigures
    standing: Standing
    policy: LagPolicy
    now_ms: float

    @property
    def patience_ms(self) -> Floats:
        """How long records may wait for a commit: longer than ever lately, and than is usual.

        A member whose first commit was not seen yet may commit rarely. Nobody waits for who is not there.
        """
        learned_ms = self.policy.usual_wait_factor * self.figures.usual_wait_ms
        first_ms = np.where(self.standing.held, self.policy.unlearned_windows * self.policy.window_ms, 0.0)
        usual_ms = np.where(np.isnan(learned_ms), first_ms, learned_ms)
        recent_ms = np.maximum(self.policy.window_ms, self.figures.commit_gap_ms)
        patience: Floats = np.maximum(np.maximum(recent_ms, usual_ms), self.standing.allowed_ms)
        return patience

    @property
    def waited_ms(self) -> Floats:
        """How long records have waited without any commit, of a group with a schedule in the time that it reads."""
        since_ms = np.maximum(self.now_ms - self.figures.stuck_ms, self.standing.reads_from_ms)
        until_ms = np.minimum(self.now_ms, self.standing.reads_until_ms)
        waited: Floats = np.maximum(until_ms - since_ms, 0.0)
        return waited

    @property
    def waits_too_long(self) -> Flags:
        """Records wait without a commit for longer than the group's patience."""
        return self.waited_ms > self.patience_ms


Predicate = Callable[[LagCase], Flags]


class VerdictRule(NamedTuple):
    """`holds` gives the verdict; one that is `certain` counts at the first evaluation."""

    status: LagStatus
    holds: Predicate
    certain: bool = False


def may_be_beyond(case: LagCase) -> Flags:
    """Committed beyond the log end, as one sample shows it: the log may have grown between the two requests."""
    return np.isnan(case.figures.beyond_records)


def is_beyond_unowned(case: LagCase) -> Flags:
    """Committed beyond the log end, and nobody is there: the topic was made again, or lost records."""
    return (case.figures.beyond_records > 0) & ~case.standing.held & ~case.standing.has_members_unknown


def is_beyond(case: LagCase) -> Flags:
    """Committed beyond the log end: a consumer there reads nothing, however much is written below."""
    return case.figures.beyond_records > 0


def is_caught_up(case: LagCase) -> Flags:
    """No more lag than allowed, and nothing was lost lately."""
    figures = case.figures
    markers = np.where(case.standing.held_back, 0.0, figures.markers)
    allowed = np.maximum(case.standing.allowed_records, markers)
    return (figures.lag_records <= allowed) & ~(figures.lost_records > 0)


def never_commits(case: LagCase) -> Flags:
    """A member owns it, records arrive, and after a while nothing was ever committed."""
    return _is_uncommitted(case) & case.standing.owned


def is_unnoticed(case: LagCase) -> Flags:
    """Members read the topic's other partitions, records arrive, and after a while nobody owns this one."""
    return _is_uncommitted(case) & case.standing.orphaned


def is_unknown(case: LagCase) -> Flags:
    """Nothing to judge by: no commit, too few windows, or a topic that the group does not read any more.

    A topic whose partitions were committed again and again until lately was not given up: whoever read it is away.
    """
    figures = case.figures
    too_few = figures.completeness < case.policy.completeness_min
    return np.isnan(figures.lag_records) | too_few | (case.standing.left_over & ~(figures.commits > 1))


def is_rewound(case: LagCase) -> Flags:
    """Below the highest offset committed: every drop that was not made good, the first or the tenth."""
    return case.figures.rewound_records > 0


def is_stopped_or_stalled(case: LagCase) -> Flags:
    """Records wait too long, and whether anybody is there to read them is not shown."""
    return case.waits_too_long & case.standing.has_members_unknown


def is_stopped(case: LagCase) -> Flags:
    """Records wait too long, and nobody is there to read them."""
    return case.waits_too_long & ~case.standing.held


def is_stalled(case: LagCase) -> Flags:
    """Records wait too long, with somebody there."""
    return case.waits_too_long & case.standing.held


def lost_records(case: LagCase) -> Flags:
    """Records were deleted in the look-back before they were read."""
    return case.figures.lost_records > 0


def is_behind(case: LagCase) -> Flags:
    """Older than patience lasts, and at its lowest no lower than before."""
    figures, shrink_min = case.figures, case.policy.shrink_min
    fall = figures.lag_low_before - figures.lag_low_lately
    half_s = case.policy.look_back_ms / 2000
    written = np.where(figures.produced_per_sec > 0, figures.produced_per_sec * half_s, np.inf)
    # A large lag shrinks by a small share: to read noticeably more than is written is to catch up, too.
    shrunk = fall >= shrink_min * np.minimum(figures.lag_low_before, written)
    known = ~np.isnan(fall) & (case.standing.reads_until_ms >= case.now_ms)
    is_lag = figures.lag_low_lately > case.standing.allowed_records
    behind: Flags = known & (figures.lag_seconds * 1000 > case.patience_ms) & ~shrunk & is_lag
    return behind


RULES: tuple[VerdictRule, ...] = (
    VerdictRule(LagStatus.UNKNOWN, may_be_beyond, certain=True),
    VerdictRule(LagStatus.STOP, is_beyond_unowned, certain=True),
    VerdictRule(LagStatus.STALL, is_beyond, certain=True),
    VerdictRule(LagStatus.OK, is_caught_up),
    VerdictRule(LagStatus.STALL, never_commits),
    VerdictRule(LagStatus.STOP, is_unnoticed),
    VerdictRule(LagStatus.UNKNOWN, is_unknown),
    VerdictRule(LagStatus.REWIND, is_rewound),
    VerdictRule(LagStatus.UNKNOWN, is_stopped_or_stalled),
    VerdictRule(LagStatus.STOP, is_stopped),
    VerdictRule(LagStatus.STALL, is_stalled),
    VerdictRule(LagStatus.WARN, lost_records, certain=True),
    VerdictRule(LagStatus.WARN, is_behind),
)
"""The first that holds is the verdict; OK if none does. docs/lag.md has them as a table."""


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
    if history.log_start is None:
        history = replace(history, log_start=history.spread(standing.log_start))
    figures, newest, certain = _judge(history, standing, policy, now_ms)
    status = newest.copy()
    # Nothing is milder than OK: how it was before is asked of the others alone, a few as a rule.
    doubtful = (newest > LagStatus.OK) & ~certain
    if doubtful.any():
        _, before, _ = _judge(history.of(doubtful), standing.of(doubtful), policy, now_ms - policy.window_ms)
        status[doubtful] = np.minimum(newest[doubtful], before)
    return Evaluated(status, newest, figures)


def worst_of(status: Ints, group: Ints, groups: int) -> Ints:
    """Worst verdict of each of so many groups; `group` numbers the group of each partition."""
    worst = np.zeros(groups, dtype=np.int64)
    np.maximum.at(worst, group, status)
    return worst


def _is_uncommitted(case: LagCase) -> Flags:
    """For two look-backs: who commits rarely has its time, and new partitions are noticed."""
    return case.figures.uncommitted_ms > 2 * case.policy.look_back_ms


def _judge(
    history: LagHistory, standing: Standing, policy: LagPolicy, until_ms: float
) -> tuple[LagFigures, Ints, Flags]:
    """Figures, verdicts, and which of the verdicts are certain."""
    figures = measure(
        history, policy, until_ms=until_ms, allowed_records=standing.allowed_records, earlier=standing.earlier
    )
    case = LagCase(figures, standing, policy, until_ms)
    verdicts = np.full(len(history.starts), int(LagStatus.OK))
    certain = np.zeros(len(history.starts), dtype=bool)
    # Without a commit there is no lag; with nothing in the log there is nothing to be behind of.
    decided = np.isnan(figures.lag_records) & (history.log_end[history.newest] <= standing.log_start)
    for rule in RULES:
        holds = rule.holds(case) & ~decided
        verdicts[holds] = int(rule.status)
        certain[holds] = rule.certain
        decided |= holds
    return figures, verdicts, certain
