"""Figures and amounts that nobody meant: they must not make a query die, which it would do again at each start."""

import math
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streaming import tables
from streaming.contract.records import COUNTER_MAX, FOREIGN_BYTE_RATE
from streaming.errors import UsageProblem
from streaming.pipeline import queries
from streaming.pipeline.mixed_windows import mixed_lag_windows, mixed_load_windows
from streaming.pipeline.session import check_file_systems
from streaming.pipeline.spark_types import record_schema
from streaming.settings import PipelineSettings, StorageSettings
from tests.pipeline.test_records import KAFKA_TIME
from tests.pipeline.test_windows import lag_record, load_record, session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture

LAG_COLUMNS = (
    "kafka_cluster string, group string, topic string, partition int, event_time_ms long, committed_offset long, "
    "log_end_offset long, log_start_offset long, lag_records long, member_id string, client_id string, "
    "group_state string, generation_id int"
)
REJECTED = (
    "source_topic string, source_partition int, source_offset long, record_time timestamp, reason string, "
    "field string, key binary, value binary, rejected_at timestamp"
)


def test_an_offset_and_a_lag_whose_sum_overflows_give_no_log_end(session: SparkSession) -> None:
    """Such a pair may lie in the state of a checkpoint, from before such offsets were rejected."""
    record = lag_record(0, 1_000, 1, 7) | {"log_end_offset": None, "committed_offset": 2**63 - 1, "lag_records": 5}
    rows = session.createDataFrame([record], LAG_COLUMNS).withColumn("event_time", f.timestamp_millis("event_time_ms"))
    (row,) = mixed_lag_windows(rows, PipelineSettings()).collect()
    assert (row["log_end_offset"], row["committed_offset"], row["lag_records"]) == (None, 2**63 - 1, 5)


def test_the_greatest_counters_give_a_rate_that_is_a_number(session: SparkSession) -> None:
    """Each is set to zero once a ms and at its greatest again: no worse can be told."""
    records = [
        load_record(1, None, offset_ms, bytes_in_total=COUNTER_MAX * (offset_ms % 2), bytes_in_per_sec=None)
        for offset_ms in range(1, 1_000)
    ]
    fields = record_schema(FOREIGN_BYTE_RATE)
    whole = [{name: record.get(name) for name in fields.names} for record in records]
    rows = session.createDataFrame(whole, fields).withColumn("event_time", f.timestamp_millis("event_time_ms"))
    windows = mixed_load_windows(rows.withColumn("foreign", f.lit(True)), PipelineSettings(window_ms=10_000))
    (row,) = windows.collect()
    assert math.isfinite(row["bytes_in_per_sec"])
    assert math.isfinite(row["bytes_in_per_sec_max"])


@pytest.mark.parametrize(
    ("key", "value", "by_driver"),
    [(b"", b"{}", True), (b"", b"{}" * 2_000, False), (b"k" * 4_000, b"{}", False), (None, None, True)],
    ids=["small", "long values", "long keys", "neither"],
)
def test_only_so_many_rejects_go_through_the_driver(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: Any, value: Any, by_driver: bool
) -> None:
    monkeypatch.setattr(queries, "REJECTS_DRIVER_BYTES_MAX", 35_000)
    by_spark: list[str] = []
    monkeypatch.setattr(queries, "append_spark", lambda _rows, location, _transaction: by_spark.append(location))
    assert written(session, tmp_path, [(key, value)] * 10)
    assert bool(by_spark) is not by_driver
    assert len(tables.read(str(tmp_path), "rejected_record")) == (10 if by_driver else 0)


def test_a_host_of_tiny_rejects_does_not_go_through_the_driver(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a kB in Python, however short."""
    by_spark: list[str] = []
    monkeypatch.setattr(queries, "append_spark", lambda _rows, location, _transaction: by_spark.append(location))
    assert written(session, tmp_path, [(None, b"{}")] * 40_000)
    assert by_spark


def test_no_rejects_write_nothing(session: SparkSession, tmp_path: Path) -> None:
    assert not written(session, tmp_path, [])
    assert tables.open_table(str(tmp_path), "rejected_record") is None


def written(session: SparkSession, root: Path, records: list[tuple[Any, Any]]) -> bool:
    """What `_write_rejects` tells of a batch of these keys and values."""
    offsets = session.range(len(records)).coalesce(1)
    key, value = records[0] if records else (None, None)
    rows = offsets.select(
        f.lit("t").alias("source_topic"), f.lit(0).alias("source_partition"), f.col("id").alias("source_offset"),
        f.lit(KAFKA_TIME).alias("record_time"), f.lit("not_json").alias("reason"), f.lit(None).alias("field"),
        f.lit(key).cast("binary").alias("key"), f.lit(value).cast("binary").alias("value"),
        f.lit(KAFKA_TIME).alias("rejected_at"),
    )  # fmt: skip
    return queries._write_rejects(rows.to(session.createDataFrame([], REJECTED).schema), 0, str(root))


def test_a_place_that_spark_has_no_file_system_for_is_named_at_the_start(session: SparkSession) -> None:
    check_file_systems(session, StorageSettings(tables="data/tables", checkpoints="file:///data/checkpoints"))
    for scheme in ("s3", "s3a"):
        with pytest.raises(UsageProblem, match=rf"storage\.tables: Spark can't write to {scheme}://bucket/tables"):
            check_file_systems(session, StorageSettings(tables=f"{scheme}://bucket/tables"))
    with pytest.raises(UsageProblem, match=r"storage\.checkpoints: "):
        check_file_systems(session, StorageSettings(checkpoints="s3a://bucket/checkpoints"))
