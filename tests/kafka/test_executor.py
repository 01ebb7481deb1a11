"""The executor on real brokers: what was approved happens, its throttles go, those of others stay."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.deciding.state import TriggerState
from assignor_core.execution.caution import LatencyBound
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from assignor_core.throttles import tagged
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import consumer
from streaming.control.cluster_snapshot import ExecutionSnapshot
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.pressure import LatencyPressure
from streaming.control.run import ControlLoop
from streaming.control.throttled_lists import throttle_scope
from streaming.control.wiring import executor_of, journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests.control.noted_cluster import SKEW
from tests.topics import set_settings, wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.kafka

RECORDS = 300
VALUE = b"x" * 2_000
SLOW_VALUE = b"x" * 40_000
"""A topic of such records has 12 MB. The first fetch copies 1 MB whatever the throttle, and each later one waits about
ten seconds, until the meter of the throttle has forgotten the one before."""
DAY_MS = 86_400_000


def make_topic(
    admin: KafkaAdminClient, settings: Settings, assignments: dict[int, list[int]], *, value: bytes = VALUE
) -> str:
    """A topic of its own with `RECORDS` records in partition 0."""
    topic = f"executor-{uuid.uuid4().hex[:8]}"
    admin.create_topics({topic: {"assignments": assignments}})
    wait_until_known(admin, [topic])
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    for _ in range(RECORDS):
        producer.send(topic, value, partition=0)
    producer.flush()
    producer.close()
    return topic


def approve(
    journal: Journal,
    movements: list[Movement],
    *,
    now_ms: int | None = None,
    in_windows_only: bool = False,
    seen: Observed | None = None,
) -> tuple[ExecutionRecord, KeptPlan]:
    """Write a plan of these movements and its approval."""
    plan = Plan("test", tuple(movements), SKEW, SKEW)
    now_ms = now_ms or time.time_ns() // 1_000_000
    approved = journal.write_plan(ProposedPlan(plan, seen, elapsed_ms=1.0), decision=None, now_ms=now_ms)
    execution = journal.approve(approved, "a test", now_ms=now_ms, in_windows_only=in_windows_only)
    return ExecutionRecord(execution), approved


def carry_out(
    executor: Executor[ExecutionSnapshot],
    record: ExecutionRecord,
    plan: Plan,
    *,
    now_ms: int | None = None,
    until: str | None = None,
) -> None:
    """Tick until it has ended, or until its last event is `until`; at the clock's time, or always at `now_ms`."""
    deadline = time.monotonic() + DEADLINE_S
    while not executor.tick(record, plan, now_ms=now_ms or time.time_ns() // 1_000_000):
        if record.execution.last_event == until:
            return
        assert time.monotonic() < deadline, record.execution.last
        time.sleep(0.2)


def ask_to_abort(journal: Journal, record: ExecutionRecord) -> None:
    """As a person would from another process."""
    journal.request_abort(record.execution, "a person", now_ms=time.time_ns() // 1_000_000)
    record.execution = journal.execution(record.execution.execution_id)


def eventually(condition: Callable[[], bool]) -> bool:
    """Brokers hear of a change from the controller a moment later: poll instead of one look."""
    until("it", condition, pause_s=0.1)
    return True


def _has_replicas(cluster: Cluster, key: PartitionKey, replicas: tuple[int, ...]) -> bool:
    return cluster.describe().partitions[key].replicas == replicas


def no_throttle_left(cluster: Cluster, topic: str) -> bool:
    return cluster.throttle_rates() == {} and cluster.throttled_replicas([topic]) == {}


def count_records(settings: Settings, topic: str) -> int:
    reader = consumer(settings.kafka, auto_offset_reset="earliest", consumer_timeout_ms=int(DEADLINE_S * 1000))
    reader.assign([_partition(topic)])
    try:
        return sum(1 for _ in zip(range(RECORDS), reader, strict=False))
    finally:
        reader.close()


def _partition(topic: str) -> object:
    from kafka.structs import TopicPartition

    return TopicPartition(topic, 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [([1], [2]), ([1, 2, 3], [3, 1, 2]), ([1, 2], [3, 2])],
    ids=["move-rf1", "leader-only-rf3", "move-rf2"],
)
def test_a_movement_is_made_and_leaves_no_throttle(
    settings: Settings, admin: KafkaAdminClient, old: list[int], new: list[int]
) -> None:
    topic = make_topic(admin, settings, {0: old})
    cluster, journal = Cluster(admin), journal_of(settings)
    executor = executor_of(cluster, journal, settings)
    record, approved = approve(journal, [Movement(topic, 0, tuple(old), tuple(new), 600_000.0)])
    assert executor.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    carry_out(executor, record, approved.plan)
    assert eventually(lambda: cluster.describe().partitions[(topic, 0)].replicas == tuple(new))
    assert eventually(lambda: cluster.describe().partitions[(topic, 0)].leader == new[0])
    assert not cluster.describe().reassigning()
    assert eventually(lambda: no_throttle_left(cluster, topic))
    assert count_records(settings, topic) == RECORDS
    events = [event.event for event in journal.executions(now_ms=time.time_ns() // 1_000_000)[-1].events]
    assert events[:2] == ["approved", "started"]
    assert events[-1] == "done"


def test_a_throttle_slows_the_copy_and_an_abort_restores(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]}, value=SLOW_VALUE)
    slow = with_control(settings, throttle_bytes_per_sec=20_000)
    cluster, journal = Cluster(admin), journal_of(slow)
    executor = executor_of(cluster, journal, slow)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), float(RECORDS * len(SLOW_VALUE)))])
    executor.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    # Nothing moves before every broker shows its throttle, and brokers hear of it one after the other.
    carry_out(executor, record, approved.plan, until="submitted")
    assert record.execution.last_event == "submitted"
    assert eventually(lambda: cluster.throttle_rates().keys() == {1, 2})
    assert eventually(lambda: cluster.describe().partitions[(topic, 0)].reassigning)
    ask_to_abort(journal, record)
    carry_out(executor, record, approved.plan)
    assert record.execution.last_event == "aborted"
    assert eventually(lambda: cluster.describe().partitions[(topic, 0)].replicas == (1,))
    assert eventually(lambda: no_throttle_left(cluster, topic))


