"""The search: relieve the most overloaded broker by the best candidate, until no broker can be relieved any more.

Local search with first things first: the broker with the largest violation comes first, since what relieves it is the
hardest to place. It gets the candidate of the highest score, then the next, until others need relief more than it does;
and the loop looks again. A broker for which there is no candidate is set aside until something changes, as what changed
may have made room for it. Where many edits gain little,
only larger gains are taken from then on, and where that gains little too the loop ends (`Pace`).

The module owns the loop, applies edits and can undo them. How a candidate is scored is `candidates`', what it costs is
`spending`'s. Invariants: the journal always leads back to any earlier state, bit by bit; each applied candidate lowers
the objective by at least a part of the broker's violation; their number and the `Effort` are limited, so the loop ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.candidates import (
    TARGETS_MAX,
    Candidate,
    SearchState,
    SinceEdit,
    best_by_score,
)
from assignor_core.planner.effort import Effort, candidates_max
from assignor_core.planner.exchanges import best_exchange
from assignor_core.planner.handovers import Handovers
from assignor_core.planner.moves import SHORTLIST, SHORTLIST_WIDE, ReplicaMoves
from assignor_core.planner.placement import Edit, Indices, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.spending import Spending

Look = Handovers | ReplicaMoves

NOTICEABLE = 1e-12
"""A violation below this is rounding."""
GAIN_PARTS = ((0.001, 0.02), (0.3, 0.5))
"""A candidate, and an exchange, must mend this part of what is wrong with the broker. Where that no longer gets on,
since brokers pass crumbs on to each other, only what mends much is taken: often exchanges, which crumbs would hide.

An exchange, which costs two movements and takes longest to look for, must mend more.
"""
GAIN_OF_REPLICA = 0.5
"""A broker with n mean replicas too many is relieved by 2 / n of what is wrong with it where one of them goes. So from
some hundreds on a candidate need not mend the whole of `GAIN_PARTS`, but this share of one replica in n.
"""
PROGRESS_MIN = 0.05
"""As many edits as there are brokers must lower the violation by this part, or the search does not get on."""
PACE_EDITS_MIN = 32
"""With few brokers so many edits count."""
MANY = 8
"""Of a broker with more mean replicas too many than this several of a wide look go at once, and those that no other can
take hide none: the heaviest partitions lie on all brokers with room by then.
"""
PACE_OF_SURPLUS = 0.1
"""And this part of the replicas that brokers hold too many: where thousands must go, some dozen change little."""
RELIEVED_TO = 0.75
"""A broker gets candidates of one look until its violation is this part of the second worst: others need more then.

