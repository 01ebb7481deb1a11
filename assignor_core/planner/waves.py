"""Cuts a plan into waves, so that it can be stopped after any of them and no broker is worse than when it began.

A wave is a set of movements that may run at the same time, in any order. It takes the movements in the plan's order and
lets each in that keeps two promises. When the wave ends, every broker is within its limit, or no higher than at the
start or the end of the plan. While it runs, no disk overflows: Kafka copies a replica before it deletes the old one, so
what arrives counts before what leaves.

Movements that fit only together, as the two of an exchange, enter as a group. If nothing fits, brokers may be as full
on the way as the fullest one is at the end of the plan, then at its start. If nothing fits then although brokers must
be emptied, their safety goes first: capacities are the limit, not the band. What fits into no wave is handed back.
Invariant: each round puts at least one movement into a wave, relaxes, or ends.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Indices, Placement
from assignor_core.planner.problem import Problem
from assignor_core.resources import Resource

ROUNDING = 1e-12
GROUP_SEEDS_MAX = 64
"""Movements around which a group is looked for that fits together."""
GROUP_MAX = 24
"""Most movements of such a group."""


class PendingMovement(NamedTuple):
    """A changed partition that waits for its wave, and what moving it does to brokers.

    >>> placement = state_of((1,), (1,), loads=(5.0, 5.0)).placement
    >>> placement.take(np.array([[1], [0]]))
    >>> movement = pending_movement(placement, 0)
    >>> disk = placement.arrays.columns.of(Resource.DISK)
    >>> movement.brokers.tolist(), movement.change[:, disk].tolist(), movement.arriving.tolist()
    ([0, 1], [[-0.5], [0.5]], [0.0, 0.5])
    """

    partition: int
    brokers: Indices
    """The K brokers that it touches, ascending."""
    change: Floats
    """K x C change of their loads."""
    arriving: Floats
    """K fractions of the cluster's disk that are copied to each of them."""

    def change_on(self, broker: int) -> Floats:
        """C change of the loads of one of its brokers."""
        change: Floats = self.change[int(np.searchsorted(self.brokers, broker))]
        return change


def pending_movement(placement: Placement, partition: int) -> PendingMovement:
    """The movement of `partition` from its original to its present replicas."""
    # As lists: of a few brokers a set costs less than what numpy does with so small an array.
    old, new = (
        [broker for broker in rows[partition].tolist() if broker != NO_BROKER]
        for rows in (placement.original, placement.replicas)
    )
    brokers = sorted({*old, *new})
    place = {broker: number for number, broker in enumerate(brokers)}
    leading, following = placement.leading[partition], placement.following[partition]
    change = np.zeros((len(brokers), len(leading)))
    for row, sign in ((old, -1.0), (new, 1.0)):
        change[[place[broker] for broker in row]] += sign * following
        change[place[row[0]]] += sign * (leading - following)
        if placement.in_racks is not None and placement.in_racks.is_bound[partition]:
            placement.in_racks.add_to_brokers(change, [place[broker] for broker in row], partition, row, sign)
    size = float(placement.disk_fraction[partition])
    arriving = np.array([size if broker in new and broker not in old else 0.0 for broker in brokers])
    return PendingMovement(partition, np.array(brokers, dtype=np.int64), change, arriving)


def cut_waves(
    problem: Problem, placement: Placement, start: Floats, order: list[PendingMovement]
) -> tuple[list[list[PendingMovement]], list[PendingMovement]]:
    """Waves of the movements in `order`, and what fits into none; `start` is B x C loads before the first."""
    loads = _LoadsUnderWay(problem, placement, start)
    size = problem.policy.wave_movements_max
    waves: list[list[PendingMovement]] = []
    waiting = order
    while waiting:
        loads.begin_wave()
        wave = [movement for movement in waiting if size > loads.entered and loads.enter([movement])]
        wave = wave or _group_that_fits(loads, waiting, size)
        if not wave and loads.relax():
            continue
        if not wave:
            break
        waves.append(wave)
        placed = {movement.partition for movement in wave}
        waiting = [movement for movement in waiting if movement.partition not in placed]
    return waves, waiting


