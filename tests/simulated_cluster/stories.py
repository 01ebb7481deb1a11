"""Clusters and faults from a seed: the same seed gives the same cluster and the same story, byte for byte.

A story uses the faults that a cluster suffers by itself or from others: brokers that die, freeze and return, log dirs
that fail, topics that are deleted, made again and grown, reassignments and throttles of other tools. All of them end
before the story does: afterwards every broker runs and every log dir is online.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from assignor_core.throttles import FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from tests.simulated_cluster.cluster import SimulatedCluster
from tests.simulated_cluster.state import LogDir, SimulatedBroker

MEGABYTE = 10**6
GIGABYTE = 10**9
BROKERS_MIN, BROKERS_MAX = 3, 12
PARTITIONS_MAX = 8
TOPICS_MAX = 4
REPLICAS_MAX = 4


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens to the cluster at one time; `description` is for the trace of a story."""

    at_ms: int
    description: str
    action: Callable[[], object]
    ends_another: bool = False
    """Whether it only takes back what an earlier one did."""


def random_cluster(random: Random) -> SimulatedCluster:
    """3 to 12 brokers, with or without racks; up to 4 topics, replication factor 1 to 4; disks roomy to nearly full."""
    count = random.randint(BROKERS_MIN, BROKERS_MAX)
    racks = random.choice((0, 2, 3))
    cluster = SimulatedCluster(
        f"cluster-{random.getrandbits(32):08x}",
        [
            _broker(random, broker_id, f"rack-{broker_id % racks}" if racks else None)
            for broker_id in range(1, count + 1)
        ],
    )
    for number in range(random.randint(1, TOPICS_MAX)):
        create_random_topic(random, cluster, f"topic-{number}")
    return cluster


def random_faults(
    random: Random, cluster: SimulatedCluster, *, duration_ms: int, faults_max: int = 6
) -> tuple[Fault, ...]:
    """None, one or several faults within `duration_ms`, in order of time; they are described, and not planned yet."""
    kinds = (
        _broker_away,
        _broker_frozen,
        _log_dir_failed,
        _topic_made_again,
        _topic_grown,
        _foreign_move,
        _foreign_rate,
    )
    faults: list[Fault] = []
    for _ in range(random.randint(0, faults_max)):
        start_ms = random.randrange(duration_ms)
        end_ms = random.randrange(start_ms, duration_ms)
        faults.extend(random.choice(kinds)(random, cluster, start_ms, end_ms))
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def plan_faults(cluster: SimulatedCluster, faults: tuple[Fault, ...]) -> None:
    """Let the faults happen as time passes on the cluster."""
    for fault in faults:
        cluster.plan(fault.at_ms, fault.action)


def create_random_topic(random: Random, cluster: SimulatedCluster, name: str) -> None:
    """A topic on brokers drawn at random, with load, retention and `min.insync.replicas`."""
    brokers = sorted(cluster.contents.brokers)
    factor = random.randint(1, min(REPLICAS_MAX, len(brokers)))
    bytes_in_per_sec = random.choice((0, 10_000, MEGABYTE))
    size_bytes = random.randrange(200) * MEGABYTE
    cluster.create_topic(
        name,
        {number: tuple(random.sample(brokers, factor)) for number in range(random.randint(1, PARTITIONS_MAX))},
        size_bytes=size_bytes,
        bytes_in_per_sec=bytes_in_per_sec,
        retention_bytes=size_bytes + 100 * MEGABYTE,
        min_insync_replicas=random.randint(1, min(2, factor)),
    )


