"""The search: relieve the most overloaded broker by the change that gains most per price, until none is overloaded.

Owns the loop, the budgets and the record of what has been touched. How a change is scored is `candidates`'.
"""

from collections.abc import Iterable

import numpy as np

from assignor_core.load import NO_BROKER, Ints
from assignor_core.planner.candidates import Change, Prices, best_leader_change, best_move
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem

NOTICEABLE = 1e-12
"""A violation below this is rounding."""


class Search:
    """One search; mutable."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.placement = placement
        count = max(1, int(problem.arrays.alive.sum()))
        replicas = (placement.original != NO_BROKER).sum(axis=1)
        unit = float((placement.disk_bytes * replicas).sum()) / count
        touched = np.zeros(len(problem.arrays.partitions), dtype=np.bool_)
        self.prices = Prices(problem, unit if unit > 0 else 1.0, touched)

    def relieve(self) -> None:
        """Until no broker that may give is above its limit, or none can be relieved any more."""
        blocked: set[int] = set()
        retry = False
        for _ in range(4 * self.placement.replicas.size + len(self.placement.loads)):
            violation = np.where(self.problem.gives, self.problem.violation(self.placement.loads), 0.0)
            violation[sorted(blocked)] = 0.0
            worst = int(np.argmax(violation))
            if violation[worst] <= NOTICEABLE:
                if not blocked or not retry:
                    return
                blocked, retry = set(), False
                continue
            change = self.best_change(worst)
            if change is None:
                blocked.add(worst)
                continue
            blocked -= self.apply(change)
            retry = True

    def best_change(self, broker: int) -> Change | None:
        """The best change by gain per price that relieves `broker`."""
        finders = (best_leader_change,) if self.problem.policy.leaders_only else (best_leader_change, best_move)
        found = [finder(self.problem, self.placement, self.prices, broker) for finder in finders]
        return max((change for change in found if change), key=lambda change: change.score, default=None)

    def apply(self, change: Change) -> set[int]:
        """Carry out `change`; returns the brokers whose load it changed."""
        brokers: set[int] = set()
        for partition, slot, target in change.steps:
            row: Ints = self.placement.replicas[partition]
            if target == NO_BROKER:
                brokers |= {int(row[0]), int(row[slot])}
                self.placement.lead(partition, slot)
            else:
                brokers |= {int(row[slot]), target}
                self.placement.move(partition, slot, target)
        self._touch(partition for partition, _, _ in change.steps)
        return brokers

    def _touch(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            changed = (self.placement.replicas[partition] != self.placement.original[partition]).any()
            self.prices.touched[partition] = changed
