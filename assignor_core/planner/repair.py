"""Hard rules first: empties brokers that must end empty and spreads racks, at the least harm to balance.

Repair goes before balance, since it must be done at any price and decides what room is left. It takes each replica that
breaks a rule once, heaviest first, and puts it where the objective grows least: greedy, one pass, no way back. The
search evens out what that leaves uneven, and repair runs again after it, as what moved may have made room.

Invariants: repair exceeds no capacity and no budget. It crowds a rack only if a broker can't be emptied otherwise. What
no target can mend stays as it is, and `unmet_rules` reports it in words.
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.candidates import Candidate, best_by_score
from assignor_core.planner.placement import Edit, Placement
from assignor_core.planner.problem import Problem, weighted
from assignor_core.planner.search import Search
from assignor_core.resources import LOADS

COPY_PRICE = 0.01
"""What a fair share of disk copied weighs against balance where a rack has to be mended."""
ROUNDING = 1e-9


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
    for broker in search.problem.leaving:
        _empty_broker(search, int(broker))
    _spread_racks(search)


def _empty_broker(search: Search, broker: int) -> None:
    """Heaviest first, so that the light ones fill what is left; one pass, each replica to its best target."""
    placement = search.placement
    held = placement.held_by(broker).copy()
    held = held[search.problem.movable[held]]
    # With too few brokers alive, none may take most of them: asking one by one would take seconds in each round.
    held = held[search.problem.new_holders(placement, held).any(axis=1)]
    weight = weighted(placement.loads_at(held, placement.slots_of(held, broker)), search.problem.weight)
    for partition in held[np.lexsort((held, -weight))]:
        candidate = _least_harmful_move(search, int(partition), broker, improving=False)
        if candidate:
            search.apply(candidate)


def _spread_racks(search: Search) -> None:
    """Each partition whose racks could be spread better moves a replica out of its fullest rack."""
    problem, placement = search.problem, search.placement
    for partition in np.flatnonzero(problem.crowded(placement) & problem.movable):
        for _ in range(placement.replicas.shape[1]):
            row = placement.replicas[partition]
            sources = [int(broker) for broker in row if broker != NO_BROKER and problem.may_give[broker]]
            best = best_by_score(
                _least_harmful_move(search, int(partition), source, improving=True) for source in sources
            )
            if best is None:
                break
            search.apply(best)


def _least_harmful_move(search: Search, partition: int, source: int, *, improving: bool) -> Candidate | None:
    """The move away from `source` that harms balance least, among the targets whose racks hold fewest other replicas.

    `improving` asks for a rack that holds fewer than that of `source`; else the best there is will do, even if it is
    worse: a broker must be emptied also where its whole rack leaves.
    """
    problem, placement = search.problem, search.placement
    one = np.array([partition])
    slots = placement.slots_of(one, source)
    loads = placement.loads_at(one, slots)
    everyone = np.arange(len(problem.may_take))
    copied = search.spending.copied_bytes(one, source, everyone)
    allowed = (problem.new_holders(placement, one) & problem.with_room(placement, loads))[0]
    allowed &= search.spending.affordable(one, everyone, copied)[0]
    others = problem.rack_counts(placement.replicas[one], source)[0][problem.arrays.racks]
    if improving:
        allowed &= others < others[source]
    if not allowed.any():
        return None
    targets = np.flatnonzero(allowed & (others == others[allowed].min()))
    there = placement.loads[targets]
    harm = problem.cost(there + loads, targets) - problem.cost(there, targets)
    # A source that must end empty has no objective of its own: what it loses is no gain.
    if problem.share[source].any():
        here = placement.loads[source]
        harm += problem.cost(here - loads[0], source) - problem.cost(here, source)
    harm += COPY_PRICE * search.spending.in_fair_shares(copied[0, targets])
    best = int(np.argmin(harm))
    return Candidate((Edit(partition, int(slots[0]), int(targets[best])),), -float(harm[best]), -float(harm[best]))


def unmet_rules(problem: Problem, placement: Placement) -> tuple[str, ...]:
    """Hard rules that `placement` does not keep, and what stands in the way: one line each."""
    arrays = problem.arrays
    lines = []
    for broker in np.flatnonzero(~arrays.alive):
        left = len(placement.held_by(int(broker)))
        if left:
            state = "dead" if arrays.dead[broker] else "draining"
            lines.append(f"broker {arrays.broker_ids[broker]} is {state} and keeps {left} replicas: {_why(problem)}")
    crowded = int(problem.crowded(placement).sum())
    if crowded:
        lines.append(f"{crowded} partitions have more replicas in one rack than they need: {_why(problem)}")
    over = (placement.loads > problem.ceiling * (1 + ROUNDING)).any(axis=1) & arrays.alive
    if over.any():
        names = ", ".join(str(arrays.broker_ids[broker]) for broker in np.flatnonzero(over)[:5])
        lines.append(f"{int(over.sum())} brokers are above their capacity (first: {names}): {_why(problem)}")
    return (*lines, *_shortages(problem, placement)) if lines else ()


def _shortages(problem: Problem, placement: Placement) -> list[str]:
    """What no placement mends: more load than capacity, of the whole cluster or of one partition."""
    arrays = problem.arrays
    if not arrays.alive.any():
        return []
    lines = []
    for resource in LOADS:
        columns = arrays.columns.of(resource)
        ceiling, word = problem.ceiling[arrays.alive][:, columns], resource.words
        if not columns.size or not np.isfinite(ceiling).all():  # not planned on, or without a limit
            continue
        needed = float((placement.loads[:, columns].sum(axis=0) / ceiling.sum(axis=0)).max())
        if needed > 1 + ROUNDING:
            lines.append(f"{word} needs {needed:.2f} x what all alive brokers can carry: add brokers")
        parts = (placement.leading[:, columns] / ceiling.max(axis=0)).max(axis=1)
        heaviest = int(np.argmax(parts))
        if parts[heaviest] > 1 + ROUNDING:
            name = f"{arrays.partitions[heaviest].topic}-{arrays.partitions[heaviest].partition}"
            lines.append(
                f"{name} alone needs {parts[heaviest]:.2f} x what the largest broker carries in {word}: split it"
            )
    return lines


def _why(problem: Problem) -> str:
    policy = problem.policy
    if policy.leaders_only:
        return "the policy allows leadership changes only"
    if not problem.may_take.any():
        return "no broker may take replicas"
    if any(budget is not None for budget in (policy.movements_max, policy.bytes_max, policy.inflow_max)):
        return "the budget does not suffice"
    if policy.only_brokers or policy.only_topics or policy.excluded_topics or policy.excluded_brokers or policy.add:
        return "the policy keeps them from moving, or capacity and racks leave no place"
    return "capacity, racks or too few alive brokers leave no place for them"
