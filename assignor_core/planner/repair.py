"""Hard rules first: empties brokers that must end empty and spreads racks, at the least harm to balance.

Runs before the search and knows its objective only to choose among targets. What cannot be mended is said in words.
"""

import numpy as np

from assignor_core.load import NO_BROKER
from assignor_core.planner.candidates import Change
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Problem, weighted
from assignor_core.planner.search import Search
from assignor_core.resources import Resource

COPY_PRICE = 0.01
"""What a fair share of disk copied weighs against balance where a rack has to be mended."""
ROUNDING = 1e-9


def repair(search: Search) -> None:
    """Mend what breaks a hard rule, as far as the policy lets."""
    if search.problem.policy.leaders_only:
        return
    for broker in search.problem.leaving:
        _empty(search, int(broker))
    _spread_racks(search)


def _empty(search: Search, broker: int) -> None:
    """Heaviest first, so that the light ones fill what is left; one pass, each replica to its best target."""
    placement = search.placement
    held = placement.held_by(broker).copy()
    held = held[search.problem.movable[held]]
    # With too few brokers alive, none may take most of them: asking one by one would take seconds in each round.
    held = held[search.problem.hold_none(placement, held).any(axis=1)]
    weight = weighted(placement.loads_at(held, placement.slots_of(held, broker)), search.problem.weight)
    for partition in held[np.lexsort((held, -weight))]:
        change = _best_target(search, int(partition), broker, improving=False)
        if change:
            search.apply(change)


def _spread_racks(search: Search) -> None:
    """Each partition whose racks could be spread better moves a replica out of its fullest rack."""
    problem, placement = search.problem, search.placement
    for partition in np.flatnonzero(problem.crowded(placement) & problem.movable):
        for _ in range(placement.replicas.shape[1]):
            row = placement.replicas[partition]
            sources = [int(broker) for broker in row if broker != NO_BROKER and problem.gives[broker]]
            changes = [_best_target(search, int(partition), source, improving=True) for source in sources]
            best = max((change for change in changes if change), key=lambda change: change.score, default=None)
            if best is None:
                break
            search.apply(best)


def _best_target(search: Search, partition: int, source: int, *, improving: bool) -> Change | None:
    """The target that costs balance least; `improving` asks for a better rack spread, else as good as there is."""
    problem, placement = search.problem, search.placement
    one = np.array([partition])
    slots = placement.slots_of(one, source)
    loads = placement.loads_at(one, slots)
    everyone = np.arange(len(problem.takes))
    copies = search.ledger.copies(one, source, everyone)
    allowed = (problem.hold_none(placement, one) & problem.have_room(placement, loads))[0]
    allowed &= search.ledger.affordable(one, everyone, copies)[0]
    others = problem.rack_counts(placement.replicas[one], source)[0][problem.arrays.racks]
    if improving:
        allowed &= others < others[source]
    if not allowed.any():
        return None
    targets = np.flatnonzero(allowed & (others == others[allowed].min()))
    there = placement.loads[targets]
    harm = problem.cost(there + loads, targets) - problem.cost(there, targets)
    if problem.share[source].any():
        here = placement.loads[source]
        harm += problem.cost(here - loads[0], source) - problem.cost(here, source)
    harm += COPY_PRICE * search.ledger.in_shares(copies[0, targets])
    best = int(np.argmin(harm))
    return Change(((partition, int(slots[0]), int(targets[best])),), -float(harm[best]), -float(harm[best]))


def unmended(problem: Problem, placement: Placement) -> tuple[str, ...]:
    """Hard rules that are still broken, and what stands in the way."""
    arrays = problem.arrays
    found = []
    for broker in np.flatnonzero(~arrays.alive):
        left = len(placement.held_by(int(broker)))
        if left:
            state = "dead" if arrays.dead[broker] else "draining"
            found.append(f"broker {arrays.broker_ids[broker]} is {state} and keeps {left} replicas: {_why(problem)}")
    crowded = int(problem.crowded(placement).sum())
    if crowded:
        found.append(f"{crowded} partitions have more replicas in one rack than they need: {_why(problem)}")
    over = (placement.loads > problem.ceiling * (1 + ROUNDING)).any(axis=1) & arrays.alive
    if over.any():
        names = ", ".join(str(arrays.broker_ids[broker]) for broker in np.flatnonzero(over)[:5])
        found.append(f"{int(over.sum())} brokers are above their capacity (first: {names}): {_why(problem)}")
    return (*found, *_shortages(problem, placement)) if found else ()


def _shortages(problem: Problem, placement: Placement) -> list[str]:
    """What no placement mends: more load than capacity in all, or in one partition."""
    arrays = problem.arrays
    if not arrays.alive.any():
        return []
    lines = []
    for resource in Resource:
        columns = arrays.columns.of(resource)
        ceiling, word = problem.ceiling[arrays.alive][:, columns], resource.words
        if not np.isfinite(ceiling).all():
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
    if not problem.takes.any():
        return "no broker may take replicas"
    if any(budget is not None for budget in (policy.movements_max, policy.bytes_max, policy.inflow_max)):
        return "the budget does not suffice"
    if policy.only_brokers or policy.only_topics or policy.excluded_topics or policy.excluded_brokers or policy.add:
        return "the policy keeps them from moving, or capacity and racks leave no place"
    return "capacity, racks or too few alive brokers leave no place for them"
