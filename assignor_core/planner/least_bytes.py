"""What any plan must copy that does as well as this one: a figure that is proven, by prices.

A plan does as well if it leaves no broker above its band, or no fuller than this plan leaves it. It empties the same
brokers, and spreads the same partitions over racks. Now give each unit of load on each broker some price. Such a plan
pays for what it copies and for the loads that it leaves, which are at most what they may be. So it copies at least what
all partitions cost where they are cheapest (`cheapest_rows`), less the price of all that may be left. This is the dual
of a linear program, and holds for whole replicas, too (Geoffrion 1974, Lagrangean relaxation for integer programming).

Any prices prove something. Good ones are sought in steps: up where a load is above what it may be, else down, each at
its own pace (Adam; Kingma and Ba 2015, https://arxiv.org/abs/1412.6980). Where brokers are of unequal proportions and
there are many pairs of a partition and a broker, steps begin at the shadow prices of `relaxation`. They end where
hardly anything is left to prove.

Not looked at: budgets, room on disks, and how many leaders and replicas brokers should have. Without these rules plans
could copy less, so the figure holds with them. Nothing moves here.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.cheapest_rows import Room, Rows, cheapest_rows
from assignor_core.planner.guided import REPLICAS_MAX, have_unequal_proportions, may_guide
from assignor_core.planner.placement import Flags, Placement, on_grid
from assignor_core.planner.problem import Problem
from assignor_core.planner.relaxation import MOVED_PRICE, relaxation_of
from assignor_core.planner.search import Search
from assignor_core.resources import Resource

LOOKS_MAX = 800_000_000
"""Looks at a load of a pair of a partition and a broker, all steps together: about a second."""
STEPS_MAX, STEPS_GUIDED_MAX = 600, 150
"""Most steps: from nothing, and from shadow prices."""
RATE_FIRST, RATE_GUIDED, RATE_LAST = 1.0, 0.03, 1e-3
"""How far a price goes in one step, where copying a fair share of disk costs 1: at first, and in the end."""
SLOPE_KEPT, SQUARE_KEPT = 0.95, 0.9
"""What a step keeps of the mean slope, and of its mean square. With `RATE_FIRST` the best of 36 settings on twelve
plans, with 150 to 600 steps (2026-11-28).
"""
SLOPE_LEAST = 1e-3
NEAR = 0.99
"""Where this part of what the plan copies is proven to be needed, no better prices are sought."""


class _Question(NamedTuple):
    """What K loads of B brokers may be, as parts of the whole."""

    rows: Rows
    most: Floats
    """B x K."""
    share: Floats
    """B x K fair share; 1 where there is none."""
    prices: Floats
    """B x K to begin with, of a whole load, where copying all bytes costs 1."""
    is_guided: bool
    """Whether these are shadow prices."""


def least_bytes(search: Search) -> float:
    """Bytes that any placement copies that does as well as that of `search`, to six digits; at most what this copies.

    Broker 1 holds four partitions alike. It may keep its share, which is two, and 3 % more:

    >>> state = state_of((1,), (1,), (1,), (1,))
    >>> state.placement.move(0, 0, 1), state.placement.move(1, 0, 1)
    (None, None)
    >>> round(float(least_bytes(Search(state.problem, state.placement)) / state.placement.disk_bytes[0]), 3)
    1.94
    """
    placement = search.placement
    copied = float(placement.inflow().sum())
    whole = float((placement.disk_bytes * (placement.original != NO_BROKER).sum(axis=1)).sum())
    if copied <= 0.0:
        return 0.0
    proven = _proven(_question(search, whole), copied / whole) * whole
    return min(copied, float(f"{proven:.6g}"))


def _question(search: Search, whole: float) -> _Question:
    problem, placement = search.problem, search.placement
    columns = problem.arrays.columns
    some: Flags = ~columns.counts & (placement.loads.sum(axis=0) > 0)
    if placement.in_racks is not None:
        # What a replica serves in its rack depends on the others.
        some[columns.of(Resource.BYTES_OUT)] = False
    bands = np.array([problem.policy.band_of(resource) for resource in columns.resources])
    most = np.maximum(np.minimum(problem.share * (1.0 + bands), problem.ceiling), placement.loads)
    rows, share = _rows(problem, placement, some, whole), problem.share[:, some]
    is_large = len(rows.original) * share.size > LOOKS_MAX // STEPS_MAX
    prices = _shadow_prices(problem, most) if is_large and rows.counts.sum() <= REPLICAS_MAX else None
    is_guided = prices is not None
    if prices is None:
        # What is above on disk must be copied, and all of it.
        prices = np.zeros_like(most)
        disk = columns.of(Resource.DISK)
        prices[:, disk] = placement.original_loads[:, disk] > most[:, disk]
    return _Question(rows, most[:, some], np.where(share > 0, share, 1.0), prices[:, some], is_guided)


def _rows(problem: Problem, placement: Placement, some: Flags, whole: float) -> Rows:
    arrays, original, replicas = problem.arrays, placement.original, placement.replicas
    counts = (original != NO_BROKER).sum(axis=1)
    is_spread = problem.crowding(replicas) == counts
    may_keep = arrays.alive | (np.bincount(replicas[replicas != NO_BROKER], minlength=len(arrays.alive)) > 0)
    all_may_stay = (may_keep[original] | (original == NO_BROKER)).all(axis=1)
    return Rows(
        original=original,
        counts=counts,
        following=np.ascontiguousarray(placement.following[:, some]),
        leading=np.ascontiguousarray((placement.leading - placement.following)[:, some]),
        copied=on_grid(placement.disk_bytes / whole),
        may_change=problem.movable,
        is_spread=is_spread,
        may_stay_whole=all_may_stay & (~is_spread | (problem.crowding(original) == counts)),
        racks=arrays.racks,
        rack_count=arrays.racks.max(initial=-1, keepdims=True) + 1,
        may_keep=may_keep,
        may_take=problem.may_take,
    )


def _shadow_prices(problem: Problem, most: Floats) -> Floats | None:
    """B x C prices of a whole load at which loads may be `most`; None where the linear program is not for the plan."""
    if not have_unequal_proportions(problem):
        return None
    first = Search(replace(problem, goal=most, limit=most), Placement(problem.arrays))
    if not may_guide(first):
        return None
    relaxed = relaxation_of(first)
    relaxed = replace(relaxed, prices=relaxed.prices - MOVED_PRICE)
    prices, _ = relaxed.shadow_prices()
    return relaxed.by_column(prices, most.shape[1]) / float(problem.arrays.alive.sum())


def _proven(question: _Question, copied: float) -> float:
    """The most that is proven; `copied`, as all here, is a part of all bytes."""
    rows, most, share, prices, is_guided = question
    brokers, replicas = len(most), rows.original.shape[1]
    steps_max, rate_first = (STEPS_GUIDED_MAX, RATE_GUIDED) if is_guided else (STEPS_MAX, RATE_FIRST)
    steps = min(steps_max, LOOKS_MAX // max(1, len(rows.original) * most.size))
    room, left = Room.of(brokers, replicas), np.empty_like(most)
    slope, square, best = np.zeros_like(most), np.zeros_like(most), 0.0
    prices = prices * share
    # A power differs in its last bits from one machine to the next.
    rates = on_grid(np.geomspace(rate_first, RATE_LAST, steps + 1)) / brokers
    for rate in rates:
        of_load = prices / share
        total = cheapest_rows(rows, np.ascontiguousarray(of_load.T), room, left)
        best = max(best, total - float((of_load * most).sum()))
        if best >= NEAR * copied:
            break
        above = (left - most) / share
        above[(prices <= 0.0) & (above < 0.0)] = 0.0
        slope = SLOPE_KEPT * slope + (1.0 - SLOPE_KEPT) * above
        square = SQUARE_KEPT * square + (1.0 - SQUARE_KEPT) * above * above
        prices = np.maximum(prices + rate * slope / (np.sqrt(square) + SLOPE_LEAST), 0.0)
    return best
