"""Exchanges of any two replicas between two brokers, for brokers that nothing else relieves.

`exchanges` pairs replicas by the one load that is furthest above its goal. Where loads go apart that misses most of
what helps: a broker with too much disk and its full share of the network wants to give a replica that is kept long, and
to take one back with the same rate that is kept for less. So all pairs of the broker's replicas and a partner's are
scored exactly, in all loads. That costs a hundred times as much, so it comes when all else is stuck.

Invariants: the phase gains much, or changes nothing; the pairs that it scores are limited by number.
"""

import numpy as np

from assignor_core.planner.candidates import Candidate, Replicas, SearchState, movable_replicas
from assignor_core.planner.exchanges import Pairs, best_pair, joined, may_exchange
from assignor_core.planner.problem import lowest
from assignor_core.planner.search import NOTICEABLE, Pace, Search

PARTNERS = 8
"""Brokers tried as partners, those with most room in what is over the goal."""
SIDE_MAX = 96
"""Replicas of either broker that are paired: of more the heaviest."""
KEPT = 64
"""Pairs of each partner whose rules and prices are looked at."""
GAIN_MIN = 0.01
"""An exchange must mend this part of what is wrong with the broker."""
PACE_EDITS = 16
"""So many exchanges must get the cluster on (`Pace`), or the phase ends."""
EFFORT_PART = 0.05
"""Most of the search's effort that one phase may use."""
WORTH = 0.7
"""The phase is kept if it leaves less than this part of the violation: exchanges copy twice."""


def exchange_widely(search: Search) -> bool:
    """Relieve the worst brokers by exchanges of any two replicas; whether that was worth it, else all is undone.

    Broker 1 carries 5 + 4 and broker 2 carries 4 + 3. To give 4 for 3 makes them even, and copies less than 5 for 4:

    >>> state = state_of((1,), (1,), (2,), (2,), loads=(5.0, 4.0, 4.0, 3.0))
    >>> exchange_widely(Search(state.problem, state.placement)), state.placement.replicas[:, 0].tolist()
    (True, [0, 1, 1, 0])
    """
    before, mark = float(search.violation().sum()), len(search.journal)
    if before <= NOTICEABLE:
        return False
    _exchange(search)
    if float(search.violation().sum()) < WORTH * before:
        return True
    search.undo_to(mark)
    return False


def _exchange(search: Search) -> None:
    """Until nothing is violated, no exchange helps, or the phase has used its part of the effort."""
    stuck: set[int] = set()
    pace, applied = Pace(PACE_EDITS), 0
    candidates_max = search.effort.candidates + int(EFFORT_PART * search.effort.candidates_max)
    while search.effort.candidates < candidates_max and not search.effort.is_spent:
        violation = search.violation()
        violation[sorted(stuck)] = 0.0
        worst = int(np.argmax(violation))
        if violation[worst] <= NOTICEABLE or pace.has_stalled(applied, float(violation.sum())):
            return
        candidate = _best(search, worst, GAIN_MIN * float(violation[worst]))
        if candidate is None:
            stuck.add(worst)
            continue
        stuck -= search.apply(candidate)
        applied += 1


def _best(search: Search, broker: int, gain_min: float) -> Candidate | None:
    """The best exchange of `broker` with any of its partners that gains more than `gain_min`."""
    state = search.state
    problem, placement = state.problem, state.placement
    if not may_exchange(state, broker):
        return None
    given = _most(state, movable_replicas(state, broker), broker)
    here = placement.loads[broker]
    found: list[Pairs] = []
    for partner in _partners(search, broker):
        offered = _most(state, movable_replicas(state, partner), partner)
        count = len(offered.partitions)
        state.effort.look(len(given.partitions) * count)
        shed = given.loads[:, None, :] - offered.loads[None, :, :]
        relief = problem.relief(here, shed, broker).ravel()
        # A burden is hardly ever below 0, and most pairs relieve the broker too little.
        worth = np.flatnonzero(relief > gain_min)
        rows, at = np.divmod(worth, max(1, count))
        gain = relief[worth] - problem.burden(placement.loads[partner], shed[rows, at], partner)
        best = lowest(-gain, KEPT)
        best = best[gain[best] > gain_min]
        if len(best):
            found.append(Pairs(given.take(rows[best]), offered.take(at[best]), np.full(len(best), partner)))
    return best_pair(state, broker, joined(found), gain_min)


def _most(state: SearchState, replicas: Replicas, broker: int) -> Replicas:
    """The heaviest of `replicas`, each by the load of which it takes most of what `broker` should carry."""
    if len(replicas.partitions) <= SIDE_MAX:
        return replicas
    share = np.where(state.problem.share[broker] > 0, state.problem.share[broker], 1.0)
    size = (replicas.loads / share)[:, ~state.problem.arrays.columns.counts].max(axis=1)
    return replicas.take(lowest(-size, SIDE_MAX))


def _partners(search: Search, broker: int) -> list[int]:
    """Half from the broker's own rack, where racks never forbid the exchange; the rest from anywhere."""
    problem, placement = search.problem, search.placement
    others = np.flatnonzero(problem.may_take & problem.may_give)
    others = others[others != broker]
    over = placement.loads[broker] > problem.goal[broker]
    fullness = ((placement.loads[others] - problem.goal[others]) / problem.share[others])[:, over].max(
        axis=1, initial=-np.inf
    )
    order = others[np.lexsort((others, fullness))]
    is_near = problem.arrays.racks[order] == problem.arrays.racks[broker]
    return [*order[is_near][: PARTNERS // 2].tolist(), *order[~is_near][: PARTNERS // 2].tolist()]
