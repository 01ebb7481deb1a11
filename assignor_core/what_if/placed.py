"""The cluster while it is replayed: where replicas lie, as arrays, and what each broker carries in a given hour.

The partitions as objects, which decisions look at, are built again only where a movement has ended.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from assignor_core.disks import LogDirDescription
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition, PartitionKey
from assignor_core.load import NO_BROKER, Floats, Ints
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.plan import Movement
from assignor_core.resources import Resource
from assignor_core.what_if.history import BYTES_IN_AT, BYTES_OUT_AT, History

ENOUGH_BYTES = 10**18
"""Size of a broker's volume where nobody knows it."""
LOG_DIR = "/replayed"
MEASURED_HERE = (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK)
"""What a window of a replay holds."""


class PlacedCluster:
    """Placement of now; `away` brokers are not alive from the start to the end."""

    def __init__(self, history: History, away: frozenset[int]) -> None:
        self._history = history
        self.broker_ids = tuple(row.broker_id for row in history.brokers)
        self._index = {broker: index for index, broker in enumerate(self.broker_ids)}
        self._rows = {key: row for row, key in enumerate(history.partitions)}
        self._alive = np.array([broker not in away for broker in self.broker_ids], dtype=np.bool_)
        width = max(len(replicas) for replicas in history.replicas)
        self._replicas: Ints = np.full((len(history.partitions), width), NO_BROKER, dtype=np.int32)
        for row, replicas in enumerate(history.replicas):
            self._replicas[row, : len(replicas)] = [self._index[broker] for broker in replicas]
        self._held_at_start = self._held_bytes()
        racks = {row.broker_id: row.rack for row in history.brokers if row.broker_id not in away}
        partitions = {key: self._partition(row) for key, row in self._rows.items()}
        self.live = LiveCluster(history.cluster_name, racks, partitions)
        self._loads: dict[int, dict[str, Floats]] = {}

    @property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """Broker ids by partition, preferred leader first."""
        return tuple(self.live.partitions[key].replicas for key in self._history.partitions)

    def size_bytes(self, key: PartitionKey) -> float:
        """Bytes of one replica."""
        return float(self._history.size_bytes[self._rows[key]])

    def bytes_in_per_sec(self, key: PartitionKey, hour: int) -> float:
        """What clients write to it in that hour of the history."""
        return float(self._history.rates[hour, self._rows[key], BYTES_IN_AT])

    def move(self, movements: Iterable[Movement]) -> None:
        """Movements that have ended: from now on their new replicas hold."""
        partitions = dict(self.live.partitions)
        for movement in movements:
            row = self._rows[movement.key]
            self._replicas[row] = NO_BROKER
            self._replicas[row, : len(movement.new_replicas)] = [self._index[b] for b in movement.new_replicas]
            partitions[movement.key] = self._partition(row)
        self.live = LiveCluster(self.live.cluster_id, self.live.broker_racks, partitions)
        self._loads.clear()

    def loads(self, hour: int) -> dict[str, Floats]:
        """By resource, and `client_bytes_in`: B figures, of the brokers that are alive; the others carry nothing."""
        if hour not in self._loads:
            self._loads = {hour: self._loads_of(hour)}
        return self._loads[hour]

    def window(self, hour: int, number: int, start_ms: int, end_ms: int) -> ClosedWindow:
        """The window with this number of an hour: its loads, times what brokers wandered by in it."""
        loads = self.loads(hour)
        figures = {row.value: self._wandered(loads[row], row, hour, number) for row in MEASURED_HERE}
        client = self._wandered(loads["client_bytes_in"], Resource.BYTES_IN, hour, number)
        return ClosedWindow(start_ms, end_ms, frozenset(self.live.broker_racks), figures, client)

    def factors(self, resource: Resource, hour: int, number: int) -> Floats:
        """B: what brokers wandered by in a window."""
        wander = self._history.wander.get(resource)
        ones: Floats = np.ones(len(self.broker_ids))
        return ones if wander is None else wander[hour, number]

    def leader_rows(self) -> NDArray[np.int64]:
        """P: index of the leading broker; NO_BROKER where none is alive."""
        held = (self._replicas != NO_BROKER) & self._alive[self._replicas]
        first = held.argmax(axis=1)
        leaders = self._replicas[np.arange(len(first)), first]
        return np.where(held.any(axis=1), leaders, NO_BROKER).astype(np.int64)

    def log_dirs(self) -> dict[int, tuple[LogDirDescription, ...]]:
        """One log dir for each broker that is alive, with its replicas."""
        held: dict[int, dict[PartitionKey, int]] = {broker: {} for broker in self.live.broker_racks}
        sizes = self._history.size_bytes.astype(np.int64).tolist()
        for key, partition in self.live.partitions.items():
            for broker in partition.isr:
                held[broker][key] = sizes[self._rows[key]]
        now = self._held_bytes()
        described: dict[int, tuple[LogDirDescription, ...]] = {}
        for index, row in enumerate(self._history.brokers):
            if row.broker_id in held:
                taken = int(now[index] - self._held_at_start[index])
                total = ENOUGH_BYTES if row.total_bytes is None else row.total_bytes
                usable = ENOUGH_BYTES if row.usable_bytes is None else row.usable_bytes
                left = max(0, usable - taken)
                described[row.broker_id] = (LogDirDescription(LOG_DIR, total, left, held[row.broker_id]),)
        return described

    def _partition(self, row: int) -> LivePartition:
        placed = [index for index in self._replicas[row].tolist() if index != NO_BROKER]
        replicas = tuple(self.broker_ids[index] for index in placed)
        isr = tuple(self.broker_ids[index] for index in placed if self._alive[index])
        return LivePartition(replicas, isr[0] if isr else NO_LEADER, isr)

    def _wandered(self, loads: Floats, resource: Resource, hour: int, number: int) -> dict[int, float]:
        values = (loads * self.factors(resource, hour, number)).tolist()
        alive = self._alive.tolist()
        return {broker: value for broker, value, up in zip(self.broker_ids, values, alive, strict=True) if up}

    def _held_bytes(self) -> Floats:
        """B: bytes of the replicas that each broker holds."""
        held: Floats = np.zeros(len(self.broker_ids))
        for slot in range(self._replicas.shape[1]):
            there = self._replicas[:, slot] != NO_BROKER
            weights = self._history.size_bytes[there]
            held += np.bincount(self._replicas[there, slot], weights=weights, minlength=len(held))
        return held

    def _loads_of(self, hour: int) -> dict[str, Floats]:
        rates, leaders = self._history.rates[hour], self.leader_rows()
        count, led = len(self.broker_ids), leaders != NO_BROKER
        received: Floats = np.zeros(count)
        in_sync = np.zeros(len(leaders))
        for slot in range(self._replicas.shape[1]):
            there = led & (self._replicas[:, slot] != NO_BROKER) & self._alive[self._replicas[:, slot]]
            received += np.bincount(self._replicas[there, slot], rates[there, BYTES_IN_AT], count)
            in_sync += there
        sent = rates[:, BYTES_OUT_AT] + rates[:, BYTES_IN_AT] * np.maximum(in_sync - 1, 0)
        return {
            Resource.BYTES_IN: received,
            Resource.BYTES_OUT: np.bincount(leaders[led], sent[led], count),
            Resource.DISK: np.where(self._alive, self._held_bytes(), 0.0),
            "client_bytes_in": np.bincount(leaders[led], rates[led, BYTES_IN_AT], count),
        }
