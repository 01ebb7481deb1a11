"""Hours and days of windows against a recount in plain Python, on real tables, without Spark."""

from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import settings as example_count
from hypothesis import strategies as st
from pyarrow import ArrowInvalid
from structlog.testing import capture_logs

from streaming import tables
from streaming.contract import BROKER_LOAD, BROKER_LOAD_HOURLY, GROUP_LAG, PARTITION_LOAD, Table
from streaming.contract.records import OFFSET_MAX
from streaming.pipeline import rollups
from streaming.pipeline.rollups import ROLLUPS, Rollup, rolled_up
from streaming.settings import DAY_MS, HOUR_MS, PipelineSettings
from tests.pipeline.table_upkeep import TableUpkeep
from tests.pipeline.test_upkeep import time_goes_on
from tests.serve.synthetic import Synthetic

DAY0_MS = 1_795_219_200_000  # midnight UTC
WINDOW_MS = 60_000
WATERMARK_MS = 30_000


def upkeep_of(root: Path, table: Table = BROKER_LOAD, **pipeline: Any) -> TableUpkeep:
    return TableUpkeep(str(root), table, PipelineSettings(watermark_ms=WATERMARK_MS, **pipeline))


def hours_of(rows: list[dict[str, Any]]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(tables.to_ms(row["period_start"]) - DAY0_MS, row["broker"]): row for row in rows}


@pytest.mark.long
def test_hours_are_made_once_they_are_over_and_only_once(tmp_path: Path) -> None:
    upkeep_of(tmp_path).run_if_due(now_ms=DAY0_MS)
    assert tables.read(str(tmp_path), "broker_load_hourly") == []
    made = Synthetic(str(tmp_path))
    with made.together():
        for minute in range(0, 121, 10):
            made.broker_load(DAY0_MS + minute * WINDOW_MS, {1: float(minute), 2: None if minute < 60 else 5.0})
    upkeep_of(tmp_path).run_if_due(now_ms=DAY0_MS)
    hours = hours_of(tables.read(str(tmp_path), "broker_load_hourly"))
    assert hours.keys() == {(hour * HOUR_MS, broker) for hour in (0, 1) for broker in (1, 2)}
    assert hours[0, 1]["bytes_in_per_sec"] == fmean([0, 10, 20, 30, 40, 50])
    assert hours[HOUR_MS, 1]["bytes_in_per_sec"] == fmean([60, 70, 80, 90, 100, 110])
    assert (hours[0, 2]["bytes_in_per_sec"], hours[0, 2]["window_count"]) == (None, 6)
    assert tables.read(str(tmp_path), "broker_load_daily") == []
    # Another process, later, with a row that came after: what is made stays, the next hour is added.
    made.broker_load(DAY0_MS + 30 * WINDOW_MS, {3: 9.0})
    made.broker_load(DAY0_MS + 181 * WINDOW_MS, {1: 3.0})
    upkeep_of(tmp_path).run_if_due(now_ms=DAY0_MS)
    again = hours_of(tables.read(str(tmp_path), "broker_load_hourly"))
    assert again.keys() - hours.keys() == {(2 * HOUR_MS, 1), (2 * HOUR_MS, 2)}
    assert all(again[key] == row for key, row in hours.items())


@pytest.mark.long
def test_an_hour_is_over_when_no_sample_of_it_can_come_any_more(tmp_path: Path) -> None:
    made = Synthetic(str(tmp_path))
    made.broker_load(DAY0_MS, {1: 1.0})
    last = {**made.window(DAY0_MS + HOUR_MS), "broker": 1, "covered_ms": 1}
    made.append("broker_load", [{**last, "last_event_time_ms": DAY0_MS + HOUR_MS + WATERMARK_MS - 1}])
    upkeep_of(tmp_path).run_if_due(now_ms=DAY0_MS)
    assert tables.read(str(tmp_path), "broker_load_hourly") == []
    made.append("broker_load", [{**last, "broker": 2, "last_event_time_ms": DAY0_MS + HOUR_MS + WATERMARK_MS}])
    upkeep_of(tmp_path).run_if_due(now_ms=DAY0_MS)
    assert len(tables.read(str(tmp_path), "broker_load_hourly")) == 1


@pytest.mark.long
def test_windows_stay_until_their_day_is_made_and_then_go(tmp_path: Path) -> None:
    time_goes_on(tmp_path)
    made = Synthetic(str(tmp_path))
    for hour in (0, 5, 20):
        made.broker_load(DAY0_MS + hour * HOUR_MS, {1: 2.0 * hour})
    upkeep = upkeep_of(tmp_path, retention_ms=HOUR_MS)
    upkeep.run_if_due(now_ms=DAY0_MS + 21 * HOUR_MS)
    assert len(tables.read(str(tmp_path), "broker_load")) == 3
    made.broker_load(DAY0_MS + 25 * HOUR_MS, {1: 1.0})
    upkeep.run_if_due(now_ms=DAY0_MS + 25 * HOUR_MS)
    assert [row["bytes_in_per_sec"] for row in tables.read(str(tmp_path), "broker_load")] == [1.0]
    (day,) = tables.read(str(tmp_path), "broker_load_daily")
    assert (day["bytes_in_per_sec"], day["bytes_in_per_sec_max"]) == (fmean([0, 10, 40]), 40.0)
    assert day["window_count"] == 3
    assert tables.to_ms(day["period_end"]) == DAY0_MS + DAY_MS


