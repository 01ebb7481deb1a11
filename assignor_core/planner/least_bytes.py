"""What any plan must copy that does as well as this one: a figure that is proven, by prices.

A plan does as well if it leaves no broker above its band, or no fuller than this plan leaves it. It empties the same
brokers, spreads the same partitions over racks, and has the same ones in their sets of brokers. Prices of loads on
brokers prove what such a plan copies at least (`dual`). The steps to good prices end where hardly anything is left to
prove.

Not looked at: budgets, room on disks, and how many leaders and replicas brokers should have. Without these rules plans
could copy less, so the figure holds with them. Nothing moves here.
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.dual import DualQuestion, priced_columns, prove, rows_of
from assignor_core.planner.problem import Search
from assignor_core.resources import Resource

LOOKS_MAX = 800_000_000
"""Looks at a load of a pair of a partition and a broker, all steps together: about a second."""
STEPS_MAX = 600
"""Most steps."""
NEAR = 0.99
"""The search for better prices ends once this share of what the plan copies is proven to be needed."""


def least_bytes(search: Search) -> float:
    """Bytes that any placement copies that does as well as that of `search`, to six digits; at most what this copies.

    Broker 1 holds four partitions alike. It may keep its share, which is two, and 3 % more:

    >>> state = state_of((1,), (1,), (1,), (1,))
    >>> state.placement.take(np.array([[1], [1], [0], [0]]))
    >>> round(float(least_bytes(state) / state.placement.disk_bytes[0]), 3)
    1.94
    """
    placement = search.placement
    copied = float(placement.inflow().sum())
    whole = float((placement.disk_bytes * (placement.original != NO_BROKER).sum(axis=1)).sum())
    if copied <= 0.0:
        return 0.0
    question = _question(search, whole)
    steps = min(STEPS_MAX, LOOKS_MAX // max(1, len(question.rows.original) * question.most.size))
    proven = prove(question, steps, NEAR * (copied / whole)).part * whole
    return min(copied, float(f"{proven:.6g}"))


def _question(search: Search, whole: float) -> DualQuestion:
    """What loads may be, and the prices to begin with."""
    problem, placement = search.problem, search.placement
    columns, some = problem.arrays.columns, priced_columns(problem, placement)
    bands = np.array([problem.policy.band_of(resource) for resource in columns.resources])
    most = np.maximum(np.minimum(problem.share * (1.0 + bands), problem.ceiling), placement.loads)
    share = problem.share[:, some]
    # What is above on disk must be copied, and all of it.
    prices = np.zeros_like(most)
    disk = columns.of(Resource.DISK)
    prices[:, disk] = placement.original_loads[:, disk] > most[:, disk]
    rows = rows_of(problem, placement, some, whole)
    return DualQuestion(rows, most[:, some], np.where(share > 0, share, 1.0), prices[:, some])
