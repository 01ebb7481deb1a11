"""Disks of a story: some are tight, and what is copied to them is judged by what they truly hold.

The judge rests on the state of the cluster, not on `assignor_core.disks`: a mistake there must not judge itself.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from random import Random

from assignor_core.live import PartitionKey
from assignor_core.plan import Movement
from tests.simulated_cluster import SimulatedCluster
from tests.simulated_cluster.replication import used_bytes
from tests.simulated_cluster.state import ClusterContents, LogDir

MEGABYTE = 10**6
TOLERANCE_BYTES = 100 * MEGABYTE
"""What metadata that lags may hide: growth, and a leader that has changed."""


def tighten(random: Random, cluster: SimulatedCluster, reserve: float) -> list[LogDir]:
    """In some stories some disks are about as full as their reserve allows, or fuller; none is full. Returns those."""
    tight: list[LogDir] = []
    if random.random() < 0.5:
        return tight
    used = used_bytes(cluster.contents)
    for broker_id, broker in sorted(cluster.contents.brokers.items()):
        for index, log_dir in enumerate(broker.log_dirs):
            if random.random() < 0.4:
                room_bytes = random.choice((-1_000, -300, 150, 400)) * MEGABYTE
                others = used[broker_id, index] - log_dir.other_bytes
                wanted = round(log_dir.size_bytes * (1 - reserve)) - room_bytes - others
                log_dir.other_bytes = max(log_dir.other_bytes, wanted)
                tight.append(log_dir)
    return tight


def make_room(tight: Iterable[LogDir]) -> None:
    """Others remove half of their files from these disks."""
    for log_dir in tight:
        log_dir.other_bytes //= 2


def overfilled(contents: ClusterContents, arriving: Mapping[int, int], reserve: float) -> Iterator[str]:
    """Brokers to which more bytes are to be copied than each log dir that Kafka may choose has room for, in words.

    What reassignments under way still bring counts in the log dir that it goes to.
    """
    used = used_bytes(contents)
    for place, lacking in lacking_bytes(contents).items():
        used[place] += lacking
    for broker_id, needed in sorted(arriving.items()):
        rooms = [
            log_dir.size_bytes * (1 - reserve) - used[broker_id, index]
            for index, log_dir in enumerate(contents.brokers[broker_id].log_dirs)
            if not log_dir.offline and not log_dir.cordoned
        ]
        if rooms and needed > min(rooms) + TOLERANCE_BYTES:
            yield f"{needed:,} bytes to broker {broker_id}, which has room for {min(rooms):,.0f}"


def lacking_bytes(contents: ClusterContents) -> Counter[tuple[int, int]]:
    """What reassignments under way still bring, by broker and log dir."""
    lacking: Counter[tuple[int, int]] = Counter()
    for _, partition in contents.partitions():
        for broker_id in partition.adding_replicas:
            if (copy := partition.copies.get(broker_id)) is not None and broker_id not in partition.isr:
                held = partition.size_bytes(broker_id)
                lacking[broker_id, copy.log_dir] += partition.end_bytes - partition.start_bytes - held
    return lacking


def asked_for(contents: ClusterContents, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> Counter[int]:
    """Bytes that a request brings to each broker."""
    arriving: Counter[int] = Counter()
    for key, target in targets.items():
        partition = contents.partition(key)
        if partition is not None:
            for broker_id in set(target or ()) - set(partition.replicas):
                arriving[broker_id] += partition.end_bytes - partition.start_bytes
    return arriving


def planned(contents: ClusterContents, movements: Iterable[Movement]) -> Counter[int]:
    """Bytes that a plan brings to each broker."""
    return asked_for(contents, {row.key: row.new_replicas for row in movements})
