"""The best single change that relieves one broker: leadership, a replica, or a swap of two replicas.

Changes are scored by what they gain per what they cost, as matrices; nothing is re-evaluated as a whole. The module
proposes and never applies.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Indices, Placement
from assignor_core.planner.problem import Flags, Problem

MOVEMENT_PRICE = 0.002
"""What one more movement costs, in bytes that are this fraction of a broker's fair share of disk."""
SHORTLIST = 32
"""Replicas of a broker whose targets are scored exactly."""
SWAP_PARTNERS = 6
SWAP_SHORTLIST = 24


@dataclass(frozen=True, slots=True)
class Change:
    """Steps (partition, slot, target broker; target NO_BROKER: slot becomes leader), its gain and gain per price."""

    steps: tuple[tuple[int, int, int], ...]
    gain: float
    score: float


@dataclass(slots=True)
class Prices:
    """What has been spent, and what each further change would cost."""

    problem: Problem
    unit: float
    """Bytes of disk of a fair share: prices are in shares."""
    touched: Flags
    """P: already changed, so that changing it again is no further movement."""

    def movement(self, partitions: Indices) -> Floats:
        """N prices of touching each partition."""
        return np.where(self.touched[partitions], MOVEMENT_PRICE / 10, MOVEMENT_PRICE)


def best_leader_change(problem: Problem, placement: Placement, prices: Prices, broker: int) -> Change | None:
    """The best hand-over of a leadership of `broker` to a follower; copies nothing."""
    held = placement.held_by(broker)
    led = held[(placement.replicas[held, 0] == broker) & problem.movable[held]]
    if len(led) == 0 or placement.replicas.shape[1] == 1:
        return None
    change = placement.leading[led] - placement.following[led]
    here = placement.loads[broker]
    relief = problem.cost(here, broker) - problem.cost(here - change, broker)
    worth = np.flatnonzero(relief > 0)
    led, change, relief = led[worth], change[worth], relief[worth]
    followers = placement.replicas[led, 1:]
    able = (followers != NO_BROKER) & problem.takes_leaders[followers]
    targets = np.where(able, followers, 0)
    there = placement.loads[targets]
    burden = problem.cost(there + change[:, None, :], targets) - problem.cost(there, targets)
    gain = np.where(able, relief[:, None] - burden, -np.inf)
    score = gain / prices.movement(led)[:, None]
    return _best(gain, score, lambda row, slot: ((int(led[row]), slot + 1, NO_BROKER),))


def best_move(problem: Problem, placement: Placement, prices: Prices, broker: int) -> Change | None:
    """The best transfer of one replica of `broker` to another broker."""
    held = placement.held_by(broker)
    held = held[problem.movable[held]]
    if len(held) == 0:
        return None
    chosen, slots, loads, relief = _shortlist(problem, placement, prices, broker, held, SHORTLIST)
    targets = np.flatnonzero(problem.takes)
    there = placement.loads[targets]
    burden = problem.cost(there[None] + loads[:, None], targets) - problem.cost(there, targets)
    allowed = problem.targets(placement, chosen, broker, loads)[:, targets]
    gain = np.where(allowed, relief[:, None] - burden, -np.inf)
    price = copy_price(placement, prices, chosen, broker, targets) + prices.movement(chosen)[:, None]
    score = gain / np.maximum(price, MOVEMENT_PRICE / 10)
    return _best(gain, score, lambda row, at: ((int(chosen[row]), int(slots[row]), int(targets[at])),))


def copy_price(placement: Placement, prices: Prices, partitions: Indices, source: int, targets: Indices) -> Floats:
    """N x T change of the bytes to copy, in shares: a replica that goes home is refunded."""
    original = placement.original[partitions]
    disk = placement.disk_bytes[partitions] / prices.unit
    was_here = (original == source).any(axis=1)
    home = np.zeros((len(partitions), len(targets)), dtype=np.bool_)
    for slot in range(original.shape[1]):
        home |= original[:, slot][:, None] == targets[None, :]
    price: Floats = disk[:, None] * (was_here[:, None].astype(np.float64) - home)
    return price


def _shortlist(
    problem: Problem, placement: Placement, prices: Prices, broker: int, held: Indices, count: int
) -> tuple[Indices, Indices, Floats, Floats]:
    """The replicas of `broker` that relieve it most for their price: partitions, slots, loads, relief."""
    slots = placement.slots_of(held, broker)
    loads = placement.loads_at(held, slots)
    here = placement.loads[broker]
    relief = problem.cost(here, broker) - problem.cost(here - loads, broker)
    was_here = (placement.original[held] == broker).any(axis=1)
    price = placement.disk_bytes[held] / prices.unit * was_here + prices.movement(held)
    score = relief / price
    if len(held) > count:
        best = np.sort(np.argpartition(-score, count)[:count])
        held, slots, loads, relief = held[best], slots[best], loads[best], relief[best]
    return held, slots, loads, relief


Steps = tuple[tuple[int, int, int], ...]


def _best(gain: Floats, score: Floats, steps: Callable[[int, int], Steps]) -> Change | None:
    if gain.size == 0:
        return None
    at = int(np.argmax(score))
    row, column = divmod(at, gain.shape[1])
    if not gain[row, column] > 0:
        return None
    return Change(steps(row, column), float(gain[row, column]), float(score[row, column]))
