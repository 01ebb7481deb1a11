"""What the edits of a placement have spent so far, what a move would cost, and whether the budgets allow it.

Bytes count against where a replica was at first, not against where it is now: only the difference between the first
and the last placement is ever copied. So a replica comes home for a refund, and goes on for nothing once it has left.

Invariant: at any moment the figures are those of the plan that the present placement would make. `record` keeps them
so; `Search` calls it with -1 before and +1 after it edits a partition.
"""

import numpy as np

from assignor_core.load import NO_BROKER, Floats
from assignor_core.planner.placement import Flags, Indices, Placement, on_grid
from assignor_core.planner.policy import PlannerPolicy


class Spending:
    """Movements and bytes of one search; mutable.

    >>> state = state_of((1,), (1,), loads=(5.0, 5.0))
    >>> spending, one, broker_2 = state.spending, np.array([0]), np.array([1])
    >>> spending.copied_bytes(one, 0, broker_2).tolist()  # partition 0 would be copied from broker 1 to broker 2
    [[500.0]]
    >>> spending.record(0, -1), state.placement.move(0, 0, 1), spending.record(0, +1)
    (None, None, None)
    >>> spending.movements, spending.bytes_copied, spending.inflow.tolist()
    (1, 500.0, [0.0, 500.0])
    >>> spending.copied_bytes(one, 1, np.array([0])).tolist()  # back home: nothing is copied at all
    [[-500.0]]
    """

    def __init__(self, policy: PlannerPolicy, placement: Placement) -> None:
        brokers = max(1, int(placement.arrays.alive.sum()))
        replicas = (placement.original != NO_BROKER).sum(axis=1)
        fair_share_bytes = float((placement.disk_bytes * replicas).sum()) / brokers
        # Without any bytes on disk a copy costs nothing, in whatever unit.
        self._fair_share_bytes = fair_share_bytes if fair_share_bytes > 0 else 1.0
        self.touched = np.zeros(len(replicas), dtype=np.bool_)
        """P: the partition differs from what it was at first."""
        self.movements = 0
        self.bytes_copied = 0.0
        self.inflow = np.zeros(len(placement.arrays.broker_ids))
        """B: bytes copied to each broker."""
        self._placement = placement
        self._policy = policy
        # What leaves a broker makes no room: Kafka deletes it a minute later, and maybe from another of its log dirs.
        inflow_max = np.inf if policy.inflow_max is None else policy.inflow_max
        self._inflow_max = np.minimum(placement.arrays.disk_room_bytes, inflow_max)
        self._has_inflow_max = bool(np.isfinite(self._inflow_max).any())
        budgets = (policy.movements_max, policy.bytes_max)
        self._limited = self._has_inflow_max or any(budget is not None for budget in budgets)

    def copied_bytes(self, partitions: Indices, source: int, targets: Indices) -> Floats:
        """N x T: change of the bytes to copy if a replica goes from `source` to a target; a refund is below 0."""
        leaves_home = (self._placement.original[partitions] == source).any(axis=1)[:, None]
        change = leaves_home.astype(np.float64) - self._is_home(partitions, targets)
        copied: Floats = self._placement.disk_bytes[partitions][:, None] * change
        return copied

    def _is_home(self, partitions: Indices, targets: Indices) -> Flags:
        """N x T: the target has held the partition from the beginning."""
        home: Flags = (self._placement.original[partitions][:, :, None] == targets).any(axis=1)
        return home

    def in_fair_shares(self, copied: Floats) -> Floats:
        """Bytes as fractions of a broker's fair share of disk, alike in any unit of bytes."""
        return on_grid(copied / self._fair_share_bytes)

    def affordable(self, partitions: Indices, targets: Indices, copied: Floats) -> Flags:
        """N x T: within the budgets."""
        if not self._limited:
            return np.ones(copied.shape, dtype=np.bool_)
        policy = self._policy
        able: Flags = np.broadcast_to(self._may_touch(partitions)[:, None], copied.shape).copy()
        if policy.bytes_max is not None:
            # What copies nothing more is allowed even where the budget is spent.
            able &= (copied <= 0) | (self.bytes_copied + copied <= policy.bytes_max)
        if self._has_inflow_max:
            # What arrives counts at its target, even if the partition has left home before.
            arriving = self._placement.disk_bytes[partitions][:, None] * ~self._is_home(partitions, targets)
            able &= (arriving <= 0) | (arriving + self.inflow[targets] <= self._inflow_max[targets])
        return able

    def _may_touch(self, partitions: Indices) -> Flags:
        """N: which of `partitions` may be changed within the budget of movements."""
        if self._policy.movements_max is None or self.movements < self._policy.movements_max:
            return np.ones(partitions.shape, dtype=np.bool_)
        return self.touched[partitions]

    def record(self, partition: int, sign: int) -> None:
        """Take the copies of one partition out of the figures (-1, before an edit) or into them (+1, after it)."""
        # As lists: to ask an array of a few brokers costs several times as much, and every edit comes by here twice.
        original = self._placement.original[partition].tolist()
        row = self._placement.replicas[partition].tolist()
        changed = row != original
        self.movements += sign * changed
        self.touched[partition] = changed
        if not changed:
            return
        copied_bytes = sign * float(self._placement.disk_bytes[partition])
        for broker in row:
            if broker != NO_BROKER and broker not in original:
                self.inflow[broker] += copied_bytes
                self.bytes_copied += copied_bytes
