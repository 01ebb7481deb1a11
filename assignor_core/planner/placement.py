"""A placement that can be changed: replica lists, and the loads that follow from them.

Loads are fractions of the cluster's total per column, so that bytes/s compare with bytes and with counts, and they lie
on a grid, so that sums are exact in any order. The module knows loads, not rules.

Invariant: `loads` is what `replicas` puts on brokers (tests/core/planner/test_placement.py).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from assignor_core.load import NEGLIGIBLE, NO_BROKER, ClusterArrays, Floats, Ints, RackReads, add_reads, broker_loads
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


TABLE_MAX = 2**25
"""Most figures of the table that a search for failover headroom needs, one for each broker, zone and window: 256 MiB.
That is enough for 5,792 brokers, or for 1,158 brokers and 25 windows.
"""


class ServedInRacks:
    """What replicas serve to the consumers of their racks, for partitions that followers serve; fractions on the grid.

    Such loads depend on where the replicas are, not on their roles alone. A move within a rack takes what is served
    along, and a new leader changes nothing of it unless two replicas share a rack. So the search moves such replicas
    within their racks only (`round_trials`), where what it scores is exact. Repair may have to leave a rack: what is
    served then goes to the leader, which `repair` looks at before.
    """

    def __init__(self, arrays: ClusterArrays, reads: RackReads, scale: Floats) -> None:
        """`scale` (C) turns figures into fractions."""
        self._arrays = arrays
        self._columns = arrays.columns.of(Resource.BYTES_OUT)
        self.reads = replace(reads, rates=on_grid(reads.rates * scale[self._columns]))
        """What consumers of racks read."""
        self._place: Indices = np.full(len(arrays.partitions), NO_BROKER, dtype=np.int64)
        self._place[reads.partitions] = np.arange(len(reads.partitions))
        self.is_bound: Flags = self._place != NO_BROKER
        """P: replicas should stay in their racks."""

    def add_all(self, loads: Floats, replicas: Ints) -> None:
        """Adds what all `replicas` (P x R) serve to `loads` (B x C)."""
        held = replicas[self.reads.partitions]
        add_reads(loads, self._arrays, held, self.reads.by_slot(held, self._arrays.racks, on_grid))

    def add_to_brokers(
        self, loads: Floats, places: list[int], partition: int, replicas: list[int], sign: float
    ) -> None:
        """Adds `sign` times what one partition's `replicas` would serve to the rows of `loads` at `places`."""
        row = np.full((1, self._arrays.replicas.shape[1]), NO_BROKER, dtype=np.int32)
        row[0, : len(replicas)] = replicas
        at, reads = int(self._place[partition]), self.reads
        pairs = slice(int(reads.begin[at]), int(reads.begin[at + 1]))
        begin = np.array([0, pairs.stop - pairs.start])
        alone = RackReads(reads.partitions[at : at + 1], begin, reads.racks[pairs], reads.rates[pairs])
        served = alone.by_slot(row, self._arrays.racks, on_grid)
        for slot, place in enumerate(places):
            loads[place, self._columns] += sign * served[0, slot]


