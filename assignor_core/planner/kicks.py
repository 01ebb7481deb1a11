"""A way on where the search is stuck: overload another broker on purpose and see whether that one can be relieved.

The search only takes what improves, so it stops in a local optimum. A heavy leadership may fit nowhere as things are,
yet fit once its taker has handed something on. A kick forces such a candidate onto a taker, pins it there, lets the
search relieve the taker (and no other broker that is stuck), and undoes all of it unless the whole gets better by a
tenth: iterated local search with an ejection chain for its perturbation (Glover, 1996), without randomness.

Invariants: the cluster's violation never grows; the number of tries is fixed beforehand, so the cost is too.
"""

from collections.abc import Callable, Iterator

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.annealing import PARTITIONS_MIN
from assignor_core.planner.candidates import Candidate, SearchState, led_partitions, shortlist, target_brokers
from assignor_core.planner.placement import Edit
from assignor_core.planner.problem import Problem
from assignor_core.planner.search import NOTICEABLE, Search

Limits = Callable[[], Problem]
"""The problem with limits that hold for the placement as it is."""

BROKERS_MAX = 16
"""Stuck brokers that are tried, most violated first."""
TRIES = 6
"""Candidates forced for each of them."""
CONSIDERED = 48
"""Replicas of a stuck broker from which they are chosen."""
REPLIES_MAX = 48
"""Candidates that may follow to make room; the forced one itself must stay."""
SUBSTANTIAL = 0.5
"""A forced candidate takes away at least this part of what is wrong with the broker."""
BETTER = 0.9
"""A try is kept if it leaves less than this part of the violation."""


def kick(search: Search, limits: Limits | None = None) -> Search:
    """Go through the stuck brokers once; returns the search with the limits that are in force then.

    A heavy partition raises the limits of the broker that holds it, so `limits` are asked for anew where it goes.

    Broker 1 leads 4 + 5, broker 2 leads 3 + 4. Whatever one hands over alone overloads the other, so the search stops.
    The kick hands 4 over all the same, and broker 2 hands 3 back: both lead 8.

    >>> state = state_of((1, 2), (2, 1), (2, 1), (1, 2), loads=(4.0, 3.0, 4.0, 5.0))
    >>> search = Search(state.problem, state.placement)
    >>> search.relieve()
    >>> search.journal
    []
    >>> search = kick(search)
    >>> search.placement.replicas[:, 0].tolist()
    [1, 0, 1, 0]
    """
    violation = search.violation()
    for broker in np.argsort(-violation, kind="stable")[:BROKERS_MAX]:
        if violation[broker] > NOTICEABLE:
            search = _kick_broker(search, int(broker), limits)
    return search


def _kick_broker(search: Search, broker: int, limits: Limits | None) -> Search:
    """Keep the first try that makes the whole better; undo the others."""
    violation = search.violation()
    before, others = float(violation.sum()), frozenset(np.flatnonzero(violation > NOTICEABLE).tolist()) - {broker}
    for candidate in _forced_candidates(search.state, broker, leaders_only=search.problem.policy.leaders_only):
        mark = len(search.journal)
        changed = search.apply(candidate)
        # With few partitions most brokers may be stuck, and no annealing follows. Then the taker is relieved even if it
        # was stuck itself.
        ignored = others - changed if len(search.placement.replicas) < PARTITIONS_MIN else others
        partition = candidate.edits[0].partition
        tried = search.under(limits()) if limits and _is_heavy(search.state, partition) else search
        tried.pinning(partition).relieve(REPLIES_MAX, exchanges=False, ignored=ignored)
        if float(tried.violation().sum()) < BETTER * before:
            return tried
        search.undo_to(mark)
    return search


def _is_heavy(state: SearchState, partition: int) -> bool:
    """Whether `partition` alone is more than any broker's fair share of some load."""
    problem = state.problem
    heavy = state.placement.leading[partition] > problem.share.max(axis=0)
    return bool((heavy & ~problem.arrays.columns.counts).any())


def _forced_candidates(state: SearchState, broker: int, *, leaders_only: bool) -> list[Candidate]:
    """Candidates that relieve `broker`, first those that do least harm elsewhere; their gain may be negative.

    To copy a heavy partition comes last: where its leadership alone can go, that is free.
    """
    relief_min = SUBSTANTIAL * float(state.problem.violation(state.placement.loads)[broker])
    candidates = [*_handovers(state, broker, relief_min)]
    if not leaders_only:
        candidates += _replica_moves(state, broker, relief_min)

    def copies_heavy(candidate: Candidate) -> bool:
        (edit,) = candidate.edits
        return edit.target != NO_BROKER and _is_heavy(state, edit.partition)

    return sorted(candidates, key=lambda one: (copies_heavy(one), -one.gain, one.edits))[:TRIES]


def _handovers(state: SearchState, broker: int, relief_min: float) -> Iterator[Candidate]:
    """Hand-overs of the leaderships that relieve most, to each follower that has the capacity."""
    problem, placement = state.problem, state.placement
    led = led_partitions(state, broker)
    shed = placement.leaderships(led)
    relief = problem.relief(placement.loads[broker], shed, broker)
    for index in np.argsort(-relief, kind="stable")[: 2 * TRIES]:
        for slot in range(1, placement.replicas.shape[1]):
            target = int(placement.replicas[led[index], slot])
            if target == NO_BROKER or not problem.may_lead[target] or relief[index] < relief_min:
                continue
            there = placement.loads[target]
            if not problem.may_rise_by(there, shed[index], target):
                continue
            burden = problem.burden(there, shed[index], target)
            gain = float(relief[index] - burden)
            yield Candidate((Edit(int(led[index]), slot, NO_BROKER),), gain, gain)


def _replica_moves(state: SearchState, broker: int, relief_min: float) -> Iterator[Candidate]:
    """For each replica of a shortlist the move to the broker that it harms least."""
    problem, placement, spending = state.problem, state.placement, state.spending
    (partitions, slots, loads), relief = shortlist(state, broker, CONSIDERED)
    targets = target_brokers(state)
    if not len(targets):
        return
    there = placement.loads[targets]
    burden = problem.burden(there, loads[:, None], targets)
    allowed = problem.allowed_targets(placement, partitions, broker, targets)
    allowed &= problem.with_room(placement, loads, targets)
    allowed &= spending.affordable(partitions, targets, spending.copied_bytes(partitions, broker, targets))
    gain = np.where(allowed & (relief >= relief_min)[:, None], relief[:, None] - burden, -np.inf)
    for row in range(len(partitions)):
        column = int(np.argmax(gain[row]))
        if gain[row, column] > -np.inf:
            edit = Edit(int(partitions[row]), int(slots[row]), int(targets[column]))
            yield Candidate((edit,), float(gain[row, column]), float(gain[row, column]))
