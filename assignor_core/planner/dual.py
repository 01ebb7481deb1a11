"""Prices of loads on brokers, by the dual of a linear program, and what they prove about the bytes of any plan.

Give each unit of load on each broker some price. Any placement pays for what it copies and for the loads that it
leaves, and these are at most what they may be. So it copies at least what all partitions cost where they are cheapest
(`cheapest_rows`), less the price of all that may be left. This is the dual of the linear program in which replicas may
be split, and it holds for whole replicas too (Geoffrion 1974, Lagrangean relaxation for integer programming).

Any prices prove something. Good ones are sought in steps: up where a load is above what it may be, else down, each at
its own pace (Adam; Kingma and Ba 2015, https://arxiv.org/abs/1412.6980).

`least_bytes` proves with such prices what a plan had to copy. The search in rounds takes them as the price of loads
that brokers carry below their targets. Nothing moves here.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from assignor_core.broker_sets import any_broker
from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.cheapest_rows import Room, Rows, cheapest_rows
from assignor_core.planner.placement import Flags, Placement, on_grid
from assignor_core.planner.problem import Problem, Search
from assignor_core.planner.round_task import RoundTask
from assignor_core.planner.tuning import Tuning
from assignor_core.resources import Resource

RATE_FIRST, RATE_LAST = 1.0, 1e-3
"""How far a price goes in one step, where copying a fair share of disk costs 1: at first, and in the end."""
SLOPE_KEPT, SQUARE_KEPT = 0.95, 0.9
"""What a step keeps of the mean slope, and of its mean square. With `RATE_FIRST` the best of 36 settings on twelve
plans, with 150 to 600 steps (2026-11-28).
"""
SLOPE_LEAST = 1e-3


class DualQuestion(NamedTuple):
    """What K loads of B brokers may be, as parts of the whole."""

    rows: Rows
    most: Floats
    """B x K."""
    share: Floats
    """B x K fair share; 1 where there is none."""
    prices: Floats
    """B x K to begin with, of a whole load, where copying all bytes costs 1."""


class Proven(NamedTuple):
    """What prices prove."""

    part: float
    """Part of all bytes that any placement copies."""
    prices: Floats
    """B x K of a fair share of load, that prove it."""


def prove(question: DualQuestion, steps: int, enough: float = np.inf) -> Proven:
    """The most that so many steps prove; they end where `enough` is proven."""
    rows, most, share, prices = question
    brokers, replicas = len(most), rows.original.shape[1]
    room, left = Room.of(brokers, replicas), np.empty_like(most)
    slope, square, best = np.zeros_like(most), np.zeros_like(most), 0.0
    prices = prices * share
    chosen = np.zeros_like(prices)
    # A power differs in its last bits from one machine to the next.
    rates = on_grid(np.geomspace(RATE_FIRST, RATE_LAST, steps + 1)) / brokers
    for rate in rates:
        of_load = prices / share
        total = cheapest_rows(rows, np.ascontiguousarray(of_load.T), room, left)
        bound = total - float((of_load * most).sum())
        if bound > best:
            best, chosen = bound, prices
        if best >= enough:
            break
        above = (left - most) / share
        above[(prices <= 0.0) & (above < 0.0)] = 0.0
        slope = SLOPE_KEPT * slope + (1.0 - SLOPE_KEPT) * above
        square = SQUARE_KEPT * square + (1.0 - SQUARE_KEPT) * above * above
        prices = np.maximum(prices + rate * slope / (np.sqrt(square) + SLOPE_LEAST), 0.0)
    return Proven(best, chosen)


def priced_columns(problem: Problem, placement: Placement) -> Flags:
    """C: loads whose prices prove something. Counts of leaders and replicas have no targets that must be met."""
    columns = problem.arrays.columns
    some: Flags = ~columns.counts & (placement.loads.sum(axis=0) > 0)
    if placement.in_racks is not None:
        # What a replica serves in its rack depends on where the others are.
        some[columns.of(Resource.BYTES_OUT)] = False
    return some


def rows_of(problem: Problem, placement: Placement, some: Flags, whole: float) -> Rows:
    """All partitions with the columns `some` (C) of their loads, where copying `whole` bytes costs 1. What the
    placement has spread over racks stays spread, brokers that it has emptied stay empty, and what it has in a set of
    brokers is there.
    """
    arrays, original, replicas = problem.arrays, placement.original, placement.replicas
    counts = (original != NO_BROKER).sum(axis=1)
    is_spread = problem.crowding(replicas) == counts
    may_keep = arrays.alive | (np.bincount(replicas[replicas != NO_BROKER], minlength=len(arrays.alive)) > 0)
    all_may_stay = (may_keep[original] | (original == NO_BROKER)).all(axis=1)
    sets = arrays.sets or any_broker(len(may_keep), len(original))
    set_of = np.where(sets.outside(replicas).any(axis=1), 0, sets.set_of)
    all_may_stay &= ~replace(sets, set_of=set_of).outside(original).any(axis=1)
    return Rows(
        original=original,
        counts=counts,
        following=np.ascontiguousarray(placement.following[:, some]),
        leading=np.ascontiguousarray((placement.leading - placement.following)[:, some]),
        copied=on_grid(placement.disk_bytes / whole),
        may_change=problem.movable,
        is_spread=is_spread,
        may_stay_whole=all_may_stay & (~is_spread | (problem.crowding(original) == counts)),
        racks=arrays.racks,
        rack_count=arrays.racks.max(initial=-1, keepdims=True) + 1,
        may_keep=may_keep,
        may_take=problem.may_take,
        set_of=set_of,
        members=sets.members,
    )


class RoundPrices(NamedTuple):
    """Prices for the rounds, and what they prove."""

    prices: Floats
    """B x C of a fair share of load, in copied fair shares of disk."""
    bound: float
    """Fair shares of disk, with the prices of changed partitions, that any plan below the targets costs."""


def round_prices(search: Search, task: RoundTask, tuning: Tuning) -> RoundPrices:
    """The dual's prices where loads should end below the targets of `task`, counts left out."""
    problem, placement = search.problem, search.placement
    some, brokers = priced_columns(problem, placement), float(problem.arrays.alive.sum())
    rows = rows_of(problem, placement, some, 1.0)
    copied = on_grid((task.copy_price + tuning.change_price) / brokers)
    rows = rows._replace(copied=copied, may_change=task.is_movable, may_take=task.may_take)
    share, most = problem.share[:, some], task.target[:, some]
    question = DualQuestion(rows, most, np.where(share > 0, share, 1.0), np.zeros_like(most))
    steps = min(tuning.dual_steps, tuning.dual_looks // max(1, len(rows.original) * most.size))
    proven = prove(question, int(steps))
    prices = np.zeros_like(task.limit)
    prices[:, some] = proven.prices * brokers
    return RoundPrices(prices, proven.part * brokers)
