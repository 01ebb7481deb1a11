"""Turns of annealing: from a placement, many small changes at random, of which ever fewer may be for the worse.

Threshold accepting (Dueck and Scheuer, 1990): a change is taken if it costs no more than a threshold, which falls to
nothing by the end of the turn. Machine code is loaded here when the first turn is made, since few plans need one: that
takes a third of a second, and some seconds where nobody has made a turn on the machine before.

The numbers come from a generator with a fixed start, and no clock or machine decides anything, so a model has one plan.
Nothing moves before `apply_rows`.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.draft import Draft, Task, draft_of, trial_of
from assignor_core.planner.placement import Edit, Placement
from assignor_core.planner.search import Search

COLUMNS = 6
"""Columns of load that one window has."""
SEED = 1


class Step(NamedTuple):
    """How a turn goes."""

    threshold: float
    """What a change may cost at its start, in fair shares of disk."""
    copy_part: float = 1.0
    """Copies cost this part of their price: the last bit above a line is worth no copy at the whole."""
    change_part: float = 1.0
    """Changes of a partition cost this part of theirs."""


class Turns:
    """Turns of `trials` each; with more columns than one window has fewer, since each trial costs more. Mutable."""

    def __init__(self, task: Task, trials: int) -> None:
        self._task = task
        self._trials = trials * COLUMNS // max(COLUMNS, task.limits.shape[1])
        self._random = np.random.default_rng(SEED)

    def turn(self, rows: Ints, loads: Floats, inflow: Floats, step: Step) -> Draft:
        """The draft at the end of a turn from these rows (P x R), the loads (B x C) that they bring, and what is copied
        to each broker (B bytes).
        """
        from assignor_core.planner import trials  # machine code

        task, draft = self._task, draft_of(rows, loads, inflow)
        change_price, copy_price = task.change_price * step.change_part, task.copy_price * step.copy_part
        task = task._replace(change_price=change_price, copy_price=copy_price)
        trials.price_all(task, draft)
        trials.turn(task, draft, trial_of(draft), self._random, step.threshold, self._trials)
        return draft


def apply_rows(search: Search, rows: Ints) -> None:
    """Give each partition the replicas and the leader of its row, by edits that can be undone; P x R."""
    for edit in edits_towards(search.placement, rows):
        search.apply_edit(edit)


def edits_towards(placement: Placement, rows: Ints) -> list[Edit]:
    """The edits that give each partition the replicas and the leader of its row (P x R), partition by partition."""
    edits = []
    for partition in np.flatnonzero((rows != placement.replicas).any(axis=1)).tolist():
        row, present = (
            [broker for broker in table[partition].tolist() if broker != NO_BROKER]
            for table in (rows, placement.replicas)
        )
        arriving = [broker for broker in row if broker not in present]
        leaving = [slot for slot, broker in enumerate(present) if broker not in row]
        for slot, target in zip(leaving, arriving, strict=True):
            edits.append(Edit(partition, slot, target))
            present[slot] = target
        leader = present.index(row[0])
        if leader:
            edits.append(Edit(partition, leader, NO_BROKER))
    return edits
