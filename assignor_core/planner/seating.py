"""Another seat for heavy partitions, where the search is stuck: as if light ones could go anywhere.

Two heavy partitions on one broker part only if another broker has room for one. Those without a heavy one are full of
light ones, so no candidate helps. Here light partitions count for nothing: each limit is raised by what they bring, and
heavy ones alone move, by the same candidates and kicks. Then heavy ones stay, and light ones make room.

Invariants: no hard rule is broken but capacities, which the caller looks at in the end (`is_within_capacities`). The
work has a limit of its own, a part of the whole search's, since that may be spent by now.
"""

from dataclasses import replace

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.attainable import attainable
from assignor_core.planner.effort import Effort
from assignor_core.planner.kicks import kick
from assignor_core.planner.placement import Flags, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.search import NOTICEABLE, Search

HEAVY = 0.2
"""A partition is heavy if it is this part of what the largest broker should carry, in any load."""
TURNS_MAX = 4
"""Reliefs and kicks, one after the other, as long as something moves."""
EFFORT_PART = 8
"""The search may score this part of its most candidates once more."""
ROUNDING = 1e-9
ANY = 1e9
"""More than any load: no limit."""


def seat_heavy(search: Search) -> bool:
    """Move heavy partitions to where there is most room for them, then light ones out of their way; False where none
    moved.
    """
    problem, placement = search.problem, search.placement
    is_heavy = _heavy(problem, placement)
    effort = Effort(search.effort.candidates_max // EFFORT_PART)
    mark = len(search.journal)
    for _ in range(TURNS_MAX):
        before = len(search.journal)
        limits = attainable(problem, placement, everywhere=True)
        heavy_alone = search.under(_without_light(limits, placement, is_heavy), effort)
        if not float(heavy_alone.violation().sum()) > NOTICEABLE:
            break
        heavy_alone.relieve()
        kick(heavy_alone)
        if len(search.journal) == before:
            break
    has_moved = len(search.journal) > mark
    if has_moved:
        limits = attainable(problem, placement, everywhere=True)
        search.under(replace(limits, may_balance=limits.may_balance & ~is_heavy), effort).relieve()
    search.effort.add(effort)
    return has_moved


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


def _without_light(limits: Problem, placement: Placement, is_heavy: Flags) -> Problem:
    """`limits` that light partitions do not use up, and only heavy ones move."""
    light = placement.loads - _loads_of(placement, is_heavy)
    light[:, limits.arrays.columns.counts] = ANY
    return replace(
        limits,
        goal=limits.goal + light,
        limit=limits.limit + light,
        ceiling=limits.ceiling + light,
        may_balance=limits.may_balance & is_heavy,
    )


def _loads_of(placement: Placement, chosen: Flags) -> Floats:
    """B x C what some partitions bring."""
    rows, loads = np.flatnonzero(chosen), np.zeros_like(placement.loads)
    for slot in range(placement.replicas.shape[1]):
        held = rows[placement.replicas[rows, slot] != NO_BROKER]
        np.add.at(loads, placement.replicas[held, slot], placement.loads_at(held, np.full(len(held), slot)))
    return loads
