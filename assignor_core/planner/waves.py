"""Cuts a plan into waves, so that it can be stopped after any of them and no broker is worse than when it began.

A wave ends with every broker within its limit or no higher than at the start, and while it runs no disk overflows: what
arrives is counted before what leaves. The module orders movements; it neither adds nor drops one.
"""

from dataclasses import dataclass

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Indices, Placement
from assignor_core.planner.problem import Problem

ROUNDING = 1e-12


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
    disk = float(following[placement.arrays.column_resource == 2].max())
    return Shift(partition, brokers.astype(np.int64), change, np.where(copied, disk, 0.0))


def cut(problem: Problem, placement: Placement, start: Floats, order: list[Shift]) -> list[list[Shift]]:
    """Waves of `order`; `start` is B x C loads before the first. What only fits together shares the last one."""
    loads = start.copy()
    allowed = np.maximum(np.maximum(problem.limit, start), placement.loads) + ROUNDING
    disk = np.flatnonzero(problem.arrays.column_resource == 2)
    ceiling = np.maximum(problem.ceiling[:, disk].min(axis=1, initial=np.inf), start[:, disk].max(axis=1)) + ROUNDING
    waves: list[list[Shift]] = []
    waiting = order
    while waiting:
        wave: list[Shift] = []
        left: list[Shift] = []
        filled = loads[:, disk].max(axis=1)
        for shift in waiting:
            at = shift.brokers
            fits = len(wave) < problem.policy.wave_movements_max
            fits = fits and bool((loads[at] + shift.change <= allowed[at]).all())
            if fits and bool((filled[at] + shift.arriving <= ceiling[at]).all()):
                loads[at] += shift.change
                filled[at] += shift.arriving
                wave.append(shift)
            else:
                left.append(shift)
        if not wave:
            wave, left = waiting, []
        waves.append(wave)
        waiting = left
    return waves
