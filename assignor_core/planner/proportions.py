"""What brokers of unequal proportions force: large disks on a network as fast as that of the others.

Every replica brings bytes in and disk together. Brokers whose share of the disk is larger than their share of the
network should hold replicas that keep much for what is written, and the others the rest. The cluster may not have so
many of them. The least level that both loads can have at once follows from the best possible choice: brokers with much
disk fill their share of the network with the replicas that keep most per byte written, the last one in part (a
fractional knapsack: no placement of whole replicas does better), and the others must hold what is left.

A rack has to hold its part of every partition, so its brokers have to sort that part among themselves. So the same is
asked of each rack, and of the smallest racks together, which must hold what the others can't.

Invariants: the level holds for every placement that spreads racks as evenly as it can. It bounds the worse of the two
loads, not each: a placement below it in one is above it in the other. Nothing moves here.
"""

from collections.abc import Callable, Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Flags, Indices, Placement
from assignor_core.planner.rack_replicas import RackReplicas, replicas_by_rack
from assignor_core.resources import Resource

TOGETHER = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.LEADER_BYTES_IN)
"""Loads of the network that come with disk: the latter two where a partition has one replica, which leads."""
GROUPS_MAX = 8
"""Most ways in which brokers are parted into those with more disk and those with more network."""
SCOPES_MAX = 16
"""With more racks than this none is looked at by itself."""
STEPS = 50
"""Usual halvings of the interval of a level: to a millionth of a millionth."""
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
        rates, sizes = _rates(placement, resource, column), placement.following[:, disk]
        if not is_loaded[column] or not is_loaded[disk] or not rates.any():
            continue
        order = _by_size_for_rate(rates, sizes)
        rates, sizes, ordered = rates[order], sizes[order], spread._replace(factor_of=spread.factor_of[order])
        ratio = share[:, disk] / np.where(share[:, column] > 0, share[:, column], 1.0)
        for parting in _partings(arrays, ordered, ratio):
            group, others = parting.group, parting.others
            network, rest = float(share[group, column].sum()), float(share[others, disk].sum())
            level = _level_with_heaviest(rates, sizes, parting, network, rest)
            if level > 1.0 + NOTICEABLE:
                levels[group, column] = np.maximum(levels[group, column], level)
                levels[others, disk] = np.maximum(levels[others, disk], level)
    return levels


class _Parting(NamedTuple):
    """Brokers with more disk for their network, and others; of each partition both hold so many replicas together."""

    group: Flags
    """B."""
    others: Flags
    """B."""
    least: Ints
    """P: the fewest replicas that the group holds."""
    most: Ints
    """P."""
    held: Ints
    """P: replicas on both. All three by partition in any one order."""


def _partings(arrays: ClusterArrays, spread: RackReplicas, ratio: Floats) -> Iterator[_Parting]:
    """All brokers in two, then those of some racks: they hold what they must, whatever the others could hold."""
    for group in _groups(ratio, arrays.alive):
        others = arrays.alive & ~group
        least, most = replicas_on(arrays, spread, group)
        held = np.minimum(spread.factors[spread.factor_of], most + replicas_on(arrays, spread, others)[1])
        yield _Parting(group, others, least, most, held)
    for racks in _scopes(arrays, spread):
        inside = arrays.alive & np.isin(arrays.racks, spread.racks[racks])
        for group in _groups(ratio, inside):
            yield _parted_inside(arrays, spread, racks, group, inside & ~group)


def _scopes(arrays: ClusterArrays, spread: RackReplicas) -> list[Indices]:
    """Places of racks that are looked at by themselves: each alone, and the smallest together; none without racks."""
    members = np.bincount(arrays.racks[arrays.alive])[spread.racks]
    if len(members) > SCOPES_MAX or (members == 1).all():
        return []
    smallest = np.argsort(members, kind="stable")
    return [*(np.array([place]) for place in range(len(members))), *(smallest[:n] for n in range(2, len(members)))]


def _parted_inside(
    arrays: ClusterArrays, spread: RackReplicas, racks: Indices, group: Flags, others: Flags
) -> _Parting:
    """`group` and `others` are all brokers of some racks, which hold their least, or what the other racks leave."""
    left = spread.factors - np.delete(spread.highest, racks, axis=1).sum(axis=1)
    held = np.maximum(spread.lowest[:, racks].sum(axis=1), left)
    most, most_of_others = (
        np.minimum(spread.highest[:, racks], _by_rack(arrays, spread.racks[racks], part)).sum(axis=1)
        for part in (group, others)
    )
    held = np.minimum(held, most + most_of_others)  # more replicas than brokers to hold them are nowhere
    least = np.maximum(held - most_of_others, 0)
    at = spread.factor_of
    return _Parting(group, others, least[at], np.minimum(held, most)[at], held[at])


