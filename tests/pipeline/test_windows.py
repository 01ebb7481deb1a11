"""Spark's windows against a recount in plain Python, through a real broker, a real checkpoint and real tables."""

import json
import random
import uuid
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming import tables
from streaming.cluster.clients import admin_client
from streaming.contract import Table
from streaming.demo.brokers import EmbeddedCluster
from streaming.pipeline import delta_tables, part_commits, rejects
from streaming.pipeline.batch_reporter import BatchReporter, CountedSamples
from streaming.pipeline.delta_tables import WindowTable
from streaming.pipeline.guards import STILL_MADE, WINDOWS_VERSION
from streaming.pipeline.queries import Queries
from streaming.pipeline.records import ACCEPTED_ROWS
from streaming.pipeline.sources import InputTopics
from streaming.runtime.clocks import now_ms
from streaming.settings import Settings
from tests.spark_sessions import session_with_delta
from tests.topics import wait_until_known

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

WINDOW_MS = 10_000
BASE_MS = 1_795_236_000_000 // WINDOW_MS * WINDOW_MS
FOREVER_MS = 86_400_000

Record = dict[str, Any]


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    spark = session_with_delta()
    yield spark
    spark.stop()


@pytest.fixture
def own(one_broker: EmbeddedCluster, tmp_path: Path) -> Settings:
    """Settings with topics, tables and checkpoints of this test's own."""
    kafka = {"cluster_name": "test", "bootstrap_servers": one_broker.bootstrap_servers}
    return own_settings(Settings.model_validate({"kafka": kafka}), tmp_path)


def own_settings(settings: Settings, folder: Path) -> Settings:
    """With new topics, and tables and checkpoints in the folder."""
    mark = uuid.uuid4().hex[:8]
    return Settings.model_validate(
        {
            **settings.model_dump(exclude={"topics", "storage", "pipeline"}),
            "topics": {"byte_rate": f"rate-{mark}", "consumer_lag": f"lag-{mark}"},
            "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
            "pipeline": {
                "window_ms": WINDOW_MS,
                "watermark_ms": 30_000,
                "trigger_interval_ms": 200,
                "clock_skew_max_ms": FOREVER_MS * 30,
            },
        }
    )


def load_record(broker: int, partition: int | None, offset_ms: int, **changes: Any) -> Record:
    return {
        "v": 1, "kafka_cluster": "test", "broker": broker, "topic": None if partition is None else "t",
        "partition": partition, "role": None if partition is None else "leader", "event_time_ms": BASE_MS + offset_ms,
        "interval_ms": 2_000, "bytes_in_per_sec": 100.0 * broker, "bytes_out_per_sec": None,
        "messages_in_per_sec": 1.0, "size_bytes": 1_000 + offset_ms, **changes,
    }  # fmt: skip


def lag_record(partition: int, offset_ms: int, committed: int | None, end: int, **fields: Any) -> Record:
    return {
        "v": 1, "kafka_cluster": "test", "group": "g", "topic": "t", "partition": partition,
        "event_time_ms": BASE_MS + offset_ms, "committed_offset": committed, "log_end_offset": end,
        "log_start_offset": 0, "lag_records": None if committed is None else end - committed,
        "member_id": "m", "client_id": "c", "group_state": "Stable", "generation_id": 3, **fields,
    }  # fmt: skip


def send(settings: Settings, topic: str, values: list[bytes | None], partition: int | None = None) -> None:
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    for value in values:
        producer.send(topic, value=value, key=b"k", partition=partition)
    producer.flush()
    producer.close()


KEPT = {"retention.ms": "-1"}
"""Records that bear the time of their event are older than Kafka keeps records for by default."""


def make_topics(settings: Settings) -> None:
    admin = admin_client(settings.kafka)
    names = [settings.topics.byte_rate, settings.topics.consumer_lag]
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1, "configs": KEPT} for name in names})
    wait_until_known(admin, names)
    admin.close()


def drain(queries: list[StreamingQuery]) -> None:
    """Until everything that is in the topics has been written."""
    for query in queries:
        query.processAllAvailable()


def stop(queries: list[StreamingQuery]) -> None:
    for query in queries:
        query.stop()


def start(session: SparkSession, settings: Settings, counted: CountedSamples | None = None) -> list[StreamingQuery]:
    """The three queries, as a pipeline with these settings starts them."""
    source = InputTopics(session, settings.kafka, settings.topics, settings.pipeline)
    return Queries(source, settings.storage, WINDOWS_VERSION, now_ms=now_ms, counted=counted).start()


def start_byte_rate(
    session: SparkSession, settings: Settings, counted: CountedSamples | None = None, version: int = WINDOWS_VERSION
) -> list[StreamingQuery]:
    """The query of byte rates alone: one query costs less than three."""
    source = InputTopics(session, settings.kafka, settings.topics, settings.pipeline)
    return [Queries(source, settings.storage, version, now_ms=now_ms, counted=counted).start_byte_rate()]


