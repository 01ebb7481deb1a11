"""A simulated cluster that notes its changes, and plans for it: for tests of executions without brokers."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from assignor_core.throttles import ThrottledReplicas
from streaming.cluster.ports import ControlledCluster
from streaming.control.carrier import Carrier
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import (
    AnotherCluster,
    ClusterRequestFailed,
    ClusterUnreachable,
    ElectionsRefused,
    ReassignmentsRefused,
)
from streaming.settings import Settings
from tests.simulated_cluster import (
    ClientErrors,
    Fate,
    PlannedFault,
    RequestKind,
    SimulatedClient,
    SimulatedCluster,
)

NOON_MS = int(datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()) * 1000
SKEW: dict[str, Any] = {"bytes_in": {"max_over_mean": 2.0}, "bytes_out": {}, "disk": {}, "leaders": {}, "replicas": {}}


class NotedCluster(SimulatedClient):
    """A simulated cluster with empty partitions t-0, t-1 and t-2, each on broker 1; its changes are noted.

    Time passes only where a test lets it, or after each reassignment where `moves` is true.
    """

    def __init__(
        self,
        *,
        throttles_refused: bool = False,
        moves: bool = False,
        unanswered: int = 0,
        kafka_cluster_id: str | None = None,
        brokers: int = 3,
    ) -> None:
        cluster = SimulatedCluster.of(dict.fromkeys(range(1, brokers + 1)), cluster_id="c")
        cluster.create_topic("t", dict.fromkeys(range(3), (1,)))
        super().__init__(
            cluster,
            errors=ClientErrors(
                ClusterRequestFailed, ClusterUnreachable, ReassignmentsRefused, ElectionsRefused, AnotherCluster
            ),
            kafka_cluster_id=kafka_cluster_id,
        )
        self.faults.planned.extend([PlannedFault(Fate.LOST, RequestKind.DESCRIBE)] * unanswered)
        self.changes: list[str] = []
        self.throttles_refused = throttles_refused
        self._moves = moves

    def settle(self, key: PartitionKey, replicas: tuple[int, ...]) -> None:
        """The partition comes to lie on these brokers, whoever has asked for it."""
        self.cluster.reassign({key: replicas})
        self.cluster.advance(1_000)
        assert self.describe().partitions[key].replicas == replicas

    def cancel(self, key: PartitionKey) -> None:
        """Somebody else cancels a reassignment."""
        self.cluster.reassign({key: None})

    def set_throttled_replicas(
        self, leaders: Mapping[str, ThrottledReplicas], followers: Mapping[str, ThrottledReplicas]
    ) -> None:
        if self.throttles_refused:
            raise ClusterRequestFailed("throttle of topic t can't be changed")
        super().set_throttled_replicas(leaders, followers)

    def set_throttle_rates(self, rates_bytes_per_sec: Mapping[int, int]) -> None:
        self.changes.append("throttle")
        super().set_throttle_rates(rates_bytes_per_sec)

    def clear_throttle(
        self,
        brokers: Collection[int],
        leaders: Mapping[str, ThrottledReplicas],
        followers: Mapping[str, ThrottledReplicas],
        *,
        untagged: bool = False,
    ) -> list[int]:
        self.changes.append("clear")
        return super().clear_throttle(brokers, leaders, followers, untagged=untagged)

    def reassign(self, targets: Mapping[PartitionKey, tuple[int, ...] | None]) -> None:
        self.changes.append(f"move {', '.join(f'{topic}-{number}' for topic, number in targets)}")
        try:
            super().reassign(targets)
        finally:
            if self._moves:
                self.cluster.advance(1_000)


def another_cluster() -> SimulatedCluster:
    """Kafka cluster d, with the same brokers and topic as c."""
    other = SimulatedCluster.of({1: None, 2: None, 3: None}, cluster_id="d")
    other.create_topic("t", dict.fromkeys(range(3), (1,)))
    return other


def carrier(settings: Settings, cluster: ControlledCluster) -> Carrier:
    """Who carries out what is approved, as after a start of control."""
    journal = journal_of(settings)
    return Carrier(executor_of(cluster, journal, settings), journal)


def stored(journal: Journal, made: Plan, *, live: LiveCluster | None = None, now_ms: int = NOON_MS) -> KeptPlan:
    """A plan as the tables hold it; `live` is the cluster that it was made on, if on any."""
    proposed = ProposedPlan(made, None if live is None else Observed.of(made, live))
    return journal.write_plan(proposed, decision=None, now_ms=now_ms)


def approve_plan(
    journal: Journal,
    made: Plan,
    *,
    live: LiveCluster | None = None,
    now_ms: int = NOON_MS,
    in_windows_only: bool = False,
) -> ExecutionRecord:
    """The approval of a plan, which is stored before."""
    kept = stored(journal, made, live=live, now_ms=now_ms)
    return ExecutionRecord(journal.approve(kept, "a test", now_ms=now_ms, in_windows_only=in_windows_only))


def plan(journal: Journal, partition: int, *, now_ms: int = NOON_MS) -> KeptPlan:
    """To move one partition from broker 1 to 2."""
    return stored(journal, one_move(partition), now_ms=now_ms)


def one_move(partition: int) -> Plan:
    return Plan("c", (Movement("t", partition, (1,), (2,), 5.0),), SKEW, SKEW)


def approve(
    journal: Journal, partition: int, *, now_ms: int = NOON_MS, in_windows_only: bool = False
) -> ExecutionRecord:
    return approve_plan(journal, one_move(partition), now_ms=now_ms, in_windows_only=in_windows_only)
