"""A cluster that is only described, and plans for it: for tests of executions without brokers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.plan import Movement, Plan, plan_to_json
from assignor_core.throttles import ThrottledReplicas
from streaming.cluster.admin import Cluster
from streaming.control.journal import Journal
from streaming.control.records import ExecutionRecord, PlanRecord
from streaming.errors import ClusterRequestFailed, ClusterUnreachable

NOON_MS = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * 1000
SKEW: dict[str, Any] = {"bytes_in": {"max_over_mean": 2.0}, "bytes_out": {}, "disk": {}, "leaders": {}, "replicas": {}}


@dataclass
class NotedCluster(Cluster):
    """Partitions t-0, t-1 and t-2, each on broker 1 until a test says otherwise; changes are noted, and not made but
    where `moves` says so.
    """

    replicas: dict[PartitionKey, tuple[int, ...]] = field(
        default_factory=lambda: {("t", number): (1,) for number in range(3)}
    )
    changes: list[str] = field(default_factory=list)
    throttles_refused: bool = False
    moves: bool = False
    unanswered: int = 0
    """So many questions find no broker."""

    def describe(self) -> LiveCluster:
        if self.unanswered:
            self.unanswered -= 1
            raise ClusterUnreachable("no answer when asked to describe the cluster")
        partitions = {key: LivePartition(row, row[0], row) for key, row in self.replicas.items()}
        return LiveCluster("c", {1: None, 2: None, 3: None}, partitions)

    def replica_sizes(self) -> dict[tuple[int, PartitionKey], int]:
        return {}

    def throttle_rates(self) -> dict[int, dict[str, int]]:
        return {}

    def set_throttled_replicas(self, *_sides: Mapping[str, ThrottledReplicas]) -> None:
        if self.throttles_refused:
            raise ClusterRequestFailed("throttle of topic t can't be changed")

    def set_throttle_rates(self, _rates: Mapping[int, int]) -> None:
        self.changes.append("throttle")

    def clear_throttle(self, *_given: object) -> list[int]:
        self.changes.append("clear")
        return []

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        self.changes.append(f"move {', '.join(f'{topic}-{number}' for topic, number in targets)}")
        if self.moves:
            self.replicas |= {key: replicas for key, replicas in targets.items() if replicas}


def plan(journal: Journal, partition: int, *, now_ms: int = NOON_MS) -> PlanRecord:
    """To move one partition from broker 1 to 2."""
    made = Plan("c", (Movement("t", partition, (1,), (2,), 5.0),))
    content = {**plan_to_json(made), "skew_before": SKEW, "skew_after": SKEW, "elapsed_ms": 1.0}
    journal.write_plan(content, decision=None, window=None, now_ms=now_ms)
    return journal.plan(made.plan_id)


def approve(journal: Journal, partition: int, *, now_ms: int = NOON_MS) -> ExecutionRecord:
    return journal.approve(plan(journal, partition, now_ms=now_ms), "a test", now_ms=now_ms)
