"""What a simulated cluster consists of: brokers, log dirs, topics, partitions, replicas. Data without behaviour.

The state is changed in place, because a story has thousands of steps: `controller` changes placement, `replication`
moves bytes, `cluster` is the only door for others. Positions are bytes written since the partition was made; a replica
holds the bytes between the partition's `start_bytes` (retention) and its own `end_bytes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from assignor_core.live import NO_LEADER, LivePartition, PartitionKey, ReplicaKey
from assignor_core.marker import Marker

Release = tuple[int, int]
"""A release of Kafka by its first two numbers: Kafka 4.10 is newer than Kafka 4.9."""
NEWEST_RELEASE: Release = (4, 4)
LAST_IN_SYNC_MAY_LEAVE: Release = (4, 1)
"""From this release on new clusters have eligible leader replicas (KIP-966): the last in-sync replica leaves the ISR
with its broker. Before, the ISR was never empty, and the replica stayed in it."""
LONG_LISTS_REFUSED: Release = (4, 1)
"""From this release on the controller refuses entries that would make a list too long (KAFKA-18907). Before, such a
request was a fault of the controller: it answered with an unknown error, and another controller took over."""
STAYING_REPLICAS_MAY_LAG: Release = (4, 3)
"""From this release on a reassignment ends although a replica that stays is not in sync (KAFKA-19975)."""
CORDONS_SHOWN: Release = (4, 3)
"""From this release on brokers show which log dirs are cordoned (KIP-1066)."""
CORDONED_BROKERS_REFUSED: Release = (4, 4)
"""From this release on the controller refuses targets on a broker whose log dirs are all cordoned (KIP-1066)."""


class BrokerStatus(Enum):
    """Whether the broker's process answers."""

    RUNNING = "running"
    FROZEN = "frozen"
    """Stopped, as by SIGSTOP: its connections stay open, it answers nothing."""
    DEAD = "dead"


@dataclass(slots=True)
class LogDir:
    """A disk of a broker. `other_bytes` is used by others than Kafka."""

    size_bytes: int
    other_bytes: int = 0
    offline: bool = False
    cordoned: bool = False
    """Takes no new replicas."""


@dataclass(slots=True)
class SimulatedBroker:
    """One broker; rates in bytes/s are what its network and its disks carry in each direction."""

    broker_id: int
    rack: str | None
    log_dirs: list[LogDir]
    network_bytes_per_sec: int
    disk_bytes_per_sec: int
    status: BrokerStatus = BrokerStatus.RUNNING
    fenced: bool = False
    """Whether the controller has taken it out: no leader, not in sync, not in metadata."""
    heartbeat_ms: int = 0
    """When the controller heard of it last."""
    bytes_in: int = 0
    bytes_out: int = 0
    """Counters since its start, replication included."""

    @property
    def running(self) -> bool:
        """Whether it answers requests."""
        return self.status is BrokerStatus.RUNNING

    @property
    def cordoned(self) -> bool:
        """Whether each of its log dirs is cordoned."""
        return all(log_dir.cordoned for log_dir in self.log_dirs)

    @property
    def frozen(self) -> bool:
        """Whether it was stopped and may go on."""
        return self.status is BrokerStatus.FROZEN


@dataclass(slots=True)
class FutureCopy:
    """What takes a copy's place once it holds as much: the log dir it lies in, and up to which position it has come."""

    log_dir: int
    end_bytes: int = 0


@dataclass(slots=True)
class Replica:
    """One copy: the log dir it lies in, and the position up to which it holds the partition."""

    log_dir: int
    end_bytes: int = 0
    behind_since_ms: int | None = None
    """Since when it has not held all; None where it does."""
    future: FutureCopy | None = None
    """While it moves to another log dir of its broker."""