def _rates(placement: Placement, resource: Resource, column: np.int64) -> Floats:
    """P: what every replica of a partition brings, whoever leads; nothing, if a replica elsewhere could lead."""
    if resource is Resource.BYTES_IN:
        return placement.following[:, column]
    is_alone = (placement.original != NO_BROKER).sum(axis=1) == 1
    return np.where(is_alone, placement.leading[:, column], 0.0)


def _groups(ratio: Floats, among: Flags) -> list[Flags]:
    """Returns groups of the brokers `among`: at each step of `ratio`, those with most disk for their network."""
    steps = np.unique(ratio[among].round(9))[1:]
    if len(steps) > GROUPS_MAX:
        steps = steps[np.linspace(0, len(steps) - 1, GROUPS_MAX).round().astype(np.int64)]
    return [among & (ratio.round(9) >= step) for step in steps]


def replicas_on(arrays: ClusterArrays, spread: RackReplicas, group: Flags) -> tuple[Ints, Ints]:
    """P and P: the fewest and the most replicas of each partition that the brokers of `group` hold."""
    inside, outside = (_by_rack(arrays, spread.racks, part) for part in (group, arrays.alive & ~group))
    most_inside, most_outside = (
        np.minimum(spread.factors, np.minimum(spread.highest, counts).sum(axis=1)) for counts in (inside, outside)
    )
    forced_inside = np.maximum(spread.lowest - outside, 0).sum(axis=1)
    fewest = np.minimum(np.maximum(spread.factors - most_outside, forced_inside), most_inside)
    return fewest[spread.factor_of], most_inside[spread.factor_of]


def _by_size_for_rate(rates: Floats, sizes: Floats) -> Indices:
    order: Indices = np.argsort(-sizes / np.maximum(rates, 1e-300), kind="stable")
    return order


def _by_rack(arrays: ClusterArrays, racks: Ints, part: Flags) -> Ints:
    """How many brokers of `part` (B) are in each of `racks`."""
    return np.array([(part & (arrays.racks == rack)).sum() for rack in racks], dtype=np.int32)


def _level_with_heaviest(rates: Floats, sizes: Floats, parting: _Parting, network: float, rest: float) -> float:
    """`_least_level`, where the partition with the highest rate has a whole number of its replicas on either side."""
    least, most, total = parting.least, parting.most, float((sizes * parting.held).sum())
    heaviest = int(np.argmax(rates))
    if rates[heaviest] < HEAVY * network or least[heaviest] == most[heaviest]:
        return _least_level(rates, sizes, (least, most), network, rest, total)
    levels = []
    for count in range(int(least[heaviest]), int(most[heaviest]) + 1):
        fewest, highest = least.copy(), most.copy()
        fewest[heaviest] = highest[heaviest] = count
        levels.append(_least_level(rates, sizes, (fewest, highest), network, rest, total))
    return min(levels)


def least_level(rates: Floats, sizes: Floats, least: Ints, most: Ints, network: float, rest: float) -> float:
    """The least level at which brokers with `network` of the network leave no more disk than the others can hold.

    `rates` and `sizes` (P) are those of one replica, `least` and `most` how many of its replicas those brokers hold;
    the others have `rest` of the disk. Both loads are fractions that add up to 1.
    """
    order = _by_size_for_rate(rates, sizes)
    return _least_level(rates[order], sizes[order], (least[order], most[order]), network, rest, 1.0)


def _least_level(
    rates: Floats, sizes: Floats, counts: tuple[Ints, Ints], network: float, rest: float, total: float
) -> float:
    """Returns what `least_level` does, of partitions in the order in which brokers take them; all disk is `total`."""
    least, most = counts
    optional = most - least
    held_rate, held_size = float((rates * least).sum()), float((sizes * least).sum())
    by_rate = np.concatenate(([held_rate], held_rate + np.cumsum(rates * optional)))
    by_size = np.concatenate(([held_size], held_size + np.cumsum(sizes * optional)))

    def suffices(level: float) -> bool:
        budget = level * network
        return budget >= held_rate and float(np.interp(budget, by_rate, by_size)) + level * rest >= total

    return least_that_suffices(suffices, highest=max(1.0, total / rest, held_rate / network))


def least_that_suffices(suffices: Callable[[float], bool], *, highest: float, steps: int = STEPS) -> float:
    """The least level between 1 and `highest` that suffices, as all above it do, or a little less: after so many
    halvings of the interval.

    >>> round(least_that_suffices(lambda level: level >= 1.25, highest=2.0), 9)
    1.25
    """
    low, high = 1.0, highest
    if suffices(low):
        return low
    for _ in range(steps):
        middle = (low + high) / 2.0
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return low
