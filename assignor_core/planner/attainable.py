"""Limits that can be met: a broker that holds a partition too heavy for any is asked to hold little else.

One partition can't be split over brokers, so whoever holds a heavy one stays above the limit. Chasing it down to a
limit that no placement meets would spend movements on crumbs, broker after broker. Its limit is therefore raised to its
heaviest replica and the band on top, which asks it to hand nearly all the rest to others; its goal likewise. The others
then need more leaders and replicas than their part, so the soft caps of counts are raised for them.

Invariants: no limit is lowered, and none is raised above the capacity. Which broker holds what changes as the search
goes on, so the limits are computed anew before each round. Nothing moves here.
"""

from dataclasses import replace

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem

ROUNDING = 1e-9


def attainable(problem: Problem, placement: Placement, *, everywhere: bool = False) -> Problem:
    """`problem` with limits and goals raised to the heaviest replica that each broker holds, and the band on top.

    `everywhere` also where a heavy partition does not belong: if it has no way to a broker that can hold it, its own is
    asked for what can be done.

    Of two brokers, broker 1 holds a partition that is 9 tenths of the load:

    >>> state = state_of((1,), (2,), loads=(9.0, 1.0))
    >>> disk = state.placement.arrays.columns.of(Resource.DISK)
    >>> state.problem.limit[:, disk].round(2).tolist()
    [[0.51], [0.51]]
    >>> attainable(state.problem, state.placement).limit[:, disk].round(2).tolist()
    [[0.91], [0.51]]
    """
    heaviest = _heaviest_above_limit(problem, placement, everywhere=everywhere)

    bands = np.array([problem.policy.band_of(resource) for resource in problem.arrays.columns.resources])

    def raised(line: Floats) -> Floats:
        # The band alone: where racks or proportions force more than a fair share, that does not come on top.
        band = np.clip(line - problem.share, 0.0, problem.share * bands)
        aim = np.where(heaviest > 0, np.maximum(line, heaviest + band), line)
        return np.minimum(aim, problem.ceiling)

    more = _counts_beside_heavy(problem, heaviest)
    return replace(problem, goal=raised(problem.goal) * more, limit=raised(problem.limit) * more)


def _counts_beside_heavy(problem: Problem, heaviest: Floats) -> Floats:
    """B x C how much more of the counts brokers without a heavy partition must carry; 1 for all other loads.

    Who holds a heavy one should hold little else, so its part of the leaders and replicas goes to others: to those of
    its rack, where racks are few. On three brokers of which one is full, the two others hold one and a half times as
    many.
    """
    arrays = problem.arrays
    more = np.ones_like(problem.limit)
    is_full = heaviest.any(axis=1)
    others = arrays.alive & ~is_full
    for column in np.flatnonzero(arrays.columns.counts):
        share = problem.share[:, column]
        if not is_full.any() or not share[others].any():
            continue
        more[others, column] = share.sum() / share[others].sum()
        for rack in np.unique(arrays.racks[is_full]):
            mates = others & (arrays.racks == rack)
            if share[mates].any():
                times = share[arrays.racks == rack].sum() / share[mates].sum()
                more[mates, column] = np.maximum(more[mates, column], times)
    return more


def _heaviest_above_limit(problem: Problem, placement: Placement, *, everywhere: bool) -> Floats:
    """B x C load of the heaviest replica that each broker holds, of those above every broker's limit; else 0.

    A replica counts where it belongs: each of its loads is within its broker's limit, or no broker has a larger share
    of it. Elsewhere it is too heavy in a load that others can carry, and raised limits would keep it there. With
    `everywhere` it counts by load: in each one that no broker has a larger share of than its own.
    """
    heaviest = np.zeros_like(problem.limit)
    largest = problem.share.max(axis=0) * (1.0 - ROUNDING)
    highest = np.where(problem.share > 0, problem.limit, 0.0).max(axis=0)
    for slot in range(placement.replicas.shape[1]):
        loads = placement.leading if slot == 0 else placement.following
        if placement.in_racks is not None:
            loads = placement.loads_at(np.arange(len(loads)), np.full(len(loads), slot))
        held = np.flatnonzero((loads > highest).any(axis=1) & (placement.replicas[:, slot] != NO_BROKER))
        brokers, is_heavy = placement.replicas[held, slot], loads[held] > highest
        is_heavy &= problem.share[brokers] >= largest
        if not everywhere:
            is_heavy &= (is_heavy | (loads[held] <= problem.limit[brokers])).all(axis=1)[:, None]
        np.maximum.at(heaviest, brokers, np.where(is_heavy, loads[held], 0.0))
    return heaviest
