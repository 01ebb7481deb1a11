"""Which candidates may gain enough, told before they are scored: most exchanges and moves need not be scored at all.

The relief of a broker is a sum over its loads, and there is a relief of each load that no exchange exceeds. So once the
loads that were looked at, and the most that all others can give, come to too little, the exchange is out. The loads
that can give most come first. With a load for each hour of the day most exchanges are out after a few of them.

A move gains no more than it relieves of, but for what its target can gain by it, which is next to nothing.

Of what was scored, most pairs of a replica and a target gain too little: rules and prices are asked of the rest alone.

Invariant: what gains more than is asked for is never left out.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.placement import Indices
from assignor_core.planner.problem import Standing

LOOKED_AT = 8
"""Loads. Of the exchanges left after so many, most do relieve enough; with no more loads than that nothing is saved."""
ROUNDING = 1e-9
"""Sums of reliefs in another order differ by less, by far."""


def promising_exchanges(
    standing: Standing, given: Floats, taken: Floats, rows: Indices, at: Indices, gain_min: float
) -> tuple[Indices, Indices]:
    """Those exchanges of `given[rows]` for `taken[at]` (N x C) that may relieve a broker, which has the `standing`, of
    more than `gain_min`.
    """
    if given.shape[1] <= LOOKED_AT or not len(rows):
        return rows, at
    low, high = taken.min(axis=0) - given.max(axis=0), taken.max(axis=0) - given.min(axis=0)
    most = -standing.least_cost(low, high)
    order = np.argsort(-most, kind="stable")
    others_most = np.cumsum(most[order][::-1])[::-1]  # of each load in that order and all behind it
    relief = np.zeros(len(rows))
    for looked_at, column in enumerate(order[:LOOKED_AT], start=1):
        relief -= standing.of(column).added_cost(taken[at, column] - given[rows, column])
        left = np.flatnonzero(relief + others_most[looked_at] > gain_min - ROUNDING)
        rows, at, relief = rows[left], at[left], relief[left]
    return rows, at


def promising_moves(relief: Floats, targets: Standing, gain_min: float) -> Indices:
    """Which of N replicas that give `relief` (N) may gain more than `gain_min` at any of `targets`."""
    least_burden = targets.least_cost(0.0, np.inf).sum(axis=1).min(initial=0.0)
    return np.flatnonzero(relief - least_burden > gain_min - ROUNDING)


def promising_pairs(relief: Floats, burden: Floats, gain_min: float) -> tuple[Indices, Indices]:
    """Rows and columns of `burden` (N x T) with a pair that gains more than `gain_min`, as replicas relieve (N)."""
    pairs = relief[:, None] - burden > gain_min - ROUNDING
    rows = np.flatnonzero(pairs.any(axis=1))
    return rows, np.flatnonzero(pairs[rows].any(axis=0))
