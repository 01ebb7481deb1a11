"""Fleets of any size from a few numbers: the same numbers give the same fleet."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import NAMESPACE_OID, uuid5

import numpy as np

from assignor_core.live import PartitionKey
from assignor_core.placement import PlacementBroker, PlacementStart, place_replicas
from streaming.settings import TopicSettings
from tests.fleet.fleet import Fleet
from tests.fleet.groups import STABLE, FleetGroup, member_of
from tests.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.state import Replica, SimulatedPartition, SimulatedTopic

SEED = 1
RACKS = 3
BYTES_IN_PER_SEC = 20_000
"""Median of a partition."""
HOT_SHARE, HOT_FACTOR = 10, 3
"""One broker in so many leads partitions that take so many times the bytes."""
LOG_SECONDS = 600
"""A partition holds what it takes in this time."""
STUCK_ONE_IN, BEHIND_ONE_IN = 10, 5


@dataclass(frozen=True, slots=True)
class FleetSize:
    """How large a fleet is; its partitions are those of users, the input topics come on top."""

    brokers: int
    partitions: int
    groups: int
    partitions_per_topic: int = 50
    replication_factor: int = 3
    members_per_group: int = 5

    @property
    def group_partitions(self) -> int:
        """Partitions that groups have committed, counted once for each group."""
        return self.groups * self.partitions_per_topic


def synthetic_fleet(size: FleetSize, kept_topics: tuple[str, ...] = ()) -> Fleet:
    """Topics of even size with leaders in turn, some brokers hotter than others; each group reads one topic."""
    brokers = range(1, size.brokers + 1)
    cluster = SimulatedCluster.of({broker: f"rack-{broker % RACKS}" for broker in brokers}, cluster_id="fleet")
    racked = [PlacementBroker(broker, f"rack-{broker % RACKS}") for broker in brokers]
    rates = np.random.default_rng(SEED).lognormal(np.log(BYTES_IN_PER_SEC), 1.0, size.partitions).astype(int)
    topics = list(_topic_names(size))
    for number, (name, count) in enumerate(topics):
        placed = place_replicas(racked, count, size.replication_factor, PlacementStart.fixed(number % size.brokers))
        first = number * size.partitions_per_topic
        _add_topic(cluster, name, placed, [int(rate) for rate in rates[first : first + count]])
    inputs = TopicSettings()
    for name in (inputs.byte_rate, inputs.consumer_lag):
        copies = min(inputs.replication_factor, size.brokers)
        placed = place_replicas(racked, inputs.partitions, copies, PlacementStart.fixed(0))
        _add_topic(cluster, name, placed, [0] * inputs.partitions)
    groups = (_group(size, cluster, number, *topics[number % len(topics)]) for number in range(size.groups))
    return Fleet(cluster, groups, kept_topics=kept_topics)


def _topic_names(size: FleetSize) -> Iterator[tuple[str, int]]:
    """(Name, partitions); the last topic may have fewer."""
    for first in range(0, size.partitions, size.partitions_per_topic):
        count = min(size.partitions_per_topic, size.partitions - first)
        yield f"orders-{first // size.partitions_per_topic:05}", count


def _add_topic(cluster: SimulatedCluster, name: str, placed: dict[int, tuple[int, ...]], rates: list[int]) -> None:
    """Past `create_topic`, which counts the replicas of each broker for each replica that it places."""
    topic = SimulatedTopic(str(uuid5(NAMESPACE_OID, name)))
    for number, replicas in placed.items():
        hot = HOT_FACTOR if replicas[0] % HOT_SHARE == 1 else 1
        rate = rates[number] * hot
        end_bytes = rate * LOG_SECONDS
        copies = {broker: Replica(0, end_bytes) for broker in replicas}
        partition = SimulatedPartition(replicas, replicas, replicas[0], copies, bytes_in_per_sec=rate)
        partition.end_bytes = partition.acknowledged_bytes = end_bytes
        topic.partitions[number] = partition
    cluster.contents.topics[name] = topic
    cluster.contents.topics_changed()


def _group(size: FleetSize, cluster: SimulatedCluster, number: int, topic: str, count: int) -> FleetGroup:
    """Most keep up, some fall behind, some are stuck where they were."""
    name = f"group-{number:06}"
    keys: tuple[PartitionKey, ...] = tuple((topic, partition) for partition in range(count))
    stuck = number % STUCK_ONE_IN == 0
    share = count / size.members_per_group
    members = tuple(
        member_of(
            f"consumer-{member}-{uuid5(NAMESPACE_OID, f'{name}/{member}')}",
            f"consumer-{member}",
            {topic: list(range(round(member * share), round((member + 1) * share)))},
            generation_id=3,
        )
        for member in range(size.members_per_group)
    )
    return FleetGroup(
        name,
        coordinator=1 + number % size.brokers,
        state=STABLE,
        protocol="range",
        members=members,
        committed=dict.fromkeys(keys, 100) if stuck else {},
        reads=() if stuck else keys,
        read_share=0.5 if number % BEHIND_ONE_IN == 1 else 1.0,
    )
