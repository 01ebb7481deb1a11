"""The executor on real brokers: what was approved happens, and its throttles go.

What it does beside others, and with topics that are gone: `tests/conformance` for the client, `tests/control` for it.
"""

import functools
import uuid

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.structs import TopicPartition

from assignor_core.execution.caution import LatencyBound
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import consumer
from streaming.control.cluster_snapshot import ExecutionSnapshot
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.pressure import LatencyPressure
from streaming.control.wiring import executor_of, journal_of
from streaming.runtime.clocks import now_ms
from streaming.settings import Settings
from tests.control.noted_cluster import SKEW
from tests.topics import wait_until_known
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


def approve(journal: Journal, movements: list[Movement]) -> tuple[ExecutionRecord, KeptPlan]:
    """Write a plan of these movements and its approval."""
    proposed = ProposedPlan(Plan("test", tuple(movements), SKEW, SKEW), elapsed_ms=1.0)
    approved = journal.write_plan(proposed, decision=None, now_ms=now_ms())
    return ExecutionRecord(journal.approve(approved, "a test", now_ms=now_ms())), approved


def carry_out(
    executor: Executor[ExecutionSnapshot], record: ExecutionRecord, plan: Plan, *, until_event: str | None = None
) -> None:
    """Tick until it has ended, or until its last event is `until_event`."""

    def is_over() -> bool:
        return executor.tick(record, plan, now_ms=now_ms()) or record.execution.last_event == until_event

    until("the execution", is_over, state=lambda: str(record.execution.last))


def shown(cluster: Cluster, topic: str) -> tuple[tuple[int, ...], int]:
    """Replicas and leader of partition 0."""
    row = cluster.describe().partitions[topic, 0]
    return row.replicas, row.leader


def no_throttle_left(cluster: Cluster, *topics: str) -> bool:
    return cluster.throttle_rates() == {} and cluster.throttled_replicas(topics) == {}


def count_records(settings: Settings, topic: str) -> int:
    reader = consumer(settings.kafka, auto_offset_reset="earliest", consumer_timeout_ms=int(DEADLINE_S * 1000))
    reader.assign([TopicPartition(topic, 0)])
    try:
        return sum(1 for _ in zip(range(RECORDS), reader, strict=False))
    finally:
        reader.close()


def test_a_movement_is_made_and_leaves_no_throttle(settings: Settings, admin: KafkaAdminClient) -> None:
    """Of a partition without followers, of a leader alone, and of one of two replicas."""
    moves = (((1,), (2,)), ((1, 2, 3), (3, 1, 2)), ((1, 2), (3, 2)))
    goal = {make_topic(admin, settings, {0: list(old)}): (old, new) for old, new in moves}
    cluster, journal = Cluster(admin), journal_of(settings)
    executor = executor_of(cluster, journal, settings)
    record, approved = approve(journal, [Movement(topic, 0, *row, 600_000.0) for topic, row in goal.items()])
    assert executor.begin(record, approved, now_ms=now_ms())
    carry_out(executor, record, approved.plan)
    for topic, (_, new) in goal.items():
        placed = functools.partial(shown, cluster, topic)
        until(f"{topic} is on {new}", lambda placed=placed, new=new: placed() == (new, new[0]))  # type: ignore[misc]
        assert count_records(settings, topic) == RECORDS
    assert not cluster.describe().reassigning()
    until("no throttle is left", lambda: no_throttle_left(cluster, *goal))
    events = [event.event for event in journal.executions(now_ms=now_ms())[-1].events]
    assert (events[:2], events[-1]) == (["approved", "started"], "done")


def test_a_throttle_slows_the_copy_and_an_abort_restores(settings: Settings, admin: KafkaAdminClient) -> None:
    topic = make_topic(admin, settings, {0: [1]}, value=SLOW_VALUE)
    control = {**settings.model_dump()["control"], "throttle_bytes_per_sec": 20_000}
    slow = Settings.model_validate({**settings.model_dump(), "control": control})
    cluster, journal = Cluster(admin), journal_of(slow)
    executor = executor_of(cluster, journal, slow)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), float(RECORDS * len(SLOW_VALUE)))])
    executor.begin(record, approved, now_ms=now_ms())
    # Nothing moves before every broker shows its throttle, and brokers hear of it one after the other.
    carry_out(executor, record, approved.plan, until_event="submitted")
    assert record.execution.last_event == "submitted"
    until("both are throttled", lambda: cluster.throttle_rates().keys() == {1, 2})
    until("it is copied", lambda: cluster.describe().partitions[topic, 0].reassigning)
    journal.request_abort(record.execution, "a person", now_ms=now_ms())  # as from another process
    record.execution = journal.execution(record.execution.execution_id)
    carry_out(executor, record, approved.plan)
    assert record.execution.last_event == "aborted"
    until("the replica is back", lambda: shown(cluster, topic)[0] == (1,))
    until("no throttle is left", lambda: no_throttle_left(cluster, topic))


def test_the_brokers_tell_how_fast_they_answer_producers(settings: Settings, admin: KafkaAdminClient) -> None:
    make_topic(admin, settings, {0: [1]})
    pressure = LatencyPressure(settings.collect.jmx_endpoints, LatencyBound(2.0, 100.0))
    until("an answer took some time", lambda: (pressure.highest_ms() or 0.0) > 0.0)
