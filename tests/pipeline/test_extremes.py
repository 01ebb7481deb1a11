"""Figures and amounts that nobody meant: they must not make a query die, which it would do again at each start."""

import math

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from streaming.contract.records import CONSUMER_LAG, COUNTER_MAX, FOREIGN_BYTE_RATE
from streaming.errors import UsageProblem
from streaming.pipeline.guards import WINDOWS_VERSION
from streaming.pipeline.records import record_schema
from streaming.pipeline.session import check_file_systems
from streaming.pipeline.windows import mixed_lag_windows, mixed_load_windows
from streaming.settings import PipelineSettings, StorageSettings
from tests.pipeline.test_windows import lag_record, load_record, session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture


def test_an_offset_and_a_lag_whose_sum_overflows_give_no_log_end(session: SparkSession) -> None:
    """Such a pair may lie in the state of a checkpoint, from before such offsets were rejected."""
    record = lag_record(0, 1_000, 1, 7) | {"log_end_offset": None, "committed_offset": 2**63 - 1, "lag_records": 5}
    fields = record_schema(CONSUMER_LAG)
    whole = {name: record.get(name) for name in fields.names}
    rows = session.createDataFrame([whole], fields).withColumn("event_time", f.timestamp_millis("event_time_ms"))
    (row,) = mixed_lag_windows(rows, PipelineSettings(), WINDOWS_VERSION).collect()
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
    windows = mixed_load_windows(
        rows.withColumn("foreign", f.lit(True)), PipelineSettings(window_ms=10_000), WINDOWS_VERSION
    )
    (row,) = windows.collect()
    assert math.isfinite(row["bytes_in_per_sec"])
    assert math.isfinite(row["bytes_in_per_sec_max"])


def test_a_place_that_spark_has_no_file_system_for_is_named_at_the_start(session: SparkSession) -> None:
    check_file_systems(session, StorageSettings(tables="data/tables", checkpoints="file:///data/checkpoints"))
    check_file_systems(session, StorageSettings(tables="s3://bucket/tables"))  # written without Spark
    for scheme in ("gs", "az", "s3a"):  # those of S3 are added to the session that has checkpoints there
        with pytest.raises(UsageProblem, match=rf"storage\.checkpoints: Spark can't write to {scheme}://bucket"):
            check_file_systems(session, StorageSettings(checkpoints=f"{scheme}://bucket/checkpoints"))