@dataclass(slots=True)
class SimulatedPartition:
    """Placement as the controller knows it, and the bytes of every replica."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    copies: dict[int, Replica]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    eligible_leaders: tuple[int, ...] = ()
    """KIP-966: out of sync, yet they hold all that was acknowledged, as nothing is below `min.insync.replicas`."""
    last_leader: int = NO_LEADER
    """The last one before the partition went offline."""
    leader_epoch: int = 0
    bytes_in_per_sec: int = 0
    retention_bytes: int | None = None
    start_bytes: int = 0
    end_bytes: int = 0
    """Position up to which the leader has taken records."""
    acknowledged_bytes: int = 0
    """Position up to which every in-sync replica held the records once: producers with acks=all rely on these."""
    lost_bytes: int = 0
    """Acknowledged bytes that no leader has any more. A cluster that elects cleanly keeps this at 0."""

    @property
    def reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding_replicas or self.removing_replicas)

    def size_bytes(self, broker_id: int) -> int:
        """Bytes of the copy on one broker."""
        return max(0, self.copies[broker_id].end_bytes - self.start_bytes)

    def live(self) -> LivePartition:
        """The controller's view of it."""
        return LivePartition(self.replicas, self.leader, self.isr, self.adding_replicas, self.removing_replicas)


@dataclass(slots=True)
class SimulatedTopic:
    """A topic; one that is made again under the same name has another id."""

    topic_id: str
    partitions: dict[int, SimulatedPartition] = field(default_factory=dict)
    min_insync_replicas: int = 1
    throttled_replicas: dict[str, str] = field(default_factory=dict)
    """Lists of throttled replicas as text, by the name of the setting, as the controller keeps them."""
    heard_replicas: Mapping[str, str] = field(default_factory=dict)
    """The same as brokers know them: what they throttle, and what they show."""
    unheard: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    """What they will hear of them, and when, oldest first."""


@dataclass(slots=True)
class ClusterContents:
    """Everything the controller knows, and the bytes on the disks. `now_ms` is the simulation's time."""

    cluster_id: str
    brokers: dict[int, SimulatedBroker]
    topics: dict[str, SimulatedTopic] = field(default_factory=dict)
    release: Release = NEWEST_RELEASE
    """The release of Kafka whose rules the controller follows, where releases differ."""
    list_delay_ms: int = 0
    """So late brokers hear of a list of throttled replicas that is changed now."""
    throttle_rates: dict[int, dict[str, int]] = field(default_factory=dict)
    """Rates in bytes/s by broker and setting; they outlive the broker's process."""
    log_dir_rates: dict[int, int] = field(default_factory=dict)
    """Rates of movements within a broker, bytes/s by broker."""
    moving_within: set[ReplicaKey] = field(default_factory=set)
    """Replicas that have, or had a moment ago, a future copy."""
    markers: list[Marker] = field(default_factory=list)
    """Of rebalancers; the controllers keep them."""
    now_ms: int = 0
    changes: int = field(default=0, compare=False)
    """Grows whenever placement, a leader, in-sync replicas, a fenced broker or a log dir changes: who sees the same
    number as before would see the same cluster.
    """
    bytes_ms: int = 0
    """Until when bytes have been moved; behind `now_ms` while the cluster is at rest (see `replication`)."""
    shortest_step_ms: int = 1
    """While replicas catch up. A longer one lets thousands of copies pass in fewer steps: each ends a little late, and
    the others get its room as late.
    """
    at_rest_until_ms: int = field(default=0, compare=False)
    """Until then only producers write and replicas in sync follow; not after now where nobody has looked."""
    _listed: list[tuple[PartitionKey, SimulatedPartition]] | None = field(default=None, compare=False, repr=False)

    def topics_changed(self) -> None:
        """To be called after a topic or a partition has come or gone."""
        self.changes += 1
        self._listed = None

    def partition(self, key: PartitionKey) -> SimulatedPartition | None:
        """The partition, or None where it doesn't exist."""
        topic = self.topics.get(key[0])
        return topic.partitions.get(key[1]) if topic else None

    def partitions(self) -> list[tuple[PartitionKey, SimulatedPartition]]:
        """Every partition, in the order of names and numbers. The list is not to be changed."""
        if self._listed is None:
            self._listed = [
                ((name, number), topic.partitions[number])
                for name, topic in sorted(self.topics.items())
                for number in sorted(topic.partitions)
            ]
        return self._listed

    def holds_online(self, broker_id: int, partition: SimulatedPartition) -> bool:
        """Whether a broker can lead or follow: it is not fenced and the replica's log dir is online."""
        broker = self.brokers.get(broker_id)
        copy = partition.copies.get(broker_id)
        return (
            broker is not None and not broker.fenced and copy is not None and not broker.log_dirs[copy.log_dir].offline
        )
