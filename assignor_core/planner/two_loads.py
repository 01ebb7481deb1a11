"""What the heaviest partition forces on two loads together: its brokers have little room, so they sort the rest.

Brokers that hold a heavy partition have room for few others in its load. In another load they may have much room left.
To use it they need partitions with much of the second load for little of the first, and the cluster may not have so
many. What they leave, the others must carry. The least level of both loads follows from the best possible choice, as in
`proportions`: a fractional knapsack, the last replica in part.

The heaviest partition may lie on any brokers that its racks allow, so the least of all these levels counts. A level
is a factor on the bounds of the single loads: no placement has both loads below this factor times their own bounds.

Invariants: the level holds for every placement that spreads racks as evenly as it can. It bounds the worse of the two
loads, not each. Nothing moves here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations, combinations_with_replacement, product

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Flags, Placement
from assignor_core.planner.proportions import NOTICEABLE, least_level, replicas_on
from assignor_core.planner.rack_replicas import RackReplicas, replicas_by_rack
from assignor_core.resources import Resource

FOLLOWED = (Resource.BYTES_IN, Resource.DISK)
"""Loads that every replica brings, leader or not."""
LED = (Resource.BYTES_OUT, Resource.LEADER_BYTES_IN)
"""Loads that go with them where every partition has one replica."""
HEAVY = 0.25
"""A partition is heavy if one replica takes this part of what the largest broker should carry."""
BROKERS_MAX = 64
"""With more brokers one partition forces little on the others."""
KINDS_MAX = 12
"""Kinds of brokers, by rack and shares; with more of them nothing is claimed."""
PLACES_MAX = 64
"""Sets of kinds that may hold the heaviest partition; with more of them nothing is claimed."""


def levels_together(
    arrays: ClusterArrays, placement: Placement, share: Floats, bounds: Mapping[str, float]
) -> dict[tuple[Resource, Resource], float]:
    """By pair of loads, the factor above 1 on their `bounds` (max over mean of each alone) that both can't be below.

    Brokers 1 and 2 have equal networks, and broker 1 three quarters of the disk. Each partition is half of all. The
    heaviest on broker 1 leaves half of the disk for broker 2, unless broker 1 takes 4 thirds of its network. On broker
    2 it would be twice the disk that this should hold.

    >>> state = state_of((1,), (2,))
    >>> arrays, share = state.problem.arrays, state.problem.share.copy()
    >>> share[:, arrays.columns.of(Resource.DISK)] = [[0.75], [0.25]]
    >>> bounds = {Resource.BYTES_IN: 1.0, Resource.DISK: 1.0}
    >>> levels = levels_together(arrays, state.placement, share, bounds)
    >>> round(levels[Resource.BYTES_IN, Resource.DISK], 6)
    1.333333
    """
    levels: dict[tuple[Resource, Resource], float] = {}
    if not arrays.partitions or not 1 < int(arrays.alive.sum()) <= BROKERS_MAX:
        return levels
    columns, spread = arrays.columns, replicas_by_rack(arrays)
    is_alone = bool(((placement.original != NO_BROKER).sum(axis=1) == 1).all())
    resources = [resource for resource in (FOLLOWED + LED if is_alone else FOLLOWED) if resource in bounds]
    # Loads of one replica: where all have one, what it leads, else what every replica brings.
    replica_loads = placement.leading if is_alone else placement.following
    for window, both in product(range(columns.windows), combinations(resources, 2)):
        pair = [int(columns.of(resource)[window]) for resource in both]
        scaled = share[:, pair] * [bounds[resource] for resource in both]
        # Fractions of nothing do not add up to 1: what no partition brings forces nothing.
        if placement.loads[:, pair].any(axis=0).all() and (scaled[arrays.alive] > 0).all():
            level = _level_of(arrays, replica_loads[:, pair], scaled, spread)
            if level > 1.0 + NOTICEABLE:
                levels[both] = max(level, levels.get(both, 1.0))
    return levels


def _level_of(arrays: ClusterArrays, loads: Floats, share: Floats, spread: RackReplicas) -> float:
    """The highest level over the heaviest partitions of either load: `loads` P x 2 of one replica, `share` B x 2."""
    level = 1.0
    for partition in sorted(set(np.argmax(loads, axis=0).tolist())):
        if (loads[partition] / share.max(axis=0)).max() < HEAVY:
            continue
        levels = []
        for group in _places(arrays, spread, share, partition):
            levels.append(_level_at(arrays, loads, share, replicas_on(arrays, spread, group), (partition, group)))
            if levels[-1] <= level:
                break
        level = max(level, min(levels, default=1.0))
    return level


def _level_at(
    arrays: ClusterArrays, loads: Floats, share: Floats, counts: tuple[Ints, Ints], place: tuple[int, Flags]
) -> float:
    """The level if a partition lies on a group of brokers (`place`), which hold so many replicas of each (`counts`).

    Either load may be the one that leaves little room, so the higher of two levels counts.
    """
    (least, most), (partition, group) = counts, place
    least[partition] = most[partition] = group.sum()
    others = arrays.alive & ~group
    return max(
        least_level(
            loads[:, tight],
            loads[:, wide],
            least,
            most,
            float(share[group, tight].sum()),
            float(share[others, wide].sum()),
        )
        for tight, wide in ((0, 1), (1, 0))
    )


def _places(arrays: ClusterArrays, spread: RackReplicas, shares: Floats, partition: int) -> Iterator[Flags]:
    """Sets of brokers (B) that may hold all replicas of `partition`, one for each choice of kinds; none if too many."""
    at = spread.factor_of[partition]
    alive = np.flatnonzero(arrays.alive if arrays.sets is None else arrays.alive & arrays.sets.members[spread.sets[at]])
    factor = int(spread.factors[at])
    # Where each broker is a rack of its own, any brokers keep the rule, and racks only make kinds.
    has_racks = len(spread.racks) < int(arrays.alive.sum())
    kinds: dict[tuple[float, ...], list[int]] = {}
    for broker in alive.tolist():
        rack = float(arrays.racks[broker]) if has_racks else 0.0
        kinds.setdefault((rack, *shares[broker].tolist()), []).append(broker)
    if len(kinds) > KINDS_MAX or factor >= len(alive):
        return
    places = [
        chosen
        for chosen in (Counter(some) for some in combinations_with_replacement(sorted(kinds), factor))
        if all(count <= len(kinds[kind]) for kind, count in chosen.items())
    ]
    if len(places) > PLACES_MAX:
        return
    for chosen in places:
        group = np.zeros(len(arrays.racks), dtype=np.bool_)
        for kind, count in chosen.items():
            group[kinds[kind][:count]] = True
        in_rack = np.array([(group & (arrays.racks == rack)).sum() for rack in spread.racks])
        if (spread.lowest[at] <= in_rack).all() and (in_rack <= spread.highest[at]).all():
            yield group
