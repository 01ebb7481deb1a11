"""Maintenance on real tables, without Spark: what goes, what stays, and that nothing happens where nothing is due."""

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming import tables
from streaming.contract import BROKER_LOAD, PIPELINE_BATCH, Table
from streaming.pipeline.delta_tables import WindowTable, create_window_table
from streaming.settings import DAY_MS, HOUR_MS, PipelineSettings, Settings
from streaming.tables import definitions
from streaming.tables.upkeep import EXPIRED
from tests.benchmarks.bench_month import UPKEEP_EVERY, Month, live_through, recounted
from tests.pipeline.table_upkeep import TableUpkeep
from tests.pipeline.test_delta_tables import NEVER, arrow, window

NOW_MS = 1_795_236_000_000


def batch_row(batch_id: int, finished_ms: int) -> dict[str, Any]:
    return {
        "query_name": "byte_rate", "query_id": "q", "batch_id": batch_id, "finished_at": tables.utc(finished_ms),
        "duration_ms": 1, "input_rows": 1, "batches_total": 1, "input_rows_total": 1, "rejected_rows_total": 0,
        "late_rows_total": 0, "trigger_interval_ms": 1_000,
    }  # fmt: skip


LATER_MS = NOW_MS + 1_000 * DAY_MS


def time_goes_on(root: Path) -> None:
    """Batches are written later than all else of a test, so that its clocks count as right."""
    rows = [batch_row(1_000 + number, LATER_MS + number * DAY_MS) for number in (0, 1)]
    tables.append(str(root), "pipeline_batch", rows, transaction_id="later", transaction_version=0)


