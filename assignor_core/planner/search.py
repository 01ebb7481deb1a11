"""A placement under change, and what its edits have spent.

Hard rules are kept by single edits (`repair`), and the search hands in whole rows. Both go through here, so the figures
of what is copied are always those of the placement as it is.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Ints
from assignor_core.planner.placement import Edit, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.spending import Spending


class Search:
    """One search over one placement; mutable.

    Broker 1 leads both partitions that brokers 1 and 2 hold. One hand-over makes them even:

    >>> search = state_of((1, 2), (1, 2))
    >>> search.apply_edit(Edit(0, 1, NO_BROKER))
    >>> search.placement.replicas.tolist(), search.spending.movements
    ([[1, 0], [0, 1]], 1)
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.placement = placement
        self.spending = Spending(problem.policy, placement)

    def apply_edit(self, edit: Edit) -> None:
        """Apply one edit."""
        self.spending.record(edit.partition, -1)
        if edit.target == NO_BROKER:
            self.placement.lead(edit.partition, edit.slot)
        else:
            self.placement.move(*edit)
        self.spending.record(edit.partition, +1)

    def apply_rows(self, rows: Ints) -> None:
        """Give each partition the replicas and the leader of its row (P x R), partition by partition."""
        for partition in np.flatnonzero((rows != self.placement.replicas).any(axis=1)).tolist():
            row, present = (
                [broker for broker in table[partition].tolist() if broker != NO_BROKER]
                for table in (rows, self.placement.replicas)
            )
            arriving = [broker for broker in row if broker not in present]
            leaving = [slot for slot, broker in enumerate(present) if broker not in row]
            for slot, target in zip(leaving, arriving, strict=True):
                self.apply_edit(Edit(partition, slot, target))
                present[slot] = target
            leader = present.index(row[0])
            if leader:
                self.apply_edit(Edit(partition, leader, NO_BROKER))