def test_a_killed_executor_is_followed_by_another(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    cluster, journal = Cluster(admin), journal_of(settings)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (3,), 600_000.0)])
    first = executor_of(cluster, journal, settings)
    first.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    first.tick(record, approved.plan, now_ms=time.time_ns() // 1_000_000)
    del first  # as if killed: all that the next one has is the journal and the cluster
    journal = journal_of(settings)
    record = ExecutionRecord(journal.open_executions(now_ms=time.time_ns() // 1_000_000)[0])
    second = executor_of(cluster, journal, settings)
    second.resume()
    carry_out(second, record, approved.plan)
    assert eventually(lambda: cluster.describe().partitions[(topic, 0)].replicas == (3,))
    assert eventually(lambda: no_throttle_left(cluster, topic))


def test_a_plan_for_another_placement_is_refused(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    cluster, journal = Cluster(admin), journal_of(settings)
    record, approved = approve(journal, [Movement(topic, 0, (2,), (3,), 1.0)])
    assert not executor_of(cluster, journal, settings).begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    assert record.execution.last_event == "refused"
    assert "has replicas [1], planned for [2]" in record.execution.last.detail
    assert cluster.describe().partitions[(topic, 0)].replicas == (1,)


def test_a_plan_is_refused_where_a_leader_has_moved_or_the_topic_has_grown(
    settings: Settings, admin: KafkaAdminClient
) -> None:
    topic = make_topic(admin, settings, {0: [1, 2], 1: [2, 3]})
    cluster, journal = Cluster(admin), journal_of(settings)
    movements = [Movement(topic, 0, (1, 2), (3, 2), 1.0)]
    live = cluster.describe()
    seen = Observed.of(Plan("test", tuple(movements)), live)
    ids = {topic: live.topic_ids[topic]}
    assert seen == Observed({(topic, 0): 1}, {topic: 2}, frozenset(), live.cluster_id, topic_ids=ids)
    # The same replicas as before in the end, led by the other one.
    for replicas in ((2, 1), (1, 2)):
        cluster.reassign({(topic, 0): replicas})
        assert eventually(partial(_has_replicas, cluster, (topic, 0), replicas))
        if replicas == (2, 1):
            cluster.elect_preferred([(topic, 0)])
    admin.create_partitions({topic: {"count": 3, "assignments": [[1, 2]]}})
    assert eventually(lambda: (topic, 2) in cluster.describe().partitions)
    record, approved = approve(journal, movements, seen=seen)
    assert not executor_of(cluster, journal, settings).begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    assert f"{topic}-0 is led by broker 2, by broker 1 when planned" in record.execution.last.detail
    assert f"{topic} has 3 partitions, 2 when planned" in record.execution.last.detail
    assert cluster.describe().partitions[(topic, 0)].replicas == (1, 2)
    assert no_throttle_left(cluster, topic)


def test_a_throttle_of_somebody_else_stays(
    settings: Settings, admin: KafkaAdminClient, kafka_cluster: EmbeddedCluster
) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    cluster, journal = Cluster(admin), journal_of(settings)
    cluster.set_throttled_replicas({topic: frozenset({(7, 7)})}, {})
    cluster.set_throttle_rates({2: 5_000_000})
    assert eventually(lambda: 2 in cluster.throttle_rates())
    try:
        record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), 1.0)])
        executor = executor_of(cluster, journal, settings)
        executor.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
        carry_out(executor, record, approved.plan)
        assert eventually(lambda: cluster.throttle_rates().keys() == {2})
        assert cluster.throttle_rates()[2]["leader.replication.throttled.rate"] == 5_000_000
        assert eventually(lambda: list(cluster.throttled_replicas([topic]).values()) == ["7:7"])
    finally:
        cluster.clear_throttle([2], {topic: frozenset({(7, 7)})}, {}, untagged=True)
        assert eventually(lambda: no_throttle_left(cluster, topic))


