"""Which candidates may gain enough, told before they are scored: most exchanges and moves need not be scored at all.

The relief of a broker is a sum over its loads, and there is a relief of each load that no exchange exceeds. So once the
loads that were looked at, and the most that all others can give, come to too little, the exchange is out. The loads
that can give most come first. With a load for each hour of the day most exchanges are out after a few of them.

A move gains no more than it relieves of, but for what its target can gain by it, which is next to nothing.

Invariant: what gains more than is asked for is never left out.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.placement import Indices
from assignor_core.planner.problem import PULL, Problem, added_cost

LOOKED_AT = 8
"""Loads. Of the exchanges left after so many, most do relieve enough; with no more loads than that nothing is saved."""
ROUNDING = 1e-9
"""Sums of reliefs in another order differ by less, by far."""


class ReliefBound:
    """What a broker, which carries `here` (C), can be relieved of by exchanges, load by load."""

    def __init__(self, problem: Problem, here: Floats, broker: int) -> None:
        self._problem, self._here, self._broker = problem, here, broker
        self._share = problem.share[broker]
        self._over = (here - problem.goal[broker]) / self._share
        self._before = np.maximum(self._over, 0.0) ** 2
        self._away = 2.0 * (here / self._share - 1.0)

    def promising(
        self, given: Floats, taken: Floats, rows: Indices, at: Indices, gain_min: float
    ) -> tuple[Indices, Indices]:
        """Those exchanges of `given[rows]` for `taken[at]` (N x C) that may relieve of more than `gain_min`."""
        if len(self._here) <= LOOKED_AT or not len(rows):
            return rows, at
        low, high = taken.min(axis=0) - given.max(axis=0), taken.max(axis=0) - given.min(axis=0)
        most = -least_added(self._problem, self._here, self._broker, low, high)
        order = np.argsort(-most, kind="stable")
        others_most = np.cumsum(most[order][::-1])[::-1]  # of each load in that order and all behind it
        relief = np.zeros(len(rows))
        for looked_at, column in enumerate(order[:LOOKED_AT], start=1):
            relief -= self._added(taken[at, column] - given[rows, column], column)
            left = np.flatnonzero(relief + others_most[looked_at] > gain_min - ROUNDING)
            rows, at, relief = rows[left], at[left], relief[left]
        return rows, at

    def _added(self, taken: Floats, column: int) -> Floats:
        """What each of `taken` adds to the objective in this column."""
        weight = self._problem.weight
        row = (values[column] for values in (self._share, self._over, self._before, self._away, weight))
        return added_cost(taken, *row)


def may_gain(problem: Problem, relief: Floats, there: Floats, targets: Indices, gain_min: float) -> Indices:
    """Which of N replicas that give `relief` (N) may gain more than `gain_min` at any of `targets`, which carry `there`
    (T x C).
    """
    least_burden = least_added(problem, there, targets, 0.0, np.inf).sum(axis=1).min(initial=0.0)
    return np.flatnonzero(relief - least_burden > gain_min - ROUNDING)


def least_added(
    problem: Problem, here: Floats, brokers: Indices | int, low: Floats | float, high: Floats | float
) -> Floats:
    """... x C: the least that each load adds to the objective of `brokers`, which carry `here`, if they take something
    between `low` and `high`; what they shed is below 0.

    It is convex and smooth in what they take, with one parabola up to the goal and another one above it. So the least
    is where one of them turns, or at the end that is nearest to it.
    """
    share = problem.share[brokers]
    over, away = (here - problem.goal[brokers]) / share, 2.0 * (here / share - 1.0)
    before = np.maximum(over, 0.0) ** 2
    above, below = -(2.0 * over + PULL * away) / (2.0 + 2.0 * PULL), -away / 2.0
    costs = [
        added_cost(np.clip(turn * share, low, high), share, over, before, away, problem.weight)
        for turn in (above, below)
    ]
    least: Floats = np.minimum(*costs)
    return least
