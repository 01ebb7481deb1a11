"""Seeded cluster models for tests and benchmarks of the planner: even in count, skewed in load.

Topics are Zipf by rate, partitions lognormal within a topic; consumers read and retention keeps a lognormal multiple by
topic. Replicas are dealt evenly over racks and brokers, heavier ones rather to brokers that are hotter; 1 % of the
partitions have two replicas in one rack. The same arguments give the same model on any machine.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad

TOTAL_BYTES_IN_PER_SEC_PER_BROKER = 20e6
HEAVIEST_SHARE = 0.6
"""No partition but a hot one leads more than this part of a broker's fair share of leader bytes in."""
HOT_BROKERS_SHARE = 0.33
RETENTION_MEAN_S = 40_000.0


@dataclass(frozen=True, slots=True)
class Kind:
    """What kind of cluster; `heat` is how strongly heavy partitions gather on hot brokers."""

    brokers: int
    partitions: int
    racks: int = 3
    replication_factor: int = 3
    zipf: float = 0.7
    sigma: float = 0.8
    heat: float = 1.0
    broken_share: float = 0.01
    brokers_new: int = 0
    brokers_draining: int = 0
    brokers_dead: int = 0
    twice_every: int = 0
    """Every n-th broker has twice the capacity; 0: all are equal."""
    hot_partition_shares: float = 0.0
    """One partition alone takes so many brokers' fair shares of bytes in; 0: none."""


REFERENCE = {
    "30 brokers": Kind(30, 3_000, heat=0.85),
    "100 brokers": Kind(100, 20_000, racks=5, heat=0.5, zipf=0.6),
    "300 brokers": Kind(300, 100_000, racks=6, heat=0.45, zipf=0.55),
    "100 + 10 new": Kind(100, 20_000, racks=5, heat=0.5, zipf=0.6, brokers_new=10),
    "100, 10 to empty": Kind(100, 20_000, racks=5, heat=0.3, zipf=0.6, brokers_draining=10),
    "100, unequal": Kind(100, 20_000, racks=5, heat=0.3, zipf=0.6, twice_every=3),
}
"""The kinds of the reference table."""

FURTHER = {
    "hot partition": Kind(30, 3_000, hot_partition_shares=1.8),
    "tight racks": Kind(31, 3_000, racks=3),
    "10 of 3 racks to empty": Kind(100, 20_000, racks=3, heat=0.3, zipf=0.6, brokers_draining=10),
    "2 dead": Kind(30, 3_000, brokers_dead=2),
}

LARGEST = {
    "500 brokers": Kind(500, 250_000, racks=10),
    "1,000 brokers": Kind(1_000, 1_000_000, racks=10),
}


def generate(kind: Kind, seed: int) -> ClusterState:
    """The model of this kind and seed."""
    random = np.random.default_rng(seed)
    topics = _topics(kind.partitions, random)
    rates = _loads(kind, topics, random)
    rack_of = np.arange(kind.brokers) % kind.racks
    heat = np.where(random.random(kind.brokers) < HOT_BROKERS_SHARE, 1.4, -0.7)
    replicas = _replicas(kind, rates[:, 0], rack_of, heat, random)
    _break_racks(replicas, rack_of, kind.broken_share, random)
    partitions = []
    numbers: dict[int, int] = {}
    for topic, rate, row in zip(topics.tolist(), rates.tolist(), replicas.tolist(), strict=True):
        number = numbers.get(topic, 0)
        numbers[topic] = number + 1
        partitions.append(Partition(f"topic-{topic:05d}", number, tuple(row), PartitionLoad(*rate)))
    return ClusterState(f"seed-{seed}", 0, _brokers(kind, random), tuple(partitions))


def _topics(count: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Topic of each partition; topics have 1 to about 200 partitions."""
    sizes = np.maximum(1, np.minimum(random.lognormal(2.5, 1.0, size=count), 200)).astype(np.int64)
    return np.repeat(np.arange(count), sizes)[:count]


def _loads(kind: Kind, topics: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.float64]:
    """P x 3: bytes in, bytes out, disk."""
    count = int(topics.max()) + 1
    popularity = 1.0 / np.arange(1, count + 1) ** kind.zipf
    by_topic = random.permutation(popularity)
    rates = by_topic[topics] * random.lognormal(0.0, kind.sigma, size=len(topics))
    rates *= TOTAL_BYTES_IN_PER_SEC_PER_BROKER * kind.brokers / rates.sum()
    rates = np.minimum(rates, HEAVIEST_SHARE * TOTAL_BYTES_IN_PER_SEC_PER_BROKER)
    if kind.hot_partition_shares:
        rates[random.integers(len(rates))] = TOTAL_BYTES_IN_PER_SEC_PER_BROKER * kind.hot_partition_shares * 3
    fan_out = random.lognormal(0.3, 0.4, size=count)[topics]
    retention = RETENTION_MEAN_S * random.lognormal(0.0, 0.3, size=count)[topics]
    return np.stack((rates, rates * fan_out, rates * retention), axis=1)


def _replicas(
    kind: Kind,
    rates: NDArray[np.float64],
    rack_of: NDArray[np.int64],
    heat: NDArray[np.float64],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """P x RF: racks round robin, within a rack dealt in blocks of one replica a broker, hotter ones heavier ones."""
    count = len(rates)
    first = random.permutation(count) % kind.racks
    racks = (first[:, None] + np.arange(kind.replication_factor)) % kind.racks
    replicas = np.zeros_like(racks)
    for rack in range(kind.racks):
        members = np.flatnonzero(rack_of == rack)
        rows, slots = np.nonzero(racks == rack)
        order = random.permutation(len(rows))
        for start in range(0, len(order), len(members)):
            block = order[start : start + len(members)]
            wish = np.log(rates[rows[block]]) * kind.heat + random.standard_normal(len(block))
            hot = heat[members] * kind.heat + random.standard_normal(len(members))
            chosen = members[np.argsort(hot)[-len(block) :]]
            replicas[rows[block[np.argsort(wish)]], slots[block[np.argsort(wish)]]] = chosen
    return random.permuted(replicas, axis=1)


def _break_racks(
    replicas: NDArray[np.int64], rack_of: NDArray[np.int64], share: float, random: np.random.Generator
) -> None:
    """Put two replicas of some partitions into one rack."""
    if replicas.shape[1] < 2:
        return
    for row in random.choice(len(replicas), size=int(share * len(replicas)), replace=False):
        mates = np.flatnonzero(rack_of == rack_of[replicas[row, 0]])
        free = np.setdiff1d(mates, replicas[row])
        if len(free):
            replicas[row, 1] = random.choice(free)


def _brokers(kind: Kind, random: np.random.Generator) -> tuple[Broker, ...]:
    leaving = random.permutation(kind.brokers)
    draining = set(leaving[: kind.brokers_draining].tolist())
    dead = set(leaving[kind.brokers_draining : kind.brokers_draining + kind.brokers_dead].tolist())
    brokers = []
    for broker in range(kind.brokers + kind.brokers_new):
        state = BrokerState.ALIVE
        if broker in draining:
            state = BrokerState.DRAINING
        if broker in dead:
            state = BrokerState.DEAD
        size = 2.0 if kind.twice_every and broker % kind.twice_every == 0 else 1.0
        capacity = Capacity(*(size * base for base in (4e8, 8e8, 2e13)))
        brokers.append(Broker(broker, f"r{broker % kind.racks}", state, capacity))
    return tuple(brokers)