class _LoadsUnderWay:
    """Loads after the movements that have entered so far, and what they must not exceed; mutable."""

    def __init__(self, problem: Problem, placement: Placement, start: Floats) -> None:
        self._disk = problem.arrays.columns.of(Resource.DISK)
        # What is allowed instead where nothing fits, in turn: the highest level of any broker at the end of the plan,
        # that at its start, and capacities where brokers must be emptied.
        levels = (_highest_level(problem, loads) for loads in (placement.loads, start))
        self._wider = [np.minimum(level, problem.ceiling) + ROUNDING for level in levels]
        if len(problem.leaving):
            self._wider.append(problem.ceiling + ROUNDING)
        # A disk that is too full from the beginning can't be a reason to move nothing: it must not get fuller.
        disk_max = np.maximum(problem.ceiling[:, self._disk].min(axis=1), start[:, self._disk].max(axis=1))
        self._disk_max = disk_max + ROUNDING
        self._loads = start.copy()
        self._allowed = np.maximum(np.maximum(problem.limit, start), placement.loads) + ROUNDING
        self.begin_wave()

    def begin_wave(self) -> None:
        """What left disks in the wave before is deleted by now."""
        self._disk_filled = self._loads[:, self._disk].max(axis=1)
        self.entered = 0

    def enter(self, movements: list[PendingMovement]) -> bool:
        """Let `movements` into the wave if, with all of them, every broker is within what is allowed."""
        for movement in movements:
            self._loads[movement.brokers] += movement.change
            self._disk_filled[movement.brokers] += movement.arriving
        fits = not any(
            self.excess(movement.brokers).any() or self._overflows(movement.brokers) for movement in movements
        )
        if fits:
            self.entered += len(movements)
            return True
        for movement in movements:
            self._loads[movement.brokers] -= movement.change
            self._disk_filled[movement.brokers] -= movement.arriving
        return False

    def relax(self) -> bool:
        """From now on brokers may carry what is allowed where nothing fits; whether that is more than before."""
        while self._wider:
            wider = np.maximum(self._allowed, self._wider.pop(0))
            if (wider > self._allowed).any():
                self._allowed = wider
                return True
        return False

    def excess(self, brokers: Indices, change: Floats | float = 0.0) -> Floats:
        """K x C above what is allowed, after `change`."""
        above: Floats = np.maximum(self._loads[brokers] + change - self._allowed[brokers], 0.0)
        return above

    def _overflows(self, brokers: Indices) -> bool:
        return bool((self._disk_filled[brokers] > self._disk_max[brokers]).any())


def _highest_level(problem: Problem, loads: Floats) -> Floats:
    """B x C load of each broker if all were as full as the fullest one is with `loads`, by share."""
    given = problem.share > 0
    levels = np.where(given, loads / np.where(given, problem.share, 1.0), 0.0).max(axis=0)
    highest: Floats = problem.share * levels
    return highest


def _group_that_fits(loads: _LoadsUnderWay, waiting: list[PendingMovement], size: int) -> list[PendingMovement]:
    """The first group of at most `size` that enters as one: a movement and those that relieve whom it overloads.

    All that waits, if it is no more than `size`, is the last group tried: the end of the plan is always allowed.
    """
    by_broker: dict[int, list[PendingMovement]] = {}
    for movement in waiting:
        for broker in movement.brokers.tolist():
            by_broker.setdefault(broker, []).append(movement)
    for seed in waiting[:GROUP_SEEDS_MAX]:
        group = _grown_group(loads, seed, by_broker, min(size, GROUP_MAX))
        if group and loads.enter(group):
            return group
    return waiting if len(waiting) <= size and loads.enter(waiting) else []


def _grown_group(
    loads: _LoadsUnderWay, seed: PendingMovement, by_broker: dict[int, list[PendingMovement]], size: int
) -> list[PendingMovement]:
    """`seed` and, one after another, what relieves the broker most overloaded; empty if that leads nowhere."""
    group, change, excess = [seed], dict(zip(seed.brokers.tolist(), seed.change, strict=True)), {}
    chosen = seed
    while True:
        for broker in chosen.brokers.tolist():
            excess[broker] = float(loads.excess(np.array([broker]), change[broker]).sum())
        worst = max(sorted(excess), key=lambda broker: excess[broker])
        if excess[worst] == 0.0:
            return group
        members = {movement.partition for movement in group}
        others = [movement for movement in by_broker[worst] if movement.partition not in members]
        if not others or len(group) >= size:
            return []
        relieved = change[worst] + np.stack([movement.change_on(worst) for movement in others])
        left = loads.excess(np.array([worst]), relieved).sum(axis=1)
        least = int(np.argmin(left))
        if left[least] >= excess[worst]:
            return []
        chosen = others[least]
        group.append(chosen)
        for broker, row in zip(chosen.brokers.tolist(), chosen.change, strict=True):
            change[broker] = change.get(broker, 0.0) + row
