"""The last phase, for small clusters: if a few movements more make every load exactly even, make them.

Within the band nothing has to move. But where loads come in equal units, as in a demo or a test, exact evenness may be
one movement away, and stopping short of it would puzzle whoever looks. So the phase sets the limit to the fair share
itself, drops the price, and takes what gains most.

Invariant: all or nothing. Unless the loads end exactly even within `MOVEMENTS_MAX`, every edit is undone.
"""

from dataclasses import replace

import numpy as np

from assignor_core.planner.candidates import Candidate
from assignor_core.planner.handovers import Handovers
from assignor_core.planner.moves import ReplicaMoves
from assignor_core.planner.search import Search

MOVEMENTS_MAX = 8
"""Most movements that the phase adds to a plan whose loads are within the band, to make them exactly even."""
EVEN = 1e-7
"""Shares that differ by less are even: loads are rounded to a grid."""
WORTH = 1e-3
"""Nobody moves anything for less than this fraction of a fair share."""


def finish(search: Search) -> None:
    """Up to `MOVEMENTS_MAX` movements that end exactly even in all loads; none if that can't be reached.

    Broker 1 carries 50 + 1 and broker 2 carries 49: within the band, and one movement from even.

    >>> state = state_of((1,), (1,), (2,), loads=(50.0, 1.0, 49.0))
    >>> search = Search(state.problem, state.placement)
    >>> search.relieve()
    >>> search.journal
    []
    >>> finish(search)
    >>> search.placement.replicas[:, 0].tolist()
    [0, 1, 1]
    """
    problem, placement = search.problem, search.placement
    counted = problem.arrays.columns.counts
    loads = placement.loads[problem.may_take][:, ~counted] / problem.share[problem.may_take][:, ~counted]
    if loads.max(initial=1.0) <= 1 + WORTH:
        return
    even = np.minimum(problem.share, problem.ceiling)
    limit, goal = (np.where(counted, line, even) for line in (problem.limit, problem.goal))
    exact = search.under(replace(problem, limit=limit, goal=goal))
    allowed, mark = search.spending.movements + MOVEMENTS_MAX, len(search.journal)
    for _ in range(2 * MOVEMENTS_MAX):
        violation = exact.violation()
        worst = int(np.argmax(violation))
        if violation[worst] <= EVEN**2:
            # Brokers that may not give count, too: what those that may give shed must not lie on them.
            if float(exact.problem.violation(placement.loads).max()) <= EVEN**2:
                return
            break
        candidate = _largest_gain(exact, worst)
        if candidate is None:
            break
        exact.apply(candidate)
        if search.spending.movements > allowed:
            break
    exact.undo_to(mark)


def _largest_gain(search: Search, broker: int) -> Candidate | None:
    """What gains most, whatever it costs: movements are limited by number, and have to be few."""
    kinds = (Handovers,) if search.problem.policy.leaders_only else (Handovers, ReplicaMoves)
    candidates = [kind(search.state, broker).best(0.0) for kind in kinds]
    return max((one for one in candidates if one), key=lambda candidate: candidate.gain, default=None)
