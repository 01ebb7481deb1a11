"""What holds an execution back on a simulated cluster: groups that fall behind, slow brokers, hours and loads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from assignor_core.execution.events import Event
from assignor_core.throttles import LEADER_RATE, tagged
from streaming import tables
from streaming.settings import HOUR_MS, Settings
from tests.control.noted_cluster import NOON_MS
from tests.control.test_deciding import with_control
from tests.control.test_simulated_executions import TICKS_MAX, Carried, cluster
from tests.control.test_throttle_rates import with_capacities, write_window
from tests.simulated_cluster import SimulatedCluster

__all__ = ["cluster"]  # the fixture

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


def tick_until(carried: Carried, event: Event) -> None:
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
    carried = Carried(settings, cluster)
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
        carried = Carried(own, cluster)
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
    carried = Carried(own, cluster, in_windows_only=True)
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
    carried = Carried(with_control(settings, maintenance_windows=["01:00-05:00"]), cluster)
    assert carried.to_the_end()[-1] == "done"
    assert carried.placed() == [(2,), (2,)]


def test_the_throttle_follows_headroom_and_pressure(tables_in_memory: str, cluster: SimulatedCluster) -> None:
    settings = with_capacities(tables_in_memory)
    write_window(settings, NOON_MS - MINUTE_MS, {1: 5e6, 2: 2e6})
    write_lag(settings, NOON_MS - SECOND_MS, 10)
    write_lag(settings, NOON_MS + SECOND_MS, 10 + settings.control.lag_min_records)
    carried = Carried(settings, cluster)
    for looks, shares in enumerate((1, 2)):
        cluster.advance(looks * 20 * SECOND_MS)
        assert not carried.tick()
        rates = {broker: row[LEADER_RATE] for broker, row in carried.client.throttle_rates().items()}
        # Four fifths of what is left below 10 MB/s; half of it under pressure.
        assert rates == {1: tagged(4_000_000 // shares), 2: tagged(6_400_000 // shares)}