def read_everything(session: SparkSession, settings: Settings) -> None:
    """Start, read what is in the topics, stop."""
    drain_and_stop(start(session, settings))


def read_byte_rates(session: SparkSession, settings: Settings) -> None:
    """The same with the query of byte rates alone."""
    drain_and_stop(start_byte_rate(session, settings))


def drain_and_stop(queries: list[StreamingQuery]) -> None:
    try:
        drain(queries)
    finally:
        stop(queries)


def encode(records: list[Record]) -> list[bytes | None]:
    return [json.dumps(record).encode() for record in records]


def recount(records: list[Record]) -> dict[tuple[int, int, int | None], tuple[float | None, int, int, int]]:
    """(window start, broker, partition): bytes in, covered ms, samples, newest size. Plain Python, one pass."""
    groups: dict[tuple[int, int, int | None], list[Record]] = defaultdict(list)
    for record in records:
        start = record["event_time_ms"] // WINDOW_MS * WINDOW_MS
        groups[(start, record["broker"], record["partition"])].append(record)
    result = {}
    for key, rows in groups.items():
        known = [row for row in rows if row["bytes_in_per_sec"] is not None]
        weights = [min(row["interval_ms"], 2 * WINDOW_MS) for row in known]
        covered = sum(weights)
        total = sum(row["bytes_in_per_sec"] * weight for row, weight in zip(known, weights, strict=True))
        newest = max(rows, key=lambda row: row["event_time_ms"])
        result[key] = (total / covered if covered else None, covered, len(rows), newest["size_bytes"])
    return result


def in_the_jvm(settings: Settings) -> Settings:
    """The same without Python on the executors."""
    pipeline = settings.pipeline.model_copy(update={"python_on_executors": False})
    return settings.model_copy(update={"pipeline": pipeline})


@pytest.mark.parametrize(
    ("driver_rows_max", "python", "version"),
    [
        (delta_tables.DRIVER_ROWS_MAX, True, WINDOWS_VERSION),
        (0, True, WINDOWS_VERSION),
        (0, False, WINDOWS_VERSION),
        (delta_tables.DRIVER_ROWS_MAX, False, 3),
    ],
    ids=["by the driver", "by executors", "by the driver in parts", "summed in the JVM, state of version 3"],
)
def test_windows_equal_a_recount_whatever_the_order(
    session: SparkSession,
    own: Settings,
    monkeypatch: pytest.MonkeyPatch,
    driver_rows_max: int,
    python: bool,
    version: int,
) -> None:
    monkeypatch.setattr(delta_tables, "DRIVER_ROWS_MAX", driver_rows_max)
    monkeypatch.setattr(part_commits, "ROWS_OF_PART", 5)
    own = own if python else in_the_jvm(own)
    chance = random.Random(7)
    records = [
        load_record(
            broker, partition, offset_ms,
            bytes_in_per_sec=chance.choice([None, chance.uniform(0, 1e6)]),
            interval_ms=chance.choice([1_000, 2_000, 5_000]),
        )
        for offset_ms in range(0, 25_000, 1_700) for broker in (1, 2) for partition in (None, 0, 1)
    ]  # fmt: skip
    chance.shuffle(records)
    make_topics(own)
    send(own, own.topics.byte_rate, encode(records))
    drain_and_stop(start_byte_rate(session, own, version=version))
    wanted = recount(records)
    stored = {
        (tables.to_ms(row["window_start"]), row["broker"], row.get("partition")): row
        for name in ("partition_load", "broker_load")
        for row in tables.read(own.storage.tables, name)
    }
    assert stored.keys() == wanted.keys()
    for key, (bytes_in, covered_ms, samples, size) in wanted.items():
        row = stored[key]
        assert row["bytes_in_per_sec"] == (None if bytes_in is None else pytest.approx(bytes_in))
        assert (row["covered_ms"], row["sample_count"]) == (covered_ms, samples)
        if key[2] is not None:
            assert row["size_bytes"] == size
        assert row["bytes_out_per_sec"] is None  # unknown stays unknown
        assert not row["is_final"]
    written = tables.open_table(own.storage.tables, "partition_load")
    assert written is not None
    assert any("-of-4-" in file for file in written.file_uris()) is (driver_rows_max == 0)
    assert [commit["operation"] for commit in written.history()].count("WRITE") == 1


