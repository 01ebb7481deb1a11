"""What brokers carry if replicas go where they are cheapest, in parts: `relaxation` asks hundreds of times.

In machine code, and the same as `Relaxation.loads_with(Relaxation.parts(...))`, to the bit: loads, prices and parts lie
on grids, so sums are exact in any order. One look at each replica needs no matrices of all replicas and targets.
"""

import numpy as np

from assignor_core.load import Floats, Ints
from assignor_core.planner.compiled import compiled
from assignor_core.planner.placement import Flags, Indices


@compiled
def price_each(
    loads: Floats, sources: Indices, prices: Floats, may_go: Flags, of_load: Floats, on_targets: Floats, room: Floats,
    here: Floats, cheapest: Floats,
) -> None:  # fmt: skip
    """Write what each replica costs where it is (`here`, N), and on the cheapest target (`cheapest`, N).

    `of_load` has the prices of all brokers (B x K), `on_targets` those of the targets (K x T); `room` is for 2 x T
    figures.
    """
    for row in range(len(loads)):
        here[row] = _price(loads, row, of_load, sources[row])
        _price_on_targets(loads, row, prices, may_go, on_targets, room)
        cheapest[row] = _least(room)


@compiled
def add_parts(
    loads: Floats, sources: Indices, prices: Floats, may_go: Flags, of_load: Floats, on_targets: Floats, blur: float,
    least_near: float, grid: float, room: Floats, arriving: Floats, after: Floats,
) -> None:  # fmt: skip
    """Add to `arriving` (K x T) what each of N replicas brings to T targets, and to `after` (B x K) what it takes from
    its broker; else as `price_each`. `grid` is a power of two, so to divide by it is exact.
    """
    count, per_grid = may_go.shape[1], 1.0 / grid
    for row in range(len(loads)):
        near = 0.0
        for column in range(loads.shape[1]):
            near += loads[row, column]
        near = blur * near + least_near
        here = _price(loads, row, of_load, sources[row])
        _price_on_targets(loads, row, prices, may_go, on_targets, room)
        cheapest = _least(room)
        if cheapest >= here + near:
            continue
        least = min(cheapest, here)
        for at in range(count):
            room[0, at] = _nearness(room[0, at], least, near, grid, per_grid)
        total = _sum(room) + _nearness(here, least, near, grid, per_grid)
        for at in range(count):
            room[0, at] = np.rint(room[0, at] / total * grid) * per_grid
        gone = _sum(room)
        for column in range(loads.shape[1]):
            load = loads[row, column]
            for at in range(count):
                arriving[column, at] += room[0, at] * load
            after[sources[row], column] -= load * gone


@compiled
def hand_over(
    loads: Floats, holders: Ints, may_lead: Flags, of_load: Floats, price: float, blur: float,
    least_near: float, grid: float, room: Floats, after: Floats,
) -> None:  # fmt: skip
    """Change `after` (B x K) by the parts of H leaderships (`loads`, H x K) that go to other `holders` (H x R), each at
    `price` and what it costs there; `room` is for R figures, the others are as for `add_parts`.
    """
    for row in range(len(loads)):
        near, least = 0.0, np.inf
        for column in range(loads.shape[1]):
            near += loads[row, column]
        near = blur * near + least_near
        for slot in range(holders.shape[1]):
            room[slot] = np.inf
            if may_lead[row, slot]:
                room[slot] = price if slot else 0.0
                for column in range(loads.shape[1]):
                    room[slot] += loads[row, column] * of_load[holders[row, slot], column]
            least = min(least, room[slot])
        total = 0.0
        for slot in range(holders.shape[1]):
            room[slot] = _nearness(room[slot], least, near, grid, 1.0 / grid)
            total += room[slot]
        for slot in range(1, holders.shape[1]):
            part = np.rint(room[slot] / total * grid) / grid
            if part > 0.0:
                for column in range(loads.shape[1]):
                    after[holders[row, slot], column] += part * loads[row, column]
                    after[holders[row, 0], column] -= part * loads[row, column]


@compiled
def _price(loads: Floats, row: int, of_load: Floats, broker: int) -> float:
    price = 0.0
    for column in range(loads.shape[1]):
        price += loads[row, column] * of_load[broker, column]
    return price


@compiled
def _price_on_targets(loads: Floats, row: int, prices: Floats, may_go: Flags, on_targets: Floats, room: Floats) -> None:
    """Write what the replica costs on each target into the first row of `room`. Loops over targets come innermost: a
    processor takes four or eight at once.
    """
    count, price = may_go.shape[1], prices[row]
    for at in range(count):
        room[0, at] = price if may_go[row, at] else np.inf
    for column in range(loads.shape[1]):
        load = loads[row, column]
        for at in range(count):
            room[0, at] += load * on_targets[column, at]


@compiled
def _least(room: Floats) -> float:
    """The least of the first row; the second one is used up."""
    return _folded(room, np.inf, False)


@compiled
def _sum(room: Floats) -> float:
    """The sum of the first row, as `_least`: parts lie on a grid, so it is exact in any order."""
    return _folded(room, 0.0, True)


@compiled
def _folded(room: Floats, of_none: float, is_sum: bool) -> float:
    """The sum or the least of the first row. Halves of the second one, a copy, are laid on each other until one figure
    is left: a processor can't compare figures at once that wait for each other.
    """
    count = room.shape[1]
    for at in range(count):
        room[1, at] = room[0, at]
    while count > 1:
        half = (count + 1) // 2
        for at in range(count - half):
            other = room[1, at + half]
            room[1, at] = room[1, at] + other if is_sum else min(room[1, at], other)
        count = half
    return float(room[1, 0]) if room.shape[1] else of_none


@compiled
def _nearness(price: float, least: float, near: float, grid: float, per_grid: float) -> float:
    weight: float = max(1.0 - (price - least) / near, 0.0)
    return float(np.rint(weight * weight * grid) * per_grid)
