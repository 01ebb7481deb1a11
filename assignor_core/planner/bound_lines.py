"""What a placement is judged by: its proven bounds, the lines at the band of these, and how far it is above them.

Bounds hold for any placement, but one that is better than a forced level shows that the level was not forced. So they
are asked for anew when the placement has changed. Nothing moves here.
"""

from collections.abc import Mapping

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.attainable import attainable
from assignor_core.planner.band_lines import above_lines, band_lines
from assignor_core.planner.bounds import leaves_replicas_behind, lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.proportions import TOGETHER
from assignor_core.planner.search import Search
from assignor_core.planner.two_loads import levels_together
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays

REPLICAS_MAX = 100_000
"""With more replicas bounds take long. Annealing, which needs them, finds next to nothing there by so few trials."""


def bounds_of(problem: Problem, placement: Placement) -> dict[str, float]:
    """Resource: what no placement goes below; where proportions force a level, not in two loads at once."""
    after = skew_of_arrays(problem.arrays, placement.replicas, problem.policy.excluded_brokers)
    return forced_bounds(problem, placement, {resource: skew.max_over_mean for resource, skew in after.items()})


def forced_bounds(problem: Problem, placement: Placement, reached: Mapping[str, float]) -> dict[str, float]:
    """Resource: what no placement goes below, by itself or beside another load. A level that proportions force counts
    up to what is `reached` by `placement`, and whole for a resource that is not in it.
    """
    crowded = bool(problem.crowded(placement).any())
    bounds = lower_bounds(problem.arrays, placement, problem.share, crowded=crowded)
    if crowded or leaves_replicas_behind(problem.arrays, placement):
        return bounds
    levels = np.maximum(problem.level, problem.read_level)
    for resource in (*TOGETHER, Resource.DISK):
        level = float(levels[:, problem.arrays.columns.of(resource)].max())
        bounds[resource] = max(bounds[resource], min(level, reached.get(resource, np.inf)))
    together = levels_together(problem.arrays, placement, problem.share, bounds)
    alone = dict(bounds)
    for both, level in together.items():
        for resource in both:
            bounds[resource] = max(bounds[resource], min(level * alone[resource], reached.get(resource, np.inf)))
    return bounds


def lines_of(search: Search) -> Floats:
    """B x C load at the band of the proven bounds; of more than `REPLICAS_MAX` replicas, limits that can be met."""
    problem, placement = search.problem, search.placement
    if (placement.original != NO_BROKER).sum() > REPLICAS_MAX:
        return attainable(problem, placement, everywhere=True).limit
    return band_lines(problem, bounds_of(problem, placement))


def above(search: Search) -> float:
    """Fair shares by which the worst load is above its line."""
    return above_lines(search.problem, search.placement.loads, lines_of(search))
