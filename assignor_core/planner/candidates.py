"""The best single change that relieves one broker: leadership, a replica, or a swap of two replicas.

Changes are scored by what they gain per what they cost, as matrices; nothing is re-evaluated as a whole. The module
proposes and never applies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.ledger import Ledger
from assignor_core.planner.placement import Indices, Placement
from assignor_core.planner.problem import Problem, lowest

SHORTLIST = 32
"""Replicas of a broker whose targets are scored exactly."""
SHORTLIST_WIDE = 8 * SHORTLIST
"""The same where none of those fits anywhere."""
TARGETS_MAX = 256
"""Brokers that are scored as targets; of more, the emptiest of each rack."""

Step = tuple[int, int, int]
"""Partition, slot, broker that takes the replica of that slot; NO_BROKER: the slot becomes leader instead."""


@dataclass(frozen=True, slots=True)
class Change:
    """Steps in order, what they gain together, and that per price."""

    steps: tuple[Step, ...]
    gain: float
    score: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What a finder looks at."""

    problem: Problem
    placement: Placement
    ledger: Ledger


def best_leader_change(scene: Scene, broker: int, least: float) -> Change | None:
    """The best hand-over of a leadership of `broker` to a follower that gains more than `least`; copies nothing."""
    problem, placement = scene.problem, scene.placement
    held = placement.held_by(broker)
    led = held[(placement.replicas[held, 0] == broker) & problem.movable[held] & scene.ledger.may_touch(held)]
    if len(led) == 0 or placement.replicas.shape[1] == 1:
        return None
    change = placement.leading[led] - placement.following[led]
    here = placement.loads[broker]
    relief = problem.cost(here, broker) - problem.cost(here - change, broker)
    worth = np.flatnonzero(relief > least)
    led, change, relief = led[worth], change[worth], relief[worth]
    followers = placement.replicas[led, 1:]
    able = (followers != NO_BROKER) & problem.takes_leaders[followers]
    targets = np.where(able, followers, broker)
    there = placement.loads[targets]
    after = there + change[:, None, :]
    able &= (after <= problem.ceiling[targets]).all(axis=2)
    burden = problem.cost(after, targets) - problem.cost(there, targets)
    gain = np.where(able, relief[:, None] - burden, -np.inf)
    covered = problem.coverage(here, change, broker)[:, None] - burden
    score = np.where(gain > least, covered, -np.inf) / scene.ledger.movement_price(led)[:, None]
    return best_of(gain, score, lambda row, slot: ((int(led[row]), slot + 1, NO_BROKER),), least)


def best_move(scene: Scene, broker: int, least: float, shortlisted: int = SHORTLIST) -> Change | None:
    """The best transfer of one replica of `broker` to another broker that gains more than `least`."""
    problem, placement, ledger = scene.problem, scene.placement, scene.ledger
    chosen, slots, loads, relief = shortlist(scene, broker, shortlisted)
    if len(chosen) == 0:
        return None
    targets = emptiest(scene)
    there = placement.loads[targets]
    burden = problem.cost(there[None] + loads[:, None], targets) - problem.cost(there, targets)
    copies = ledger.copies(chosen, broker, targets)
    allowed = problem.targets(placement, chosen, broker, loads)[:, targets]
    allowed &= ledger.affordable(chosen, targets, copies)
    gain = np.where(allowed, relief[:, None] - burden, -np.inf)
    covered = problem.coverage(placement.loads[broker], loads, broker)[:, None] - burden
    score = np.where(gain > least, covered, -np.inf) / ledger.price(chosen, copies)
    return best_of(gain, score, lambda row, at: ((int(chosen[row]), int(slots[row]), int(targets[at])),), least)


def emptiest(scene: Scene) -> Indices:
    """Brokers worth scoring as targets: all that may take, or those of each rack that have most room."""
    problem, placement = scene.problem, scene.placement
    takes = np.flatnonzero(problem.takes)
    if len(takes) <= TARGETS_MAX:
        return takes
    loads = placement.loads
    # Signed: what is nearest to its limit counts, not the largest, or replica counts would hide who has room for load.
    nearest = ((loads[takes] - problem.limit[takes]) / problem.share[takes]).max(axis=1)
    cost = problem.violation(loads)[takes] + nearest
    order = takes[np.lexsort((takes, cost))]
    racks = problem.arrays.racks[order]
    by_rack = np.argsort(racks, kind="stable")
    starts = np.searchsorted(racks[by_rack], racks)
    place = np.empty(len(order), dtype=np.int64)
    place[by_rack] = np.arange(len(order))
    rank = place - starts
    chosen: Indices = np.sort(order[rank < max(4, TARGETS_MAX // (int(racks.max()) + 1))])
    return chosen


def shortlist(scene: Scene, broker: int, count: int) -> tuple[Indices, Indices, Floats, Floats]:
    """The replicas of `broker` that relieve it most for their price: partitions, slots, loads, relief."""
    problem, placement, ledger = scene.problem, scene.placement, scene.ledger
    held = placement.held_by(broker)
    held = held[problem.movable[held]]
    slots = placement.slots_of(held, broker)
    loads = placement.loads_at(held, slots)
    here = placement.loads[broker]
    relief = problem.cost(here, broker) - problem.cost(here - loads, broker)
    at_home = (placement.original[held] == broker).any(axis=1)
    price = ledger.in_shares(placement.disk_bytes[held]) * at_home + ledger.movement_price(held)
    if len(held) > count:
        covered = np.where(relief > 0, problem.coverage(here, loads, broker), -np.inf)
        best = lowest(-covered / price, count)
        held, slots, loads, relief = held[best], slots[best], loads[best], relief[best]
    return held, slots, loads, relief


def best_of(gain: Floats, score: Floats, steps: Callable[[int, int], tuple[Step, ...]], least: float) -> Change | None:
    """The change of the highest score, the first of equals, if it gains more than `least`."""
    if gain.size == 0:
        return None
    row, column = divmod(int(np.argmax(score)), gain.shape[1])
    if not gain[row, column] > least:
        return None
    return Change(steps(row, column), float(gain[row, column]), float(score[row, column]))
