"""What people use instead: the plan of Kafka's own tool, made in the same run."""

import random
from dataclasses import replace
from itertools import groupby
from typing import Any

from assignor_core.load import NO_BROKER, ClusterArrays, broker_loads, cluster_arrays
from assignor_core.model import BrokerState, ClusterState, Partition
from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays


def placed_by_count(cluster: ClusterState, seed: int) -> ClusterState:
    """The cluster as `kafka-reassign-partitions --generate` would place it on all brokers that may stay.

    The tool places each topic anew over all brokers in turn, from a start of its own, blind to load and to where the
    replicas are now. Racks are left out if a broker has none, as by `--disable-rack-aware`.
    """
    staying = [broker for broker in cluster.brokers if broker.state is BrokerState.ALIVE]
    known = all(broker.rack is not None for broker in staying)
    brokers = [PlacementBroker(broker.broker_id, broker.rack if known else None) for broker in staying]
    starts = random.Random(seed)
    placed: list[Partition] = []
    ordered = sorted(cluster.partitions, key=lambda partition: (partition.topic, partition.partition))
    for _, topic in groupby(ordered, key=lambda partition: partition.topic):
        partitions = list(topic)
        start = PlacementStart(starts.randrange(len(brokers)), starts.randrange(len(brokers)))
        rows = place_replicas(brokers, len(partitions), len(partitions[0].replicas), start)
        placed += (replace(partition, replicas=row) for partition, row in zip(partitions, rows.values(), strict=True))
    return replace(cluster, partitions=tuple(placed))


def by_count_figures(cluster: ClusterState, seed: int, resources: tuple[str, ...]) -> dict[str, Any]:
    """How even a placement by count ends in these resources, and the share of all bytes that it copies."""
    arrays = cluster_arrays(placed_by_count(cluster, seed))
    (column,) = arrays.columns.of(Resource.DISK)
    skew = skew_of_arrays(arrays)
    return {
        "by_count_after": max(skew[resource].max_over_mean for resource in resources),
        "by_count_moved": _bytes_copied(cluster_arrays(cluster), arrays) / broker_loads(arrays)[:, column].sum(),
    }


def _bytes_copied(before: ClusterArrays, after: ClusterArrays) -> float:
    """Bytes of all replicas on brokers that did not hold their partition before."""
    held = (after.replicas[:, :, None] == before.replicas[:, None, :]).any(axis=2)
    new = ~held & (after.replicas != NO_BROKER)
    (column,) = after.columns.of(Resource.DISK)
    return float((new.sum(axis=1) * after.leader_load[:, column]).sum())
