"""The best exchange of two replicas, for brokers that no single change relieves any more.

Where everybody is near the limit a replica only fits if another one leaves. Scored like the single changes, on a
shortlist of each side. Proposes, never applies.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.candidates import Change, Scene, best_of, emptiest, shortlist
from assignor_core.planner.placement import Indices
from assignor_core.planner.problem import lowest

PARTNERS = 6
"""Brokers tried as partners, the emptiest in what is over the limit."""
GIVEN = 24
"""Replicas of the relieved broker that are tried."""
TAKEN = 48
"""Replicas of each partner that are tried."""


def best_swap(scene: Scene, broker: int, least: float) -> Change | None:
    """The best exchange of a replica of `broker` for a lesser one that gains more than `least`."""
    if scene.problem.policy.only_brokers or scene.problem.policy.add or not scene.problem.takes[broker]:
        return None
    given = shortlist(scene, broker, GIVEN)
    if len(given[0]) == 0:
        return None
    found = [_with_partner(scene, broker, partner, given, least) for partner in _partners(scene, broker)]
    return max((change for change in found if change), key=lambda change: change.score, default=None)


def _partners(scene: Scene, broker: int) -> list[int]:
    """Half from the broker's own rack, where racks never forbid the exchange; the rest from anywhere."""
    problem, placement = scene.problem, scene.placement
    candidates = emptiest(scene)
    candidates = candidates[problem.gives[candidates] & (candidates != broker)]
    over = placement.loads[broker] > problem.limit[broker]
    fullness = (placement.loads[candidates] / problem.share[candidates])[:, over].max(axis=1, initial=0.0)
    order = candidates[np.lexsort((candidates, fullness))]
    near = problem.arrays.racks[order] == problem.arrays.racks[broker]
    return [*order[near][: PARTNERS // 2].tolist(), *order[~near][: PARTNERS // 2].tolist()]


def _with_partner(
    scene: Scene, broker: int, partner: int, given: tuple[Indices, Indices, Floats, Floats], least: float
) -> Change | None:
    problem, placement, ledger = scene.problem, scene.placement, scene.ledger
    mine, my_slots, my_loads, _ = given
    theirs, their_slots, their_loads = _offered(scene, broker, partner, my_loads)
    if len(theirs) == 0:
        return None
    here, there = placement.loads[broker], placement.loads[partner]
    change = my_loads[:, None] - their_loads[None]
    gain = problem.cost(here, broker) - problem.cost(here - change, broker)
    gain += problem.cost(there, partner) - problem.cost(there + change, partner)
    gain[~_fits(scene, (mine, my_loads), (theirs, their_loads), broker, partner)] = -np.inf
    going = ledger.copies(mine, broker, np.array([partner]))
    coming = ledger.copies(theirs, partner, np.array([broker]))
    gain[~(ledger.affordable(mine, np.array([partner]), going)[:, 0])] = -np.inf
    gain[:, ~(ledger.affordable(theirs, np.array([broker]), coming)[:, 0])] = -np.inf
    gain[~ledger.affordable_together(mine, theirs, going, coming)] = -np.inf
    price = ledger.price(mine, going) + ledger.price(theirs, coming)[:, 0]

    def steps(row: int, column: int) -> tuple[tuple[int, int, int], ...]:
        return (
            (int(mine[row]), int(my_slots[row]), partner),
            (int(theirs[column]), int(their_slots[column]), broker),
        )

    return best_of(gain, gain / price, steps, least)


def _offered(scene: Scene, broker: int, partner: int, my_loads: Floats) -> tuple[Indices, Indices, Floats]:
    """Replicas of `partner` whose coming hurts `broker` least and whose going makes most room."""
    problem, placement = scene.problem, scene.placement
    held = placement.held_by(partner)
    held = held[problem.movable[held]]
    slots = placement.slots_of(held, partner)
    loads = placement.loads_at(held, slots)
    if len(held) > TAKEN:
        room = placement.loads[partner] + np.median(my_loads, axis=0)
        relief = problem.cost(room, partner) - problem.cost(room - loads, partner)
        burden = problem.cost(placement.loads[broker] + loads, broker) - problem.cost(placement.loads[broker], broker)
        best = lowest(burden - relief, TAKEN)
        held, slots, loads = held[best], slots[best], loads[best]
    return held, slots, loads


def _fits(
    scene: Scene, mine: tuple[Indices, Floats], theirs: tuple[Indices, Floats], broker: int, partner: int
) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """N x M: hard rules hold after the exchange; capacity of the net change, racks and duplicates of each side."""
    problem, placement = scene.problem, scene.placement
    able = problem.may_hold(placement, mine[0], broker)[:, partner][:, None]
    able = able & problem.may_hold(placement, theirs[0], partner)[:, broker][None, :]
    change = mine[1][:, None] - theirs[1][None]
    able &= (placement.loads[partner] + change <= problem.ceiling[partner]).all(axis=2)
    able &= (placement.loads[broker] - change <= np.maximum(problem.ceiling[broker], placement.loads[broker])).all(
        axis=2
    )
    return able
