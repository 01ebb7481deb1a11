"""Takes back what the plan no longer needs: what moved later may have made room where a partition was at first.

The search relieves brokers one after the other and does not look back. So a plan may hold hand-overs and moves without
which every broker is within its limits as well. What copies most is taken back first.

Invariants: no broker rises above its limit, or at all if it is above it. What a hard rule asked for stays: nothing goes
back to a broker that must end empty, and no rack becomes more crowded.
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.placement import Flags, Indices, Placement
from assignor_core.planner.problem import Problem
from assignor_core.planner.search import Search
from assignor_core.planner.waves import pending_movement

PASSES_MAX = 16
"""Passes over all changed partitions; most plans need two."""


def prune(search: Search) -> None:
    """Put partitions back to where they were at first, one by one, where that keeps limits and hard rules.

    Broker 1 carries 50 + 1 and broker 2 carries 49, which is within the band. That 1 has moved is of no use:

    >>> state = state_of((1,), (1,), (2,), loads=(50.0, 1.0, 49.0))
    >>> search = Search(state.problem, state.placement)
    >>> search.spending.record(1, -1), search.placement.move(1, 0, 1), search.spending.record(1, +1)
    (None, None, None)
    >>> prune(search)
    >>> search.placement.replicas[:, 0].tolist(), search.spending.movements
    ([0, 0, 1], 0)
    """
    for _ in range(PASSES_MAX):
        if not _restored(search):
            return


def _restored(search: Search) -> int:
    """Go through the changed partitions once: how many went back. What went back may have made room for others."""
    problem, placement = search.problem, search.placement
    changed = placement.changed()
    changed = changed[_may_return(problem, placement, changed)]
    copied = placement.copies(changed) * placement.disk_bytes[changed]
    count = 0
    for partition in changed[np.lexsort((changed, -copied))]:
        movement = pending_movement(placement, int(partition))
        here = placement.loads[movement.brokers]
        if (here - movement.change <= np.maximum(problem.limit[movement.brokers], here)).all():
            search.restore(int(partition))
            count += 1
    return count


def _may_return(problem: Problem, placement: Placement, changed: Indices) -> Flags:
    """N: hard rules allow each of `changed` its original replicas, whose brokers have room as things are."""
    old, new, loads = placement.original[changed], placement.replicas[changed], placement.loads
    leading, following = placement.leading[changed], placement.following[changed]
    line = np.maximum(problem.limit, loads)
    able: Flags = problem.crowding(old) <= problem.crowding(new)
    for slot in range(old.shape[1]):
        brokers = old[:, slot]
        is_back = (brokers != NO_BROKER) & (new != brokers[:, None]).all(axis=1)
        rise = np.where(is_back[:, None], leading if slot == 0 else following, 0.0)
        if slot == 0:
            leads_again = ~is_back & (new[:, 0] != brokers)
            rise = np.where(leads_again[:, None], leading - following, rise)
            is_back |= leads_again
        able &= problem.arrays.alive[brokers] | ~is_back
        able &= (loads[brokers] + rise <= line[brokers]).all(axis=1)
    return able
