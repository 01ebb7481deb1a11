"""Lines that a plan is judged by: each load at its proven bound, or at a fair share, and the band on top.

A broker may be above its own limit and below its line: beside a heavy partition the line of all brokers is the bound
that this forces. Nothing moves here.
"""

from collections.abc import Mapping

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.problem import EDGE, Problem


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
