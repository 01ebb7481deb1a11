"""Hard rules first: empties brokers that must end empty and spreads racks, at the least harm to balance.

Repair goes before balance, since it must be done at any price and decides what room is left. It takes each replica that
breaks a rule once, heaviest first, and puts it where the objective grows least: greedy, one pass, no way back. The
search evens out what that leaves uneven, and repair runs again after it, as what moved may have made room.

Invariants: repair exceeds no capacity and no budget. It crowds a rack only if a broker can't be emptied otherwise. What
no target can mend stays as it is, and `obstacles` names it.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Edit, on_grid
from assignor_core.planner.problem import weighted
from assignor_core.planner.search import Search
from assignor_core.planner.to_any_rack import ToAnyRack

COPY_PRICE = 0.01
"""What a fair share of disk copied weighs against balance where a rack has to be mended."""


def repair(search: Search) -> None:
    """Mend what breaks a hard rule, as far as the policy lets.

    Brokers 1 and 2 stand in rack a and hold both replicas; one of them goes to broker 3 in rack b:

    >>> state = state_of((1, 2), racks="aab")
    >>> repair(Search(state.problem, state.placement))
    >>> state.placement.replicas.tolist()
    [[0, 2]]
    """
    if search.problem.policy.leaders_only:
        return
    for broker, partition in _leaving_replicas(search):
        move = _least_harmful_move(search, partition, broker, improving=False)
        if move:
            search.apply_edit(move.edit)
    _spread_racks(search)


def _leaving_replicas(search: Search) -> list[tuple[int, int]]:
    """(broker, partition) of the replicas that must leave and for which a broker could be found, in order.

    What dead brokers held comes first, partitions with the fewest replicas in sync before others: room may not suffice
    for all. Of a partition that has lost two replicas, the second counts as if the first were made. Then the draining
    brokers, one after the other. Among equals the heaviest goes first, so that the light ones fill what is left.
    """
    problem, placement = search.problem, search.placement
    made = np.zeros(len(problem.movable), dtype=np.int64)
    rows: list[Floats] = []
    for broker in problem.leaving:
        held = placement.held_by(int(broker))
        held = held[problem.movable[held]]
        # With too few brokers alive, none may take most of them: asking one by one would take seconds in each round.
        held = held[problem.new_holders(placement, held).any(axis=1)]
        weight = weighted(placement.loads_at(held, placement.slots_of(held, int(broker))), problem.weight)
        if problem.arrays.dead[broker]:
            turn = problem.arrays.in_sync[held] + made[held]
            made[held] += 1
        else:
            turn = np.full(len(held), problem.arrays.replicas.shape[1] + 1 + broker)
        rows.append(np.stack((turn, -weight, held, np.full(len(held), broker)), axis=1))
    if not rows:
        return []
    table = np.concatenate(rows)
    order = np.lexsort((table[:, 3], table[:, 2], table[:, 1], table[:, 0]))
    return [(int(broker), int(partition)) for partition, broker in table[order][:, 2:]]


def _spread_racks(search: Search) -> None:
    """Each partition whose racks could be spread better moves a replica out of its fullest rack."""
    problem, placement = search.problem, search.placement
    for partition in np.flatnonzero(problem.crowded(placement) & problem.movable):
        for _ in range(placement.replicas.shape[1]):
            row = placement.replicas[partition]
            # Followers first: of equals the first moves, and leadership stays.
            sources = [int(broker) for broker in row[::-1] if broker != NO_BROKER and problem.may_give[broker]]
            moves = (_least_harmful_move(search, int(partition), source, improving=True) for source in sources)
            best = min((move for move in moves if move), key=lambda move: move.harm, default=None)
            if best is None:
                break
            search.apply_edit(best.edit)


class _Move(NamedTuple):
    """A move that mends a rule."""

    edit: Edit
    harm: float
    """By how much it raises the objective."""


def _least_harmful_move(search: Search, partition: int, source: int, *, improving: bool) -> _Move | None:
    """The move away from `source` that harms balance least, among the targets whose racks hold fewest other replicas.

    `improving` asks for a rack that holds fewer than that of `source`; else the best there is will do, even if it is
    worse: a broker must be emptied also where its whole rack leaves.
    """
    problem, placement = search.problem, search.placement
    one = np.array([partition])
    slots = placement.slots_of(one, source)
    loads = placement.loads_at(one, slots)
    everyone = np.arange(len(problem.may_take))
    others = problem.rack_counts(placement.replicas[one], source)[0][problem.arrays.racks]
    allowed = problem.new_holders(placement, one)[0]
    if improving:
        allowed &= others < others[source]
    if not allowed.any():
        return None
    copied = search.spending.copied_bytes(one, source, everyone)
    is_bound = placement.in_racks is not None and placement.in_racks.is_bound[partition]
    served = ToAnyRack(problem, placement, partition, int(slots[0])) if is_bound else None
    allowed &= problem.with_room(placement, loads, everyone)[0] if served is None else served.with_room()
    allowed &= search.spending.affordable(one, everyone, copied)[0]
    if not allowed.any():
        return None
    targets = np.flatnonzero(allowed & (others == others[allowed].min()))
    taken = loads if served is None else served.taken[targets]
    there = placement.loads[targets]
    harm = problem.cost(there + taken, targets) - problem.cost(there, targets)
    if served is not None:
        harm += served.harm_to_others(targets)
    # A source that must end empty has no objective of its own: what it loses is no gain.
    if problem.share[source].any():
        here = placement.loads[source]
        harm += problem.cost(here - loads[0], source) - problem.cost(here, source)
    harm += COPY_PRICE * search.spending.in_fair_shares(copied[0, targets])
    # What rounding alone makes different counts as equal.
    harm = on_grid(harm)
    best = int(np.argmin(harm))
    return _Move(Edit(partition, int(slots[0]), int(targets[best])), float(harm[best]))
