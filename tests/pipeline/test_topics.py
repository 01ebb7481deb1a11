"""What happens to topics while the pipeline runs: silence, more partitions, other records, deleted and made again."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from pyspark.sql import SparkSession

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.settings import Settings
from tests.pipeline.running import kill, produce, samples_counted, start_pipeline
from tests.pipeline.test_windows import (
    BASE_MS,
    Record,
    drain,
    encode,
    lag_record,
    load_record,
    make_topics,
    own,
    read_everything,
    send,
    session,
    start,
    stop,
)
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

__all__ = ["own", "session"]  # the fixtures

DEADLINE_S = 240.0
REFUSED = 3
AT_ONCE = {128 + signal.SIGINT, 128 + signal.SIGTERM}
"""On a busy machine both signals may wait to be handled, and the later one may come first."""


def send_to(settings: Settings, partition: int, records: list[Record]) -> None:
    """Into one partition of the topic of byte rates."""
    send(settings, settings.topics.byte_rate, encode(records), partition)


def windows(settings: Settings, table: str = "partition_load") -> dict[int, tuple[int, bool]]:
    """Samples and whether it is final, by the window's start."""
    rows = tables.read(settings.storage.tables, table)
    return {tables.to_ms(row["window_start"]) - BASE_MS: (row["sample_count"], row["is_final"]) for row in rows}


def test_an_idle_partition_and_an_idle_topic_hold_nothing_back_and_go_on(session: SparkSession, own: Settings) -> None:
    make_topics(own)
    queries = start(session, own)
    try:
        for offset_ms in (1_000, 61_000, 121_000):  # partition 1 and the topic of lag are silent all the while
            send_to(own, 0, [load_record(1, 0, offset_ms)])
            drain(queries)
        while_idle = windows(own)
        send_to(own, 1, [load_record(1, 0, 122_000), load_record(1, 0, 2_000)])
        send(own, own.topics.consumer_lag, encode([lag_record(0, 1_000, 1, 2)]))
        drain(queries)
    finally:
        stop(queries)
    assert while_idle == {0: (1, True), 60_000: (1, True), 120_000: (1, False)}
    assert windows(own) == {0: (1, True), 60_000: (1, True), 120_000: (2, False)}
    assert windows(own, "group_lag") == {0: (1, False)}  # its watermark is its own


def test_partitions_that_are_added_are_read_from_their_start(session: SparkSession, own: Settings) -> None:
    make_topics(own)
    send_to(own, 0, [load_record(1, 0, 1_000)])
    queries = start(session, own)
    try:
        drain(queries)
        admin = KafkaAdminClient(bootstrap_servers=own.kafka.bootstrap_servers)
        admin.create_partitions({own.topics.byte_rate: 4})
        admin.close()
        for partition in range(4):
            send_to(own, partition, [load_record(1, 0, 2_000 + partition), {"v": 1}])
        drain(queries)
    finally:
        stop(queries)
    assert windows(own) == {0: (5, False)}
    rejected = tables.read(own.storage.tables, "rejected_record")
    assert {row["source_partition"]: row["reason"] for row in rejected} == dict.fromkeys(range(4), "missing_field")


def test_records_of_other_versions_of_the_collector(session: SparkSession, own: Settings) -> None:
    """A field more, an optional one less, one renamed, one that has become wider or text."""
    plain = load_record(1, 0, 1_000)
    fewer = {name: kept for name, kept in plain.items() if name not in ("size_bytes", "bytes_out_per_sec")}
    renamed = {("node" if name == "broker" else name): kept for name, kept in plain.items()}
    make_topics(own)
    values = [plain, plain | {"added": {"deep": [1]}}, fewer, plain | {"size_bytes": 2**40}, renamed,
              plain | {"partition": 2**40}, plain | {"interval_ms": "2000"}]  # fmt: skip
    send(own, own.topics.byte_rate, encode(values))
    read_everything(session, own)
    assert windows(own) == {0: (4, False)}
    rejected = tables.read(own.storage.tables, "rejected_record")
    assert sorted((row["reason"], row["field"]) for row in rejected if row["reason"] == "missing_field") == [
        ("missing_field", "broker")
    ]
    assert sorted(row["reason"] for row in rejected) == ["missing_field", "wrong_type", "wrong_type"]


def test_a_topic_made_again_with_more_records_than_were_read_stops_the_pipeline(own: Settings, tmp_path: Path) -> None:
    make_topics(own)
    send_to(own, 0, [load_record(1, 0, 1_000)])
    process = start_pipeline(own, tmp_path)
    try:
        wait_until(lambda: samples_counted(own) == 1, tmp_path)
        admin = admin_client(own.kafka)
        admin.delete_topics([own.topics.byte_rate])
        wait_until(lambda: own.topics.byte_rate not in admin.list_topics(), tmp_path)
        admin.create_topics({own.topics.byte_rate: {"num_partitions": 2, "replication_factor": 1}})
        wait_until_known(admin, [own.topics.byte_rate])
        admin.close()
        send_to(own, 0, [load_record(1, 0, offset_ms) for offset_ms in range(3_000, 9_000, 1_000)])
        # Spark itself may have noticed that the topic was away: then it ends with 4, and is started again.
        while process.wait(timeout=DEADLINE_S) == 4:
            process = start_pipeline(own, tmp_path)
    finally:
        kill(process)
    log = (tmp_path / "pipeline.log").read_text()
    assert process.returncode == REFUSED, log[-2_000:]
    assert f"topic {own.topics.byte_rate} was deleted and made again" in log
    assert re.search(r"Read of the old one: partition 0 up to offset [01]\b", log), log[-2_000:]


def test_told_twice_to_end_it_ends_at_once(own: Settings, tmp_path: Path) -> None:
    records = [load_record(1 + index % 3, index % 7, index) for index in range(20_000)]
    make_topics(own)
    produce(own, own.topics.byte_rate, records, partitions=2)
    process = start_pipeline(own, tmp_path)
    try:
        wait_until((Path(own.storage.checkpoints) / "byte_rate" / "offsets" / "0").exists, tmp_path)
        process.send_signal(signal.SIGINT)  # PySpark would take it over, and cut the batch at once
        time.sleep(0.2)
        assert process.poll() is None, "the batch was over too soon to tell"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=DEADLINE_S) in AT_ONCE
        assert samples_counted(own) == 0
    finally:
        kill(process)


def wait_until(holds: Callable[[], bool], folder: Path) -> None:
    """A failure shows the end of the pipeline's log."""
    until("it", holds, DEADLINE_S, state=lambda: (folder / "pipeline.log").read_text()[-2_000:])
