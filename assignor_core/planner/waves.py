"""Cuts a plan into waves, so that it can be stopped after any of them and no broker is worse than when it began.

A wave ends with every broker within its limit or no higher than at the start or the end, and while it runs no disk
overflows: what arrives is counted before what leaves. The module orders movements and says which fit into no wave.
"""

from dataclasses import dataclass

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Indices, Placement
from assignor_core.planner.problem import Problem
from assignor_core.resources import Resource

ROUNDING = 1e-12
SEEDS_MAX = 64
"""Shifts around which a group is looked for that fits together."""
GROUP_MAX = 24
"""Most shifts of such a group."""


@dataclass(frozen=True, slots=True)
class Shift:
    """What changing one partition does: brokers touched, K x C change of their loads, bytes arriving at each."""

    partition: int
    brokers: Indices
    change: Floats
    arriving: Floats
    """K fractions of the cluster's disk that are copied to each broker."""


def shift_of(placement: Placement, partition: int) -> Shift:
    """The change from the original to the present replicas of `partition`."""
    old, new = placement.original[partition], placement.replicas[partition]
    old, new = old[old != NO_BROKER], new[new != NO_BROKER]
    brokers = np.unique(np.concatenate((old, new)))
    leading, following = placement.leading[partition], placement.following[partition]
    change = np.zeros((len(brokers), len(leading)))
    for row, sign in ((old, -1.0), (new, 1.0)):
        change[np.searchsorted(brokers, row)] += sign * following
        change[np.searchsorted(brokers, row[0])] += sign * (leading - following)
    copied = np.isin(brokers, new) & ~np.isin(brokers, old)
    disk = float(placement.disk_fraction[partition])
    return Shift(partition, brokers.astype(np.int64), change, np.where(copied, disk, 0.0))


def cut(
    problem: Problem, placement: Placement, start: Floats, order: list[Shift]
) -> tuple[list[list[Shift]], list[Shift]]:
    """Waves of `order`, and what fits into none; `start` is B x C loads before the first.

    What fits only together, as exchanges do, shares a wave of its own. Where brokers must be emptied and nothing else
    goes on, the band gives way to the capacities.
    """
    road = _Road(problem, placement, start)
    size = problem.policy.wave_movements_max
    waves: list[list[Shift]] = []
    waiting = order
    while waiting:
        road.begin_wave()
        wave = [shift for shift in waiting if size > road.entered and road.enter([shift])]
        wave = wave or _fitting_together(road, waiting, size)
        if not wave and road.relax():
            continue
        if not wave:
            break
        waves.append(wave)
        gone = {shift.partition for shift in wave}
        waiting = [shift for shift in waiting if shift.partition not in gone]
    return waves, waiting


class _Road:
    """Loads on the way: what they are after what has entered so far, and what they must not exceed."""

    def __init__(self, problem: Problem, placement: Placement, start: Floats) -> None:
        self._disk = problem.arrays.columns.of(Resource.DISK)
        self._capacity = problem.ceiling + ROUNDING
        self._must_empty = bool(len(problem.leaving))
        ceiling = np.maximum(problem.ceiling[:, self._disk].min(axis=1), start[:, self._disk].max(axis=1))
        self._ceiling = ceiling + ROUNDING
        self._loads = start.copy()
        self._allowed = np.maximum(np.maximum(problem.limit, start), placement.loads) + ROUNDING
        self.begin_wave()

    def begin_wave(self) -> None:
        """What left disks in the wave before has left them now."""
        self._filled = self._loads[:, self._disk].max(axis=1)
        self.entered = 0

    def enter(self, shifts: list[Shift]) -> bool:
        """Let `shifts` into the wave if, with all of them, every broker is within what is allowed."""
        for shift in shifts:
            self._loads[shift.brokers] += shift.change
            self._filled[shift.brokers] += shift.arriving
        fits = not any(self.excess(shift.brokers).any() or self._overflows(shift.brokers) for shift in shifts)
        if fits:
            self.entered += len(shifts)
            return True
        for shift in shifts:
            self._loads[shift.brokers] -= shift.change
            self._filled[shift.brokers] -= shift.arriving
        return False

    def relax(self) -> bool:
        """From now on brokers may carry what their capacity allows, if any must be emptied; whether that is news."""
        news, self._must_empty = self._must_empty, False
        if news:
            self._allowed = np.maximum(self._allowed, self._capacity)
        return news

    def excess(self, brokers: Indices, change: Floats | float = 0.0) -> Floats:
        """K x C above what is allowed, after `change`."""
        above: Floats = np.maximum(self._loads[brokers] + change - self._allowed[brokers], 0.0)
        return above

    def _overflows(self, brokers: Indices) -> bool:
        return bool((self._filled[brokers] > self._ceiling[brokers]).any())


def _fitting_together(road: _Road, waiting: list[Shift], size: int) -> list[Shift]:
    """The first group of at most `size` that enters as one: a shift and those that relieve whom it overloads."""
    by_broker: dict[int, list[Shift]] = {}
    for shift in waiting:
        for broker in shift.brokers.tolist():
            by_broker.setdefault(broker, []).append(shift)
    for first in waiting[:SEEDS_MAX]:
        group = _grown(road, first, by_broker, min(size, GROUP_MAX))
        if group and road.enter(group):
            return group
    return waiting if len(waiting) <= size and road.enter(waiting) else []


def _grown(road: _Road, first: Shift, by_broker: dict[int, list[Shift]], size: int) -> list[Shift]:
    """`first` and, one after another, what relieves the broker most overloaded; empty if that leads nowhere."""
    group, change = [first], dict(zip(first.brokers.tolist(), first.change, strict=True))
    while True:
        excess = {broker: float(road.excess(np.array([broker]), change[broker]).sum()) for broker in sorted(change)}
        worst = max(excess, key=lambda broker: excess[broker])
        if excess[worst] == 0.0:
            return group
        inside = {shift.partition for shift in group}
        reliefs = [
            (float(road.excess(np.array([worst]), change[worst] + _on(shift, worst)).sum()), index)
            for index, shift in enumerate(by_broker[worst])
            if shift.partition not in inside
        ]
        least, index = min(reliefs, default=(np.inf, -1))
        if least >= excess[worst] or len(group) >= size:
            return []
        chosen = by_broker[worst][index]
        group.append(chosen)
        for broker, row in zip(chosen.brokers.tolist(), chosen.change, strict=True):
            change[broker] = change.get(broker, 0.0) + row


def _on(shift: Shift, broker: int) -> Floats:
    """C change of the loads of one of its brokers."""
    change: Floats = shift.change[int(np.searchsorted(shift.brokers, broker))]
    return change
