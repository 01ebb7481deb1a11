"""The best exchange of two replicas, for brokers that no single edit relieves any more.

Where every broker is near its limit, a replica fits only if another one leaves. An exchange gives a heavy replica away
and takes a lighter one back, so what counts is the difference of the two. It should be what the broker is above its
goal in the load that is furthest above: each replica given is paired with the few of each partner that are lighter by
about that much. Those that may gain enough (`promising`) are scored exactly, in all loads, like the single edits (see
`candidates`).

Why it comes last: it makes two movements and copies two replicas, and it is the most expensive to look for; see
`GAIN_PARTS` in `search` for what it must gain. The module proposes and never applies.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.candidates import (
    Candidate,
    Replicas,
    SearchState,
    movable_replicas,
    shortlist,
    target_brokers,
)
from assignor_core.planner.placement import Edit, Flags, Indices
from assignor_core.planner.promising import promising_exchanges

PARTNERS = 8
"""Brokers tried as partners, the emptiest in what is over the limit."""
GIVEN = 64
"""Replicas of the relieved broker that are tried."""
TAKEN = 8
"""Replicas of each partner that each of them is tried with."""


class Pairs(NamedTuple):
    """N pairs of a replica given and one taken back from a partner."""

    given: Replicas
    taken: Replicas
    partners: Indices

    @property
    def shed(self) -> Floats:
        """N x C what the broker is relieved of."""
        return self.given.loads - self.taken.loads

    def take(self, rows: Indices) -> "Pairs":
        """The pairs of these rows."""
        return Pairs(self.given.take(rows), self.taken.take(rows), self.partners[rows])


def best_exchange(state: SearchState, broker: int, gain_min: float) -> Candidate | None:
    """The best exchange of a replica of `broker` for a lesser one that gains more than `gain_min`.

    Broker 1 carries 5 + 3 and broker 2 carries 2 + 2. To give 5 for 2 gains no more than 3 for 2, and copies more:

    >>> best_exchange(state_of((1,), (1,), (2,), (2,), loads=(5.0, 3.0, 2.0, 2.0)), broker=0, gain_min=0.0).edits
    (Edit(partition=1, slot=0, target=1), Edit(partition=2, slot=0, target=0))
    """
    if not may_exchange(state, broker):
        return None
    return best_pair(state, broker, _pairs(state, broker, gain_min), gain_min)


def may_exchange(state: SearchState, broker: int) -> bool:
    """An exchange takes a replica from a partner and brings one here: targeted plans want neither."""
    policy = state.problem.policy
    return not (policy.only_brokers or policy.add or policy.leaders_only or not state.problem.may_take[broker])


def best_pair(state: SearchState, broker: int, pairs: Pairs | None, gain_min: float) -> Candidate | None:
    """The best of `pairs` as an exchange; None if none gains more than `gain_min` or all break a rule."""
    if pairs is None:
        return None
    pairs, gain = _gaining(state, broker, pairs, gain_min)
    score = _scores(state, broker, pairs, gain)
    if not np.isfinite(score).any():
        return None
    best = int(np.argmax(score))
    given, taken, partners = pairs
    edits = (
        Edit(int(given.partitions[best]), int(given.slots[best]), int(partners[best])),
        Edit(int(taken.partitions[best]), int(taken.slots[best]), broker),
    )
    return Candidate(edits, float(gain[best]), float(score[best]))


def _pairs(state: SearchState, broker: int, gain_min: float) -> Pairs | None:
    """Pairs worth scoring, ordered by partner; None if there is none."""
    problem, here = state.problem, state.placement.loads[broker]
    given, _ = shortlist(state, broker, GIVEN)
    excess = np.maximum(here - problem.goal[broker], 0.0)
    worst = int(np.argmax((excess / problem.share[broker]) ** 2 * problem.weight))
    wanted = given.loads[:, worst] - excess[worst]
    standing, pairs, looked_at = problem.standing(here, broker), [], 0
    for partner in _partners(state, broker):
        offered = movable_replicas(state, partner)
        rows, at = _nearest(wanted, offered.loads[:, worst], offered.partitions)
        looked_at += len(offered.partitions) + len(rows)
        rows, at = promising_exchanges(standing, given.loads, offered.loads, rows, at, gain_min)
        if len(rows):
            pairs.append(Pairs(given.take(rows), offered.take(at), np.full(len(rows), partner)))
    state.effort.look(looked_at)
    return joined(pairs)


def joined(pairs: list[Pairs]) -> Pairs | None:
    """All of `pairs` behind one another; None if there are none."""
    if not pairs:
        return None
    givens, takens, partners = zip(*pairs, strict=True)
    return Pairs(_joined(givens), _joined(takens), np.concatenate(partners))


def _joined(replicas: tuple[Replicas, ...]) -> Replicas:
    return Replicas(*(np.concatenate(arrays) for arrays in zip(*replicas, strict=True)))


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


def _nearest(wanted: Floats, offered: Floats, ids: Indices) -> tuple[Indices, Indices]:
    """Pairs (index in `wanted`, index in `offered`): for each one wanted the `TAKEN` offered ones around it.

    >>> _nearest(np.array([4.0]), np.arange(100.0), np.arange(100))[1].tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    order = np.lexsort((ids, offered))
    count = min(TAKEN, len(order))
    first = np.searchsorted(offered[order], wanted) - count // 2
    first = np.clip(first, 0, len(order) - count)
    at: Indices = order[(first[:, None] + np.arange(count)).ravel()]
    return np.repeat(np.arange(len(wanted)), count), at


