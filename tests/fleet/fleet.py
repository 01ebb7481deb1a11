"""The state that all brokers of a fleet share: the simulated cluster, groups, counters, and how they misbehave.

It knows neither bytes nor sockets: `wire` carries requests to the modules `api_*`, which ask and change this.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

from tests.fleet.counters import Counters
from tests.fleet.groups import FleetGroup
from tests.simulated_cluster import SimulatedCluster, replication
from tests.simulated_cluster.state import ClusterContents, SimulatedPartition

HOST = "127.0.0.1"
RECORD_BYTES = 1_000
SEED = 1

Made = TypeVar("Made")
Held = Mapping[str, list[tuple[int, SimulatedPartition]]]
"""(Number, partition) by topic, in order."""


@dataclass(slots=True)
class Faults:
    """How brokers misbehave besides those that the simulated cluster knows (frozen, dead)."""

    delay_s: dict[int, float] = field(default_factory=dict)
    """How late a slow broker answers, by id."""
    refused_share: float = 0.0
    """Share of the requests that are refused with one of Kafka's errors, drawn from a fixed seed."""
    random: Random = field(default_factory=lambda: Random(SEED))

    def refuses(self) -> bool:
        """Whether the next request is refused."""
        return self.refused_share > 0 and self.random.random() < self.refused_share


class Fleet:
    """One cluster. `kept_topics` are those whose produced values are kept in `kept`, not only counted."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        groups: Iterable[FleetGroup] = (),
        *,
        record_bytes: Mapping[str, int] | None = None,
        kept_topics: Iterable[str] = (),
        counters: Counters | None = None,
    ) -> None:
        self.cluster = cluster
        self.groups = {group.group_id: group for group in groups}
        self.faults = Faults()
        self.ports: dict[int, int] = {}
        """Port by broker, once it listens."""
        self.password: str | None = None
        """That of every user."""
        self.quotas: dict[str, dict[str, float]] = {}
        """Quotas by client id."""
        self.settings: dict[tuple[int, str], dict[str, str]] = {}
        """Settings besides throttles, by Kafka's code of the kind of resource and its name."""
        self.requests: Counter[str] = Counter()
        """Requests answered or refused, by name."""
        self.produced: Counter[tuple[str, int]] = Counter()
        """Records by topic and partition."""
        self.kept: dict[str, list[bytes]] = {topic: [] for topic in kept_topics}
        self._counters = counters or Counters()
        self._is_counted = counters is not None
        self._record_bytes = dict(record_bytes or {})
        self._readers: Counter[str] = Counter()
        for group in self.groups.values():
            for topic in {key[0] for key in group.reads}:
                self._readers[topic] += 1
        self._made: dict[object, Any] = {}
        self._made_at = -1
        self._used: Mapping[tuple[int, int], int] = {}
        self._used_at: tuple[int, int] | None = None
        self._names: dict[UUID, str] = {}

    @property
    def contents(self) -> ClusterContents:
        """Everything the controller knows."""
        return self.cluster.contents

    def replace_cluster(self, cluster: SimulatedCluster) -> None:
        """Go on with another cluster of the same brokers, without groups, quotas and settings."""
        self.cluster = cluster
        self.groups, self.quotas, self.settings, self._readers = {}, {}, {}, Counter()
        self._made, self._used_at, self._names = {}, None, {}
        self._counters, self._is_counted = Counters(), False

    def advance(self, duration_ms: int) -> None:
        """Let time pass on the cluster."""
        self.cluster.advance(duration_ms)
        self._is_counted = False

    def append(self, partition: SimulatedPartition, size_bytes: int) -> None:
        """Records that a producer sent: every replica in sync has them at once."""
        partition.end_bytes += size_bytes
        partition.acknowledged_bytes = partition.end_bytes
        for broker_id in partition.isr:
            partition.copies[broker_id].end_bytes = partition.end_bytes
        self._is_counted = False

    def counted(self) -> Counters:
        """The brokers' counters, brought up to the state of the logs."""
        if not self._is_counted:
            self._counters.note(self.contents, self._readers, self.record_bytes)
            self._is_counted = True
        return self._counters

    def forget_requests(self) -> None:
        """Count requests and records from 0 on."""
        self.requests.clear()
        self.produced.clear()

    def until_changed(self, name: object, make: Callable[[], Made]) -> Made:
        """What `make` gave under this name, made again once the cluster has changed."""
        if self._made_at != self.contents.changes:
            self._made, self._made_at = {}, self.contents.changes
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def held_by(self, broker_id: int) -> Held:
        """Replicas that a broker holds."""
        return self.until_changed("held", self._held).get(broker_id, {})

    def used_bytes(self) -> Mapping[tuple[int, int], int]:
        """Bytes used by (broker, log dir), counted once for each instant."""
        instant = (self.contents.now_ms, self.contents.changes)
        if self._used_at != instant:
            self._used, self._used_at = replication.used_bytes(self.contents), instant
        return self._used

    def log_dir_path(self, index: int) -> str:
        """As `SimulatedClient` names it."""
        return f"/disk-{index}"

    def coordinated_by(self, broker_id: int) -> list[FleetGroup]:
        """Groups of one coordinator."""
        return [group for group in self.groups.values() if group.coordinator == broker_id]

    def record_bytes(self, topic: str) -> int:
        """Size of each record of a topic."""
        return self._record_bytes.get(topic, RECORD_BYTES)

    def offsets(self, topic: str, partition: SimulatedPartition) -> tuple[int, int]:
        """(Log start offset, log end offset)."""
        size = self.record_bytes(topic)
        return partition.start_bytes // size, partition.end_bytes // size

    def committed(self, group: FleetGroup) -> dict[str, list[tuple[int, int]]]:
        """(Partition, offset) by topic."""
        offsets: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for (topic, number), offset in group.committed.items():
            offsets[topic].append((number, offset))
        for topic, number in group.reads:
            partition = self.contents.partition((topic, number))
            if partition is not None:
                start, end = self.offsets(topic, partition)
                offsets[topic].append((number, start + int((end - start) * group.read_share)))
        return offsets

    def wire_id(self, topic: str) -> UUID:
        """Kafka's id of a topic: its id in the simulated cluster, if that is a UUID."""
        topic_id = self.contents.topics[topic].topic_id
        try:
            wire_id = UUID(topic_id)
        except ValueError:
            wire_id = uuid5(NAMESPACE_OID, topic_id)
        self._names[wire_id] = topic
        return wire_id

    def topic_of(self, wire_id: UUID) -> str | None:
        """The topic that bears an id; None if there is none, or clients were never shown it."""
        name = self._names.get(wire_id)
        return name if name in self.contents.topics and self.wire_id(name) == wire_id else None

    def alive(self) -> list[int]:
        """Brokers in metadata, lowest id first."""
        return [broker_id for broker_id, row in sorted(self.contents.brokers.items()) if not row.fenced]

    def _held(self) -> dict[int, dict[str, list[tuple[int, SimulatedPartition]]]]:
        held: dict[int, dict[str, list[tuple[int, SimulatedPartition]]]] = {}
        for (topic, number), partition in self.contents.partitions():
            for broker_id in partition.copies:
                held.setdefault(broker_id, {}).setdefault(topic, []).append((number, partition))
        return held
