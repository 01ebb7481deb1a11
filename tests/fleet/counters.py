"""What the brokers of a fleet have counted, by the names that the collector uses for Kafka's meters."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from assignor_core.live import NO_LEADER, PartitionKey
from tests.simulated_cluster.state import ClusterContents, SimulatedPartition

Counts = dict[str, float]

BYTES_IN, BYTES_OUT, MESSAGES_IN = "bytes_in", "bytes_out", "messages_in"
REPLICATION_IN, REPLICATION_OUT = "replication_bytes_in", "replication_bytes_out"
REASSIGNMENT_IN, REASSIGNMENT_OUT = "reassignment_bytes_in", "reassignment_bytes_out"


def _counts_by_topic() -> dict[str, Counts]:
    return defaultdict(lambda: defaultdict(float))


@dataclass(slots=True)
class Counters:
    """By broker: totals, and by topic what it led. A broker that restarts goes on counting, unlike a real one."""

    totals: dict[int, Counts] = field(default_factory=lambda: defaultdict(lambda: defaultdict(float)))
    topics: dict[int, dict[str, Counts]] = field(default_factory=lambda: defaultdict(_counts_by_topic))
    _ends: dict[PartitionKey, int] = field(default_factory=dict)
    _copied: dict[tuple[PartitionKey, int], int] = field(default_factory=dict)

    def note(self, contents: ClusterContents, readers: Mapping[str, float], record_bytes: Callable[[str], int]) -> None:
        """Count what was written and copied since the last call.

        `readers` is how often each topic's records are read, by topic; `record_bytes` the size of one.
        """
        for key, partition in contents.partitions():
            grown = partition.end_bytes - self._ends.get(key, 0)
            self._ends[key] = partition.end_bytes
            if grown > 0 and partition.leader != NO_LEADER:
                self._note_written(key, partition, grown, readers.get(key[0], 0.0), record_bytes(key[0]))
            if partition.adding_replicas:
                self._note_copied(key, partition)

    def _note_written(
        self, key: PartitionKey, partition: SimulatedPartition, grown: int, readers: float, record_bytes: int
    ) -> None:
        total, topic = self.totals[partition.leader], self.topics[partition.leader][key[0]]
        for counts in (total, topic):
            counts[BYTES_IN] += grown
            counts[MESSAGES_IN] += grown // record_bytes
            if readers:
                counts[BYTES_OUT] += grown * readers
        for follower in partition.isr:
            if follower != partition.leader:
                self.totals[follower][REPLICATION_IN] += grown
                total[REPLICATION_OUT] += grown

    def _note_copied(self, key: PartitionKey, partition: SimulatedPartition) -> None:
        """Kafka counts what a reassignment copies as replication too."""
        for follower in partition.adding_replicas:
            end = partition.copies[follower].end_bytes
            copied = end - self._copied.get((key, follower), partition.start_bytes)
            self._copied[key, follower] = end
            for broker, names in (
                (follower, (REASSIGNMENT_IN, REPLICATION_IN)),
                (partition.leader, (REASSIGNMENT_OUT, REPLICATION_OUT)),
            ):
                for name in names:
                    self.totals[broker][name] += max(0, copied)