def _gaining(state: SearchState, broker: int, pairs: Pairs, gain_min: float) -> tuple[Pairs, Floats]:
    """The pairs that gain more than `gain_min`, and their gains."""
    problem, loads = state.problem, state.placement.loads
    gain = problem.relief(loads[broker], pairs.shed, broker)
    # A burden is hardly ever below 0, and nearly all pairs relieve the broker too little.
    worth = np.flatnonzero(gain > gain_min)
    pairs, gain = pairs.take(worth), gain[worth]
    gain = gain - problem.burden(loads[pairs.partners], pairs.shed, pairs.partners)
    worth = np.flatnonzero(gain > gain_min)
    return pairs.take(worth), gain[worth]


def _scores(state: SearchState, broker: int, pairs: Pairs, gain: Floats) -> Floats:
    """N gain per price; minus infinity where a rule or a budget forbids the exchange."""
    spending = state.spending
    given, taken, partners = pairs
    brokers = np.full(len(partners), broker)
    going = spending.copied_bytes_by_pair(given.partitions, brokers, partners)
    coming = spending.copied_bytes_by_pair(taken.partitions, partners, brokers)
    able = _keeps_rules(state, broker, pairs)
    able &= spending.affordable_pairs(given.partitions, partners, going)
    able &= spending.affordable_pairs(taken.partitions, brokers, coming)
    able &= spending.affordable_together(given.partitions, taken.partitions, going, coming)
    price = spending.price(given.partitions, going[:, None]) + spending.price(taken.partitions, coming[:, None])
    return np.where(able, gain / price[:, 0], -np.inf)


def _keeps_rules(state: SearchState, broker: int, pairs: Pairs) -> Flags:
    """N: hard rules hold after the exchange.

    Racks and duplicates are judged for each side alone, capacity for what changes in all: either side alone might not
    fit, which is what an exchange is for.
    """
    problem, placement = state.problem, state.placement
    given, taken, partners = pairs
    here, there, shed = placement.loads[broker], placement.loads[partners], pairs.shed
    brokers = np.full(len(partners), broker)
    able = problem.is_rack_safe(placement, given.partitions, brokers, partners)
    able &= problem.is_rack_safe(placement, taken.partitions, partners, brokers)
    able &= (there + shed <= problem.ceiling[partners]).all(axis=1)
    # A broker that is above its capacity already may stay there, but never rise.
    able &= (here - shed <= np.maximum(problem.ceiling[broker], here)).all(axis=1)
    return able
