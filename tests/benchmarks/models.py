"""Seeded cluster models for tests and benchmarks of the planner: even in count, skewed in load.

Topics are Zipf by rate, partitions lognormal within a topic; consumers read and retention keeps a lognormal multiple by
topic. Replicas are dealt evenly over racks and brokers, heavier ones rather to brokers that are hotter; 1 % of the
partitions have two replicas in one rack. Heavy kinds leave these paths: partitions of up to a broker's fair share,
consumers and retention that differ more, replicas that are not even in count. The same arguments give the same model on
any machine.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad

TOTAL_BYTES_IN_PER_SEC_PER_BROKER = 20e6
HEAVIEST_SHARE = 0.6
"""No partition but a hot one leads more than this part of a broker's fair share of leader bytes in."""
CAPPED_TIMES = 20
"""A cap on the heaviest makes the total smaller, and so the cap: after so many rounds it is nearly met."""
HOT_BROKERS_SHARE = 0.33
RETENTION_MEAN_S = 40_000.0
CROWDED = 1e6
"""More than any odds: a rack that holds a replica already comes after all that hold none."""


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
    disk_twice_every: int = 0
    """Every n-th broker has twice the disk; 0: all are equal."""
    hot_partition_shares: float = 0.0
    """One partition alone takes so many brokers' fair shares of bytes in; 0: none."""
    heaviest_share: float = 0.0
    """Partitions lead up to this part of a broker's fair share of leader bytes in; 0: HEAVIEST_SHARE, and fewer."""
    fan_out_sigma: float = 0.4
    """How much topics differ in what consumers read (lognormal)."""
    retention_sigma: float = 0.3
    """How much topics differ in how long they are kept (lognormal)."""
    count_sigma: float = 0.0
    """How much brokers differ in their number of replicas (lognormal); 0: they are dealt evenly."""
    rack_sigma: float = 0.0
    """How much racks differ in their number of brokers (lognormal); 0: they are equal."""


REFERENCE = {
    "30 brokers": Kind(30, 3_000, heat=0.85),
    "100 brokers": Kind(100, 20_000, racks=5, heat=0.5, zipf=0.6),
    "300 brokers": Kind(300, 100_000, racks=6, heat=0.45, zipf=0.55),
    "100 + 10 new": Kind(100, 20_000, racks=5, heat=0.5, zipf=0.6, brokers_new=10),
    "100, 10 to empty": Kind(100, 20_000, racks=5, heat=0.3, zipf=0.6, brokers_draining=10),
    "100, unequal": Kind(100, 20_000, racks=5, heat=0.3, zipf=0.6, twice_every=3),
}
"""The kinds of the reference table."""

HEAVY = Kind(
    brokers=80,
    partitions=12_000,
    racks=5,
    zipf=1.2,
    sigma=1.0,
    heat=0.5,
    heaviest_share=1.0,
    fan_out_sigma=0.8,
    retention_sigma=0.8,
    count_sigma=0.3,
)
"""Partitions as heavy as what a broker should lead, and topics whose loads go apart: a broker is full in one load and
empty in another, and little fits anywhere."""

FURTHER = {
    "hot partition": Kind(30, 3_000, hot_partition_shares=1.8),
    "tight racks": Kind(31, 3_000, racks=3),
    "10 of 3 racks to empty": Kind(100, 20_000, racks=3, heat=0.3, zipf=0.6, brokers_draining=10),
    "2 dead": Kind(30, 3_000, brokers_dead=2),
    "heavy": HEAVY,
    "heavy + 10 new": replace(HEAVY, brokers_new=10),
    "heavy, 10 to empty": replace(HEAVY, brokers_draining=10),
    "heavy, unequal": replace(HEAVY, twice_every=3),
}

LARGEST = {
    "270, 1.3 M replicas": Kind(270, 433_334, racks=6, heat=0.45, zipf=0.55),
    "500 brokers": Kind(500, 250_000, racks=10),
    "1,000 brokers": Kind(1_000, 1_000_000, racks=10),
}


