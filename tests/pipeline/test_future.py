"""One record from the future is rejected, and honest ones after it still count, though producers stamp the topic."""

import json
from datetime import UTC, datetime

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.contract.records import BYTE_RATE
from streaming.pipeline.records import judged, rejected
from streaming.settings import Settings
from tests.pipeline.test_records import KAFKA_SCHEMA, SKEW_MS
from tests.pipeline.test_windows import BASE_MS, KEPT, drain, load_record, own, session, start, stop
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own", "session"]  # the fixtures

YEAR_2100 = datetime(2100, 1, 1, tzinfo=UTC)
YEAR_2100_MS = int(YEAR_2100.timestamp()) * 1000
ANY_TIME = {**KEPT, "message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""What a topic allowed by default before Kafka 4.0 (KIP-1030), which takes records up to an hour ahead."""


def make_topics_of_producers_time(settings: Settings) -> None:
    admin = admin_client(settings.kafka)
    names = [settings.topics.byte_rate, settings.topics.consumer_lag]
    admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1, "configs": ANY_TIME} for name in names})
    wait_until_known(admin, names)
    admin.close()


def send_at(settings: Settings, offset_ms: int) -> None:
    """A sample whose producer claims the time of its event for the record too."""
    time_ms = BASE_MS + offset_ms
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    value = json.dumps(load_record(1, 0, offset_ms)).encode()
    producer.send(settings.topics.byte_rate, value=value, timestamp_ms=time_ms).get(timeout=DEADLINE_S)
    producer.close()


@pytest.mark.parametrize("python_on_executors", [True, False], ids=["arrow", "spark"])
def test_honest_records_after_one_of_the_year_2100_are_counted(
    session: SparkSession, own: Settings, *, python_on_executors: bool
) -> None:
    content = own.model_dump()
    content["pipeline"]["python_on_executors"] = python_on_executors
    settings = Settings.model_validate(content)
    make_topics_of_producers_time(settings)
    queries = start(session, settings)
    try:
        for offset_ms in (1_000, YEAR_2100_MS - BASE_MS, 11_000, 21_000):
            send_at(settings, offset_ms)
            drain(queries)
    finally:
        stop(queries)
    rows = tables.read(settings.storage.tables, "partition_load")
    counted = {tables.to_ms(row["window_start"]) - BASE_MS: row["sample_count"] for row in rows}
    assert counted == {0: 1, 10_000: 1, 20_000: 1}
    (reject,) = tables.read(settings.storage.tables, "rejected_record")
    assert (reject["reason"], reject["field"], reject["record_time"]) == ("future", "event_time_ms", YEAR_2100)


@pytest.mark.parametrize("clock_skew_max_ms", [None, 60_000], ids=["half of the watermark", "twice the watermark"])
def test_a_sender_as_fast_as_may_be_makes_samples_of_others_late_only_where_the_bound_is_above_the_watermark(
    session: SparkSession, own: Settings, clock_skew_max_ms: int | None
) -> None:
    pipeline = own.pipeline.model_copy(update={"clock_skew_max_ms": clock_skew_max_ms})
    settings = own.model_copy(update={"pipeline": pipeline})
    make_topics_of_producers_time(settings)
    now_ms = int(datetime.now(tz=UTC).timestamp() * 1000)
    fast_ms = now_ms + pipeline.skew_max_ms - 1_000
    late_ms = now_ms - pipeline.watermark_ms // 3
    queries = start(session, settings)
    try:
        for time_ms in (fast_ms, late_ms, late_ms + 1_000):
            send_at(settings, time_ms - BASE_MS)
            drain(queries)
    finally:
        stop(queries)
    counted = sum(row["sample_count"] for row in tables.read(settings.storage.tables, "partition_load"))
    assert (counted == 3) is (clock_skew_max_ms is None)


def test_the_time_that_a_producer_claims_is_judged_by_the_clock_of_the_batch(session: SparkSession) -> None:
    """Ahead of Kafka's time, ahead of the batch's, ahead of neither."""
    now_ms = int(datetime.now(tz=UTC).timestamp() * 1000)
    times_ms = [(now_ms - 3_600_000, now_ms), (YEAR_2100_MS, now_ms + 10 * SKEW_MS), (YEAR_2100_MS, now_ms)]
    rows = [
        ("in", 0, offset, datetime.fromtimestamp(kafka_ms / 1000, tz=UTC), b"k",
         json.dumps(load_record(1, 0, 0) | {"event_time_ms": event_ms}).encode())
        for offset, (kafka_ms, event_ms) in enumerate(times_ms)
    ]  # fmt: skip
    rejects = rejected(
        judged(session.createDataFrame(rows, KAFKA_SCHEMA), BYTE_RATE, clock_skew_max_ms=SKEW_MS), BYTE_RATE
    )
    assert {row["source_offset"]: row["reason"] for row in rejects.collect()} == {0: "future", 1: "future"}