Measured on heavy partitions: 0.5 needs fewer looks and copies 5 % more bytes.
"""
APPLIED_PER_LOOK_MAX = 32
"""And no more than so many: what is scored once is only a part of what the broker holds."""
RETRIES_MAX = 3
"""Times that brokers without a candidate are tried again in one `relieve`, since others have changed."""
CANDIDATES_PER_REPLICA_MAX = 4
"""Candidates applied in one `relieve`, per replica of the cluster; far above what is ever needed."""


class Pace:
    """Whether a search still gets on: so many edits must lower the violation by `PROGRESS_MIN`; mutable.

    >>> pace = Pace(edits_min=10)
    >>> [pace.has_stalled(applied, left, lambda: 50.0) for applied, left in ((0, 8.0), (9, 7.9), (10, 4.0), (20, 3.9))]
    [False, False, False, True]
    """

    def __init__(self, edits_min: int) -> None:
        self._edits_min = edits_min
        self.restart(0)

    def restart(self, applied: int) -> None:
        """Begin anew after so many edits: what is violated now may be more than before."""
        self._since, self._edits, self._violation = applied, 0, np.inf

    def has_stalled(self, applied: int, violation: float, surplus: Callable[[], float] = lambda: 0.0) -> bool:
        """Whether the last edits gained too little; `violation` is what is left to relieve, `surplus` the same in mean
        replicas, where many may have to go.
        """
        if applied - self._since < self._edits:
            return False
        stalled = violation > (1.0 - PROGRESS_MIN) * self._violation
        self._since, self._violation = applied, violation
        self._edits = max(self._edits_min, round(PACE_OF_SURPLUS * surplus()))
        return stalled


class Applied(NamedTuple):
    """An edit that was applied."""

    edit: Edit
    reverse: Edit
    """The edit that takes it back."""


class Search:
    """One search over one placement; mutable.

    Broker 1 leads both partitions that brokers 1 and 2 hold. One hand-over makes them even, and can be undone:

    >>> state = state_of((1, 2), (1, 2))
    >>> search = Search(state.problem, state.placement)
    >>> search.relieve()
    >>> search.placement.replicas.tolist(), search.spending.movements
    ([[1, 0], [0, 1]], 1)
    >>> search.undo_to(0)
    >>> search.placement.replicas.tolist(), search.spending.movements
    ([[0, 1], [0, 1]], 0)
    """

    def __init__(
        self,
        problem: Problem,
        placement: Placement,
        spending: Spending | None = None,
        effort: Effort | None = None,
    ) -> None:
        self.problem = problem
        self.placement = placement
        self.spending = spending or Spending(problem.policy, placement)
        self.effort = effort or _effort_for(placement)
        self._replica_count = int((placement.original != NO_BROKER).sum())
        self.journal: list[Applied] = []
        """Each edit so far, in order."""
        self.state = SearchState(problem, placement, self.spending, self.effort, SinceEdit())

    def under(self, problem: Problem, effort: Effort | None = None) -> "Search":
        """The same search, journal included, under other limits or goals, and with an effort of its own if given."""
        search = Search(problem, self.placement, self.spending, effort or self.effort)
        search.journal = self.journal
        return search

    def pinning(self, partition: int) -> "Search":
        """The same search, journal included, that leaves `partition` where it is."""
        may_balance = self.problem.may_balance.copy()
        may_balance[partition] = False
        return self.under(replace(self.problem, may_balance=may_balance))

    def violation(self, brokers: Indices | None = None) -> Floats:
        """N: violation of each of `brokers` that may give (all by default); 0 for the others, which nobody relieves."""
        some = slice(None) if brokers is None else brokers
        return np.where(self.problem.may_give[some], self.problem.violation(self.placement.loads[some], some), 0.0)

    def relieve(
        self,
        candidates_max: int | None = None,
        *,
        exchanges: bool = True,
        ignored: frozenset[int] = frozenset(),
        retries: int = RETRIES_MAX,
    ) -> None:
        """Until no broker that may give is above its limit, none can be relieved, or `candidates_max` are applied.

        Ends also where the search no longer gets on, and when its effort is spent. Brokers `ignored` are not relieved.
        """
        stuck = set(ignored)
        applied, has_progress = 0, False
        applied_max = CANDIDATES_PER_REPLICA_MAX * self.placement.replicas.size
        if candidates_max is not None:
            applied_max = candidates_max
        pace, parts = Pace(max(PACE_EDITS_MIN, len(self.placement.loads))), list(GAIN_PARTS)
        current = self.violation()
        while applied < applied_max and not self.effort.is_spent:
            violation = current.copy()
            violation[sorted(stuck)] = 0.0
            worst = int(np.argmax(violation))
            if violation[worst] <= NOTICEABLE:
                if len(stuck) == len(ignored) or not has_progress or not retries:
                    return
                # Something was applied since these got stuck: try all of them once more.
                stuck, has_progress, retries = set(ignored), False, retries - 1
                pace.restart(applied)
                continue
            if pace.has_stalled(applied, float(violation.sum()), lambda: float(self._surplus().sum())):
                parts.pop(0)
                if not parts:
                    return
            gain_min, exchange_min = (part * float(violation[worst]) for part in parts[0])
            surplus = float(self._surplus(np.array([worst]))[0])
            if len(parts) > 1:
                gain_min = min(gain_min, GAIN_OF_REPLICA / max(1.0, surplus) * float(violation[worst]))
            enough, left_max = _enough(violation), applied_max - applied
            changed, count = self._apply_best(self._usual(worst, gain_min), worst, gain_min, enough, left_max)
            if not count and exchanges and not self.problem.policy.leaders_only:
                wide_max = left_max if surplus > MANY else 1
                changed, count = self._apply_rarer(worst, gain_min, exchange_min, enough, wide_max)
            if not count:
                stuck.add(worst)
                continue
            touched = np.array(sorted(changed), dtype=np.int64)
            current[touched] = self.violation(touched)
            stuck -= changed - ignored
            applied, has_progress = applied + count, True

    def _surplus(self, brokers: Indices | None = None) -> Floats:
        """N: how many mean replicas each of `brokers` (all by default) carries above its goals, of the resource of
        which that is most.
        """
        some, loads = slice(None) if brokers is None else brokers, self.placement.loads
        mean = loads.sum(axis=0) / max(1, self._replica_count)
        excess = np.maximum(loads[some] - self.problem.goal[some], 0.0)
        surplus: Floats = (excess / np.where(mean > 0.0, mean, np.inf)).max(axis=1)
        return surplus

    def _usual(self, broker: int, gain_min: float) -> list[Look]:
        """Hand-overs and moves of `broker`."""
        looks: list[Look] = []
        if self.problem.sheds_by_leadership(self.placement.loads[broker], broker):
            looks.append(Handovers(self.state, broker))
        if not self.problem.policy.leaders_only:
            looks.append(ReplicaMoves(self.state, broker, gain_min=gain_min))
        return looks

    def _apply_best(
        self, looks: Sequence[Look], broker: int, gain_min: float, enough: float, applied_max: int
    ) -> tuple[set[int], int]:
        """Apply the best candidates of `looks` at `broker`, each of which gains more than `gain_min`, one by one.

        Until its violation is no more than `enough`, or there is none. Returns the brokers changed, and how many were
        applied. The first look costs most; after an edit only what it changed is scored anew.
        """
        changed: set[int] = set()
        alone = np.array([broker])
        count_max = min(applied_max, APPLIED_PER_LOOK_MAX)
        for count in range(count_max):
            candidate = best_by_score(look.best(gain_min) for look in looks)
            if candidate is None:
                return changed, count
            brokers = self.apply(candidate)
            changed |= brokers
            left = float(self.problem.violation(self.placement.loads[alone], alone)[0])
            if left <= enough or self.effort.is_spent:
                return changed, count + 1
            for look in looks:
                look.update(candidate.edits, brokers)
        return changed, count_max

    def _apply_rarer(
        self, broker: int, gain_min: float, exchange_min: float, enough: float, wide_max: int
    ) -> tuple[set[int], int]:
        """Apply the best moves of more replicas than usual, `wide_max` at most, or else the best exchange; returns as
        `_apply_best` does.
        """
        wide = ReplicaMoves(self.state, broker, SHORTLIST_WIDE, gain_min, with_a_place=wide_max > 1)
        changed, count = self._apply_best([wide], broker, gain_min, enough, wide_max)
        if count:
            return changed, count
        candidate = best_exchange(self.state, broker, exchange_min)
        return (self.apply(candidate), 1) if candidate else (set(), 0)

    def apply(self, candidate: Candidate) -> set[int]:
        """Apply the edits of `candidate`; returns the brokers whose load they change."""
        brokers: set[int] = set()
        for edit in candidate.edits:
            brokers |= self.apply_edit(edit)
        return brokers

    def apply_edit(self, edit: Edit) -> set[int]:
        """Apply one edit; returns the brokers whose load it changes."""
        partition, slot, target = edit
        row = self.placement.replicas[partition]
        source = int(row[slot])
        brokers = {source, int(row[0]) if target == NO_BROKER else target}
        self._edit(edit)
        # A hand-over swaps two slots, so the same hand-over once more reverses it.
        self.journal.append(Applied(edit, Edit(partition, slot, NO_BROKER if target == NO_BROKER else source)))
        return brokers

    def undo_to(self, mark: int) -> None:
        """Reverse what was applied since the journal had `mark` entries."""
        while len(self.journal) > mark:
            self._edit(self.journal.pop().reverse)

    def restore(self, partition: int) -> None:
        """Put `partition` back to where it was at first; what was applied before can no longer be undone."""
        self.spending.record(partition, -1)
        self.placement.restore(partition)
        self.spending.record(partition, +1)
        self.journal.clear()

    def _edit(self, edit: Edit) -> None:
        self.effort.edits += 1
        self.spending.record(edit.partition, -1)
        if edit.target == NO_BROKER:
            self.placement.lead(edit.partition, edit.slot)
        else:
            self.placement.move(*edit)
        self.spending.record(edit.partition, +1)


def _enough(violation: Floats) -> float:
    """The violation to which the worst broker is relieved before others have their turn."""
    others = float(np.partition(violation, -2)[-2]) if len(violation) > 1 else 0.0
    return max(NOTICEABLE, RELIEVED_TO * others)


def _effort_for(placement: Placement) -> Effort:
    """The most that a search over `placement` may try; brokers hold so many replicas, and are scored as targets."""
    brokers, replicas = len(placement.loads), int((placement.original != NO_BROKER).sum())
    per_look = replicas // max(1, brokers) + SHORTLIST * min(brokers, TARGETS_MAX)
    return Effort(candidates_max(brokers, replicas, per_look))