def test_a_list_that_somebody_has_set_to_every_replica_stays(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    every = {"leader.replication.throttled.replicas": ("SET", "*")}
    set_settings(admin, ConfigResource(ConfigResourceType.TOPIC, topic, every))
    cluster, journal = Cluster(admin), journal_of(settings)
    kept = {(topic, "leader.replication.throttled.replicas"): "*"}
    assert eventually(lambda: cluster.throttled_replicas([topic]) == kept)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), 1.0)])
    executor = executor_of(cluster, journal, settings)
    assert executor.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    assert not executor.tick(record, approved.plan, now_ms=time.time_ns() // 1_000_000)
    followers = {(topic, "follower.replication.throttled.replicas"): "0:2"}
    assert eventually(lambda: cluster.throttled_replicas([topic]) == kept | followers)
    carry_out(executor, record, approved.plan)
    assert record.execution.last_event == "done"
    assert eventually(lambda: cluster.throttled_replicas([topic]) == kept)
    assert eventually(lambda: cluster.throttle_rates() == {})


def test_a_topic_that_is_gone_takes_no_throttle_and_stops_nothing(settings: Settings, admin: KafkaAdminClient) -> None:
    topic, gone = (make_topic(admin, settings, {0: [1]}) for _ in range(2))
    cluster, journal = Cluster(admin), journal_of(settings)
    record, approved = approve(journal, [Movement(name, 0, (1,), (2,), 1.0) for name in (topic, gone)])
    assert executor_of(cluster, journal, settings).begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    admin.delete_topics([gone])
    assert eventually(lambda: (gone, 0) not in cluster.describe().partitions)
    loop = ControlLoop(cluster, settings, now_ms=time.time_ns() // 1_000_000)  # as after a kill
    execution = journal.execution(record.execution.execution_id)
    deadline = time.monotonic() + DEADLINE_S
    while not execution.ended:
        assert time.monotonic() < deadline, execution.last
        loop.tick(now_ms=time.time_ns() // 1_000_000)
        execution = journal.execution(record.execution.execution_id)
    assert execution.last.detail == "1 movement made, 1 partition is gone"
    assert eventually(lambda: cluster.describe().partitions[(topic, 0)].replicas == (2,))
    assert eventually(lambda: no_throttle_left(cluster, topic))


def test_movements_wait_while_a_group_falls_behind_and_go_on_by_themselves(
    settings: Settings, admin: KafkaAdminClient
) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    cluster, journal = Cluster(admin), journal_of(settings)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), 600_000.0)])
    executor = executor_of(cluster, journal, settings)
    started_ms = time.time_ns() // 1_000_000
    write_lag(settings, topic, record.execution.approved_ms - 1_000, 10)  # what it is compared with
    assert executor.begin(record, approved, now_ms=started_ms)
    write_lag(settings, topic, started_ms + 1_000, 10 + settings.control.lag_min_records)
    assert not executor.tick(record, approved.plan, now_ms=started_ms + 20_000)
    assert record.execution.last_event == "progress"
    assert (
        "held back: 1 consumer group falls behind, first readers: 100,010 records, 10" in record.execution.last.detail
    )
    assert not cluster.describe().reassigning()
    assert cluster.describe().partitions[(topic, 0)].replicas == (1,)
    write_lag(settings, topic, started_ms + 2_000, 10)
    assert not executor.tick(record, approved.plan, now_ms=started_ms + 40_000)
    assert record.execution.last_event == "submitted"
    carry_out(executor, record, approved.plan)
    assert eventually(lambda: no_throttle_left(cluster, topic))


