"""Sets of brokers as arrays: some topics live on the brokers of one set only, all other topics on any broker.

A set is a matter of a plan's policy, and bounds and loads have to follow it as they follow racks. So it stands beside
the other arrays of a cluster.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SetArrays:
    """K sets of B brokers, and the set of each of P partitions."""

    members: Flags
    """K x B; the first set holds all brokers."""
    set_of: Indices
    """P: the row of `members` that holds for a partition, whether or not all its replicas are there."""
    is_short: Flags
    """P: the set has fewer brokers than the partition has replicas, so its replicas stay where they are."""

    @property
    def kept_set(self) -> Indices:
        """P: the set that all replicas of a partition can be in; the first one for partitions whose set is short."""
        return np.where(self.is_short, 0, self.set_of)

    def outside(self, replicas: NDArray[np.int32]) -> Flags:
        """P x R: which of `replicas` are on a broker outside the set of their partition."""
        return (replicas >= 0) & ~self.members[self.set_of[:, None], replicas]


def any_broker(brokers: int, partitions: int) -> SetArrays:
    """Returns the arrays by which each broker may hold each partition."""
    nowhere = np.zeros(partitions, dtype=np.bool_)
    return SetArrays(np.ones((1, brokers), dtype=np.bool_), np.zeros(partitions, dtype=np.int64), nowhere)
