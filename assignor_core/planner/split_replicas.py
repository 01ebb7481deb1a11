"""What brokers carry if replicas go where they are cheapest, in parts: `relaxation` asks hundreds of times.

In machine code, and the same as `Relaxation.loads_with(Relaxation.parts(...))`, to the bit: loads, prices and parts lie
on grids, so sums are exact in any order. One look at each replica needs no matrices of all replicas and targets.
"""

import numpy as np

from assignor_core.load import Floats
from assignor_core.planner.compiled import compiled
from assignor_core.planner.placement import Indices


@compiled
def price_each(
    loads: Floats, sources: Indices, costs: Floats, of_load: Floats, on_targets: Floats, room: Floats,
    here: Floats, cheapest: Floats,
) -> None:  # fmt: skip
    """Write what each replica costs where it is (`here`, N), and on the cheapest target (`cheapest`, N).

    `of_load` has the prices of all brokers (B x K), `on_targets` those of the targets (K x T); `room` is for 2 x T
    figures.
    """
    for row in range(len(loads)):
        here[row] = _price(loads, row, of_load, sources[row])
        _price_on_targets(loads, row, costs, on_targets, room)
        cheapest[row] = _least(room)


@compiled
def add_parts(
    loads: Floats, sources: Indices, costs: Floats, targets: Indices, of_load: Floats, on_targets: Floats,
    blur: float, least_near: float, grid: float, room: Floats, after: Floats,
) -> None:  # fmt: skip
    """Add to `after` (B x K) what each of N replicas brings to T targets and takes from its broker; else as
    `price_each`.
    """
    for row in range(len(loads)):
        near = 0.0
        for column in range(loads.shape[1]):
            near += loads[row, column]
        near = blur * near + least_near
        here = _price(loads, row, of_load, sources[row])
        _price_on_targets(loads, row, costs, on_targets, room)
        cheapest = _least(room)
        if cheapest >= here + near:
            continue
        least = min(cheapest, here)
        total = 0.0
        for at in range(len(targets)):
            # Of what is no nearer the weight is 0, and most are not.
            room[0, at] = _nearness(room[0, at], least, near, grid) if room[0, at] - least < near else 0.0
            total += room[0, at]
        total += _nearness(here, least, near, grid)
        gone = 0.0
        for at in range(len(targets)):
            if room[0, at] > 0.0:
                part = np.rint(room[0, at] / total * grid) / grid
                gone += part
                for column in range(loads.shape[1]):
                    after[targets[at], column] += part * loads[row, column]
        for column in range(loads.shape[1]):
            after[sources[row], column] -= loads[row, column] * gone


@compiled
def _price(loads: Floats, row: int, of_load: Floats, broker: int) -> float:
    price = 0.0
    for column in range(loads.shape[1]):
        price += loads[row, column] * of_load[broker, column]
    return price


@compiled
def _price_on_targets(loads: Floats, row: int, costs: Floats, on_targets: Floats, room: Floats) -> None:
    """Write what the replica costs on each target into both rows of `room`. Loops over targets come innermost: a
    processor takes four or eight at once.
    """
    count = costs.shape[1]
    for at in range(count):
        room[0, at] = costs[row, at]
    for column in range(loads.shape[1]):
        load = loads[row, column]
        for at in range(count):
            room[0, at] += load * on_targets[column, at]
    for at in range(count):
        room[1, at] = room[0, at]


@compiled
def _least(room: Floats) -> float:
    """The least of the second row, which is used up: its halves are laid on each other until one figure is left. One
    after the other they could not be compared at once.
    """
    count = room.shape[1]
    while count > 1:
        half = (count + 1) // 2
        for at in range(count - half):
            room[1, at] = min(room[1, at], room[1, at + half])
        count = half
    return float(room[1, 0]) if room.shape[1] else np.inf


@compiled
def _nearness(price: float, least: float, near: float, grid: float) -> float:
    weight: float = max(1.0 - (price - least) / near, 0.0)
    return float(np.rint(weight * weight * grid) / grid)
