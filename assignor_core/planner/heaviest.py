"""What the heaviest partition forces on the others: it fills some brokers, and each other broker takes one replica of
each partition at most.

On few brokers one partition may take most of what several of them can carry. What is left must fit on the others; but
these hold at most one replica of each partition, and their racks at most their part of it. So the brokers of the heavy
partition may have to carry more than its replica, and what is least follows from where it lies at best.

Invariants: the level holds for every placement that spreads racks as evenly as it can; all that is relaxed, such as
whole replicas and the choice of each rack's brokers, makes it lower. Nothing moves here.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Placement
from assignor_core.planner.rack_replicas import replicas_by_rack

HEAVY = 0.25
"""A partition is heavy if one replica takes this part of what the largest broker should carry."""
BROKERS_MAX = 64
"""With more brokers one partition forces little on the others."""
STEPS = 80
"""Halvings of the interval of the level, which reaches to 1 / the least share of a broker."""


def level_beside_heaviest(arrays: ClusterArrays, placement: Placement, share: Floats, column: int) -> float:
    """The least max over mean of a load that comes with every replica, beside the partition that is heaviest in it.

    Four brokers without racks, and two partitions on two of them each. Partition 0 is 8 of 10 parts: a broker with it
    carries 4 tenths of the load, 1.6 fair shares, and the other two take all of partition 1.

    >>> state = state_of((1, 2), (1, 2), loads=(8.0, 2.0), brokers=4)
    >>> disk = int(state.placement.arrays.columns.of(Resource.DISK)[0])
    >>> round(level_beside_heaviest(state.placement.arrays, state.placement, state.problem.share, disk), 6)
    1.6
    """
    loads = placement.following[:, column]
    largest = float(share[:, column].max(initial=0.0))
    count = int(arrays.alive.sum())
    if not len(loads) or not 0 < count <= BROKERS_MAX or loads.max() < HEAVY * largest:
        return 1.0
    case = _case(arrays, loads, share[:, column])
    low, high = 1.0, max(1.0, 1.0 / float(share[arrays.alive, column].min()))
    if case.fits(low) or not case.fits(high):
        return low
    for _ in range(STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if case.fits(middle) else (middle, high)
    return low


class _Case(NamedTuple):
    """The heaviest partition, and all others together; K racks."""

    shares: list[Floats]
    """By rack, the shares of its brokers."""
    load: float
    """Load of one replica of the heaviest partition."""
    lowest: Ints
    """K fewest replicas of the heaviest partition in each rack."""
    highest: Ints
    """K most replicas of the heaviest partition in each rack."""
    replicas: int
    others_once: float
    """One replica of each other partition: the most that a broker holds of them."""
    others_most: Floats
    """K most of their loads in each rack."""
    others: float
    """Load of all replicas of the other partitions."""

    def fits(self, level: float) -> bool:
        """Whether brokers at `level` have room for all, wherever the heaviest lies."""
        if int(self.lowest.sum()) > self.replicas:
            return False
        fewest, differences = [], []
        for rack, share in enumerate(self.shares):
            room = np.minimum(level * share, self.others_once)
            beside = np.where(level * share >= self.load, np.minimum(level * share - self.load, room), -np.inf)
            lost = np.concatenate(([0.0], np.cumsum(np.sort(room - beside))))
            low, high = (
                min(float(self.others_most[rack]), float(room.sum() - lost[int(count[rack])]))
                for count in (self.lowest, self.highest)
            )
            fewest.append(low)
            if self.highest[rack] > self.lowest[rack]:
                differences.append(low - high)
        more = self.replicas - int(self.lowest.sum())
        if not np.isfinite(fewest).all() or more > len(differences):
            return False
        return sum(fewest) - sum(sorted(differences)[:more]) >= self.others


def _case(arrays: ClusterArrays, loads: Floats, share: Floats) -> _Case:
    """The heaviest partition by `loads` (P, of one replica), on brokers with `share` (B)."""
    spread = replicas_by_rack(arrays)
    heaviest = int(np.argmax(loads))
    others = loads.copy()
    others[heaviest] = 0.0
    by_factor = spread.sums(others)
    at = spread.factor_of[heaviest]
    return _Case(
        shares=[share[arrays.alive & (arrays.racks == rack)] for rack in spread.racks],
        load=float(loads[heaviest]),
        lowest=spread.lowest[at],
        highest=spread.highest[at],
        replicas=min(int(spread.factors[at]), int(arrays.alive.sum())),
        others_once=float(others.sum()),
        others_most=(by_factor[:, None] * spread.highest).sum(axis=0),
        others=float((by_factor * spread.factors).sum()),
    )