def _broker(random: Random, broker_id: int, rack: str | None) -> SimulatedBroker:
    """One or two log dirs of 50 GB, filled up to nine tenths by others than the topics of the story."""
    size_bytes = 50 * GIGABYTE
    log_dirs = [LogDir(size_bytes, random.randrange(size_bytes * 9 // 10)) for _ in range(random.randint(1, 2))]
    network = random.choice((20, 100, 1_000)) * MEGABYTE
    return SimulatedBroker(broker_id, rack, log_dirs, network, random.choice((50, 200, 500)) * MEGABYTE)


def _broker_away(random: Random, cluster: SimulatedCluster, start_ms: int, end_ms: int) -> list[Fault]:
    broker_id = random.choice(sorted(cluster.contents.brokers))
    return [
        Fault(start_ms, f"broker {broker_id} dies", lambda: _stop(cluster, broker_id, cluster.kill_broker)),
        Fault(end_ms, f"broker {broker_id} restarts", lambda: _bring_back(cluster, broker_id)),
    ]


def _broker_frozen(random: Random, cluster: SimulatedCluster, start_ms: int, end_ms: int) -> list[Fault]:
    broker_id = random.choice(sorted(cluster.contents.brokers))
    return [
        Fault(start_ms, f"broker {broker_id} freezes", lambda: _stop(cluster, broker_id, cluster.freeze_broker)),
        Fault(end_ms, f"broker {broker_id} goes on", lambda: _bring_back(cluster, broker_id)),
    ]


def _log_dir_failed(random: Random, cluster: SimulatedCluster, start_ms: int, end_ms: int) -> list[Fault]:
    broker_id = random.choice(sorted(cluster.contents.brokers))
    index = random.randrange(len(cluster.contents.brokers[broker_id].log_dirs))

    def repair() -> None:
        cluster.repair_log_dir(broker_id, index)
        _bring_back(cluster, broker_id)

    return [
        Fault(start_ms, f"log dir {index} of broker {broker_id} fails", lambda: cluster.fail_log_dir(broker_id, index)),
        Fault(end_ms, f"log dir {index} of broker {broker_id} is repaired", repair),
    ]


def _topic_made_again(random: Random, cluster: SimulatedCluster, start_ms: int, end_ms: int) -> list[Fault]:
    name = random.choice(sorted(cluster.contents.topics))
    again = Random(random.getrandbits(32))  # a story, not a secret

    def delete() -> None:
        if name in cluster.contents.topics:
            cluster.delete_topic(name)

    def create() -> None:
        if name not in cluster.contents.topics:
            create_random_topic(again, cluster, name)

    return [Fault(start_ms, f"{name} is deleted", delete), Fault(end_ms, f"{name} is made again", create)]


def _topic_grown(random: Random, cluster: SimulatedCluster, start_ms: int, _end_ms: int) -> list[Fault]:
    name = random.choice(sorted(cluster.contents.topics))
    brokers = random.sample(sorted(cluster.contents.brokers), len(cluster.contents.brokers))

    def grow() -> None:
        if topic := cluster.contents.topics.get(name):
            factor = len(topic.partitions[0].replicas)
            cluster.grow_topic(name, {max(topic.partitions) + 1: tuple(brokers[:factor])})

    return [Fault(start_ms, f"{name} grows by a partition", grow)]


def _foreign_move(random: Random, cluster: SimulatedCluster, start_ms: int, end_ms: int) -> list[Fault]:
    """Another tool moves a partition, and changes its mind half of the time."""
    name = random.choice(sorted(cluster.contents.topics))
    key = (name, random.choice(sorted(cluster.contents.topics[name].partitions)))
    brokers = sorted(cluster.contents.brokers)
    target = tuple(random.sample(brokers, random.randint(1, min(3, len(brokers)))))
    faults = [Fault(start_ms, f"somebody moves {name}-{key[1]} to {target}", lambda: cluster.reassign({key: target}))]
    if random.random() < 0.5:
        faults.append(Fault(end_ms, f"somebody cancels {name}-{key[1]}", lambda: cluster.reassign({key: None})))
    return faults


def _foreign_rate(random: Random, cluster: SimulatedCluster, start_ms: int, end_ms: int) -> list[Fault]:
    """Another tool throttles a broker and a topic."""
    broker_id = random.choice(sorted(cluster.contents.brokers))
    name = random.choice(sorted(cluster.contents.topics))
    rate, setting = random.choice((100_000, 10 * MEGABYTE)), random.choice((LEADER_REPLICAS, FOLLOWER_REPLICAS))

    def throttle() -> None:
        cluster.set_throttle_rate(broker_id, LEADER_RATE, rate)
        if name in cluster.contents.topics:
            cluster.set_throttled_replicas(name, setting, "*")

    return [
        Fault(start_ms, f"somebody throttles broker {broker_id} and {name}", throttle),
        Fault(
            end_ms,
            f"somebody ends it on {broker_id}",
            lambda: cluster.set_throttle_rate(broker_id, LEADER_RATE, None),
            ends_another=True,
        ),
    ]


def _stop(cluster: SimulatedCluster, broker_id: int, stop: Callable[[int], None]) -> None:
    if cluster.contents.brokers[broker_id].running:
        stop(broker_id)


def _bring_back(cluster: SimulatedCluster, broker_id: int) -> None:
    """Let the broker run again, whatever ended it; one without a log dir waits for the repair."""
    broker = cluster.contents.brokers[broker_id]
    if broker.running:
        return
    if broker.frozen:
        cluster.resume_broker(broker_id)
    elif not all(log_dir.offline for log_dir in broker.log_dirs):
        cluster.restart_broker(broker_id)
