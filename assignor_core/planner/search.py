"""The search: relieve the most overloaded broker by the best candidate, until no broker can be relieved any more.

Local search with first things first: the broker with the largest violation comes first, since what relieves it is the
hardest to place. It gets the candidate of the highest score, and the loop looks again. A broker for which there is no
candidate is set aside until something changes, as what changed may have made room for it.

The module owns the loop, applies edits and can undo them. How a candidate is scored is `candidates`', what it costs is
`spending`'s. Invariants: the journal always leads back to any earlier state, bit by bit; each applied candidate lowers
the objective by at least `GAIN_MIN` of the broker's violation, and their number is limited, so the loop ends.
"""

from dataclasses import replace

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.candidates import (
    SHORTLIST_WIDE,
    Candidate,
    SearchState,
    best_by_score,
    best_handover,
    best_replica_move,
)
from assignor_core.planner.exchanges import best_exchange
from assignor_core.planner.placement import Edit, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.spending import Spending

NOTICEABLE = 1e-12
"""A violation below this is rounding."""
GAIN_MIN = 1e-3
"""A candidate must mend this part of what is wrong with the broker: what can't be mended is not chased in crumbs."""
EXCHANGE_FACTOR = 20
"""An exchange, which costs two movements and takes longest to look for, must mend so many times more."""
CANDIDATES_PER_REPLICA_MAX = 4
"""Candidates applied in one `relieve`, per replica of the cluster; far above what is ever needed."""


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

    def __init__(self, problem: Problem, placement: Placement, spending: Spending | None = None) -> None:
        self.problem = problem
        self.placement = placement
        self.spending = spending or Spending(problem.policy, placement)
        self.journal: list[Edit] = []
        """For each edit so far the edit that reverses it."""
        self.state = SearchState(problem, placement, self.spending)

    def with_limit(self, limit: Floats) -> "Search":
        """The same search, journal included, under other limits (B x C)."""
        return self._under(replace(self.problem, limit=limit))

    def pinning(self, partition: int) -> "Search":
        """The same search, journal included, that leaves `partition` where it is."""
        may_balance = self.problem.may_balance.copy()
        may_balance[partition] = False
        return self._under(replace(self.problem, may_balance=may_balance))

    def _under(self, problem: Problem) -> "Search":
        search = Search(problem, self.placement, self.spending)
        search.journal = self.journal
        return search

    def violation(self) -> Floats:
        """B: violation of each broker that may give; 0 for the others, which nobody can relieve."""
        return np.where(self.problem.may_give, self.problem.violation(self.placement.loads), 0.0)

    def relieve(self, candidates_max: int | None = None, *, exchanges: bool = True) -> None:
        """Until no broker that may give is above its limit, none can be relieved, or `candidates_max` are applied."""
        stuck: set[int] = set()
        applied, has_progress = 0, False
        applied_max = CANDIDATES_PER_REPLICA_MAX * self.placement.replicas.size
        if candidates_max is not None:
            applied_max = candidates_max
        while applied < applied_max:
            violation = self.violation()
            violation[sorted(stuck)] = 0.0
            worst = int(np.argmax(violation))
            if violation[worst] <= NOTICEABLE:
                if not stuck or not has_progress:
                    return
                # Something was applied since these got stuck: try all of them once more.
                stuck, has_progress = set(), False
                continue
            candidate = self.best_candidate(worst, float(violation[worst]) * GAIN_MIN, exchanges=exchanges)
            if candidate is None:
                stuck.add(worst)
                continue
            stuck -= self.apply(candidate)
            applied, has_progress = applied + 1, True

    def best_candidate(self, broker: int, gain_min: float, *, exchanges: bool = True) -> Candidate | None:
        """The best candidate by score that relieves `broker`; where there is none, looks wider, then exchanges.

        From the cheapest to look for to the dearest, and only as far as needed: nearly all are met at once.
        """
        if self.problem.policy.leaders_only:
            return best_handover(self.state, broker, gain_min)
        best = best_by_score(
            (best_handover(self.state, broker, gain_min), best_replica_move(self.state, broker, gain_min))
        )
        if best or not exchanges:
            return best
        wide = best_replica_move(self.state, broker, gain_min, SHORTLIST_WIDE)
        return wide or best_exchange(self.state, broker, EXCHANGE_FACTOR * gain_min)

    def apply(self, candidate: Candidate) -> set[int]:
        """Apply the edits of `candidate`; returns the brokers whose load they change."""
        brokers: set[int] = set()
        for edit in candidate.edits:
            partition, slot, target = edit
            row = self.placement.replicas[partition]
            source = int(row[slot])
            brokers |= {source, int(row[0]) if target == NO_BROKER else target}
            self._apply_edit(edit)
            # A hand-over swaps two slots, so the same hand-over once more reverses it.
            self.journal.append(Edit(partition, slot, NO_BROKER if target == NO_BROKER else source))
        return brokers

    def undo_to(self, mark: int) -> None:
        """Reverse what was applied since the journal had `mark` entries."""
        while len(self.journal) > mark:
            self._apply_edit(self.journal.pop())

    def _apply_edit(self, edit: Edit) -> None:
        self.spending.record(edit.partition, -1)
        if edit.target == NO_BROKER:
            self.placement.lead(edit.partition, edit.slot)
        else:
            self.placement.move(*edit)
        self.spending.record(edit.partition, +1)