def test_a_restart_goes_on_and_late_samples_correct_their_window(session: SparkSession, own: Settings) -> None:
    make_topics(own)
    send(own, own.topics.byte_rate, encode([load_record(1, 0, 1_000), load_record(1, 0, 12_000)]))
    queries = start_byte_rate(session, own)
    drain(queries)
    stop(queries)
    late = load_record(1, 0, 3_000, bytes_in_per_sec=300.0)
    send(own, own.topics.byte_rate, encode([late, load_record(1, 0, 65_000)]))
    counted = CountedSamples()
    queries = start_byte_rate(session, in_the_jvm(own), counted)  # on the same state
    drain(queries)
    stop(queries)
    queries = start_byte_rate(session, own, counted)
    too_late = [load_record(1, 0, offset_ms, bytes_in_per_sec=9e9) for offset_ms in (4_000, 4_001, 4_002)]
    send(own, own.topics.byte_rate, encode([*too_late, load_record(1, 0, 66_000)]))
    drain(queries)
    BatchReporter(queries, own.storage.tables, own.pipeline, counted).report(now_ms=BASE_MS)
    stop(queries)
    rows = {
        tables.to_ms(row["window_start"]) - BASE_MS: row for row in tables.read(own.storage.tables, "partition_load")
    }
    assert rows[0]["bytes_in_per_sec"] == pytest.approx(200.0)  # 100 and the late 300; the too late 9e9 is left out
    assert (rows[0]["sample_count"], rows[0]["is_final"]) == (2, True)
    assert (rows[60_000]["sample_count"], rows[60_000]["is_final"]) == (2, False)
    reports = {row["query_name"]: row for row in tables.read(own.storage.tables, "pipeline_batch")}
    assert reports["byte_rate"]["late_rows_total"] == 3  # records, not groups


