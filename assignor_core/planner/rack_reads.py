"""What replicas serve to the consumers of their racks, wherever they are.

A partition that followers serve has loads that depend on where its replicas are, not on their roles alone. A move
within a rack takes what is served along, and a new leader changes nothing of it unless two replicas share a rack. So
the search moves such replicas within their racks only (`round_trials`), where what it scores is exact.
Repair may have to leave a rack: what is served then goes to the leader, which `repair` looks at before.

Fractions of the total, on the grid of `placement`. The module knows loads, not rules.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from assignor_core.follower_reads import RackReads, parts_by_slot
from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, add_reads
from assignor_core.resources import Resource

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


class ServedInRacks:
    """For M partitions that followers serve, what each of R replicas serves to its rack over W windows."""

    def __init__(
        self, arrays: ClusterArrays, reads: RackReads, scale: Floats, to_grid: Callable[[Floats], Floats]
    ) -> None:
        """`scale` (C) turns figures into fractions, `to_grid` rounds these."""
        self._arrays = arrays
        self._to_grid = to_grid
        self._columns = arrays.columns.of(Resource.BYTES_OUT)
        self._reads = replace(reads, rates=to_grid(reads.rates * scale[self._columns]))
        self._place: Indices = np.full(len(arrays.partitions), NO_BROKER, dtype=np.int64)
        self._place[reads.partitions] = np.arange(len(reads.partitions))
        self.is_bound: Flags = self._place != NO_BROKER
        """P: replicas should stay in their racks."""

    @property
    def reads(self) -> RackReads:
        """What consumers of racks read, as fractions of the total on the grid."""
        return self._reads

    def add_all(self, loads: Floats, replicas: Ints) -> None:
        """Adds what all `replicas` (P x R) serve to `loads` (B x C)."""
        held = replicas[self._reads.partitions]
        add_reads(loads, self._arrays, held, self._by_slot(slice(None), self._reads.rows, held))

    def add_to_brokers(
        self, loads: Floats, places: list[int], partition: int, replicas: list[int], sign: float
    ) -> None:
        """Adds `sign` times what one partition's `replicas` would serve to the rows of `loads` at `places`."""
        row = np.full(self._arrays.replicas.shape[1], NO_BROKER, dtype=np.int32)
        row[: len(replicas)] = replicas
        served = self._of(int(self._place[partition]), row)
        for slot, place in enumerate(places):
            loads[place, self._columns] += sign * served[0, slot]

    def _of(self, place: int, replicas: Ints) -> Floats:
        pairs = slice(int(self._reads.begin[place]), int(self._reads.begin[place + 1]))
        rows = np.zeros(pairs.stop - pairs.start, dtype=np.int64)
        return self._by_slot(pairs, rows, replicas[None, :])

    def _by_slot(self, pairs: slice, rows: Indices, replicas: Ints) -> Floats:
        """What each replica serves of `pairs`, if partitions have `replicas`."""
        racks, rates = self._reads.racks[pairs], self._reads.rates[pairs]
        parts = parts_by_slot(replicas[rows], racks, self._arrays.racks)
        served = np.zeros((*replicas.shape, rates.shape[1]))
        np.add.at(served, rows, self._to_grid(parts[:, :, None] * rates[:, None, :]))
        return served
