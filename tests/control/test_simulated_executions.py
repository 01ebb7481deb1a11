"""Executions to their ends on a simulated cluster: copies take time, processes are killed, hours close."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from assignor_core.execution.adaptive_rates import ADAPT_INTERVAL_MS
from assignor_core.execution.events import Event
from assignor_core.plan import Movement, Plan
from assignor_core.throttles import LEADER_RATE, tagged
from streaming import tables
from streaming.control.pressure import LagPressure
from streaming.settings import HOUR_MS, Settings
from tests.control.carried import MB, TICK_MS, TICKS_MAX, BothMoved
from tests.control.noted_cluster import NOON_MS, SKEW
from tests.control.test_deciding import with_control
from tests.control.test_throttle import with_capacities, write_window
from tests.simulated_cluster import SimulatedCluster

__all__ = ["cluster"]  # fixtures


@pytest.fixture
def cluster() -> SimulatedCluster:
    made = SimulatedCluster.of({1: "a", 2: "b", 3: "c"}, network_bytes_per_sec=MB, disk_bytes_per_sec=MB)
    made.create_topic("t", {0: (1,), 1: (1,)}, size_bytes=5 * MB)
    return made


def test_movements_are_made_and_leave_no_throttle(settings: Settings, cluster: SimulatedCluster) -> None:
    carried = BothMoved(settings, cluster)
    events = carried.to_the_end()
    assert (events[:3], events[-1]) == ([Event.APPROVED, Event.STARTED, Event.SUBMITTED], Event.DONE)
    assert carried.record.execution.figures.movements_done == 2
    assert carried.states() == ["made", "made"]
    assert carried.placed() == [(2,), (2,)]


@pytest.mark.long
def test_a_process_that_is_killed_at_every_tick_is_followed_by_the_next(
    settings: Settings, cluster: SimulatedCluster
) -> None:
    carried = BothMoved(settings, cluster)
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
    carried, full = BothMoved(settings, cluster), settings.control.throttle_bytes_per_sec
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
    carried = BothMoved(settings, cluster)
    carried.ticks(ticks)
    carried.request_abort()
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
    carried = BothMoved(own, cluster, Plan("c", moves, SKEW, SKEW))
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
    carried = BothMoved(two_at_once, cluster, plan)
    began_ms, events = cluster.now_ms, carried.to_the_end()
    assert events[-1] is Event.DONE
    assert {row.leader for row in carried.client.describe().partitions.values()} == {1}
    assert cluster.now_ms - began_ms <= 6 * TICK_MS


def test_elections_that_metadata_shows_late_are_written_down_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = SimulatedCluster.of({1: "a", 2: "b"})
    cluster.create_topic("t", {0: (1, 2)})
    carried = BothMoved(settings, cluster, Plan("c", (Movement("t", 0, (1, 2), (2, 1), 0.0),), SKEW, SKEW))
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
    carried = BothMoved(own, cluster, Plan("c", FACTORS, SKEW, SKEW))
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
    carried = BothMoved(settings, cluster, Plan("c", FACTORS[:2], SKEW, SKEW))
    carried.ticks(ticks)
    carried.request_abort()
    assert carried.to_the_end()[-1] is Event.ABORTED
    assert carried.placed() == [(1,), (1,)]


def cluster_leaders(carried: BothMoved) -> list[int]:
    return [row.leader for _, row in sorted(carried.client.describe().partitions.items())]


SECOND_MS, MINUTE_MS = 1_000, 60_000


def write_lag(settings: Settings, event_ms: int, lag_records: int) -> None:
    """One row of group_lag, as the pipeline would have written it."""
    row = {
        "kafka_cluster": settings.kafka.cluster_name, "window_start": tables.utc(event_ms),
        "window_end": tables.utc(event_ms + 1), "group_id": "readers", "topic": "t", "partition": 0,
        "lag_records": lag_records, "sample_count": 1, "first_event_time_ms": event_ms, "last_event_time_ms": event_ms,
        "is_final": True, "updated_at": tables.utc(event_ms), "batch_id": 0, "query_id": "q",
    }  # fmt: skip
    tables.append(settings.storage.tables, "group_lag", [row], transaction_id="lag", transaction_version=event_ms)


def tick_until(carried: BothMoved, event: Event) -> None:
    """Tick until the last event is this one; the execution goes on."""
    for _ in range(TICKS_MAX):
        assert not carried.tick()
        if carried.record.execution.last_event == event:
            return
    raise AssertionError(carried.record.execution.last)


def test_movements_wait_while_a_group_falls_behind_and_go_on_by_themselves(
    settings: Settings, cluster: SimulatedCluster
) -> None:
    write_lag(settings, NOON_MS - SECOND_MS, 10)  # what it is compared with
    carried = BothMoved(settings, cluster)
    write_lag(settings, NOON_MS + SECOND_MS, 10 + settings.control.lag_min_records)
    cluster.advance(20 * SECOND_MS)
    assert not carried.tick()
    held = carried.record.execution.last
    assert held.event == "progress"
    assert "held back: 1 consumer group falls behind, first readers: 100,010 records, 10" in held.detail
    assert not carried.client.describe().reassigning()
    write_lag(settings, NOON_MS + 2 * SECOND_MS, 10)
    cluster.advance(20 * SECOND_MS)
    assert not carried.tick()
    assert carried.record.execution.last_event == "submitted"
    assert carried.to_the_end()[-1] == "done"
    assert carried.placed() == [(2,), (2,)]


def test_movements_wait_while_a_broker_answers_producers_slowly(settings: Settings, cluster: SimulatedCluster) -> None:
    with endpoint() as (url, latency):
        endpoints = {1: url, 2: url + "/absent"}
        own = Settings.model_validate({**settings.model_dump(), "collect": {"jmx_endpoints": endpoints}})
        latency["ms"] = 80.0
        carried = BothMoved(own, cluster)
        assert carried.record.execution.figures.produce_p99_ms_before == 80.0
        latency["ms"] = 161.0
        cluster.advance(20 * SECOND_MS)
        assert not carried.tick()
        held = carried.record.execution.last.detail
        assert "held back: broker 1 answers producers in 161 ms (p99), 80 ms at the start" in held
        assert not carried.client.describe().reassigning()
        # Less than the same factor above, and a control that has just started knows from the journal what it was.
        latency["ms"] = 159.0
        carried.be_killed()
        cluster.advance(20 * SECOND_MS)
        assert not carried.tick()
        assert carried.record.execution.last_event == "submitted"
        assert carried.to_the_end()[-1] == "done"


@contextmanager
def endpoint() -> Iterator[tuple[str, dict[str, float]]]:
    """A JMX endpoint whose p99 of produce requests is what the test says."""
    latency: dict[str, float] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/metrics" else 404)
            self.end_headers()
            line = f'kafka_network_requestmetrics_totaltimems_p99{{request="Produce",}} {latency["ms"]}'
            self.wfile.write(f"# TYPE untyped\nother 1.0\n{line}\n".encode())

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Not on standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/metrics", latency
        finally:
            server.shutdown()
            thread.join()


def test_what_mode_apply_began_pauses_when_its_window_closes_and_goes_on_in_the_next(
    settings: Settings, cluster: SimulatedCluster
) -> None:
    own = with_control(
        settings, maintenance_windows=["11:00-12:01"], movements_in_flight_max=1, execution_deadline_ms=600_000
    )
    carried = BothMoved(own, cluster, in_windows_only=True)
    tick_until(carried, Event.SUBMITTED)
    # What is in flight comes to its end; nothing new begins, and nothing is left on the cluster.
    cluster.advance(6 * MINUTE_MS - cluster.now_ms)
    tick_until(carried, Event.PAUSED)
    paused = carried.record.execution.last
    assert "waits for maintenance window 11:00-12:01, which opens in 22.9 h" in paused.detail
    assert carried.placed() == [(2,), (1,)]
    # A control that starts meanwhile waits, too.
    carried.be_killed()
    cluster.advance(22 * HOUR_MS)
    assert not carried.tick()
    assert carried.record.execution.last_event == "paused"
    assert carried.placed() == [(2,), (1,)]
    # 22 hours do not count as work: the deadline is ten minutes.
    cluster.advance(HOUR_MS)
    tick_until(carried, Event.RESUMED)
    assert carried.record.execution.worked_ms(carried.record.execution.last.at_ms) == paused.at_ms - NOON_MS
    tick_until(carried, Event.SUBMITTED)
    assert carried.client.throttle_rates().keys() == {1, 2}
    assert carried.to_the_end()[-1] == "done"
    assert carried.placed() == [(2,), (2,)]


def test_what_a_person_applies_is_not_bound_to_the_hours(settings: Settings, cluster: SimulatedCluster) -> None:
    carried = BothMoved(with_control(settings, maintenance_windows=["01:00-05:00"]), cluster)
    assert carried.to_the_end()[-1] == "done"
    assert carried.placed() == [(2,), (2,)]


def test_the_throttle_follows_headroom_and_pressure(tables_in_memory: str, cluster: SimulatedCluster) -> None:
    settings = with_capacities(tables_in_memory)
    write_window(settings, NOON_MS - MINUTE_MS, {1: 5e6, 2: 2e6})
    write_lag(settings, NOON_MS - SECOND_MS, 10)
    write_lag(settings, NOON_MS + SECOND_MS, 10 + settings.control.lag_min_records)
    carried = BothMoved(settings, cluster)
    for looks, shares in enumerate((1, 2)):
        cluster.advance(looks * 20 * SECOND_MS)
        assert not carried.tick()
        rates = {broker: row[LEADER_RATE] for broker, row in carried.client.throttle_rates().items()}
        # Four fifths of what is left below 10 MB/s; half of it under pressure.
        assert rates == {1: tagged(4_000_000 // shares), 2: tagged(6_400_000 // shares)}
