"""The search: relieve the most overloaded broker by the change that gains most per price, until none is overloaded.

Owns the loop and applies changes. How a change is scored is `candidates`', what it may cost `ledger`'s.
"""

from dataclasses import replace

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.candidates import SHORTLIST_WIDE, Change, Scene, Step, best_leader_change, best_move
from assignor_core.planner.ledger import Ledger
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.swaps import best_swap

NOTICEABLE = 1e-12
"""A violation below this is rounding."""
GAIN_LEAST = 1e-3
"""A change must mend this part of what is wrong with the broker: what can't be mended is not chased in crumbs."""
EXCHANGE_FACTOR = 20
"""An exchange, which costs two movements and takes longest to find, must mend so many times more."""


class Search:
    """One search; mutable."""

    def __init__(self, problem: Problem, placement: Placement, ledger: Ledger | None = None) -> None:
        self.problem = problem
        self.placement = placement
        self.ledger = ledger or Ledger(problem.policy, placement)
        self.journal: list[Step] = []
        """How to take back each step so far."""
        self.scene = Scene(problem, placement, self.ledger)

    def with_limit(self, limit: Floats) -> "Search":
        """The same search, journal included, under other limits (B x C)."""
        return self._under(replace(self.problem, limit=limit))

    def pinning(self, partition: int) -> "Search":
        """The same search, journal included, that leaves `partition` where it is."""
        movable = self.problem.movable.copy()
        movable[partition] = False
        return self._under(replace(self.problem, movable=movable))

    def _under(self, problem: Problem) -> "Search":
        search = Search(problem, self.placement, self.ledger)
        search.journal = self.journal
        return search

    def relieve(self, changes_max: int | None = None, *, exchanges: bool = True) -> None:
        """Until no broker that may give is above its limit, none can be relieved any more, or so many are made."""
        blocked: set[int] = set()
        changes, retry = 0, False
        limit = 4 * self.placement.replicas.size if changes_max is None else changes_max
        while changes < limit:
            violation = np.where(self.problem.gives, self.problem.violation(self.placement.loads), 0.0)
            violation[sorted(blocked)] = 0.0
            worst = int(np.argmax(violation))
            if violation[worst] <= NOTICEABLE:
                if not blocked or not retry:
                    return
                blocked, retry = set(), False
                continue
            change = self.best_change(worst, float(violation[worst]) * GAIN_LEAST, exchanges=exchanges)
            if change is None:
                blocked.add(worst)
                continue
            blocked -= self.apply(change)
            changes, retry = changes + 1, True

    def best_change(self, broker: int, least: float, *, exchanges: bool = True) -> Change | None:
        """The best change by gain per price that relieves `broker`; where there is none, looks wider, then swaps."""
        if self.problem.policy.leaders_only:
            return best_leader_change(self.scene, broker, least)
        found = [finder(self.scene, broker, least) for finder in (best_leader_change, best_move)]
        best = max((change for change in found if change), key=lambda change: change.score, default=None)
        if best or not exchanges:
            return best
        wide = best_move(self.scene, broker, least, SHORTLIST_WIDE)
        return wide or best_swap(self.scene, broker, EXCHANGE_FACTOR * least)

    def apply(self, change: Change) -> set[int]:
        """Carry out `change`; returns the brokers whose load it changed."""
        brokers: set[int] = set()
        for partition, slot, target in change.steps:
            row = self.placement.replicas[partition]
            source = int(row[slot])
            brokers |= {source, int(row[0]) if target == NO_BROKER else target}
            self._step(partition, slot, target)
            self.journal.append((partition, slot, NO_BROKER if target == NO_BROKER else source))
        return brokers

    def undo_to(self, mark: int) -> None:
        """Take back what was applied since the journal had `mark` entries."""
        while len(self.journal) > mark:
            self._step(*self.journal.pop())

    def _step(self, partition: int, slot: int, target: int) -> None:
        self.ledger.enter(partition, -1)
        if target == NO_BROKER:
            self.placement.lead(partition, slot)
        else:
            self.placement.move(partition, slot, target)
        self.ledger.enter(partition, +1)
