"""The executor on real brokers: what was approved happens, its throttles go, those of others stay."""

import time
import uuid
from collections.abc import Callable
from functools import partial

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.execution.caution import LatencyBound
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import consumer
from streaming.control.cluster_snapshot import ExecutionSnapshot
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.pressure import LatencyPressure
from streaming.control.run import ControlLoop
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
    journal: Journal, movements: list[Movement], *, seen: Observed | None = None
) -> tuple[ExecutionRecord, KeptPlan]:
    """Write a plan of these movements and its approval."""
    plan = Plan("test", tuple(movements), SKEW, SKEW)
    now_ms = time.time_ns() // 1_000_000
    approved = journal.write_plan(ProposedPlan(plan, seen, elapsed_ms=1.0), decision=None, now_ms=now_ms)
    execution = journal.approve(approved, "a test", now_ms=now_ms)
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


def with_control(settings: Settings, **control: object) -> Settings:
    """The same settings but for these of section control."""
    content = settings.model_dump()
    content["control"] |= control
    return Settings.model_validate(content)


def test_the_brokers_tell_how_fast_they_answer_producers(settings: Settings, admin: KafkaAdminClient) -> None:
    make_topic(admin, settings, {0: [1]})
    pressure = LatencyPressure(settings.collect.jmx_endpoints, LatencyBound(2.0, 100.0))
    assert eventually(lambda: (pressure.highest_ms() or 0.0) > 0.0)
