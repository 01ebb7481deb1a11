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
    loads: Floats, sources: Indices, costs: Floats, targets: Indices, of_load: Floats, here: Floats, cheapest: Floats
) -> None:
    """Write what each replica costs where it is (`here`, N), and on the cheapest target (`cheapest`, N)."""
    for row in range(len(loads)):
        here[row] = _price(loads, row, of_load, sources[row])
        least = np.inf
        for at in range(len(targets)):
            least = min(least, _price(loads, row, of_load, targets[at]) + costs[row, at])
        cheapest[row] = least


@compiled
def add_parts(
    loads: Floats, sources: Indices, costs: Floats, targets: Indices, of_load: Floats,
    blur: float, least_near: float, grid: float, there: Floats, after: Floats,
) -> None:  # fmt: skip
    """Add to `after` (B x K) what each of N replicas brings to T targets and takes from its broker; `there` has room
    for T figures.
    """
    for row in range(len(loads)):
        near = 0.0
        for column in range(loads.shape[1]):
            near += loads[row, column]
        near = blur * near + least_near
        here, cheapest = _price(loads, row, of_load, sources[row]), np.inf
        for at in range(len(targets)):
            there[at] = _price(loads, row, of_load, targets[at]) + costs[row, at]
            cheapest = min(cheapest, there[at])
        if cheapest >= here + near:
            continue
        least = min(cheapest, here)
        total = 0.0
        for at in range(len(targets)):
            there[at] = _nearness(there[at], least, near, grid)
            total += there[at]
        total += _nearness(here, least, near, grid)
        gone = 0.0
        for at in range(len(targets)):
            if there[at] > 0.0:
                part = np.rint(there[at] / total * grid) / grid
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
def _nearness(price: float, least: float, near: float, grid: float) -> float:
    weight: float = max(1.0 - (price - least) / near, 0.0)
    return float(np.rint(weight * weight * grid) / grid)