def generate(kind: Kind, seed: int) -> ClusterState:
    """The model of this kind and seed."""
    random = np.random.default_rng(seed)
    topics = _topics(kind.partitions, random)
    rates = _loads(kind, topics, random)
    rack_of = _racks(kind, random)
    heat = np.where(random.random(kind.brokers) < HOT_BROKERS_SHARE, 1.4, -0.7)
    if kind.count_sigma:
        replicas = _uneven_replicas(kind, rates[:, 0], rack_of, heat, random)
    else:
        replicas = _replicas(kind, rates[:, 0], rack_of, heat, random)
    _break_racks(replicas, rack_of, kind.broken_share, random)
    partitions = []
    numbers: dict[int, int] = {}
    for topic, rate, row in zip(topics.tolist(), rates.tolist(), replicas.tolist(), strict=True):
        number = numbers.get(topic, 0)
        numbers[topic] = number + 1
        partitions.append(Partition(f"topic-{topic:05d}", number, tuple(row), PartitionLoad(*rate)))
    return ClusterState(f"seed-{seed}", 0, _brokers(kind, rack_of, random), tuple(partitions))


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
    if kind.heaviest_share:
        for _ in range(CAPPED_TIMES):
            rates = np.minimum(rates, kind.heaviest_share * rates.sum() / kind.brokers)
    else:
        rates = np.minimum(rates, HEAVIEST_SHARE * TOTAL_BYTES_IN_PER_SEC_PER_BROKER)
    if kind.hot_partition_shares:
        rates[random.integers(len(rates))] = TOTAL_BYTES_IN_PER_SEC_PER_BROKER * kind.hot_partition_shares * 3
    fan_out = random.lognormal(0.3, kind.fan_out_sigma, size=count)[topics]
    retention = RETENTION_MEAN_S * random.lognormal(0.0, kind.retention_sigma, size=count)[topics]
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


def _uneven_replicas(
    kind: Kind,
    rates: NDArray[np.float64],
    rack_of: NDArray[np.int64],
    heat: NDArray[np.float64],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """P x RF: each replica in another rack while there are racks, on a broker drawn by its odds; heavy ones rather on
    hot brokers."""
    odds = np.log(random.lognormal(0.0, kind.count_sigma, size=kind.brokers))
    weight = np.log(rates)
    weight = (weight - weight.mean()) / max(float(weight.std()), 1e-9)
    # Exponential races: the first to arrive is drawn with its odds, and never drawn twice.
    keys = odds + 0.3 * kind.heat * weight[:, None] * heat + random.gumbel(size=(len(rates), kind.brokers))
    replicas = np.zeros((len(rates), kind.replication_factor), dtype=np.int64)
    rows = np.arange(len(rates))
    in_rack = np.zeros((len(rates), int(rack_of.max()) + 1))
    for slot in range(kind.replication_factor):
        chosen = np.argmax(keys - CROWDED * in_rack[:, rack_of], axis=1)
        replicas[:, slot] = chosen
        keys[rows, chosen] = -np.inf
        in_rack[rows, rack_of[chosen]] += 1
    return random.permuted(replicas, axis=1)


def _racks(kind: Kind, random: np.random.Generator) -> NDArray[np.int64]:
    """B: rack of each broker; every rack has one."""
    even = np.arange(kind.brokers) % kind.racks
    if not kind.rack_sigma:
        return even
    odds = random.lognormal(0.0, kind.rack_sigma, size=kind.racks)
    uneven = random.choice(kind.racks, size=kind.brokers, p=odds / odds.sum())
    uneven[: kind.racks] = even[: kind.racks]
    return uneven


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


def _brokers(kind: Kind, rack_of: NDArray[np.int64], random: np.random.Generator) -> tuple[Broker, ...]:
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
        disk = 2.0 if kind.disk_twice_every and broker % kind.disk_twice_every == 0 else 1.0
        capacity = Capacity(size * 4e8, size * 8e8, disk * size * 2e13)
        rack = rack_of[broker] if broker < kind.brokers else broker % kind.racks
        brokers.append(Broker(broker, f"r{rack}", state, capacity))
    return tuple(brokers)