@pytest.mark.long
def test_the_day_of_the_greatest_lags_has_their_mean(tmp_path: Path) -> None:
    """Lags that no float holds exactly, and whose sum is more than 64 bits hold."""
    time_goes_on(tmp_path)
    made = Synthetic(str(tmp_path))
    with made.together():
        for minute in range(20):
            made.group_lag(DAY0_MS + minute * WINDOW_MS, [("g", "t", 0, 0, OFFSET_MAX), ("h", "t", 0, 0, 2**53 + 1)])
        made.group_lag(DAY0_MS + 3 * DAY_MS, [("g", "t", 0, 0, 100)])
    upkeep_of(tmp_path, GROUP_LAG, retention_ms=HOUR_MS).run_if_due(now_ms=DAY0_MS + 3 * DAY_MS)
    days = {row["group_id"]: row for row in tables.read(str(tmp_path), "group_lag_daily")}
    assert days["g"]["lag_records_mean"] == OFFSET_MAX
    assert (days["g"]["lag_records"], days["g"]["lag_records_max"]) == (OFFSET_MAX, OFFSET_MAX)
    assert days["h"]["lag_records_mean"] == pytest.approx(2**53)
    assert days["h"]["lag_records"] == 2**53 + 1
    assert len(tables.read(str(tmp_path), "group_lag")) == 1, "the day is made, so its windows have gone"


@pytest.mark.long
def test_a_rollup_that_fails_holds_back_its_windows_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    time_goes_on(tmp_path)
    made = Synthetic(str(tmp_path))
    for hour in (0, 1, 25, 49):
        made.broker_load(DAY0_MS + hour * HOUR_MS, {1: 1.0})
    upkeep = upkeep_of(tmp_path, retention_ms=HOUR_MS)

    def refused(windows: Any, rollup: Rollup, *rest: Any, **named: Any) -> Any:
        if rollup.target is BROKER_LOAD_HOURLY:
            raise ArrowInvalid("a figure that nobody thought of")
        return rolled_up(windows, rollup, *rest, **named)

    now_ms = DAY0_MS + 50 * HOUR_MS
    with monkeypatch.context() as broken, capture_logs() as logged:
        broken.setattr(rollups, "rolled_up", refused)
        for run in range(3):
            assert upkeep.run_if_due(now_ms=now_ms + run * HOUR_MS)
    failures = [row for row in logged if row["event"] == "maintenance_failed"]
    assert {(row["table"], row["step"], row["error"]) for row in failures} == {
        ("broker_load", "roll_up broker_load_hourly", "a figure that nobody thought of")
    }
    assert len(tables.read(str(tmp_path), "broker_load")) == 4, "no hour is made of these windows yet"
    assert len(tables.read(str(tmp_path), "broker_load_daily")) == 2
    table = tables.open_table(str(tmp_path), "broker_load")
    assert table is not None
    assert len(table.file_uris()) == 1, "its small files are joined"
    upkeep.run_if_due(now_ms=now_ms + 3 * HOUR_MS)
    assert len(tables.read(str(tmp_path), "broker_load_hourly")) == 3
    assert len(tables.read(str(tmp_path), "broker_load")) == 1


@pytest.mark.long
def test_days_of_partitions_and_groups(tmp_path: Path) -> None:
    made = Synthetic(str(tmp_path))
    for index, lag in enumerate((100, 700, 40)):
        start_ms = DAY0_MS + index * 7 * HOUR_MS
        made.partition_load(start_ms, [(1, "t", 0, "leader" if index else "follower", 10.0 * index)])
        made.group_lag(start_ms, [("g", "t", 0, 1_000 * index, 1_000 * index + lag)])
    for table, name in ((PARTITION_LOAD, "partition_load"), (GROUP_LAG, "group_lag")):
        late = {**tables.read(str(tmp_path), name)[0], "window_start": tables.utc(DAY0_MS + DAY_MS)}
        made.append(name, [{**late, "last_event_time_ms": DAY0_MS + DAY_MS + WATERMARK_MS}])
        upkeep_of(tmp_path, table).run_if_due(now_ms=DAY0_MS)
    (day,) = tables.read(str(tmp_path), "partition_load_daily")
    assert (day["role"], day["bytes_in_per_sec"], day["bytes_in_per_sec_max"]) == ("leader", 10.0, 20.0)
    (day,) = tables.read(str(tmp_path), "group_lag_daily")
    assert (day["lag_records"], day["lag_records_mean"], day["lag_records_max"]) == (40, 280.0, 700)
    assert (day["committed_offset_first"], day["committed_offset"], day["log_end_offset"]) == (0, 2_000, 2_040)


