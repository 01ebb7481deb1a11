"""The planner's model of the cluster: live placement, measured load of the newest closed windows.

Placement and sizes come from the cluster itself, so a plan never rests on a placement that is gone. Load is the mean
over the newest windows of the rows in which a replica led; a partition without any known rate is named as unknown.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from assignor_core.live import NO_LEADER, LiveCluster, PartitionKey
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from streaming import tables
from streaming.control.windows import ClosedWindow
from streaming.settings import CapacitySettings, Settings


@dataclass(frozen=True, slots=True)
class Model:
    """What is planned on: the state, and the partitions whose load is unknown (taken as zero, not moved for load)."""

    cluster: ClusterState
    unknown: frozenset[PartitionKey]


def build_model(
    live: LiveCluster,
    sizes: Mapping[tuple[int, PartitionKey], int],
    windows: tuple[ClosedWindow, ...],
    settings: Settings,
    *,
    drained: frozenset[int],
    now_ms: int,
) -> Model:
    """Model of `live` with the load of `windows`; replicas on brokers that are gone make those brokers dead ones.

    Partitions without a leader are left out: there is nothing to copy from, and a reassignment of them would hang.
    """
    rates = _leader_rates(windows, settings)
    partitions = []
    unknown = set()
    for key, partition in sorted(live.partitions.items()):
        if partition.leader == NO_LEADER:
            continue
        bytes_in, bytes_out = rates.get(key, (None, None))
        if bytes_in is None:
            unknown.add(key)
        size = max((sizes.get((broker, key), 0) for broker in partition.replicas), default=0)
        load = PartitionLoad(bytes_in or 0.0, bytes_out or 0.0, float(size))
        partitions.append(Partition(key[0], key[1], partition.target_replicas, load))
    hosting = {broker for partition in partitions for broker in partition.replicas}
    brokers = tuple(
        Broker(
            broker,
            live.broker_racks.get(broker),
            _state(broker, live, drained),
            _capacity(settings.planner.capacities.get(broker)),
        )
        for broker in sorted(hosting | set(live.broker_racks))
    )
    return Model(ClusterState(settings.kafka.cluster_name, now_ms, brokers, tuple(partitions)), frozenset(unknown))


def missing_brokers(live: LiveCluster) -> frozenset[int]:
    """Brokers that are not alive and hold replicas of partitions which have a leader: those can be made anew."""
    hosting = {
        broker
        for partition in live.partitions.values()
        if partition.leader != NO_LEADER
        for broker in partition.target_replicas
    }
    return frozenset(hosting - live.broker_racks.keys())


def _state(broker: int, live: LiveCluster, drained: frozenset[int]) -> BrokerState:
    if broker not in live.broker_racks:
        return BrokerState.DEAD
    return BrokerState.DRAINING if broker in drained else BrokerState.ALIVE


def _leader_rates(
    windows: tuple[ClosedWindow, ...], settings: Settings
) -> dict[PartitionKey, tuple[float | None, float | None]]:
    """Mean bytes/s in and out of each partition over the newest windows, from the rows of its leaders."""
    chosen = windows[-settings.planner.windows :]
    if not chosen:
        return {}
    first, last = tables.utc(chosen[0].start_ms), tables.utc(chosen[-1].start_ms)
    where = (
        (pc.field("window_start") >= first)
        & (pc.field("window_start") <= last)
        & (pc.field("kafka_cluster") == settings.kafka.cluster_name)
        & (pc.field("role") == "leader")
    )
    columns = ["topic", "partition", "bytes_in_per_sec", "bytes_out_per_sec"]
    rates: dict[PartitionKey, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for row in tables.read(settings.storage.tables, "partition_load", columns=columns, where=where):
        for values, column in zip(rates[(row["topic"], row["partition"])], columns[2:], strict=True):
            if row[column] is not None:
                values.append(row[column])
    return {key: (_mean(incoming), _mean(outgoing)) for key, (incoming, outgoing) in rates.items()}


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _capacity(settings: CapacitySettings | None) -> Capacity:
    if settings is None:
        return Capacity()
    return Capacity(settings.bytes_in_per_sec, settings.bytes_out_per_sec, settings.disk_bytes)
