"""Limits that can be met: a broker that holds a partition heavier than a fair share is asked to hold little else.

One partition can't be split over brokers, so whoever holds a heavy one stays above the limit. Chasing it down to a
limit that no placement meets would spend movements on crumbs, broker after broker. Its limit is therefore raised to its
heaviest replica and the band on top, which asks it to hand nearly all the rest to others.

Invariants: no limit is lowered, and none is raised above the capacity. Which broker holds what changes as the search
goes on, so the limits are computed anew before each round. Nothing moves here.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem


def attainable_limits(problem: Problem, placement: Placement) -> Floats:
    """B x C limits raised to the heaviest replica that each broker holds, and the band on top.

    Of two brokers, broker 1 holds a partition that is 9 tenths of the load:

    >>> state = state_of((1,), (2,), loads=(9.0, 1.0))
    >>> disk = state.placement.arrays.columns.of(Resource.DISK)
    >>> state.problem.limit[:, disk].round(2).tolist()
    [[0.51], [0.51]]
    >>> attainable_limits(state.problem, state.placement)[:, disk].round(2).tolist()
    [[0.91], [0.51]]
    """
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
