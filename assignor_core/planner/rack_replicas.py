"""How many replicas of a partition each rack holds where it is spread as evenly as the racks allow.

By replication factor, not by partition: without racks every broker is a rack of its own, and a figure for each
partition and rack would take gigabytes. Nothing moves here.
"""

from typing import NamedTuple

import numpy as np

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints
from assignor_core.planner.placement import Indices
from assignor_core.racks import spread_range


class RackReplicas(NamedTuple):
    """How many replicas of a partition racks hold where it is spread evenly: F replication factors, K racks."""

    racks: Ints
    """K racks with brokers that are alive."""
    factors: Ints
    """F different replication factors, ascending."""
    lowest: Ints
    """F x K."""
    highest: Ints
    """F x K."""
    factor_of: Indices
    """P: which of the factors each partition has."""

    def sums(self, values: Floats) -> Floats:
        """F sums of `values` (P) over the partitions of each factor."""
        sums: Floats = np.bincount(self.factor_of, weights=values, minlength=len(self.factors)).astype(np.float64)
        return sums


def replicas_by_rack(arrays: ClusterArrays) -> RackReplicas:
    """What an even spread over the racks of `arrays` lets each rack hold."""
    racks, members = np.unique(arrays.racks[arrays.alive], return_counts=True)
    factors, index = np.unique((arrays.replicas != NO_BROKER).sum(axis=1), return_inverse=True)
    ranges = [spread_range(int(factor), members.tolist()) for factor in factors]
    lowest, highest = (np.array([both[at] for both in ranges], dtype=np.int32) for at in (0, 1))
    return RackReplicas(racks, factors.astype(np.int32), lowest, highest, index)
