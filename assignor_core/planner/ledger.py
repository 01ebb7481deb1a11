"""What a plan has spent so far, what a change would cost, and whether the budgets allow it.

Bytes count against where a replica was at first: bringing it home is refunded, moving it on is free.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Indices, Placement, on_grid
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import Flags

MOVEMENT_PRICE = 0.03
"""What one more movement costs: as much as copying this fraction of a broker's fair share of disk.

Measured on models of 30 to 300 brokers: 0.002 needs twice the movements and ends less even, as large replicas are left
for last; 0.05 copies 3 % more bytes.
"""
TOUCHED_PRICE = MOVEMENT_PRICE / 10
"""The same for a partition that is changed already: it is no further movement."""


class Ledger:
    """Mutable record of one search."""

    def __init__(self, policy: PlannerPolicy, placement: Placement) -> None:
        brokers = max(1, int(placement.arrays.alive.sum()))
        replicas = (placement.original != NO_BROKER).sum(axis=1)
        unit = float((placement.disk_bytes * replicas).sum()) / brokers
        self.unit = unit if unit > 0 else 1.0
        self.touched = np.zeros(len(replicas), dtype=np.bool_)
        self.movements = 0
        self.bytes_copied = 0.0
        self.inflow = np.zeros(len(placement.arrays.broker_ids))
        self._placement = placement
        self._policy = policy
        self._limited = any(b is not None for b in (policy.movements_max, policy.bytes_max, policy.inflow_max))

    def movement_price(self, partitions: Indices) -> Floats:
        """N prices of touching each partition, in shares."""
        return np.where(self.touched[partitions], TOUCHED_PRICE, MOVEMENT_PRICE)

    def copies(self, partitions: Indices, source: int, targets: Indices) -> Floats:
        """N x T change of the bytes to copy if a replica goes from `source` to a target."""
        left_home = (self._placement.original[partitions] == source).any(axis=1)[:, None]
        change = left_home.astype(np.float64) - self._home(partitions, targets)
        bytes_copied: Floats = self._placement.disk_bytes[partitions][:, None] * change
        return bytes_copied

    def _home(self, partitions: Indices, targets: Indices) -> Flags:
        """N x T: the target has held the partition from the beginning."""
        home: Flags = (self._placement.original[partitions][:, :, None] == targets).any(axis=1)
        return home

    def in_shares(self, copies: Floats) -> Floats:
        """Bytes as fractions of a broker's fair share of disk, alike in any unit of bytes."""
        return on_grid(copies / self.unit)

    def price(self, partitions: Indices, copies: Floats) -> Floats:
        """N x T price in shares of copying so many bytes and touching each partition; always above 0."""
        price: Floats = np.maximum(self.in_shares(copies) + self.movement_price(partitions)[:, None], TOUCHED_PRICE)
        return price

    def affordable(self, partitions: Indices, targets: Indices, copies: Floats) -> Flags:
        """N x T: within the budgets."""
        able = np.ones(copies.shape, dtype=np.bool_)
        if not self._limited:
            return able
        policy = self._policy
        if policy.bytes_max is not None:
            able &= (copies <= 0) | (self.bytes_copied + copies <= policy.bytes_max)
        if policy.inflow_max is not None:
            # What arrives counts at its target, even if the partition has left home before.
            arriving = self._placement.disk_bytes[partitions][:, None] * ~self._home(partitions, targets)
            able &= (arriving <= 0) | (arriving + self.inflow[targets] <= policy.inflow_max)
        return able & self.may_touch(partitions)[:, None]

    def affordable_together(self, mine: Indices, theirs: Indices, going: Floats, coming: Floats) -> Flags:
        """N x M: two changes at once stay within the budgets of bytes and movements."""
        policy = self._policy
        able = np.ones((len(mine), len(theirs)), dtype=np.bool_)
        if policy.bytes_max is not None:
            able &= self.bytes_copied + going + coming.T <= policy.bytes_max
        if policy.movements_max is not None:
            fresh = (~self.touched[mine]).astype(np.int64)[:, None] + (~self.touched[theirs])
            able &= self.movements + fresh <= policy.movements_max
        return able

    def may_touch(self, partitions: Indices) -> Flags:
        """N: changing it stays within the budget of movements."""
        if self._policy.movements_max is None or self.movements < self._policy.movements_max:
            return np.ones(len(partitions), dtype=np.bool_)
        return self.touched[partitions]

    def enter(self, partition: int, sign: int) -> None:
        """Take the copies of one partition into account (+1) or out of it (-1): call around each change."""
        original, row = self._placement.original[partition], self._placement.replicas[partition]
        changed = bool((row != original).any())
        self.movements += sign * changed
        self.touched[partition] = changed
        for broker in row:
            if broker != NO_BROKER and broker not in original:
                self.inflow[broker] += sign * self._placement.disk_bytes[partition]
                self.bytes_copied += sign * float(self._placement.disk_bytes[partition])
