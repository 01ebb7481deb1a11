"""Limits that can be met: a broker that holds a partition heavier than a fair share is asked to hold little else.

Without it the search would chase such a broker down to a limit that no placement meets. Nothing moves here.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem


def attainable(problem: Problem, placement: Placement) -> Floats:
    """B x C limits raised to the heaviest replica that each broker holds, and the band on top."""
    limit = problem.limit.copy()
    lowest = np.where(problem.share > 0, limit, np.inf).min(axis=0)
    for column in range(limit.shape[1]):
        band = np.maximum(limit[:, column] - problem.share[:, column], 0.0)
        for slot in range(placement.replicas.shape[1]):
            loads = (placement.leading if slot == 0 else placement.following)[:, column]
            heavy = np.flatnonzero((loads > lowest[column]) & (placement.replicas[:, slot] != NO_BROKER))
            brokers = placement.replicas[heavy, slot]
            np.maximum.at(limit[:, column], brokers, loads[heavy] + band[brokers])
    raised: Floats = np.minimum(limit, problem.ceiling)
    return raised