@pytest.fixture(scope="module")
def twenty_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty rows in as many files, one an hour, the newest now; only to be copied."""
    root = tmp_path_factory.mktemp("filled")
    for batch_id in range(20):
        tables.append(
            str(root),
            "pipeline_batch",
            [batch_row(batch_id, NOW_MS - (19 - batch_id) * HOUR_MS)],
            transaction_id="t",
            transaction_version=batch_id,
        )
    return root


@pytest.fixture
def filled(tmp_path: Path, twenty_files: Path) -> Settings:
    """Settings of a folder with such a table, whose rows stay for five and a half hours."""
    shutil.copytree(twenty_files, tmp_path, dirs_exist_ok=True)
    return Settings.model_validate(
        {"storage": {"tables": str(tmp_path)}, "pipeline": {"retention_ms": 5 * HOUR_MS + HOUR_MS // 2}}
    )


def upkeep_of(settings: Settings, table: Table) -> TableUpkeep:
    return TableUpkeep(settings.storage.tables, table, settings.pipeline)


def batch_ids(tmp_path: Path) -> list[int]:
    return sorted(row["batch_id"] for row in tables.read(str(tmp_path), "pipeline_batch") if row["batch_id"] < 1_000)


@pytest.mark.long
def test_old_rows_go_and_small_files_are_joined(filled: Settings, tmp_path: Path) -> None:
    time_goes_on(tmp_path)
    assert upkeep_of(filled, PIPELINE_BATCH).run_if_due(now_ms=NOW_MS)
    assert batch_ids(tmp_path) == [14, 15, 16, 17, 18, 19]
    table = tables.open_table(str(tmp_path), "pipeline_batch")
    assert table is not None
    assert len(table.file_uris()) == 1


@pytest.mark.long
def test_rows_go_by_the_day_so_that_their_file_is_not_written_anew_at_each_run(tmp_path: Path) -> None:
    """A file of two days is up to 100 MB, and what is replaced stays for two days more."""
    settings = PipelineSettings()
    rows = [batch_row(hour, NOW_MS + hour * HOUR_MS) for hour in range(48)]
    tables.append(str(tmp_path), "pipeline_batch", rows, transaction_id="t", transaction_version=0)
    time_goes_on(tmp_path)
    upkeep = TableUpkeep(str(tmp_path), PIPELINE_BATCH, settings)
    midnight_ms = NOW_MS - NOW_MS % DAY_MS + DAY_MS
    for quarter in range(-8, 88):
        upkeep.run_if_due(now_ms=midnight_ms + settings.retention_ms + quarter * HOUR_MS // 4)
    table = tables.open_table(str(tmp_path), "pipeline_batch")
    assert table is not None
    assert sum(EXPIRED in commit for commit in table.history()) == 1
    left = [tables.to_ms(row["finished_at"]) for row in tables.read(str(tmp_path), "pipeline_batch")]
    assert sorted(left)[:-2] == [
        NOW_MS + hour * HOUR_MS for hour in range(48) if NOW_MS + hour * HOUR_MS >= midnight_ms
    ]


@pytest.mark.long
@pytest.mark.parametrize("rows_ahead", [0, 5])
def test_a_clock_that_is_ahead_for_an_hour_deletes_nothing(filled: Settings, tmp_path: Path, rows_ahead: int) -> None:
    """Neither if rows were written by that clock before."""
    upkeep_of(filled, PIPELINE_BATCH).run_if_due(now_ms=NOW_MS)
    ahead_ms, honest = NOW_MS + 6 * 365 * DAY_MS, {14, 15, 16, 17, 18, 19}
    rows = [batch_row(500 + number, ahead_ms + number * 60_000) for number in range(rows_ahead)]
    if rows:
        tables.append(str(tmp_path), "pipeline_batch", rows, transaction_id="ahead", transaction_version=0)
    for now_ms in (ahead_ms + 300_000, NOW_MS):
        upkeep_of(filled, PIPELINE_BATCH).run_if_due(now_ms=now_ms)
        assert set(batch_ids(tmp_path)) >= honest


@pytest.mark.long
def test_it_runs_once_an_interval_and_makes_no_commit_where_nothing_is_to_do(filled: Settings, tmp_path: Path) -> None:
    upkeep, reader = upkeep_of(filled, PIPELINE_BATCH), tables.open_table(str(tmp_path), "pipeline_batch")
    upkeep.run_if_due(now_ms=NOW_MS)
    assert reader is not None
    assert reader.to_pyarrow_dataset().count_rows() == 20, "who reads the version before still has its files"
    interval_ms = filled.pipeline.maintenance_interval_ms
    assert not upkeep.run_if_due(now_ms=NOW_MS + interval_ms - 1)
    assert upkeep.run_if_due(now_ms=NOW_MS - 1), "the clock was set back"
    before = tables.open_table(str(tmp_path), "pipeline_batch")
    assert upkeep.run_if_due(now_ms=NOW_MS + interval_ms)
    after = tables.open_table(str(tmp_path), "pipeline_batch")
    assert before is not None
    assert after is not None
    assert after.version() == before.version()


@pytest.mark.long
def test_replaced_files_and_old_log_entries_go_though_checkpoints_have_forgotten_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = "interval 1 seconds"
    short = {"delta.logRetentionDuration": second, "delta.deletedFileRetentionDuration": second}
    changed = {**definitions.CONFIGURATION, **short, "delta.checkpointInterval": "5"}
    monkeypatch.setattr(definitions, "CONFIGURATION", changed)
    create_window_table(str(tmp_path), BROKER_LOAD)
    folder = tmp_path / "broker_load"
    writer = WindowTable(str(folder), BROKER_LOAD, rows_max=1_000)
    for version in range(12):
        if version == 6:
            time.sleep(1.1)
        writer.upsert(arrow(window(1, 1 + version)), ("q", version), NEVER)  # in the place of the one before
    assert len(list((folder / "_delta_log").glob("*.json"))) > 12, "no commit removes entries"
    time.sleep(1.1)
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path)}})
    upkeep_of(settings, BROKER_LOAD).run_if_due(now_ms=NOW_MS)
    live = {Path(uri).name for uri in DeltaTable(folder).file_uris()}
    assert {path.name for path in folder.rglob("part-*.parquet")} == live
    assert len(list((folder / "_delta_log").glob("*.json"))) < 12


def test_a_table_of_an_earlier_version_gets_the_properties_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(definitions, "CONFIGURATION", {"delta.logRetentionDuration": "interval 7 days"})
        tables.create_table(str(tmp_path), "decision")
    tables.create_table(str(tmp_path), "decision")
    table = tables.create_table(str(tmp_path), "decision")
    assert table.version() == 1
    assert table.metadata().configuration | definitions.CONFIGURATION == table.metadata().configuration


SMALL = {"brokers": 3, "topics": 2, "partitions": 2, "groups": 2}


def settings_of_month(month: Month, *, retention_ms: int) -> PipelineSettings:
    return PipelineSettings(
        window_ms=month.window_ms,
        maintenance_interval_ms=UPKEEP_EVERY * month.window_ms,
        retention_ms=retention_ms,
        partition_hours_retention_ms=max(DAY_MS, retention_ms),
    )


@pytest.mark.long
def test_days_beyond_retention_go_and_files_stay_few(tmp_path: Path) -> None:
    month = Month(days=5, window_ms=HOUR_MS, **SMALL)
    settings = settings_of_month(month, retention_ms=2 * DAY_MS)
    found = live_through(str(tmp_path), month, settings)
    assert recounted(str(tmp_path), month, settings) == []
    assert found.over == []
    most = max(max(counts) for counts in found.files.values())
    assert most <= 3, "open windows, one that has just closed, and all others"


@pytest.mark.long
def test_the_recount_sees_what_is_missing_and_what_is_there_twice(tmp_path: Path) -> None:
    month = Month(days=0, extra_hours=4, window_ms=HOUR_MS, **SMALL)
    settings = settings_of_month(month, retention_ms=90 * DAY_MS)
    live_through(str(tmp_path), month, settings)
    rows = tables.read(str(tmp_path), "broker_load_hourly")
    tables.append(str(tmp_path), "broker_load_hourly", rows[:1], transaction_id="again", transaction_version=0)
    tables.delete(str(tmp_path), "partition_load_hourly", tables.equal("partition", 0))
    (doubled, missing) = recounted(str(tmp_path), month, settings)
    assert doubled.startswith("broker_load_hourly")
    assert missing.startswith("partition_load_hourly")
