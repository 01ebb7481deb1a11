"""A placement in plain arrays that annealing changes, and what stays meanwhile. Arrays alone, for compiled code.

The placement stays as it is until `Draft.rows` are applied to it (`turns`). What consumers read in their racks is
in the loads of brokers, and stays there: partitions that followers serve may not move.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.planner.placement import Flags, Indices
from assignor_core.planner.search import Search

EXCESS_WEIGHT = 40.0
"""A fair share above a line costs as much as copying so many fair shares of disk, and its square so many times more."""
COUNT_WEIGHT = 1.0
"""The same for leaders and replicas, whose caps are soft."""
LIMIT_PART = 0.1
"""What is above a broker's own limit, though not above its line, costs this part of what is above the line."""
CHANGE_PRICE = 0.01
"""What it costs to change a partition at all, in fair shares of disk.

Measured on turns of eight plans (2026-11-28): with 0.03 they end further above their lines, with 0.003 they have up to
two thirds more movements.
"""
HELD_SPARE = 64
"""A broker may hold twice as many partitions as the fullest does at first, and so many more."""


class Task(NamedTuple):
    """What stays during the trials: B brokers, P partitions of up to R replicas, C loads."""

    weights: Floats
    """B x C cost of a whole above the line; 0 for brokers without a share."""
    limit_part: Floats
    """One figure: what is above a broker's own limit, though not above its line, costs this part of that."""
    limits: Floats
    """B x C."""
    lines: Floats
    """B x C, at least the limits."""
    ceilings: Floats
    """B x C."""
    leading: Floats
    """P x C load of a leader."""
    following: Floats
    """P x C load of a follower."""
    change_price: Floats
    """P price of changing it at all, in fair shares of disk."""
    copy_price: Floats
    """P price of a copy, in fair shares of disk."""
    sizes: Floats
    """P bytes of a copy."""
    room: Floats
    """B bytes that may be copied to each broker."""
    original: Ints
    """P x R: each partition's row at first: its brokers, leader first, NO_BROKER at the end."""
    racks: Ints
    """B."""
    may_take: Flags
    """B, as are the next two."""
    may_give: Flags
    may_lead: Flags
    is_movable: Flags
    """P."""
    movable: Indices
    """Partitions that are movable."""
    takers: Indices
    """Brokers that may take."""


class Draft(NamedTuple):
    """A placement that the trials change; mutable arrays."""

    rows: Ints
    """P x R: each partition's row."""
    loads: Floats
    """B x C."""
    held: Ints
    """B x H partitions on each broker, in any order; at most H."""
    held_count: Indices
    """B."""
    inflow: Floats
    """B bytes that are copied to each broker."""
    costs: Floats
    """B cost of what each broker is above its lines."""
    prices: Floats
    """P price of what each partition copies."""


class Trial(NamedTuple):
    """Up to two partitions and the rows they would get, and what that would do; written anew for each trial."""

    partitions: Indices
    rows: Ints
    """2 x R."""
    prices: Floats
    """By partition."""
    brokers: Indices
    """Whose loads change; at most 2R of each partition."""
    loads: Floats
    """By such broker, its loads then."""
    costs: Floats
    """By such broker."""
    changed: Indices
    """P: room for the partitions that differ from what they were at first."""
    worst: Indices
    """B: room for the brokers above their lines."""


def draft_of(rows: Ints, loads: Floats, inflow: Floats) -> Draft:
    """A draft with these rows (P x R), the loads (B x C) that they bring, and what is copied to each broker (B bytes);
    costs and prices are for `trials`.
    """
    brokers = len(loads)
    held, count = held_by_brokers(rows, brokers)
    return Draft(rows.copy(), loads.copy(), held, count, inflow.copy(), np.zeros(brokers), np.zeros(len(rows)))


def held_by_brokers(rows: Ints, brokers: int) -> tuple[Ints, Indices]:
    """The partitions that each broker holds by these rows (P x R), with room for more (B x H), and how many (B).

    >>> held, count = held_by_brokers(np.array([[0, 1], [1, NO_BROKER]]), 2)
    >>> held[:, :2].tolist(), count.tolist()
    ([[0, -1], [0, 1]], [1, 2])
    """
    partition, slot = np.nonzero(rows != NO_BROKER)
    broker = rows[partition, slot]
    count = np.bincount(broker, minlength=brokers).astype(np.int64)
    held = np.full((brokers, 2 * int(count.max(initial=0)) + HELD_SPARE), NO_BROKER, dtype=np.int32)
    order = np.argsort(broker, kind="stable")
    place = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    held[broker[order], place] = partition[order]
    return held, count


def trial_of(draft: Draft) -> Trial:
    """Room for a trial of `draft`."""
    (partitions, replicas), (brokers, columns) = draft.rows.shape, draft.loads.shape
    concerned = 4 * replicas
    return Trial(
        partitions=np.zeros(2, dtype=np.int64),
        rows=np.zeros((2, replicas), dtype=np.int32),
        prices=np.zeros(2),
        brokers=np.zeros(concerned, dtype=np.int64),
        loads=np.zeros((concerned, columns)),
        costs=np.zeros(concerned),
        changed=np.zeros(partitions, dtype=np.int64),
        worst=np.zeros(brokers, dtype=np.int64),
    )


def task_of(search: Search, lines: Floats) -> Task:
    """What stays, where loads should end below `lines` (B x C)."""
    problem, placement = search.problem, search.placement
    given = problem.share > 0
    weight = np.where(problem.arrays.columns.counts, COUNT_WEIGHT, EXCESS_WEIGHT)
    is_movable = problem.may_balance
    if placement.in_racks is not None:
        is_movable = is_movable & ~placement.in_racks.is_bound
    may_take = problem.may_take & (not problem.policy.leaders_only)
    task = Task(
        weights=np.where(given, weight / np.where(given, problem.share, 1.0), 0.0),
        limit_part=np.array([LIMIT_PART]),
        limits=problem.limit,
        lines=np.maximum(lines, problem.limit),
        ceilings=problem.ceiling,
        leading=placement.leading,
        following=placement.following,
        change_price=np.full(len(placement.original), CHANGE_PRICE),
        copy_price=search.spending.in_fair_shares(placement.disk_bytes),
        sizes=placement.disk_bytes,
        room=problem.arrays.disk_room_bytes,
        original=placement.original,
        racks=problem.arrays.racks,
        may_take=may_take,
        may_give=problem.may_give,
        may_lead=problem.may_lead,
        is_movable=is_movable,
        movable=np.flatnonzero(is_movable),
        takers=np.flatnonzero(may_take),
    )
    # For arrays that are laid out otherwise, or can't be written, numba would compile all code again.
    return Task._make(np.array(field, order="C") for field in task)
