"""Turns a finished search into a plan that people can judge: movements in order, each with its reason and its gain.

Order: leadership first, since it copies nothing and helps at once; then what dead brokers held, partitions with the
fewest replicas in sync before others; then by relief per byte, so that a plan that is
stopped early has done the most for what it copied. A reason names the hard rule where there is one, else the broker
that sheds most of its excess and the one that takes it.

Invariants: figures are those of carrying the movements out one after another, so the gains of a plan add up to what it
gains in all. Only what fits into no wave is taken back; nothing else is decided here.
"""

from collections.abc import Iterator

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.plan import Movement, Wave
from assignor_core.planner.placement import Flags, Placement, heirs
from assignor_core.planner.problem import Problem
from assignor_core.planner.waves import PendingMovement, cut_waves, pending_movement
from assignor_core.price import wave_of
from assignor_core.wording import counted

GAIN_LEAST = 1e-5
"""A movement that gains no more was made for something else than balance, if the policy wants anything else."""
COPIED_MIN = 1e-9
"""Fraction of the cluster's disk that a relief is divided by at least: leadership copies nothing."""


def ordered_movements(
    problem: Problem, placement: Placement, crowded: Flags
) -> tuple[tuple[Movement, ...], tuple[Wave, ...], tuple[str, ...]]:
    """Movements in the order to carry them out, the waves they fall into, and a line on what is left out.

    `crowded` (P) are the partitions whose racks were crowded at first. What fits into no wave is restored in
    `placement`.

    >>> search = state_of((1,), (1,), loads=(5.0, 5.0))
    >>> problem, placement = search.problem, search.placement
    >>> placement.take(np.array([[1], [0]]))
    >>> (movement,), (wave,), _ = ordered_movements(problem, placement, problem.crowded(placement.replicas))
    >>> movement.old_replicas, movement.new_replicas, movement.bytes_to_move, movement.kind
    ((1,), (2,), 500.0, 'replica')
    >>> movement.reason
    'bytes in by fair shares: broker 1 goes 2.000 -> 1.000, broker 2 takes it 0.000 -> 1.000'
    """
    start = placement.original_loads
    pending = [pending_movement(placement, int(partition)) for partition in placement.changed()]
    pending.sort(
        key=lambda one: (
            one.arriving.any(),
            _turn(problem, placement, one),
            -_relief_per_byte(problem, start, one),
            one.partition,
        )
    )
    cut, left_out = cut_waves(problem, placement, start, pending)
    if left_out:
        rows, at = placement.replicas.copy(), [movement.partition for movement in left_out]
        rows[at] = placement.original[at]
        placement.hold(rows)
    movements: list[Movement] = []
    waves: list[Wave] = []
    loads = start.copy()
    dead = frozenset(np.array(problem.arrays.broker_ids)[problem.arrays.dead].tolist())
    for number, wave in enumerate(cut):
        planned = list(_planned_movements(problem, placement, crowded, loads, wave, number))
        movements += planned
        waves.append(wave_of(planned, problem.policy.throttle_bytes_per_sec, dead))
    return tuple(movements), tuple(waves), _left_out_line(problem, len(left_out))


def _turn(problem: Problem, placement: Placement, pending: PendingMovement) -> int:
    """Replicas in sync of a partition whose lost replicas are re-created; of any other more than it can have."""
    old, new = placement.original[pending.partition], placement.replicas[pending.partition]
    lost = old[(old != NO_BROKER) & ~np.isin(old, new)]
    if problem.arrays.dead[lost].any():
        return int(problem.arrays.in_sync[pending.partition])
    return len(old) + 1


def _left_out_line(problem: Problem, count: int) -> tuple[str, ...]:
    if not count:
        return ()
    size = problem.policy.wave_movements_max
    left_out, they = counted(count, "movement", "movements"), "it" if count == 1 else "they"
    return (f"{left_out} left out: in waves of {size} {they} would fill a disk or overload a broker on the way",)


def _planned_movements(
    problem: Problem, placement: Placement, crowded: Flags, loads: Floats, wave: list[PendingMovement], number: int
) -> Iterator[Movement]:
    """Movements of one wave; brings `loads` up to date."""
    ids = problem.arrays.broker_ids
    for pending in wave:
        partition = problem.arrays.partitions[pending.partition]
        new = tuple(ids[broker] for broker in placement.replicas[pending.partition] if broker != NO_BROKER)
        copied = len(set(new) - set(partition.replicas)) * float(placement.disk_bytes[pending.partition])
        before = loads[pending.brokers]
        gain = _cost(problem, pending, before) - _cost(problem, pending, before + pending.change)
        reason = _rule(problem, placement, pending, crowded=bool(crowded[pending.partition]))
        if reason is None and gain <= GAIN_LEAST:
            reason = _wanted_rack(problem, placement, pending.partition) or _spread(problem, pending.partition)
            reason = reason or _heir(problem, placement, pending.partition)
        reason = reason or _balance_reason(problem, pending, before)
        loads[pending.brokers] += pending.change
        yield Movement(partition.topic, partition.partition, partition.replicas, new, copied, reason, gain, number)


