"""Executions to their ends on a simulated cluster: copies take time, throttles count, processes are killed."""

import pytest

from assignor_core.execution.adaptive_rates import ADAPT_INTERVAL_MS
from assignor_core.execution.events import Event
from assignor_core.execution.seen_movements import seen_movements
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.throttles import tagged
from streaming.control.journal import ExecutionRecord
from streaming.control.pressure import LagPressure
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.simulated_cluster import ClientErrors, SimulatedClient, SimulatedCluster

MB = 1_000_000
TICK_MS = 1_000
TICKS_MAX = 200
ERRORS = ClientErrors(ClusterRequestFailed, ClusterUnreachable)


@pytest.fixture
def cluster() -> SimulatedCluster:
    made = SimulatedCluster.of({1: "a", 2: "b", 3: "c"}, network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    made.create_topic("t", {0: (1,), 1: (1,)}, size_bytes=5 * MB)
    return made


class Carried:
    """An execution that moves both partitions from broker 1 to 2, if no other plan is given, and the process that
    carries it out.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: SimulatedCluster,
        plan: Plan | None = None,
        *,
        in_windows_only: bool = False,
    ) -> None:
        self.settings, self.cluster = settings, cluster
        self.client = SimulatedClient(cluster, errors=ERRORS)
        self.journal = journal_of(settings)
        moves = tuple(Movement("t", number, (1,), (2,), 5.0 * MB) for number in (0, 1))
        self.plan = plan or Plan("c", moves, SKEW, SKEW)
        self.journal.write_plan(ProposedPlan(self.plan, elapsed_ms=1.0), decision=None, now_ms=NOON_MS)
        approved = self.journal.plan(self.plan.plan_id)
        execution = self.journal.approve(approved, "a test", now_ms=NOON_MS, in_windows_only=in_windows_only)
        self.record = ExecutionRecord(execution)
        self.executor = executor_of(self.client, self.journal, settings)
        assert self.executor.begin(self.record, approved, now_ms=NOON_MS)

    def tick(self) -> bool:
        """One tick, and the time until the next; True once it has ended."""
        ended = self.executor.tick(self.record, self.plan, now_ms=NOON_MS + self.cluster.now_ms)
        self.cluster.advance(TICK_MS)
        return ended

    def to_the_end(self) -> list[Event]:
        """Tick until it has ended; returns what the journal holds then."""
        assert any(self.tick() for _ in range(TICKS_MAX)), self.record.execution.last
        kept = self.journal.execution(self.record.execution.execution_id)
        assert kept.events == self.record.execution.events
        return [event.event for event in kept.events]

    def be_killed(self) -> None:
        """All that the next process has is the journal and the cluster."""
        self.journal = journal_of(self.settings)
        [execution] = self.journal.open_executions(now_ms=NOON_MS + self.cluster.now_ms)
        self.record = ExecutionRecord(execution)
        self.executor = executor_of(self.client, self.journal, self.settings)
        self.executor.resume()

    def states(self) -> list[str]:
        """Of both movements, by the journal."""
        seen = seen_movements(self.record.execution)
        return [str(seen.state(place)) for place in range(2)]

    def placed(self) -> list[tuple[int, ...]]:
        assert self.client.throttle_rates() == {}
        assert self.client.throttled_replicas(["t"]) == {}
        assert not self.client.describe().reassigning()
        return [row.replicas for _, row in sorted(self.client.describe().partitions.items())]


def test_movements_are_made_and_leave_no_throttle(settings: Settings, cluster: SimulatedCluster) -> None:
    carried = Carried(settings, cluster)
    events = carried.to_the_end()
    assert (events[:3], events[-1]) == ([Event.APPROVED, Event.STARTED, Event.SUBMITTED], Event.DONE)
    assert carried.record.execution.figures.movements_done == 2
    assert carried.states() == ["made", "made"]
    assert carried.placed() == [(2,), (2,)]


@pytest.mark.long
def test_a_process_that_is_killed_at_every_tick_is_followed_by_the_next(
    settings: Settings, cluster: SimulatedCluster
) -> None:
    carried = Carried(settings, cluster)
    for _ in range(TICKS_MAX):
        carried.be_killed()
        if carried.tick():
            break
    assert carried.record.execution.last_event is Event.DONE
    named = [row.figures.movements_made or () for row in carried.record.execution.events]
    assert sorted(place for places in named for place in places) == [0, 1], "each process names what is new"
    assert carried.placed() == [(2,), (2,)]


def test_the_journal_shows_why_the_throttle_changes(
    settings: Settings, cluster: SimulatedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried, full = Carried(settings, cluster), settings.control.throttle_bytes_per_sec
    half = tagged(full // 2)
    monkeypatch.setattr(LagPressure, "reason", lambda *_, **__: "group billing falls behind")
    for _ in range(ADAPT_INTERVAL_MS // TICK_MS + 2):
        assert not carried.tick()
    monkeypatch.undo()
    carried.to_the_end()
    rates = [row for row in carried.record.execution.events if "throttle of the slowest" in row.detail]
    halved = f"the throttle of the slowest broker is {half:,} bytes/s instead of {tagged(full):,}"
    assert rates[0].detail == f"{halved}: group billing falls behind"
    assert rates[0].figures.throttle_bytes_per_sec == half
    assert rates[1].detail.endswith(f"instead of {half:,}: clients and brokers have room again")


@pytest.mark.parametrize("ticks", [0, 1, 3, 9])
def test_an_abort_restores_what_is_in_flight_and_keeps_what_is_done(
    settings: Settings, cluster: SimulatedCluster, ticks: int
) -> None:
    carried = Carried(settings, cluster)
    for _ in range(ticks):
        assert not carried.tick()
    carried.journal.request_abort(carried.record.execution, "a person", now_ms=NOON_MS + cluster.now_ms)
    carried.be_killed()
    assert carried.to_the_end()[-1] is Event.ABORTED
    placed = carried.placed()
    assert set(placed) <= {(1,), (2,)}
    assert placed.count((2,)) == carried.record.execution.figures.movements_done
    assert carried.states() == ["made" if replicas == (2,) else "not_made" for replicas in placed]


@pytest.mark.parametrize("staged", [False, True])
def test_another_order_of_followers_is_made_and_changes_no_leader(tables_in_memory: str, staged: bool) -> None:
    """What plans for failover headroom ask for: nothing is copied, and the first follower is another one."""
    cluster = SimulatedCluster.of({1: "a", 2: "b", 3: "c"})
    cluster.create_topic("t", dict.fromkeys(range(2), (1, 2, 3)))
    own = Settings.model_validate({"storage": {"tables": tables_in_memory}, "control": {"staged_moves": staged}})
    moves = tuple(Movement("t", number, (1, 2, 3), (1, 3, 2), 0.0) for number in range(2))
    carried = Carried(own, cluster, Plan("c", moves, SKEW, SKEW))
    assert carried.to_the_end()[-1] is Event.DONE
    assert carried.states() == ["made", "made"]
    assert carried.placed() == [(1, 3, 2), (1, 3, 2)]
    assert cluster_leaders(carried) == [1, 1]


def test_an_election_is_seen_at_the_next_tick(settings: Settings) -> None:
    """Replicas are as planned already: only leaders change, so no list of reassignments shows that they have."""
    cluster = SimulatedCluster.of({1: "a", 2: "b"})
    cluster.create_topic("t", dict.fromkeys(range(4), (2, 1)))
    cluster.reassign({("t", number): (1, 2) for number in range(4)})
    cluster.advance(TICK_MS)
    plan = Plan("c", tuple(Movement("t", number, (1, 2), (1, 2), 0.0) for number in range(4)), SKEW, SKEW)
    two_at_once = settings.model_copy(
        update={"control": settings.control.model_copy(update={"elections_at_once_max": 2})}
    )
    carried = Carried(two_at_once, cluster, plan)
    began_ms, events = cluster.now_ms, carried.to_the_end()
    assert events[-1] is Event.DONE
    assert {row.leader for row in carried.client.describe().partitions.values()} == {1}
    assert cluster.now_ms - began_ms <= 6 * TICK_MS


def test_elections_that_metadata_shows_late_are_written_down_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimulatedCluster.of({1: "a", 2: "b"})
    cluster.create_topic("t", {0: (1, 2)})
    carried = Carried(settings, cluster, Plan("c", (Movement("t", 0, (1, 2), (2, 1), 0.0),), SKEW, SKEW))
    asked: list[int] = []
    monkeypatch.setattr(carried.client, "elect_preferred", lambda _partitions: asked.append(cluster.now_ms))
    for _ in range(20):
        assert not carried.tick()
    assert len(asked) > 10
    monkeypatch.undo()
    events = carried.to_the_end()
    assert events.count(Event.ELECTING) == 1
    assert carried.client.describe().partitions["t", 0].leader == 2


FACTORS = (
    Movement("one", 0, (1,), (1, 2), 5.0 * MB),
    Movement("one", 1, (1,), (3, 1), 5.0 * MB),
    Movement("three", 0, (1, 2, 3), (1, 3), 0.0),
    Movement("three", 1, (1, 2, 3), (1, 3, 2), 0.0),
    Movement("two", 0, (2, 3), (3,), 0.0),
)
"""Two partitions get one replica more, one of them another leader; two get one less; one another order alone."""


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("staged", [False, True])
def test_a_plan_may_change_how_many_replicas_a_partition_has(tables_in_memory: str, killed: bool, staged: bool) -> None:
    cluster = SimulatedCluster.of({1: "a", 2: "b", 3: "c"}, network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    for topic in ("one", "two", "three"):
        replicas = {row.partition: row.old_replicas for row in FACTORS if row.topic == topic}
        cluster.create_topic(topic, replicas, size_bytes=5 * MB)
    own = Settings.model_validate({"storage": {"tables": tables_in_memory}, "control": {"staged_moves": staged}})
    carried = Carried(own, cluster, Plan("c", FACTORS, SKEW, SKEW))
    for _ in range(TICKS_MAX):
        if killed:
            carried.be_killed()
        if carried.tick():
            break
    assert carried.record.execution.last_event is Event.DONE
    assert carried.placed() == [row.new_replicas for row in FACTORS]
    assert cluster_leaders(carried) == [row.new_replicas[0] for row in FACTORS]
    assert carried.record.execution.figures.bytes_moved == 10 * MB


@pytest.mark.parametrize("ticks", [1, 3])
def test_an_abort_takes_back_a_replica_that_is_still_copied(settings: Settings, ticks: int) -> None:
    cluster = SimulatedCluster.of({1: "a", 2: "b", 3: "c"}, network_bytes_per_sec=MB // 4, disk_bytes_per_sec=MB)
    cluster.create_topic("one", {0: (1,), 1: (1,)}, size_bytes=5 * MB)
    carried = Carried(settings, cluster, Plan("c", FACTORS[:2], SKEW, SKEW))
    for _ in range(ticks):
        assert not carried.tick()
    carried.journal.request_abort(carried.record.execution, "a person", now_ms=NOON_MS + cluster.now_ms)
    carried.be_killed()
    assert carried.to_the_end()[-1] is Event.ABORTED
    assert carried.placed() == [(1,), (1,)]


def cluster_leaders(carried: Carried) -> list[int]:
    return [row.leader for _, row in sorted(carried.client.describe().partitions.items())]
