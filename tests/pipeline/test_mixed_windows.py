"""Counters of other tools made into rates: resets, disorder, weights, and figures that must not make a query die."""

import math
from typing import Any

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
from tests.pipeline.test_windows import WINDOW_MS, Record, lag_record, load_record, session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture

BEFORE, READ_TWICE_LATE, SECOND = 1_000_000, 999_000, 1_000
COUNTS: tuple[tuple[str, dict[int, int], float, float], ...] = (
    ("grows", {0: BEFORE, 2: BEFORE + 4_000}, 2_000.0, 2_000.0),
    ("slightly smaller", {0: BEFORE, 2: READ_TWICE_LATE, 4: BEFORE + 4_000}, 1_000.0, 2_000.0),
    ("slightly smaller at the end", {0: BEFORE, 2: BEFORE + 4_000, 4: READ_TWICE_LATE}, 1_000.0, 2_000.0),
    ("smaller for a while", {0: BEFORE, 2: 998_000, 4: 999_000, 6: BEFORE + 600}, 100.0, 300.0),
    ("set to zero", {0: BEFORE, 2: 4_000, 4: 8_000}, 2_000.0, 2_000.0),
    ("set to zero at once", {0: BEFORE, 2: 0, 4: 8_000}, 2_000.0, 4_000.0),
)
"""What it shows, counts of bytes by second, and the mean and the highest rate of the window, bytes/s."""


def windows(session: SparkSession, records: list[Record], *, foreign: bool) -> dict[int, dict[str, Any]]:
    """The one window of each broker."""
    fields = record_schema(FOREIGN_BYTE_RATE)
    whole = [{name: record.get(name) for name in fields.names} for record in records]
    rows = session.createDataFrame(whole, fields).withColumn("event_time", f.timestamp_millis("event_time_ms"))
    made = mixed_load_windows(
        rows.withColumn("foreign", f.lit(foreign)), PipelineSettings(window_ms=WINDOW_MS), WINDOWS_VERSION
    )
    return {row["broker"]: row.asDict() for row in made.coalesce(1).collect()}


def test_only_a_counter_that_falls_below_half_began_again(session: SparkSession) -> None:
    records = [
        load_record(broker, None, second * SECOND, interval_ms=0, bytes_in_total=float(count), bytes_in_per_sec=None)
        for broker, (_, counts, _, _) in enumerate(COUNTS)
        for second, count in counts.items()
    ]
    made = windows(session, records, foreign=True)
    shown = [
        (name, made[broker]["bytes_in_per_sec"], made[broker]["bytes_in_per_sec_max"])
        for broker, (name, _, _, _) in enumerate(COUNTS)
    ]
    assert shown == [(name, mean, highest) for name, _, mean, highest in COUNTS]


@pytest.mark.parametrize("foreign", [True, False])
def test_a_sample_weighs_by_two_windows_at_most(session: SparkSession, foreign: bool) -> None:
    month_ms = 30 * 86_400_000
    honest = [load_record(1, None, second * SECOND, interval_ms=10_000, bytes_in_per_sec=1e6) for second in range(6)]
    forged = load_record(1, None, 6 * SECOND, interval_ms=month_ms, bytes_in_per_sec=5e6)
    row = windows(session, [*honest, forged], foreign=foreign)[1]
    assert (row["bytes_in_per_sec"], row["covered_ms"]) == (2e6, 60_000 + 2 * WINDOW_MS)


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
    row = windows(session, records, foreign=True)[1]
    assert math.isfinite(row["bytes_in_per_sec"])
    assert math.isfinite(row["bytes_in_per_sec_max"])


def test_a_place_that_spark_has_no_file_system_for_is_named_at_the_start(session: SparkSession) -> None:
    check_file_systems(session, StorageSettings(tables="data/tables", checkpoints="file:///data/checkpoints"))
    check_file_systems(session, StorageSettings(tables="s3://bucket/tables"))  # written without Spark
    for scheme in ("gs", "az", "s3a"):  # those of S3 are added to the session that has checkpoints there
        with pytest.raises(UsageProblem, match=rf"storage\.checkpoints: Spark can't write to {scheme}://bucket"):
            check_file_systems(session, StorageSettings(checkpoints=f"{scheme}://bucket/checkpoints"))