def _rule(problem: Problem, placement: Placement, pending: PendingMovement, *, crowded: bool) -> str | None:
    """The hard rule that asks for a movement, in words; None where there is none."""
    old, new = placement.original[pending.partition], placement.replicas[pending.partition]
    emptied = [broker for broker in pending.brokers if broker in problem.leaving and broker not in new]
    if emptied:
        return f"empties {_leaving_broker(problem, int(emptied[0]))}"
    if old[0] in problem.leaving and old[0] != new[0]:
        return f"takes leadership from {_leaving_broker(problem, int(old[0]))}"
    sets = problem.arrays.sets
    if sets is not None:
        number = int(sets.set_of[pending.partition])
        outside = [broker for broker in old if broker not in new and not sets.members[number, broker]]
        if outside and number:
            topic, ids = problem.arrays.partitions[pending.partition].topic, problem.arrays.broker_ids
            wanted = problem.policy.broker_sets[number - 1].words
            return f"belongs on {wanted}: broker {ids[outside[0]]} is not in the set of topic {topic}"
    # By its brokers: of an empty partition nothing arrives.
    if crowded and not np.isin(new, old).all():
        return "spreads replicas over racks: two were in one"
    return None


def _wanted_rack(problem: Problem, placement: Placement, partition: int) -> str | None:
    """Returns in words that the leadership goes to a rack that is wanted more; None where it does not."""
    old, new = placement.original[partition, 0], placement.replicas[partition, 0]
    for (_, racks), (partitions, ranks) in zip(problem.policy.leader_racks, problem.leader_ranks, strict=True):
        if partitions[partition] and ranks[new] < ranks[old]:
            return f"leads in rack {racks[ranks[new]]}, as topic {problem.arrays.partitions[partition].topic} should"
    return None


def _spread(problem: Problem, partition: int) -> str | None:
    """Returns in words that the partition is of a topic that should be spread; None for any other."""
    row = int(problem.spread.topic_of[partition])
    return f"evens out topic {problem.spread.names[row]}, which should be spread over brokers" if row else None


def _heir(problem: Problem, placement: Placement, partition: int) -> str | None:
    """Returns in words who takes over the partition when its leader goes offline; None if that is who did before."""
    if placement.zones is None:
        return None
    rows = np.stack((placement.original[partition], placement.replicas[partition]))
    old, new = heirs(rows, placement.zones).tolist()
    if old == new or new == NO_BROKER:
        return None
    ids = problem.arrays.broker_ids
    return f"broker {ids[new]} takes over if broker {ids[rows[1, 0]]} goes offline: others would have no room"


def _balance_reason(problem: Problem, pending: PendingMovement, before: Floats) -> str:
    """The load and the broker that it relieves most of its excess, else of its load, and the broker that takes most."""
    arrays = problem.arrays
    share = problem.share[pending.brokers]
    share = np.where(share > 0, share, 1.0)
    parts, after = before / share, (before + pending.change) / share
    over = np.maximum(before - problem.limit[pending.brokers], 0.0) / share
    covered = np.minimum(parts - after, over) * problem.weight
    relief = covered if covered.max() > 0 else (parts - after) * problem.weight
    giver, column = divmod(int(np.argmax(relief)), relief.shape[1])
    taker = int(np.argmax((after - parts)[:, column]))
    gives, takes = (
        f"broker {arrays.broker_ids[pending.brokers[at]]} {verb} {parts[at, column]:.3f} -> {after[at, column]:.3f}"
        for at, verb in ((giver, "goes"), (taker, "takes it"))
    )
    return f"{arrays.columns.resources[column].words} by fair shares: {gives}, {takes}"


def _leaving_broker(problem: Problem, broker: int) -> str:
    state = "dead" if problem.arrays.dead[broker] else "draining"
    return f"broker {problem.arrays.broker_ids[broker]}, which is {state}"


def _cost(problem: Problem, pending: PendingMovement, loads: Floats) -> float:
    """Objective of the brokers touched; one that must end empty has none."""
    kept = problem.share[pending.brokers].any(axis=1)
    return float(problem.cost(loads[kept], pending.brokers[kept]).sum())


def _relief_per_byte(problem: Problem, start: Floats, pending: PendingMovement) -> float:
    """Gain per fraction of the disk copied if it came first."""
    before = start[pending.brokers]
    gain = _cost(problem, pending, before) - _cost(problem, pending, before + pending.change)
    return gain / max(float(pending.arriving.sum()), COPIED_MIN)