def test_what_mode_apply_began_pauses_when_its_window_closes_and_goes_on_in_the_next(
    settings: Settings, admin: KafkaAdminClient
) -> None:
    topic = make_topic(admin, settings, {0: [1], 1: [1]})
    own = with_control(
        settings, maintenance_windows=["01:00-05:00"], movements_in_flight_max=1, execution_deadline_ms=600_000
    )
    cluster, journal = Cluster(admin), journal_of(own)
    moves = [Movement(topic, number, (1,), (2,), RECORDS * 2_000.0) for number in (0, 1)]
    day_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
    open_ms, closed_ms, next_ms = (day_ms + minutes * 60_000 for minutes in (299, 301, 1501))
    record, approved = approve(journal, moves, now_ms=open_ms, in_windows_only=True)
    executor = executor_of(cluster, journal, own)
    assert executor.begin(record, approved, now_ms=open_ms)
    carry_out(executor, record, approved.plan, now_ms=open_ms, until="submitted")
    # What is in flight comes to its end; nothing new begins, and nothing is left on the cluster.
    carry_out(executor, record, approved.plan, now_ms=closed_ms, until="paused")
    assert "waits for maintenance window 01:00-05:00, which opens in 20.0 h" in record.execution.last.detail
    assert eventually(lambda: no_throttle_left(cluster, topic))
    placed = {key[1]: row.replicas for key, row in cluster.describe().partitions.items() if key[0] == topic}
    assert placed == {0: (2,), 1: (1,)}
    # A control that starts meanwhile waits, too.
    taken_up = ExecutionRecord(journal_of(own).open_executions(now_ms=next_ms)[0])
    executor = executor_of(cluster, journal, own)
    executor.resume()
    assert not executor.tick(taken_up, approved.plan, now_ms=next_ms - 120_000)
    assert (taken_up.execution.last_event, no_throttle_left(cluster, topic)) == ("paused", True)
    # 20 hours do not count as work: the deadline is ten minutes.
    carry_out(executor, taken_up, approved.plan, now_ms=next_ms, until="resumed")
    carry_out(executor, taken_up, approved.plan, now_ms=next_ms, until="submitted")
    assert eventually(lambda: cluster.throttle_rates().keys() == {1, 2})
    carry_out(executor, taken_up, approved.plan, now_ms=next_ms)
    assert (taken_up.execution.last_event, taken_up.execution.figures.movements_done) == ("done", 2)
    assert taken_up.execution.worked_ms(next_ms) == closed_ms - open_ms
    assert eventually(lambda: no_throttle_left(cluster, topic))


def test_what_a_person_applies_is_not_bound_to_the_hours(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    own = with_control(settings, maintenance_windows=["01:00-05:00"])
    noon_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
    cluster, journal = Cluster(admin), journal_of(own)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), 1.0)], now_ms=noon_ms)
    executor = executor_of(cluster, journal, own)
    assert executor.begin(record, approved, now_ms=noon_ms)
    carry_out(executor, record, approved.plan, now_ms=noon_ms)
    assert record.execution.last_event == "done"
    assert eventually(lambda: no_throttle_left(cluster, topic))


def with_control(settings: Settings, **control: object) -> Settings:
    """The same settings but for these of section control."""
    content = settings.model_dump()
    content["control"] |= control
    return Settings.model_validate(content)


def write_lag(settings: Settings, topic: str, event_ms: int, lag_records: int) -> None:
    """One row of group_lag, as the pipeline would have written it."""
    row = {
        "kafka_cluster": settings.kafka.cluster_name, "window_start": tables.utc(event_ms),
        "window_end": tables.utc(event_ms + 1), "group_id": "readers", "topic": topic, "partition": 0,
        "lag_records": lag_records, "sample_count": 1, "first_event_time_ms": event_ms, "last_event_time_ms": event_ms,
        "is_final": True, "updated_at": tables.utc(event_ms), "batch_id": 0, "query_id": "q",
    }  # fmt: skip
    tables.append(settings.storage.tables, "group_lag", [row], transaction_id="lag", transaction_version=event_ms)


