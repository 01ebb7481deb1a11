"""Turns a finished search into a plan that people can judge: movements in order, each with its reason and its gain.

Nothing is decided here; figures are those of carrying the movements out one after another.
"""

from collections.abc import Iterator

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.plan import Movement, Wave
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Flags, Problem
from assignor_core.planner.waves import Shift, cut, shift_of


def movements_of(
    problem: Problem, placement: Placement, crowded: Flags
) -> tuple[tuple[Movement, ...], tuple[Wave, ...], tuple[str, ...]]:
    """Movements in the order to carry them out, leadership first, and the waves they fall into.

    What fits into no wave is taken back from `placement`, and told in words.
    """
    start = placement.loads_at_first
    shifts = [shift_of(placement, int(partition)) for partition in placement.changed()]
    shifts.sort(key=lambda shift: (shift.arriving.any(), -_relief(problem, start, shift), shift.partition))
    waves, left = cut(problem, placement, start, shifts)
    for shift in left:
        placement.restore(shift.partition)
    movements: list[Movement] = []
    sizes: list[Wave] = []
    loads = start.copy()
    for number, wave in enumerate(waves):
        first = len(movements)
        movements += _told(problem, placement, crowded, loads, wave, number)
        sizes.append(_size(problem, movements[first:]))
    return tuple(movements), tuple(sizes), _left_out(problem, len(left))


def _left_out(problem: Problem, count: int) -> tuple[str, ...]:
    if not count:
        return ()
    size = problem.policy.wave_movements_max
    return (f"{count} movements left out: in waves of {size} they would fill a disk or overload a broker on the way",)


def _told(
    problem: Problem, placement: Placement, crowded: Flags, loads: Floats, wave: list[Shift], number: int
) -> Iterator[Movement]:
    """Movements of one wave; brings `loads` up to date."""
    ids = problem.arrays.broker_ids
    for shift in wave:
        partition = problem.arrays.partitions[shift.partition]
        new = tuple(ids[broker] for broker in placement.replicas[shift.partition] if broker != NO_BROKER)
        copied = len(set(new) - set(partition.replicas)) * float(placement.disk_bytes[shift.partition])
        before = loads[shift.brokers]
        reason = _reason(problem, placement, shift, before, crowded=bool(crowded[shift.partition]))
        gain = _cost(problem, shift, before) - _cost(problem, shift, before + shift.change)
        loads[shift.brokers] += shift.change
        yield Movement(partition.topic, partition.partition, partition.replicas, new, copied, reason, gain, number)


def _reason(problem: Problem, placement: Placement, shift: Shift, before: Floats, *, crowded: bool) -> str:
    """Why, in one line: a hard rule where there is one, else who is relieved of what."""
    arrays = problem.arrays
    old, new = placement.original[shift.partition], placement.replicas[shift.partition]
    gone = [broker for broker in shift.brokers if broker in problem.leaving and broker not in new]
    if gone:
        return f"empties {_leaver(problem, int(gone[0]))}"
    if old[0] in problem.leaving and old[0] != new[0]:
        return f"takes leadership from {_leaver(problem, int(old[0]))}"
    if crowded and shift.arriving.any():
        return "spreads replicas over racks: two were in one"
    share = problem.share[shift.brokers]
    share = np.where(share > 0, share, 1.0)
    parts, after = before / share, (before + shift.change) / share
    over = np.maximum(before - problem.limit[shift.brokers], 0.0) / share
    covered = np.minimum(parts - after, over) * problem.weight
    relief = covered if covered.max() > 0 else (parts - after) * problem.weight
    giver, column = divmod(int(np.argmax(relief)), relief.shape[1])
    taker = int(np.argmax((after - parts)[:, column]))
    told = [
        f"broker {arrays.broker_ids[shift.brokers[at]]} {verb} {parts[at, column]:.3f} -> {after[at, column]:.3f}"
        for at, verb in ((giver, "goes"), (taker, "takes it"))
    ]
    return f"{arrays.columns.resources[column].words} by fair shares: {told[0]}, {told[1]}"


def _leaver(problem: Problem, broker: int) -> str:
    state = "dead" if problem.arrays.dead[broker] else "draining"
    return f"broker {problem.arrays.broker_ids[broker]}, which is {state}"


def _cost(problem: Problem, shift: Shift, loads: Floats) -> float:
    """Objective of the brokers touched; one that must end empty has none."""
    kept = problem.share[shift.brokers].any(axis=1)
    return float(problem.cost(loads[kept], shift.brokers[kept]).sum())


def _relief(problem: Problem, start: Floats, shift: Shift) -> float:
    """Gain if it came first, per byte: what to carry out first."""
    before = start[shift.brokers]
    gain = _cost(problem, shift, before) - _cost(problem, shift, before + shift.change)
    return gain / max(float(shift.arriving.sum()), 1e-9)


def _size(problem: Problem, movements: list[Movement]) -> Wave:
    """Bytes of one wave; its time is that of the broker that receives most, at the policy's throttle."""
    throttle = problem.policy.throttle_bytes_per_sec
    copied = sum(movement.bytes_to_move for movement in movements)
    if throttle is None:
        return Wave(len(movements), copied)
    inflow: dict[int, float] = {}
    for movement in movements:
        new = sorted(set(movement.new_replicas) - set(movement.old_replicas))
        for broker in new:
            inflow[broker] = inflow.get(broker, 0.0) + movement.bytes_to_move / len(new)
    return Wave(len(movements), copied, max(inflow.values(), default=0.0) / throttle * 1000)
