"""Another seat for heavy partitions, where the search is stuck: as if light ones could go anywhere.

Two heavy partitions on one broker part only if another broker has room for one. Those without a heavy one are full of
light ones, so no candidate helps. Here light partitions count for nothing, and heavy ones alone change places, by turns
of annealing (`turns`): as few as serve, since light ones lie around them. Then heavy ones stay, and light ones make
room.

Invariants: no hard rule is broken but capacities, which the caller looks at in the end (`is_within_capacities`). The
work has a limit of its own, a part of the whole search's, since that may be spent by now.
"""

from dataclasses import replace

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.annealing import NOTICEABLE
from assignor_core.planner.attainable import attainable
from assignor_core.planner.band_lines import above_lines
from assignor_core.planner.draft import task_of
from assignor_core.planner.effort import Effort
from assignor_core.planner.placement import Flags, Indices, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.search import Search
from assignor_core.planner.turns import Step, Turns, apply_rows

HEAVY = 0.2
"""A partition is heavy if it is this part of what the largest broker should carry, in any load."""
TRIALS = 1_000_000
"""Trials of a turn, which take a tenth of a second."""
STEPS = (Step(0.003), Step(0.03), Step(0.1), Step(0.3), Step(0.03, 0.1, 0.1), Step(0.3, 0.1, 0.1))
"""Turns, one after the other: heavy partitions cost much."""
BETTER = 1e-4
"""Fair shares by which a turn must bring heavy partitions nearer to the lines."""
EFFORT_PART = 8
"""The search may score this part of its most candidates once more."""
ROUNDING = 1e-9
ANY = 1e9
"""More than any load: no limit."""


def seat_heavy(search: Search, lines: Floats) -> bool:
    """Move heavy partitions so that they alone are below `lines` (B x C), or nearer.

    False where heavy ones alone are below the lines, or come no nearer: then nothing moves.
    """
    rows = _seated(search, np.flatnonzero(_heavy(search.problem, search.placement)), lines)
    if rows is not None:
        apply_rows(search, rows)
    return rows is not None


def make_room(search: Search) -> None:
    """Move light partitions out of the way of heavy ones, with an effort of its own."""
    problem, placement = search.problem, search.placement
    limits = attainable(problem, placement, everywhere=True)
    effort = Effort(search.effort.candidates_max // EFFORT_PART)
    search.under(replace(limits, may_balance=limits.may_balance & ~_heavy(problem, placement)), effort).relieve()
    search.effort.add(effort)


def _seated(search: Search, heavy: Indices, lines: Floats) -> Ints | None:
    """P x R rows with other seats for the partitions `heavy`; None where these come no nearer to the lines."""
    problem, placement = search.problem, search.placement
    lines = np.where(problem.arrays.columns.counts, ANY, lines)
    task = task_of(search, lines)
    task = task._replace(
        limits=task.lines,
        leading=task.leading[heavy],
        following=task.following[heavy],
        change_price=task.change_price[heavy],
        copy_price=task.copy_price[heavy],
        sizes=task.sizes[heavy],
        original=placement.replicas[heavy],  # the fewest changes from here, not from where they were at first
        is_movable=task.is_movable[heavy],
        movable=np.flatnonzero(task.is_movable[heavy]),
    )
    rows, loads, inflow = placement.replicas[heavy], _loads_of(placement, heavy), search.spending.inflow
    above = above_lines(problem, loads, lines)
    if above <= NOTICEABLE or not len(task.movable):
        return None
    first, turns = above, Turns(task, TRIALS)
    for step in STEPS:
        draft = turns.turn(rows, loads, inflow, step)
        if (nearer := above_lines(problem, draft.loads, lines)) < above - BETTER:
            rows, loads, inflow, above = draft.rows, draft.loads, draft.inflow, nearer
        if above <= NOTICEABLE:
            break
    if above == first:
        return None
    seated = placement.replicas.copy()
    seated[heavy] = rows
    return seated


def is_within_capacities(problem: Problem, placement: Placement) -> bool:
    """Whether no broker is above a capacity, or further above it than it was at first."""
    most = np.maximum(problem.ceiling, placement.original_loads)
    return bool((placement.loads <= most + ROUNDING).all())


def _heavy(problem: Problem, placement: Placement) -> Flags:
    """P."""
    is_load = ~problem.arrays.columns.counts
    largest = problem.share[:, is_load].max(axis=0)
    heavy: Flags = (placement.leading[:, is_load] > HEAVY * largest).any(axis=1)
    return heavy


def _loads_of(placement: Placement, chosen: Indices) -> Floats:
    """B x C what some partitions bring."""
    loads = np.zeros_like(placement.loads)
    for slot in range(placement.replicas.shape[1]):
        held = chosen[placement.replicas[chosen, slot] != NO_BROKER]
        np.add.at(loads, placement.replicas[held, slot], placement.loads_at(held, np.full(len(held), slot)))
    return loads
