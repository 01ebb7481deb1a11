"""Which replica serves which consumers, where followers serve some of them (KIP-392).

With Kafka's RackAwareReplicaSelector a consumer that names its rack (`client.rack`) reads from a replica in that rack:
from the leader if that stands there, else from a follower. Of several followers in one rack the most caught up serves,
so each is taken to serve the same part. All others read from the leader, wherever it is.

What consumers of a rack read therefore stays in their rack, whoever leads, and all else goes with the leadership.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class RackReads:
    """What consumers of racks read, as arrays: N pairs of a partition and a rack, over W windows.

    Only of partitions that followers can serve, and of racks with a broker; leaders' loads have all else.
    """

    partitions: NDArray[np.int64]
    """Rows of the partitions that have pairs, ascending: M."""
    begin: NDArray[np.int64]
    """Pairs of partition m are `begin[m]` to `begin[m + 1]`."""
    racks: Ints
    """Index of the rack of each pair."""
    rates: Floats
    """N x W bytes/s."""

    @property
    def rows(self) -> NDArray[np.int64]:
        """The place of each pair's partition in `partitions`."""
        return np.repeat(np.arange(len(self.partitions)), np.diff(self.begin))

    def by_slot(self, replicas: Ints, racks_of_brokers: Ints) -> Floats:
        """M x R x W bytes/s that each replica serves, if the partitions have these `replicas` (M x R, leader first)."""
        rows = self.rows
        parts = parts_by_slot(replicas[rows], self.racks, racks_of_brokers)
        served = np.zeros((*replicas.shape, self.rates.shape[1]))
        np.add.at(served, rows, parts[:, :, None] * self.rates[:, None, :])
        return served


def in_rack(replicas: Ints, racks: Ints, racks_of_brokers: Ints) -> NDArray[np.bool_]:
    """N x R: whether each of `replicas` stands in the rack of its pair (N); none does behind the last replica."""
    there: NDArray[np.bool_] = (replicas >= 0) & (racks_of_brokers[replicas] == racks[:, None])
    return there


def parts_by_slot(replicas: Ints, racks: Ints, racks_of_brokers: Ints) -> Floats:
    """N x R part of what each pair's rack reads that each of its partition's replicas serves."""
    here = in_rack(replicas, racks, racks_of_brokers)
    count = here.sum(axis=1)
    parts: Floats = here / np.maximum(count, 1)[:, None]
    by_leader = here[:, 0] | (count == 0)
    parts[by_leader] = 0.0
    parts[by_leader, 0] = 1.0
    return parts
