"""What brokers of unequal proportions force: large disks on a network as fast as that of the others.

Every replica brings bytes in and disk together. Brokers whose share of the disk is larger than their share of the
network should hold replicas that keep much for what is written, and the others the rest. The cluster may not have so
many of them. The least level that both loads can have at once follows from the best possible choice: brokers with much
disk fill their share of the network with the replicas that keep most per byte written, the last one in part (a
fractional knapsack: no placement of whole replicas does better), and the others must hold what is left.

Invariants: the level holds for every placement that spreads racks as evenly as it can. It bounds the worse of the two
loads, not each: a placement below it in one is above it in the other. Nothing moves here.
"""

from collections.abc import Callable
from itertools import product

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Flags, Placement
from assignor_core.planner.rack_replicas import RackReplicas, replicas_by_rack
from assignor_core.resources import Resource

TOGETHER = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.LEADER_BYTES_IN)
"""Loads of the network that come with disk: the latter two where a partition has one replica, which leads."""
GROUPS_MAX = 8
"""Most ways in which brokers are parted into those with more disk and those with more network."""
STEPS = 50
"""Halvings of the interval of the level: to a millionth of a millionth."""
HEAVY = 0.1
"""A partition is heavy if one replica takes this part of what a group of brokers has of the network."""
NOTICEABLE = 1e-6
"""A level so little above even is even."""


def levels_of_proportions(arrays: ClusterArrays, placement: Placement, share: Floats) -> Floats:
    """B x C level, in fair shares, that a load of the network and disk can't both end below; 1 where nothing is forced.

    Brokers 1 and 2 have equal networks, and broker 1 three quarters of the disk. All partitions keep alike for what is
    written. At 4 thirds of its network broker 1 holds two thirds of all, and the third of the disk that is left is
    4 thirds of what broker 2 should hold.

    >>> state = state_of((1,), (2,))
    >>> arrays, share = state.problem.arrays, state.problem.share.copy()
    >>> share[:, arrays.columns.of(Resource.DISK)] = [[0.75], [0.25]]
    >>> levels = levels_of_proportions(arrays, state.placement, share)
    >>> levels[:, arrays.columns.of(Resource.BYTES_IN, Resource.DISK)].round(3).tolist()
    [[1.333, 1.0], [1.0, 1.333]]
    """
    levels = np.ones_like(share)
    alive = arrays.alive
    if not alive.any() or not arrays.partitions:
        return levels
    columns, spread = arrays.columns, replicas_by_rack(arrays)
    # Fractions of nothing do not add up to 1: what no partition brings forces nothing.
    is_loaded: Flags = np.any(placement.loads > 0, axis=0)
    for resource, window in product(TOGETHER, range(columns.windows)):
        column, disk = columns.of(resource)[window], columns.of(Resource.DISK)[window]
        if not is_loaded[column] or not is_loaded[disk]:
            continue
        rates, sizes = _rates(placement, resource, column), placement.following[:, disk]
        ratio = share[:, disk] / np.where(share[:, column] > 0, share[:, column], 1.0)
        for group in _groups(ratio, alive):
            others = alive & ~group
            least, most = replicas_on(arrays, spread, group)
            network, rest = float(share[group, column].sum()), float(share[others, disk].sum())
            level = _level_with_heaviest(rates, sizes, least, most, network, rest)
            if level > 1.0 + NOTICEABLE:
                levels[group, column] = np.maximum(levels[group, column], level)
                levels[others, disk] = np.maximum(levels[others, disk], level)
    return levels


def _rates(placement: Placement, resource: Resource, column: np.int64) -> Floats:
    """P: what every replica of a partition brings, whoever leads; nothing, if a replica elsewhere could lead."""
    if resource is Resource.BYTES_IN:
        return placement.following[:, column]
    is_alone = (placement.original != NO_BROKER).sum(axis=1) == 1
    return np.where(is_alone, placement.leading[:, column], 0.0)


def _groups(ratio: Floats, alive: Flags) -> list[Flags]:
    """The brokers whose share of the disk is largest for their share of the network, at each step of that ratio."""
    steps = np.unique(ratio[alive].round(9))[1:]
    if len(steps) > GROUPS_MAX:
        steps = steps[np.linspace(0, len(steps) - 1, GROUPS_MAX).round().astype(np.int64)]
    return [alive & (ratio.round(9) >= step) for step in steps]


def replicas_on(arrays: ClusterArrays, spread: RackReplicas, group: Flags) -> tuple[Ints, Ints]:
    """P and P: the fewest and the most replicas of each partition that the brokers of `group` hold."""
    inside, outside = (
        np.array([(part & (arrays.racks == rack)).sum() for rack in spread.racks], dtype=np.int32)
        for part in (group, arrays.alive & ~group)
    )
    most_inside, most_outside = (
        np.minimum(spread.factors, np.minimum(spread.highest, counts).sum(axis=1)) for counts in (inside, outside)
    )
    forced_inside = np.maximum(spread.lowest - outside, 0).sum(axis=1)
    fewest = np.minimum(np.maximum(spread.factors - most_outside, forced_inside), most_inside)
    return fewest[spread.factor_of], most_inside[spread.factor_of]


def _level_with_heaviest(rates: Floats, sizes: Floats, least: Ints, most: Ints, network: float, rest: float) -> float:
    """`least_level`, where the partition with the highest rate has a whole number of its replicas on either side."""
    heaviest = int(np.argmax(rates))
    if rates[heaviest] < HEAVY * network or least[heaviest] == most[heaviest]:
        return least_level(rates, sizes, least, most, network, rest)
    levels = []
    for count in range(int(least[heaviest]), int(most[heaviest]) + 1):
        fewest, highest = least.copy(), most.copy()
        fewest[heaviest] = highest[heaviest] = count
        levels.append(least_level(rates, sizes, fewest, highest, network, rest))
    return min(levels)


def least_level(rates: Floats, sizes: Floats, least: Ints, most: Ints, network: float, rest: float) -> float:
    """The least level at which brokers with `network` of the network leave no more disk than the others can hold.

    `rates` and `sizes` (P) are those of one replica, `least` and `most` how many of its replicas those brokers hold;
    the others have `rest` of the disk. Both loads are fractions that add up to 1.
    """
    order = np.argsort(-sizes / np.maximum(rates, 1e-300), kind="stable")
    optional = (most - least)[order]
    held_rate, held_size = float((rates * least).sum()), float((sizes * least).sum())
    by_rate = np.concatenate(([held_rate], held_rate + np.cumsum(rates[order] * optional)))
    by_size = np.concatenate(([held_size], held_size + np.cumsum(sizes[order] * optional)))

    def suffices(level: float) -> bool:
        budget = level * network
        return budget >= held_rate and float(np.interp(budget, by_rate, by_size)) + level * rest >= 1.0

    return least_that_suffices(suffices, highest=max(1.0, 1.0 / rest, held_rate / network))


def least_that_suffices(suffices: Callable[[float], bool], *, highest: float) -> float:
    """The least level between 1 and `highest` that suffices, as all above it do, or a little less.

    >>> round(least_that_suffices(lambda level: level >= 1.25, highest=2.0), 9)
    1.25
    """
    low, high = 1.0, highest
    if suffices(low):
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return low