def test_a_batch_that_meets_more_windows_than_the_driver_should_hold_is_written_by_executors(
    session: SparkSession, own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small_table(location: str, table: Table, *, rows_max: int) -> WindowTable:
        assert rows_max == delta_tables.DRIVER_ROWS_MAX
        return WindowTable(location, table, rows_max=0)

    monkeypatch.setattr(delta_tables, "WindowTable", small_table)
    records = [load_record(1, 0, offset_ms, bytes_in_per_sec=float(offset_ms)) for offset_ms in range(0, 9_000, 1_000)]
    make_topics(own)
    for part in (records[:4], records[4:]):
        send(own, own.topics.byte_rate, encode(part))
        read_byte_rates(session, own)
    wanted = {(start, broker): samples for (start, broker, _), (_, _, samples, _) in recount(records).items()}
    rows = tables.read(own.storage.tables, "partition_load")
    assert {(tables.to_ms(row["window_start"]), row["broker"]): row["sample_count"] for row in rows} == wanted
    written = tables.open_table(own.storage.tables, "partition_load")
    assert written is not None
    assert all("-of-1-" in file for file in written.file_uris())


@pytest.mark.parametrize("version", [min(STILL_MADE), WINDOWS_VERSION])
def test_lag_windows_hold_first_last_and_worst(session: SparkSession, own: Settings, version: int) -> None:
    make_topics(own)
    records = [
        lag_record(0, 1_000, 10, 50), lag_record(0, 3_000, 20, 90), lag_record(0, 5_000, 80, 100),
        lag_record(1, 2_000, None, 7), lag_record(2, 1_000, 5, 9, last_stable_offset=5),
        lag_record(2, 3_000, 5, 10, last_stable_offset=6, client_host="10.0.0.1", cleanup_policy="compact"),
        lag_record(3, 1_000, 5, 9, last_stable_offset=5), lag_record(3, 3_000, 5, 9),
    ]  # fmt: skip
    send(own, own.topics.consumer_lag, encode(records))
    source = InputTopics(session, own.kafka, own.topics, own.pipeline)
    drain_and_stop([Queries(source, own.storage, version, now_ms=now_ms).start_consumer_lag()])
    rows = {row["partition"]: row for row in tables.read(own.storage.tables, "group_lag")}
    first = rows[0]
    assert (first["committed_offset_first"], first["committed_offset"], first["log_end_offset"]) == (10, 80, 100)
    assert (first["lag_records"], first["lag_records_max"], first["generation_id"]) == (20, 70, 3)
    assert rows[1]["lag_records"] is None
    since_5, since_6 = ("last_stable_offset", "client_host"), ("cleanup_policy",)
    stable = {number: tuple(row[name] for name in (*since_5, *since_6)) for number, row in rows.items()}
    nothing = (None, None, None)
    held = (6, "10.0.0.1", "compact" if version >= 6 else None) if version >= 5 else nothing
    assert stable == {0: nothing, 1: nothing, 2: held, 3: nothing}


@pytest.mark.parametrize("version", [WINDOWS_VERSION - 1, WINDOWS_VERSION])
def test_load_windows_have_replicas_out_of_sync_and_addresses(
    session: SparkSession, own: Settings, version: int
) -> None:
    make_topics(own)
    records = [
        load_record(1, 0, 1_000, out_of_sync_replicas=2), load_record(1, 0, 3_000, out_of_sync_replicas=1),
        load_record(1, None, 1_000, address="b1:9091"), load_record(1, None, 3_000, address="b1:9092"),
        load_record(2, None, 3_000),
    ]  # fmt: skip
    send(own, own.topics.byte_rate, encode(records))
    source = InputTopics(session, own.kafka, own.topics, own.pipeline)
    drain_and_stop([Queries(source, own.storage, version, now_ms=now_ms).start_byte_rate()])
    (replica,) = tables.read(own.storage.tables, "partition_load")
    addresses = {row["broker"]: row["address"] for row in tables.read(own.storage.tables, "broker_load")}
    held = (1, {1: "b1:9092", 2: None}) if version == WINDOWS_VERSION else (None, {1: None, 2: None})
    assert (replica["out_of_sync_replicas"], addresses) == held
    assert replica["size_bytes"] == 4_000


MISFITS: dict[str, bytes | None] = {
    "empty": None,
    "not_json": b"{not json",
    "not_utf8": b"\xff\xfe{}",
    "wrong_type": json.dumps(load_record(1, 0, 0, bytes_in_per_sec="many")).encode(),
    "missing_field": json.dumps({"v": 1, "kafka_cluster": "test", "event_time_ms": BASE_MS}).encode(),
    "unknown_version": json.dumps(load_record(1, 0, 0, v=9)).encode(),
    "not_a_number": json.dumps(load_record(1, 0, 0, bytes_in_per_sec=float("nan"))).encode(),
    "negative": json.dumps(load_record(1, 0, 0, bytes_in_per_sec=-1.0)).encode(),
    "past": json.dumps(load_record(1, 0, 0, event_time_ms=BASE_MS // 1000)).encode(),
    "future": json.dumps(load_record(1, 0, 0, event_time_ms=now_ms() + 40 * FOREVER_MS)).encode(),
}


@pytest.mark.parametrize("driver_bytes_max", [rejects.DRIVER_BYTES_MAX, 0], ids=["few", "many"])
def test_misfits_are_kept_with_their_reason_and_stop_nothing(
    session: SparkSession, own: Settings, monkeypatch: pytest.MonkeyPatch, driver_bytes_max: int
) -> None:
    monkeypatch.setattr(rejects, "DRIVER_BYTES_MAX", driver_bytes_max)
    make_topics(own)
    send(own, own.topics.byte_rate, list(MISFITS.values()))
    queries = start(session, own)
    drain(queries)
    send(own, own.topics.byte_rate, encode([load_record(1, 0, 1_000)]))
    drain(queries)
    BatchReporter(queries, own.storage.tables, own.pipeline, CountedSamples()).report(now_ms=BASE_MS)
    stop(queries)
    rejected = {row["value"]: row["reason"] for row in tables.read(own.storage.tables, "rejected_record")}
    assert rejected == {value: reason for reason, value in MISFITS.items()}
    assert len(tables.read(own.storage.tables, "partition_load")) == 1
    assert len({row["source_offset"] for row in tables.read(own.storage.tables, "rejected_record")}) > 1
    reports = {row["query_name"]: row for row in tables.read(own.storage.tables, "pipeline_batch")}
    assert reports["byte_rate"]["rejected_rows_total"] == len(MISFITS)
    assert reports["byte_rate"]["input_rows_total"] == len(MISFITS) + 1
    assert reports["byte_rate"]["source_lag_records"] == 0


def test_sound_records_are_read_once_and_a_misfit_among_them_is_found(
    session: SparkSession, own: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    make_topics(own)
    queries = start(session, own)
    windows, rejects = queries[0], queries[-1]
    try:
        send(own, own.topics.byte_rate, encode([load_record(1, 0, 1_000)]))
        drain(queries)
        observed = [dict(batch["observedMetrics"]).values() for batch in rejects.recentProgress]
        read_again = sum(row[ACCEPTED_ROWS] for batch in observed for row in batch)
        with_code_of_stages = []
        for query in (windows, rejects):
            query.explain()
            with_code_of_stages.append("*(1) " in capsys.readouterr().out)
        for number in range(3):
            misfits = [b"{"] if number == 1 else []
            send(own, own.topics.byte_rate, [*encode([load_record(1, 0, 2_000 + number)]), *misfits])
            drain(queries)
    finally:
        stop(queries)
    assert read_again == 0
    assert with_code_of_stages == [True, False], "compiled for each batch, and thrown away"
    rejected = [(row["reason"], row["value"]) for row in tables.read(own.storage.tables, "rejected_record")]
    assert rejected == [("not_json", b"{")]
    assert tables.read(own.storage.tables, "partition_load")[0]["sample_count"] == 4
