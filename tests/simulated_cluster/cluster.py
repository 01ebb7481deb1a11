"""A Kafka cluster as a state machine on logical time: what a person, a fault or another tool does to it.

Clients ask it through `client.SimulatedClient`, which sees old metadata and suffers faults; here everything happens at
once and is true. Same calls, same state: there is no randomness and no clock.

Example: a replica of 1 MB moves at 100 kB/s in ten seconds.

>>> cluster = SimulatedCluster.of({1: "a", 2: "b"}, network_bytes_per_sec=100_000)
>>> cluster.create_topic("t", {0: (1,)}, size_bytes=1_000_000)
>>> cluster.reassign({("t", 0): (2,)})
{('t', 0): None}
>>> cluster.advance(9_000)
>>> cluster.live_partition(("t", 0)).reassigning
True
>>> cluster.advance(1_000)
>>> cluster.live_partition(("t", 0)).replicas
(2,)
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Self

from assignor_core import throttles
from assignor_core.errors import InputError
from assignor_core.live import LivePartition, PartitionKey
from tests.simulated_cluster import controller, replication
from tests.simulated_cluster.state import (
    NEWEST_RELEASE,
    BrokerStatus,
    ClusterContents,
    LogDir,
    Release,
    Replica,
    SimulatedBroker,
    SimulatedPartition,
    SimulatedTopic,
)
from tests.simulated_cluster.throttling import append_entries, is_too_long, spread, subtract_entries

TERABYTE = 10**12


class SimulatedCluster:
    """The cluster; `contents` is open to readers, and changed by this class and the modules it calls only.

    Ask for `contents` again once time has passed: bytes move when somebody asks.
    """

    def __init__(self, cluster_id: str, brokers: Iterable[SimulatedBroker], release: Release = NEWEST_RELEASE) -> None:
        self._contents = ClusterContents(cluster_id, {row.broker_id: row for row in brokers}, release=release)
        self._topics_made = 0
        self._actions_planned = 0
        self._planned: list[tuple[int, int, Callable[[], object]]] = []

    @classmethod
    def of(
        cls,
        racks: Mapping[int, str | None],
        *,
        cluster_id: str = "simulated",
        release: Release = NEWEST_RELEASE,
        log_dir_bytes: tuple[int, ...] = (TERABYTE,),
        network_bytes_per_sec: int = 100_000_000,
        disk_bytes_per_sec: int = 200_000_000,
    ) -> Self:
        """Brokers that are alike, by id with their racks; one log dir each unless more sizes are given."""
        brokers = (
            SimulatedBroker(
                broker_id, rack, [LogDir(size) for size in log_dir_bytes], network_bytes_per_sec, disk_bytes_per_sec
            )
            for broker_id, rack in sorted(racks.items())
        )
        return cls(cluster_id, brokers, release)

    @property
    def contents(self) -> ClusterContents:
        """Everything, as it is now."""
        replication.bring_up_to_date(self._contents)
        return self._contents

    @property
    def placement(self) -> ClusterContents:
        """The same for who changes nothing and reads neither bytes nor heartbeats: these may be as they were before."""
        return self._contents

    @property
    def now_ms(self) -> int:
        """Logical time since the cluster was made."""
        return self._contents.now_ms

    def advance(self, duration_ms: int) -> None:
        """Let time pass: bytes move, replicas catch up, sessions of silent brokers end, what was planned happens."""
        end_ms = self.now_ms + duration_ms
        while self._planned and self._planned[0][0] <= end_ms:
            at_ms, _, action = heappop(self._planned)
            replication.advance(self._contents, max(0, at_ms - self.now_ms))
            action()
        replication.advance(self._contents, end_ms - self.now_ms)

    def plan(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Let `action` happen when so much time has passed; actions of one instant happen in the order of planning."""
        self._actions_planned += 1
        heappush(self._planned, (self.now_ms + delay_ms, self._actions_planned, action))

    def live_partition(self, key: PartitionKey) -> LivePartition:
        """The controller's view of a partition; raises InputError if it doesn't exist."""
        return self._partition(key).live()

    # Topics.

    def create_topic(
        self,
        name: str,
        assignments: Mapping[int, tuple[int, ...]],
        *,
        size_bytes: int = 0,
        bytes_in_per_sec: int = 0,
        retention_bytes: int | None = None,
        min_insync_replicas: int = 1,
    ) -> None:
        """Partitions on given brokers, each with so many bytes; under a name used before the topic gets a new id."""
        if name in self.contents.topics:
            raise InputError(f"topic {name}: exists")
        self._topics_made += 1
        topic = SimulatedTopic(f"topic-{self._topics_made}", min_insync_replicas=min_insync_replicas)
        self.contents.topics[name] = topic
        self.contents.topics_changed()
        for number, replicas in sorted(assignments.items()):
            partition = self._new_partition(name, number, replicas)
            partition.bytes_in_per_sec, partition.retention_bytes = bytes_in_per_sec, retention_bytes
            partition.end_bytes = partition.acknowledged_bytes = size_bytes
            for copy in partition.copies.values():
                copy.end_bytes = size_bytes

    def grow_topic(self, name: str, assignments: Mapping[int, tuple[int, ...]]) -> None:
        """Add empty partitions."""
        for number, replicas in sorted(assignments.items()):
            self._new_partition(name, number, replicas)

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its reassignments and throttles."""
        del self.contents.topics[name]
        self.contents.topics_changed()

    # Requests, as the controller carries them out.

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> dict[PartitionKey, str | None]:
        """Start, change or (None) cancel reassignments; by partition the name of the error, or None."""
        return {key: controller.reassign(self.contents, key, target) for key, target in targets.items()}

    def elect_preferred(self, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, str | None]:
        """Make first replicas the leaders; by partition the name of the error, or None."""
        return {key: controller.elect_preferred(self.contents, key) for key in partitions}

    def set_throttle_rate(self, broker_id: int, setting: str, bytes_per_sec: int | None) -> None:
        """Set or (None) remove one rate of a broker."""
        rates = self.contents.throttle_rates.setdefault(broker_id, {})
        if bytes_per_sec is None:
            rates.pop(setting, None)
        else:
            rates[setting] = bytes_per_sec
        if not rates:
            del self.contents.throttle_rates[broker_id]

    def set_log_dir_rate(self, broker_id: int, bytes_per_sec: int | None) -> None:
        """Set or (None) remove the rate of movements within a broker."""
        if bytes_per_sec is None:
            self.contents.log_dir_rates.pop(broker_id, None)
        else:
            self.contents.log_dir_rates[broker_id] = bytes_per_sec

    def append_throttled_replicas(self, topic: str, setting: str, entries: str) -> str | None:
        """Add `partition:broker` entries to a list of a topic; the name of the error, or None."""
        error = append_entries(self.contents.topics[topic], setting, entries, self.contents.release)
        self._spread_lists(topic)
        return error

    def subtract_throttled_replicas(self, topic: str, setting: str, entries: str) -> str | None:
        """Remove `partition:broker` entries from a list of a topic; the name of the error, or None."""
        error = subtract_entries(self.contents.topics[topic], setting, entries)
        self._spread_lists(topic)
        return error

    def set_throttled_replicas(self, topic: str, setting: str, text: str) -> None:
        """Replace a list of a topic, for example by `*`; raises InputError for a text that Kafka does not take."""
        if is_too_long(text):
            raise InputError(f"{setting} of topic {topic}: {len(text)} bytes, {throttles.VALUE_BYTES_MAX} are possible")
        self.contents.topics[topic].throttled_replicas[setting] = text
        self._spread_lists(topic)

    def remove_throttled_replicas(self, topic: str, setting: str) -> None:
        """Remove a list of a topic, whatever it names."""
        self.contents.topics[topic].throttled_replicas.pop(setting, None)
        self._spread_lists(topic)

    # Faults.

    def kill_broker(self, broker_id: int) -> None:
        """End its process without a farewell: the controller notices at the end of the session."""
        self.contents.brokers[broker_id].status = BrokerStatus.DEAD

    def freeze_broker(self, broker_id: int) -> None:
        """Stop its process; `resume_broker` lets it go on."""
        self.contents.brokers[broker_id].status = BrokerStatus.FROZEN

    def resume_broker(self, broker_id: int) -> None:
        """Let a frozen broker go on."""
        self._return(broker_id, after_crash=False)

    def restart_broker(self, broker_id: int) -> None:
        """Start a dead broker on its old disks; its counters begin at zero. Log dirs that were offline are so still."""
        broker = self.contents.brokers[broker_id]
        if all(log_dir.offline for log_dir in broker.log_dirs):
            raise InputError(f"broker {broker_id}: has no log dir that is online")
        # A session that has not ended yet ends now: the broker registers anew.
        if not broker.fenced:
            controller.fence(self.contents, broker_id)
        broker.bytes_in = broker.bytes_out = 0
        self._return(broker_id, after_crash=True)

    def fail_log_dir(self, broker_id: int, log_dir: int) -> None:
        """Take a log dir offline with its replicas, as if its disk were full."""
        replication.take_log_dir_offline(self.contents, broker_id, log_dir)

    def repair_log_dir(self, broker_id: int, log_dir: int) -> None:
        """Bring a log dir back with what it held, as a repair and a restart do: it leads where nobody else can."""
        self.contents.brokers[broker_id].log_dirs[log_dir].offline = False
        self.contents.changes += 1
        controller.elect_where_offline(self.contents)

    def _spread_lists(self, topic: str) -> None:
        spread(self.contents.topics[topic], self.now_ms, self.contents.list_delay_ms)

    def _return(self, broker_id: int, *, after_crash: bool) -> None:
        broker = self.contents.brokers[broker_id]
        broker.status, broker.heartbeat_ms = BrokerStatus.RUNNING, self.now_ms
        if broker.fenced:
            controller.unfence(self.contents, broker_id, after_crash=after_crash)

    def _new_partition(self, topic: str, number: int, replicas: tuple[int, ...]) -> SimulatedPartition:
        first = next(iter(self.contents.topics[topic].partitions.values()), None)
        if first is not None and len(first.replicas) != len(replicas):
            message = f"{len(replicas)} replicas, the topic's first partition has {len(first.replicas)}"
            raise InputError(f"partition {topic}-{number}: {message}")
        copies = {}
        for broker_id in replicas:
            if broker_id not in self.contents.brokers:
                raise InputError(f"partition {topic}-{number}: broker {broker_id} takes no replica")
            copies[broker_id] = Replica(controller.choose_log_dir(self.contents, broker_id))
        partition = SimulatedPartition(replicas, replicas, replicas[0], copies)
        self.contents.topics[topic].partitions[number] = partition
        self.contents.topics_changed()
        return partition

    def _partition(self, key: PartitionKey) -> SimulatedPartition:
        partition = self.contents.partition(key)
        if partition is None:
            raise InputError(f"partition {key[0]}-{key[1]}: doesn't exist")
        return partition
