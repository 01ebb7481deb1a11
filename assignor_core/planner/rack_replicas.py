"""How many replicas of a partition each rack holds where it is spread as evenly as the racks allow.

By replication factor (and set of brokers, where topics live in some), not by partition: without racks every broker is a
rack of its own, and a figure for each partition and rack would take gigabytes. Nothing moves here.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Indices
from assignor_core.racks import spread_range


class RackReplicas(NamedTuple):
    """How many replicas of a partition racks hold where it is spread evenly: F kinds of partitions, by replication
    factor and set of brokers; K racks.
    """

    racks: Ints
    """K racks with brokers that are alive."""
    factors: Ints
    """F replication factors, ascending."""
    sets: Ints
    """F sets of brokers, as rows of `SetArrays.members`; 0 where any broker may hold the partitions."""
    lowest: Ints
    """F x K."""
    highest: Ints
    """F x K."""
    factor_of: Indices
    """P: which kind each partition is of."""

    def sums(self, values: Floats) -> Floats:
        """F sums of `values` (P) over the partitions of each factor."""
        sums: Floats = np.bincount(self.factor_of, weights=values, minlength=len(self.factors)).astype(np.float64)
        return sums


def replicas_by_rack(arrays: ClusterArrays) -> RackReplicas:
    """What an even spread over the racks of `arrays`, or over those of a partition's set, lets each rack hold."""
    racks = np.unique(arrays.racks[arrays.alive])
    counts, sets = (arrays.replicas != NO_BROKER).sum(axis=1), arrays.sets
    members = np.ones((1, len(arrays.alive)), dtype=np.bool_) if sets is None else sets.members
    kinds = counts * len(members) + (0 if sets is None else sets.kept_set)
    found, index = np.unique(kinds, return_inverse=True)
    factors, of_set = np.divmod(found, len(members))
    ranges = []
    for factor, number in zip(factors.tolist(), of_set.tolist(), strict=True):
        held = arrays.racks[arrays.alive & members[number]]
        ranges.append(spread_range(factor, [int((held == rack).sum()) for rack in racks]))
    lowest, highest = (np.array([both[at] for both in ranges], dtype=np.int32) for at in (0, 1))
    return RackReplicas(racks, factors.astype(np.int32), of_set.astype(np.int32), lowest, highest, index)