@pytest.mark.long
def test_hours_of_partitions_are_those_of_whoever_led_and_expire_before_the_days(tmp_path: Path) -> None:
    made = Synthetic(str(tmp_path))
    made.partition_load(DAY0_MS, [(1, "t", 0, "leader", 10.0), (2, "t", 0, "follower", 99.0)])
    made.partition_load(DAY0_MS + WINDOW_MS, [(2, "t", 0, "leader", 30.0), (1, "t", 0, "follower", 99.0)])
    made.partition_load(DAY0_MS + 25 * HOUR_MS, [(2, "t", 0, "leader", 50.0)])
    made.partition_load(DAY0_MS + 27 * HOUR_MS, [(2, "t", 0, "leader", 60.0)])

    def hours(folder: Path) -> list[tuple[int, float, int]]:
        rows = tables.read(str(folder), "partition_load_hourly")
        starts = ((tables.to_ms(row["period_start"]) - DAY0_MS) // HOUR_MS for row in rows)
        figures = ((row["bytes_in_per_sec"], row["window_count"]) for row in rows)
        return sorted((start, *row) for start, row in zip(starts, figures, strict=True))

    upkeep = upkeep_of(tmp_path, PARTITION_LOAD, partition_hours_retention_ms=DAY_MS)
    upkeep.run_if_due(now_ms=DAY0_MS + 27 * HOUR_MS)
    assert hours(tmp_path) == [(25, 50.0, 1)], "the hour of the first day is beyond its retention already"
    longer = upkeep_of(tmp_path, PARTITION_LOAD)
    assert len(tables.read(str(tmp_path), "partition_load_daily")) == 2
    longer.run_if_due(now_ms=DAY0_MS + 27 * HOUR_MS)
    assert len(hours(tmp_path)) == 1, "and is not made later"


@pytest.mark.long
def test_an_hour_of_a_partition_is_the_mean_of_its_leaders_and_a_change_within_a_window_is_one_window(
    tmp_path: Path,
) -> None:
    """Also in a table with a column of a newer release."""
    made = Synthetic(str(tmp_path))
    made.partition_load(DAY0_MS, [(1, "t", 0, "leader", 10.0), (2, "t", 0, "follower", 99.0)])
    made.partition_load(DAY0_MS + WINDOW_MS, [(2, "t", 0, "leader", 30.0), (1, "t", 0, "leader", 20.0)])
    made.partition_load(DAY0_MS + 2 * HOUR_MS, [(2, "t", 0, "leader", 50.0)])
    newer = Field("of_tomorrow", PrimitiveType("double"))
    tables.create_table(str(tmp_path), "partition_load_hourly").alter.add_columns([newer])
    upkeep_of(tmp_path, PARTITION_LOAD).run_if_due(now_ms=DAY0_MS + 3 * HOUR_MS)
    (hour,) = tables.read(str(tmp_path), "partition_load_hourly")
    assert (hour["topic"], hour["partition"], hour["bytes_in_per_sec"], hour["window_count"]) == ("t", 0, 20.0, 2)


_rate = st.none() | st.floats(0, 1e9)


@example_count(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 47), st.integers(1, 3), _rate, _rate), unique_by=lambda row: row[:2]))
def test_a_day_equals_a_recount(rows: list[tuple[int, int, float | None, float | None]]) -> None:
    import pyarrow as pa
    from pyarrow import dataset

    windows = [
        {
            **Synthetic("").window(DAY0_MS + half_hour * HOUR_MS // 2), "broker": broker, "bytes_in_per_sec": rate,
            "bytes_out_per_sec": other, "bytes_in_per_sec_max": rate, "covered_ms": 7, "log_dir_used_bytes": half_hour,
        }
        for half_hour, broker, rate, other in rows
    ]  # fmt: skip
    source = dataset.dataset(pa.Table.from_pylist(windows, schema=tables.arrow_schema(BROKER_LOAD)))
    of_broker: dict[int, list[Any]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row[0]):
        of_broker[row[1]].append(row)
    days = {row["broker"]: row for row in rolled_up(source, ROLLUPS[1], DAY0_MS, now_ms=DAY0_MS + DAY_MS).to_pylist()}
    assert days.keys() == of_broker.keys()
    for broker, own_rows in of_broker.items():
        rates = [row[2] for row in own_rows if row[2] is not None]
        others = [row[3] for row in own_rows if row[3] is not None]
        day = days[broker]
        assert day["bytes_in_per_sec"] == (pytest.approx(fmean(rates)) if rates else None)
        assert (day["bytes_in_per_sec_max"], day["bytes_out_per_sec_max"]) == (
            max(rates, default=None),
            max(others, default=None),
        )
        assert (day["covered_ms"], day["window_count"]) == (7 * len(own_rows), len(own_rows))
        assert day["log_dir_used_bytes"] == own_rows[-1][0]
