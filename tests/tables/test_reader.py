"""The reader of tables: one version of each in a look, the newest one in the next."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from assignor_core.deciding.trigger import TriggerState
from streaming import tables
from streaming.contract import TABLES
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.executions import read_executions
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic

START_MS = NOW_MS - 10 * WINDOW_MS


def settings_with(root: Path) -> Settings:
    return Settings.model_validate({"kafka": {"cluster_name": "test"}, "storage": {"tables": str(root)}})


def test_what_comes_during_a_look_is_seen_in_the_next(tmp_path: Path) -> None:
    synthetic, reader = Synthetic(str(tmp_path)), TableReader(str(tmp_path))
    assert reader.version("broker_load") is None
    synthetic.broker_load(START_MS, {1: 1.0})  # where there was none it is seen at once
    first = reader.version("broker_load")
    synthetic.broker_load(START_MS + WINDOW_MS, {1: 1.0})
    assert reader.newest("broker_load", "window_start") == tables.utc(START_MS)
    assert reader.version("broker_load") == first
    reader.look_again()
    assert reader.newest("broker_load", "window_start") == tables.utc(START_MS + WINDOW_MS)
    reader.look_again()  # nothing new
    assert reader.newest("broker_load", "window_start") == tables.utc(START_MS + WINDOW_MS)


def test_a_reader_that_has_slept_while_the_log_was_cut_wakes_up(tmp_path: Path) -> None:
    synthetic, reader = Synthetic(str(tmp_path)), TableReader(str(tmp_path))
    synthetic.broker_load(START_MS, {1: 1.0})
    reader.version("broker_load")
    for window in range(1, 4):
        synthetic.broker_load(START_MS + window * WINDOW_MS, {1: 1.0})
    table = tables.open_table(str(tmp_path), "broker_load")
    assert table is not None
    table.create_checkpoint()
    for entry in (tmp_path / "broker_load" / "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()
    reader.look_again()
    assert reader.version("broker_load") == table.version()
    assert reader.newest("broker_load", "window_start") == tables.utc(START_MS + 3 * WINDOW_MS)


def test_a_table_that_has_gone_is_no_longer_there_and_one_made_anew_is(tmp_path: Path) -> None:
    synthetic, reader = Synthetic(str(tmp_path)), TableReader(str(tmp_path))
    for window in range(3):
        synthetic.broker_load(START_MS + window * WINDOW_MS, {1: 1.0})
    assert reader.version("broker_load") == 3
    (tmp_path / "broker_load").rename(tmp_path / "away")
    reader.look_again()
    assert reader.version("broker_load") is None
    Synthetic(str(tmp_path)).broker_load(START_MS, {1: 1.0})
    reader.look_again()
    assert reader.version("broker_load") == 1


def test_the_newest_row_is_read_without_the_files_of_older_ones(tmp_path: Path) -> None:
    """Each decision bears a state in JSON: after a year the table has gigabytes of them."""
    synthetic = Synthetic(str(tmp_path))
    assert TableReader(str(tmp_path)).newest_row("decision", "decided_at") is None
    for number in range(6):
        synthetic.decision(NOW_MS + number)
    oldest = min((tmp_path / "decision").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    oldest.unlink()
    reader = TableReader(str(tmp_path))
    newest = reader.newest_row("decision", "decided_at", columns=("decided_at", "verdict"))
    assert newest == {"decided_at": tables.utc(NOW_MS + 5), "verdict": "hold"}
    assert journal_of(settings_with(tmp_path)).trigger_state() == TriggerState()


def test_the_newest_row_of_a_cluster_is_found_behind_newer_ones_of_another(tmp_path: Path) -> None:
    Synthetic(str(tmp_path), cluster="quiet").decision(NOW_MS, "plan", "skewed")
    for number in range(1, 8):
        Synthetic(str(tmp_path), cluster="busy", _commits=number).decision(NOW_MS + number)
    row = TableReader(str(tmp_path)).newest_row("decision", "decided_at", where=tables.equal("kafka_cluster", "quiet"))
    assert row is not None
    assert (row["decided_at"], row["reason"]) == (tables.utc(NOW_MS), "skewed")


def test_the_newest_time_of_a_cluster_is_its_own_in_files_of_one_and_of_several_clusters(tmp_path: Path) -> None:
    ours, other = Synthetic(str(tmp_path)), Synthetic(str(tmp_path), cluster="other", _commits=10)

    def newest(cluster: str) -> datetime | None:
        return TableReader(str(tmp_path)).newest_of_cluster("broker_load", "window_start", cluster)

    assert newest("test") is None
    ours.broker_load(START_MS, {1: 1.0})
    assert newest("test") == tables.utc(START_MS)
    other.broker_load(START_MS + 5 * WINDOW_MS, {1: 1.0})
    assert (newest("test"), newest("other")) == (tables.utc(START_MS), tables.utc(START_MS + 5 * WINDOW_MS))
    Synthetic(str(tmp_path), _commits=20).broker_load(START_MS + WINDOW_MS, {1: 1.0})
    table = tables.open_table(str(tmp_path), "broker_load")
    assert table is not None
    table.optimize.compact()
    assert len(table.file_uris()) == 1
    assert newest("test") == tables.utc(START_MS + WINDOW_MS)
    assert newest("neither") is None


def test_columns_that_an_earlier_version_did_not_write_are_null(tmp_path: Path) -> None:
    """A reader may be of a newer version than the writer, which adds its columns at its next start."""
    new = ("throttled_brokers", "produce_p99_ms_before", "in_windows_only", "owner")
    Synthetic(str(tmp_path)).event(NOW_MS, 0, "approved", throttled_brokers=[1])
    [row] = tables.read(str(tmp_path), "execution")
    old = pa.schema(field for field in tables.row_schema(TABLES["execution"]) if field.name not in new)
    before = {name: value for name, value in row.items() if name not in new}
    write_deltalake(str(tmp_path / "old" / "execution"), pa.Table.from_pylist([before], schema=old))
    columns = ("execution_id", *new)
    assert tables.read(str(tmp_path / "old"), "execution", columns=columns) == [
        {**dict.fromkeys(columns), "execution_id": row["execution_id"]}
    ]
    executions = read_executions(TableReader(str(tmp_path / "old")), "test", now_ms=NOW_MS)
    assert [execution.throttled_brokers for execution in executions] == [()]
