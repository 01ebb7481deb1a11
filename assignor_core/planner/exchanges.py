"""The best exchange of two replicas, for brokers that no single edit relieves any more.

Where every broker is near its limit, a replica fits only if another one leaves. An exchange gives a heavy replica away
and takes a lighter one back. It is scored like the single edits (see `candidates`), every pair of a replica here and a
replica there, on a shortlist of each side and for a few partners.

Why it comes last: it makes two movements and copies two replicas, and it is the most expensive to look for; see
`EXCHANGE_FACTOR` in `search` for what it must gain. The module proposes and never applies.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.candidates import (
    Candidate,
    Replicas,
    SearchState,
    best_by_score,
    best_of_matrix,
    movable_replicas,
    shortlist,
    target_brokers,
)
from assignor_core.planner.placement import Edit, Flags
from assignor_core.planner.problem import lowest

PARTNERS = 6
"""Brokers tried as partners, the emptiest in what is over the limit."""
GIVEN = 24
"""Replicas of the relieved broker that are tried."""
TAKEN = 48
"""Replicas of each partner that are tried."""


def best_exchange(state: SearchState, broker: int, gain_min: float) -> Candidate | None:
    """The best exchange of a replica of `broker` for a lesser one that gains more than `gain_min`.

    Broker 1 carries 5 + 3 and broker 2 carries 2 + 2. To give 5 for 2 gains no more than 3 for 2, and copies more:

    >>> best_exchange(state_of((1,), (1,), (2,), (2,), loads=(5.0, 3.0, 2.0, 2.0)), broker=0, gain_min=0.0).edits
    (Edit(partition=1, slot=0, target=1), Edit(partition=2, slot=0, target=0))
    """
    policy = state.problem.policy
    # An exchange takes a replica from a partner and brings one here: targeted plans want neither.
    if policy.only_brokers or policy.add or not state.problem.may_take[broker]:
        return None
    given, _ = shortlist(state, broker, GIVEN)
    if len(given.partitions) == 0:
        return None
    return best_by_score(_best_with(state, broker, partner, given, gain_min) for partner in _partners(state, broker))


def _partners(state: SearchState, broker: int) -> list[int]:
    """Half from the broker's own rack, where racks never forbid the exchange; the rest from anywhere."""
    problem, placement = state.problem, state.placement
    others = target_brokers(state)
    others = others[problem.may_give[others] & (others != broker)]
    over = placement.loads[broker] > problem.goal[broker]
    fullness = (placement.loads[others] / problem.share[others])[:, over].max(axis=1, initial=0.0)
    order = others[np.lexsort((others, fullness))]
    is_near = problem.arrays.racks[order] == problem.arrays.racks[broker]
    return [*order[is_near][: PARTNERS // 2].tolist(), *order[~is_near][: PARTNERS // 2].tolist()]


def _best_with(state: SearchState, broker: int, partner: int, given: Replicas, gain_min: float) -> Candidate | None:
    """The best exchange with one partner."""
    problem, placement, spending = state.problem, state.placement, state.spending
    taken = _offered(state, broker, partner, given.loads)
    if len(taken.partitions) == 0:
        return None
    state.effort.look(len(placement.held_by(partner)) + len(given.partitions) * len(taken.partitions))
    here, there = placement.loads[broker], placement.loads[partner]
    shed = given.loads[:, None] - taken.loads[None]
    gain = problem.relief(here, shed, broker)
    gain -= problem.burden(there, shed, partner)
    gain[~_keeps_rules(state, given, taken, broker, partner)] = -np.inf
    to_partner, to_broker = np.array([partner]), np.array([broker])
    going = spending.copied_bytes(given.partitions, broker, to_partner)
    coming = spending.copied_bytes(taken.partitions, partner, to_broker)
    gain[~(spending.affordable(given.partitions, to_partner, going)[:, 0])] = -np.inf
    gain[:, ~(spending.affordable(taken.partitions, to_broker, coming)[:, 0])] = -np.inf
    gain[~spending.affordable_together(given.partitions, taken.partitions, going, coming)] = -np.inf
    price = spending.price(given.partitions, going) + spending.price(taken.partitions, coming)[:, 0]

    def edits(row: int, column: int) -> tuple[Edit, ...]:
        return (
            Edit(int(given.partitions[row]), int(given.slots[row]), partner),
            Edit(int(taken.partitions[column]), int(taken.slots[column]), broker),
        )

    return best_of_matrix(gain, gain / price, edits, gain_min)


def _offered(state: SearchState, broker: int, partner: int, given_loads: Floats) -> Replicas:
    """Replicas of `partner` whose coming hurts `broker` least and whose going makes most room for a typical one."""
    problem, placement = state.problem, state.placement
    replicas = movable_replicas(state, partner)
    if len(replicas.partitions) <= TAKEN:
        return replicas
    filled = placement.loads[partner] + np.median(given_loads, axis=0)
    relief = problem.relief(filled, replicas.loads, partner)
    here = placement.loads[broker]
    burden = problem.burden(here, replicas.loads, broker)
    return replicas.take(lowest(burden - relief, TAKEN))


def _keeps_rules(state: SearchState, given: Replicas, taken: Replicas, broker: int, partner: int) -> Flags:
    """N x M: hard rules hold after the exchange.

    Racks and duplicates are judged for each side alone, capacity for what changes in all: either side alone might not
    fit, which is what an exchange is for.
    """
    problem, placement = state.problem, state.placement
    able = problem.is_rack_safe(placement, given.partitions, broker, partner)[:, None]
    able = able & problem.is_rack_safe(placement, taken.partitions, partner, broker)
    shed = given.loads[:, None] - taken.loads[None]
    here, there = placement.loads[broker], placement.loads[partner]
    able &= (there + shed <= problem.ceiling[partner]).all(axis=2)
    # A broker that is above its capacity already may stay there, but never rise.
    able &= (here - shed <= np.maximum(problem.ceiling[broker], here)).all(axis=2)
    return able