class Placement:
    """Replica lists and the loads that follow from them; mutable.

    Brokers 1 and 2 are indices 0 and 1 here; half of each load is a partition's:

    >>> placement = state_of((1, 2), (1, 2)).placement
    >>> leaders = placement.arrays.columns.of(Resource.LEADERS)
    >>> placement.loads[:, leaders].tolist()
    [[1.0], [0.0]]
    >>> placement.take(np.array([[1, 0], [0, 1]]))
    >>> placement.loads[:, leaders].tolist()
    [[0.5], [0.5]]
    >>> placement.changed().tolist()
    [0]
    """

    def __init__(self, arrays: ClusterArrays, zones: Indices | None = None) -> None:
        """`zones` (B) are brokers that go offline together, for policies that ask for failover headroom."""
        total = broker_loads(arrays).sum(axis=0)
        # A column without load stays 0 instead of dividing by nothing.
        scale = np.where(total > NEGLIGIBLE, 1.0 / np.where(total > NEGLIGIBLE, total, 1.0), 0.0)
        self.arrays = arrays
        self.zones = zones
        self.scale = scale
        """C: what turns a figure into a fraction of the total."""
        self.searched_zones = zones if zones is not None and self._is_searchable(zones) else None
        """The zones if a search may choose heirs; None also where plans can only show what failovers would do."""
        self.original = arrays.replicas
        self.replicas = arrays.replicas.copy()
        """P x R broker indices, leader first, NO_BROKER behind the last."""
        self.leading = on_grid(arrays.leader_load * scale)
        """P x C load on the broker that leads, without what stays in racks."""
        self.following = on_grid(arrays.follower_load * scale)
        """P x C load on each broker that follows."""
        self.in_racks = None if arrays.rack_reads is None else ServedInRacks(arrays, arrays.rack_reads, scale)
        """What replicas serve to consumers of their racks besides; None where followers serve nobody."""
        self.loads = self._loads_of(self.replicas)
        """B x C."""
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

    def take(self, rows: Ints) -> None:
        """Have the replicas and the leaders of these rows (P x R) from now on; the loads follow.

        Of other followers the order means nothing: replicas that stay keep their places in the original list, and new
        ones take the places of those that leave. Only where a search chooses heirs does the first follower that could
        take over mean something.

        >>> placement = state_of((1, 2, 3), brokers=4).placement
        >>> placement.take(np.array([[0, 3, 1]]))
        >>> placement.replicas.tolist()
        [[0, 1, 3]]
        """
        placed_rows = self.original.copy()
        for partition in np.flatnonzero((rows != self.original).any(axis=1)).tolist():
            row = [broker for broker in rows[partition].tolist() if broker != NO_BROKER]
            old = self.original[partition, : len(row)].tolist()
            arriving = iter([broker for broker in row if broker not in old])
            placed = [broker if broker in row else next(arriving) for broker in old]
            leader = placed.index(row[0])
            placed[0], placed[leader] = placed[leader], placed[0]
            placed_rows[partition, : len(row)] = placed
        if self.searched_zones is not None:
            _put_heirs_first(placed_rows, heirs(rows, self.searched_zones), self.searched_zones)
        self.hold(placed_rows)

    def hold(self, rows: Ints) -> None:
        """Have just these rows (P x R) from now on, followers in their order; the loads follow."""
        self.replicas = rows
        self.loads = self._loads_of(rows)

    def _is_searchable(self, zones: Indices) -> bool:
        """Whether a broker in use has a capacity of bytes out, and the table of brokers by zones is small enough."""
        out = self.arrays.columns.of(Resource.BYTES_OUT)
        capacity = self.arrays.capacity_for(Resource.BYTES_OUT)[self.arrays.alive]
        is_limited = bool(np.isfinite(capacity).any() and (self.scale[out] > 0).any())
        return is_limited and len(zones) * (int(zones.max(initial=0)) + 1) * len(out) <= TABLE_MAX

    def _loads_of(self, rows: Ints) -> Floats:
        own = replace(self.arrays, leader_load=self.leading, follower_load=self.following, rack_reads=None)
        loads = broker_loads(own, rows)
        if self.in_racks is not None:
            self.in_racks.add_all(loads, rows)
        return loads

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


def heirs(rows: Ints, zones: Indices) -> Indices:
    """P: who leads each partition of `rows` (P x R) once the zone of its leader is offline; NO_BROKER if nobody could.

    >>> heirs(np.array([[0, 1, 2], [2, 0, NO_BROKER], [1, NO_BROKER, NO_BROKER]]), np.array([0, 0, 1])).tolist()
    [2, 0, -1]
    """
    zone = np.where(rows != NO_BROKER, zones[rows], NO_BROKER)
    able = (zone != NO_BROKER) & (zone != zone[:, :1])
    able &= zone[:, :1] != NO_BROKER
    first = np.argmax(able, axis=1)
    found: Indices = np.where(able.any(axis=1), rows[np.arange(len(rows)), first], NO_BROKER).astype(np.int64)
    return found


def _put_heirs_first(rows: Ints, wanted: Indices, zones: Indices) -> None:
    """Exchange followers in `rows` (P x R) so that each partition has the heir that is `wanted` (P)."""
    for partition in np.flatnonzero(heirs(rows, zones) != wanted).tolist():
        row = rows[partition].tolist()
        slot = row.index(int(wanted[partition]))
        rows[partition, 1], rows[partition, slot] = row[slot], row[1]
