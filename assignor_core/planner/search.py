"""A placement under change: edits that can be undone, and what they have spent.

Hard rules are kept by single edits (`repair`), and the search hands in whole rows. Both go
through here, so the figures of what is copied are always those of the placement as it is.

Invariant: the journal leads back to any earlier state, bit by bit.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Ints
from assignor_core.planner.placement import Edit, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.spending import Spending


class Applied(NamedTuple):
    """An edit that was applied."""

    edit: Edit
    reverse: Edit
    """The edit that takes it back."""


class Search:
    """One search over one placement; mutable.

    Broker 1 leads both partitions that brokers 1 and 2 hold. One hand-over makes them even, and can be undone:

    >>> search = state_of((1, 2), (1, 2))
    >>> search.apply_edit(Edit(0, 1, NO_BROKER))
    >>> search.placement.replicas.tolist(), search.spending.movements
    ([[1, 0], [0, 1]], 1)
    >>> search.undo_to(0)
    >>> search.placement.replicas.tolist(), search.spending.movements
    ([[0, 1], [0, 1]], 0)
    """

    def __init__(self, problem: Problem, placement: Placement) -> None:
        self.problem = problem
        self.placement = placement
        self.spending = Spending(problem.policy, placement)
        self.journal: list[Applied] = []
        """Each edit so far, in order."""

    def apply_edit(self, edit: Edit) -> None:
        """Apply one edit."""
        source = int(self.placement.replicas[edit.partition, edit.slot])
        self._edit(edit)
        # A hand-over swaps two slots, so the same hand-over once more reverses it.
        back = NO_BROKER if edit.target == NO_BROKER else source
        self.journal.append(Applied(edit, Edit(edit.partition, edit.slot, back)))

    def undo_to(self, mark: int) -> None:
        """Reverse what was applied since the journal had `mark` entries."""
        while len(self.journal) > mark:
            self._edit(self.journal.pop().reverse)

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

    def _edit(self, edit: Edit) -> None:
        self.spending.record(edit.partition, -1)
        if edit.target == NO_BROKER:
            self.placement.lead(edit.partition, edit.slot)
        else:
            self.placement.move(*edit)
        self.spending.record(edit.partition, +1)
