"""What a placement is judged by: proven bounds, and targets at the band of these.

A load should end at a fair share and the band, or at its proven bound and the band where that is higher. A broker may
be above its own limit and below its target: beside a heavy partition the target of all brokers is the bound that this
forces. Bounds hold for any placement. Nothing moves here.
"""

from collections.abc import Mapping

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.bounds import leaves_replicas_behind, lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import EDGE, Problem, in_even_shares
from assignor_core.planner.proportions import TOGETHER
from assignor_core.planner.two_loads import levels_together
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays


def bounds_of(problem: Problem, placement: Placement) -> dict[str, float]:
    """Resource: what no placement goes below, in fair shares as sets of brokers allow them; where proportions force a
    level, not in two loads at once.
    """
    if problem.arrays.sets is None:
        return reported_bounds(problem, placement)
    columns, at = problem.arrays.columns, problem.share > 0
    parts = np.where(at, placement.loads, 0.0) / np.where(at, problem.share, 1.0)
    reached: dict[str, float] = {one: float(parts[:, columns.of(one)].max(initial=0.0)) for one in columns.resources}
    return _forced_bounds(problem, placement, reached)


def reported_bounds(problem: Problem, placement: Placement) -> dict[str, float]:
    """Resource: what no placement goes below, as figures of a plan are: in fair shares of a cluster without sets."""
    after = skew_of_arrays(problem.arrays, placement.replicas, problem.policy.excluded_brokers)
    reached = {resource: skew.max_over_mean for resource, skew in after.items()}
    if problem.arrays.sets is not None:
        problem = in_even_shares(problem, placement)
    return _forced_bounds(problem, placement, reached)


def targets_of(problem: Problem, placement: Placement) -> Floats:
    """B x C load that a plan is judged by: the band on what is proven for any placement, worked out once.

    A level that two loads force together counts for each of them here. The judge of a plan never requires more.
    """
    return band_lines(problem, _forced_bounds(problem, placement, {}))


def _forced_bounds(problem: Problem, placement: Placement, reached: Mapping[str, float]) -> dict[str, float]:
    """Resource: what no placement goes below, by itself or beside another load. A level that proportions force counts
    up to what is `reached` by `placement`, and whole for a resource that is not in it.
    """
    rows = placement.replicas
    crowded = bool(problem.crowded(rows).any() or problem.misplaced(rows).any())
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


def band_lines(problem: Problem, bounds: Mapping[str, float]) -> Floats:
    """B x C load at the band of `bounds`: a broker that is above it is above both its band and its bound.

    >>> problem = state_of((1,), (2,)).problem
    >>> band_lines(problem, dict.fromkeys(problem.arrays.columns.resources, 1.5))[:, 0].round(3).tolist()
    [0.772, 0.772]
    """
    resources = problem.arrays.columns.resources
    factor = np.array([bounds[one] * (1.0 + problem.policy.band_of(one) * (1.0 - EDGE)) for one in resources])
    lines: Floats = np.minimum(problem.share * factor, problem.ceiling)
    return lines


def above_lines(problem: Problem, loads: Floats, lines: Floats) -> float:
    """Fair shares by which the worst broker is above its line in the worst load, counts left out."""
    at = np.ix_(problem.arrays.alive, ~problem.arrays.columns.counts)
    return float(((loads[at] - lines[at]) / problem.share[at]).max(initial=0.0))
