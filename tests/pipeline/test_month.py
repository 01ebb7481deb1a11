"""Tables of a pipeline over days, pressed into seconds: files stay few, and no hour or day is lost or made twice."""

from pathlib import Path

import pytest

from streaming import tables
from streaming.settings import DAY_MS, HOUR_MS, PipelineSettings
from tests.benchmarks.bench_month import UPKEEP_EVERY, Month, live_through, recounted

SMALL = {"brokers": 3, "topics": 2, "partitions": 2, "groups": 2}


def settings_of(month: Month, *, retention_ms: int) -> PipelineSettings:
    return PipelineSettings(
        window_ms=month.window_ms,
        maintenance_interval_ms=UPKEEP_EVERY * month.window_ms,
        retention_ms=retention_ms,
        partition_hours_retention_ms=max(DAY_MS, retention_ms),
    )


@pytest.mark.long
def test_days_beyond_retention_go_and_files_stay_few(tmp_path: Path) -> None:
    month = Month(days=5, window_ms=HOUR_MS, **SMALL)
    settings = settings_of(month, retention_ms=2 * DAY_MS)
    found = live_through(str(tmp_path), month, settings)
    assert recounted(str(tmp_path), month, settings) == []
    assert found.over == []
    most = max(max(counts) for counts in found.files.values())
    assert most <= 3, "open windows, one that has just closed, and all others"


def test_the_recount_sees_what_is_missing_and_what_is_there_twice(tmp_path: Path) -> None:
    month = Month(days=0, extra_hours=4, window_ms=HOUR_MS, **SMALL)
    settings = settings_of(month, retention_ms=90 * DAY_MS)
    live_through(str(tmp_path), month, settings)
    assert recounted(str(tmp_path), month, settings) == []
    rows = tables.read(str(tmp_path), "broker_load_hourly")
    tables.append(str(tmp_path), "broker_load_hourly", rows[:1], transaction_id="again", transaction_version=0)
    tables.delete(str(tmp_path), "partition_load_hourly", tables.equal("partition", 0))
    (doubled, missing) = recounted(str(tmp_path), month, settings)
    assert doubled.startswith("broker_load_hourly")
    assert missing.startswith("partition_load_hourly")