def test_movements_wait_while_a_broker_answers_producers_slowly(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    with endpoint() as (url, latency):
        content = settings.model_dump()
        content["collect"] |= {"jmx_endpoints": {1: url, 2: url + "/absent"}}
        own = Settings.model_validate(content)
        cluster, journal = Cluster(admin), journal_of(own)
        record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), 600_000.0)])
        executor = executor_of(cluster, journal, own)
        now_ms = record.execution.approved_ms
        latency["ms"] = 80.0
        assert executor.begin(record, approved, now_ms=now_ms)
        assert record.execution.figures.produce_p99_ms_before == 80.0
        latency["ms"] = 161.0
        assert not executor.tick(record, approved.plan, now_ms=now_ms + 20_000)
        assert (
            "held back: broker 1 answers producers in 161 ms (p99), 80 ms at the start" in record.execution.last.detail
        )
        assert not cluster.describe().reassigning()
        # Less than the same factor above, and a control that has just started knows from the journal what it was.
        latency["ms"] = 159.0
        executor = executor_of(cluster, journal, own)
        executor.resume()
        assert not executor.tick(record, approved.plan, now_ms=now_ms + 40_000)
        assert record.execution.last_event == "submitted"
        carry_out(executor, record, approved.plan)
    assert eventually(lambda: no_throttle_left(cluster, topic))


def test_the_brokers_tell_how_fast_they_answer_producers(settings: Settings, admin: KafkaAdminClient) -> None:
    make_topic(admin, settings, {0: [1]})
    pressure = LatencyPressure(settings.collect.jmx_endpoints, LatencyBound(2.0, 100.0))
    assert eventually(lambda: (pressure.highest_ms() or 0.0) > 0.0)


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


def test_the_throttle_follows_headroom_and_pressure(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    content = settings.model_dump()
    content["planner"] |= {"capacities": {1: {"bytes_in_per_sec": 10e6}, 2: {"bytes_in_per_sec": 10e6}}}
    content["control"] |= {"throttle_bytes_per_sec": 30_000_000}
    own = Settings.model_validate(content)
    cluster, journal = Cluster(admin), journal_of(own)
    now_ms = time.time_ns() // 1_000_000
    write_load(own, now_ms - 60_000, {1: 5e6, 2: 2e6})
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), 600_000.0)])
    executor = executor_of(cluster, journal, own)
    try:
        write_lag(own, topic, now_ms - 1_000, 10)
        write_lag(own, topic, now_ms + 1_000, 10 + own.control.lag_min_records)
        assert executor.begin(record, approved, now_ms=now_ms)
        executor.tick(record, approved.plan, now_ms=now_ms)
        # Four fifths of what is left below 10 MB/s.
        assert eventually(lambda: leader_rates(cluster) == {1: tagged(4_000_000), 2: tagged(6_400_000)})
        executor.tick(record, approved.plan, now_ms=now_ms + 20_000)
        assert eventually(lambda: leader_rates(cluster) == {1: tagged(2_000_000), 2: tagged(3_200_000)})
    finally:
        ask_to_abort(journal, record)
        carry_out(executor, record, approved.plan)
    assert eventually(lambda: no_throttle_left(cluster, topic))


def leader_rates(cluster: Cluster) -> dict[int, int]:
    return {broker: rates["leader.replication.throttled.rate"] for broker, rates in cluster.throttle_rates().items()}


def write_load(settings: Settings, start_ms: int, bytes_in: dict[int, float]) -> None:
    """One closed window of broker_load."""
    rows = [
        {
            "kafka_cluster": settings.kafka.cluster_name, "window_start": tables.utc(start_ms),
            "window_end": tables.utc(start_ms + 1_000), "broker": broker, "bytes_in_per_sec": rate,
            "covered_ms": 1_000, "sample_count": 1, "first_event_time_ms": start_ms, "last_event_time_ms": start_ms,
            "is_final": True, "updated_at": tables.utc(start_ms), "batch_id": 0, "query_id": "q",
        }
        for broker, rate in bytes_in.items()
    ]  # fmt: skip
    tables.append(settings.storage.tables, "broker_load", rows, transaction_id="load", transaction_version=start_ms)


def test_the_state_of_the_trigger_survives_in_the_journal(settings: Settings) -> None:
    assert journal_of(settings).trigger_state() == TriggerState()


def test_only_partitions_that_copy_are_throttled() -> None:
    plan = Plan("c", (Movement("t", 0, (1, 2), (2, 1), 0.0), Movement("t", 1, (1,), (3,), 5.0)))
    scope = throttle_scope(plan)
    assert scope.brokers == {1, 3}
    assert scope.leaders == {"t": frozenset({(1, 1)})}
    assert scope.followers == {"t": frozenset({(1, 3)})}
