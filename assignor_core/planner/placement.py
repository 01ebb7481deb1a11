"""A placement that can be edited: replica lists, and loads kept current with each edit.

Loads are fractions of the cluster's total per column, so that bytes/s compare with bytes and with counts, and they lie
on a grid, so that sums are exact. An edit therefore adds and subtracts what it changes, and its reversal gives back the
same bits; nothing is summed up anew. The module knows what an edit does to loads, not whether it is good or allowed.

Invariant: `loads` is what `replicas` puts on brokers, after every edit (tests/core/planner/test_properties.py).
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assignor_core.load import NEGLIGIBLE, NO_BROKER, ClusterArrays, Floats, broker_loads
from assignor_core.planner.rack_reads import ServedInRacks
from assignor_core.resources import Resource

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

GRID = 2.0**40
"""Fractions are multiples of 1 / GRID: float64 adds them exactly in any order, and loads in other units, which divide
to fractions that differ in the last bit, become the same ones. A broker's sum is off by less than 1e-8 of the total."""


def on_grid(fractions: Floats) -> Floats:
    """`fractions` rounded to the grid.

    >>> bool(on_grid(np.array([0.1 * 3])) == on_grid(np.array([0.3])))
    True
    """
    rounded: Floats = np.rint(fractions * GRID) / GRID
    return rounded


class Edit(NamedTuple):
    """The smallest change of a replica list."""

    partition: int
    slot: int
    """Place in the replica list; 0 is the leader."""
    target: int
    """Broker that takes the replica of that slot. With NO_BROKER the replica stays where it is and becomes leader."""


class Placement:
    """Replica lists and the loads that follow from them; mutable.

    Brokers 1 and 2 are indices 0 and 1 here; half of each load is a partition's:

    >>> placement = state_of((1, 2), (1, 2)).placement
    >>> leaders = placement.arrays.columns.of(Resource.LEADERS)
    >>> placement.loads[:, leaders].tolist()
    [[1.0], [0.0]]
    >>> placement.lead(0, slot=1)
    >>> placement.replicas.tolist(), placement.loads[:, leaders].tolist()
    ([[1, 0], [0, 1]], [[0.5], [0.5]])
    >>> placement.changed().tolist()
    [0]
    """

    def __init__(self, arrays: ClusterArrays) -> None:
        total = broker_loads(arrays).sum(axis=0)
        # A column without load stays 0 instead of dividing by nothing.
        scale = np.where(total > NEGLIGIBLE, 1.0 / np.where(total > NEGLIGIBLE, total, 1.0), 0.0)
        self.arrays = arrays
        self.scale = scale
        """C: what turns a figure into a fraction of the total."""
        self.original = arrays.replicas
        self.replicas = arrays.replicas.copy()
        """P x R broker indices, leader first, NO_BROKER behind the last."""
        self.leading = on_grid(arrays.leader_load * scale)
        """P x C load on the broker that leads, without what stays in racks."""
        self.following = on_grid(arrays.follower_load * scale)
        """P x C load on each broker that follows."""
        self.in_racks = None if arrays.rack_reads is None else ServedInRacks(arrays, arrays.rack_reads, scale, on_grid)
        """What replicas serve to consumers of their racks besides; None where followers serve nobody."""
        self.loads = broker_loads(
            replace(arrays, leader_load=self.leading, follower_load=self.following, rack_reads=None)
        )
        """B x C."""
        if self.in_racks is not None:
            self.in_racks.add_all(self.loads, self.replicas)
        self.original_loads = self.loads.copy()
        disk = arrays.columns.of(Resource.DISK)
        # The fullest window counts: a copy has to fit whenever it is made.
        self.disk_bytes: Floats = arrays.leader_load[:, disk].max(axis=1)
        """P: bytes of one replica."""
        self.disk_fraction: Floats = self.following[:, disk].max(axis=1)
        """P: the same as fraction of the cluster's disk."""

    def held_by(self, broker: int) -> Indices:
        """Partitions with a replica on `broker`, ascending; all rows are read, P x R."""
        return np.flatnonzero((self.replicas == broker).any(axis=1))

    def slots_of(self, partitions: Indices, broker: int) -> Indices:
        """Place of `broker` in the replica list of each partition: 0 where it leads."""
        slots: Indices = np.argmax(self.replicas.take(partitions, axis=0) == broker, axis=1)
        return slots

    def loads_at(self, partitions: Indices, slots: Indices) -> Floats:
        """N x C what each replica puts on its broker."""
        # `take` copies whole rows: it needs half the time of an index in brackets, and every look comes by here.
        loads: Floats = self.following.take(partitions, axis=0)
        leads = np.flatnonzero(slots == 0)
        loads[leads] = self.leading.take(partitions[leads], axis=0)
        if self.in_racks is not None:
            self.in_racks.add_at(loads, partitions, slots)
        return loads

    def move(self, partition: int, slot: int, target: int) -> None:
        """The replica in `slot` goes to `target`, and keeps its slot."""
        source = int(self.replicas[partition, slot])
        load = self.leading[partition] if slot == 0 else self.following[partition]
        self.loads[source] -= load
        self.loads[target] += load
        self._take_served(partition)
        self.replicas[partition, slot] = target
        self._put_served(partition)

    def lead(self, partition: int, slot: int) -> None:
        """The follower in `slot` becomes leader; the leader takes its slot."""
        old, new = int(self.replicas[partition, 0]), int(self.replicas[partition, slot])
        change = self.leading[partition] - self.following[partition]
        self.loads[old] -= change
        self.loads[new] += change
        self._take_served(partition)
        self.replicas[partition, 0], self.replicas[partition, slot] = new, old
        self._put_served(partition)

    def restore(self, partition: int) -> None:
        """Put the replicas of `partition` back to where they were at first."""
        for slot, broker in enumerate(self.replicas[partition]):
            if broker != NO_BROKER:
                self.loads[broker] -= (self.leading if slot == 0 else self.following)[partition]
        self._take_served(partition)
        self.replicas[partition] = self.original[partition]
        self._put_served(partition)
        for slot, broker in enumerate(self.replicas[partition]):
            if broker != NO_BROKER:
                self.loads[broker] += (self.leading if slot == 0 else self.following)[partition]

    def changed(self) -> Indices:
        """Partitions whose replica list differs from the original one."""
        return np.flatnonzero((self.replicas != self.original).any(axis=1))

    def inflow(self) -> Floats:
        """B: bytes that are copied to each broker from where the replicas were at first."""
        inflow = np.zeros(len(self.arrays.broker_ids))
        changed = self.changed()
        for slot in range(self.replicas.shape[1]):
            brokers = self.replicas[changed, slot]
            copied = (brokers != NO_BROKER) & (self.original[changed] != brokers[:, None]).all(axis=1)
            np.add.at(inflow, brokers[copied], self.disk_bytes[changed[copied]])
        return inflow

    def _take_served(self, partition: int) -> None:
        """Before its replicas are changed: what they serve in their racks leaves the loads."""
        if self.in_racks is not None and self.in_racks.is_bound[partition]:
            self.in_racks.shift(self.loads, partition, self.replicas[partition], -1.0)

    def _put_served(self, partition: int) -> None:
        """After it: what they serve now comes into the loads."""
        if self.in_racks is not None and self.in_racks.is_bound[partition]:
            self.in_racks.update(partition, self.replicas[partition])
            self.in_racks.shift(self.loads, partition, self.replicas[partition], 1.0)
