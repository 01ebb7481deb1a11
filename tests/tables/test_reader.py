"""The reader of tables: one version of each in a look, the newest one in the next."""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from operator import and_
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from assignor_core.deciding.state import TriggerState
from streaming import tables
from streaming.contract import TABLES
from streaming.control.wiring import journal_of
from streaming.errors import TableUnavailable
from streaming.settings import Settings
from streaming.tables import Condition, TableReader, equal
from streaming.tables import reader as table_reader
from streaming.tables.conditions import Term
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


def events_since(reader: TableReader, version: int | None) -> list[int]:
    reader.look_again()
    rows = reader.rows_since("execution", version or 0, where=tables.equal("kafka_cluster", "test"))
    return sorted(row["sequence"] for row in rows)


@pytest.mark.long
def test_rows_of_the_newest_commits_are_read_without_the_files_of_before(tmp_path: Path) -> None:
    """Control looks at each tick whether somebody asks it to stop: each of its own events is a file of its own."""
    synthetic, reader = Synthetic(str(tmp_path)), TableReader(str(tmp_path))
    assert events_since(reader, None) == []
    for sequence in range(4):
        synthetic.event(NOW_MS, sequence, "progress")
    before = reader.version("execution")
    for file in (tmp_path / "execution").glob("*.parquet"):
        file.unlink()
    assert events_since(reader, before) == []
    Synthetic(str(tmp_path), cluster="other", _commits=10).event(NOW_MS, 7, "progress")
    synthetic = Synthetic(str(tmp_path), _commits=20)
    synthetic.event(NOW_MS, 4, "progress", throttled_brokers=[3])
    synthetic.event(NOW_MS, 5, "progress")
    assert events_since(reader, before) == [4, 5]
    [row] = (row for row in reader.rows_since("execution", before or 0) if row["sequence"] == 4)
    assert row.keys() == set(TABLES["execution"].column_names())
    assert (row["throttled_brokers"], row["event_time"]) == ([3], tables.utc(NOW_MS))


def test_files_that_upkeep_has_joined_hold_no_new_rows(tmp_path: Path) -> None:
    synthetic, reader = Synthetic(str(tmp_path)), TableReader(str(tmp_path))
    for sequence in range(3):
        synthetic.event(NOW_MS, sequence, "progress")
    before = reader.version("execution")
    synthetic.event(NOW_MS, 3, "progress")
    table = tables.open_table(str(tmp_path), "execution")
    assert table is not None
    table.optimize.compact()
    synthetic.event(NOW_MS, 4, "progress")
    # The file of event 3 has left the table: its rows are asked for by the next look at all of them, at the latest.
    assert events_since(reader, before) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("damage", ["cut", "gone", "file gone", pytest.param("many", marks=pytest.mark.long)])
def test_where_the_log_does_not_show_what_is_new_a_query_does(tmp_path: Path, damage: str) -> None:
    synthetic, reader = Synthetic(str(tmp_path)), TableReader(str(tmp_path))
    synthetic.event(NOW_MS, 0, "approved")
    before = reader.version("execution")
    for sequence in range(1, 30 if damage == "many" else 3):
        synthetic.event(NOW_MS, sequence, "progress")
    reader.look_again()
    newest = reader.version("execution")
    entry = tmp_path / "execution" / "_delta_log" / f"{newest:020d}.json"
    if damage == "cut":
        entry.write_text(entry.read_text()[:40])
    elif damage == "gone":
        entry.unlink()
    elif damage == "file gone":
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        [path] = [action["add"]["path"] for action in actions if "add" in action]
        (tmp_path / "execution" / path).unlink()
        with pytest.raises(TableUnavailable):
            reader.rows_since("execution", before or 0)
        return
    rows = reader.rows_since("execution", before or 0)
    assert sorted(row["sequence"] for row in rows) == list(range(30 if damage == "many" else 3))


def condition_on_lag() -> st.SearchStrategy[Condition]:
    times = st.integers(-1, 4).map(lambda window: tables.utc(START_MS + window * WINDOW_MS))
    group, number = st.sampled_from(["a", "b", "it's", "none"]), st.integers(-1, 4)
    return st.one_of(
        st.builds(tables.equal, st.just("group_id"), group), st.builds(tables.at_least, st.just("window_start"), times),
        st.builds(tables.below, st.just("window_start"), times),
        st.builds(tables.at_most, st.just("window_start"), times),
        st.builds(tables.above, st.just("committed_offset"), number),
        st.builds(tables.at_most, st.just("partition"), number), st.just(tables.is_known("committed_offset")),
        st.builds(tables.one_of, st.just("group_id"), st.lists(group, min_size=1, max_size=3)),
        st.just(tables.starts_with("topic", "u")),
    )  # fmt: skip


@pytest.fixture(scope="module")
def lag_of_two_clusters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Files of one cluster and of two, with unknown offsets."""
    root = str(tmp_path_factory.mktemp("lag"))
    for number, cluster in enumerate(("test", "other")):
        synthetic = Synthetic(root, cluster=cluster, _commits=100 * number)
        for window in range(2):
            rows = [(group, "tu"[part % 2], part, part if group == "a" else None, 9) for group in ("a", "it's")
                    for part in range(3)]  # fmt: skip
            synthetic.group_lag(START_MS + window * WINDOW_MS, rows)
    table = tables.open_table(root, "group_lag")
    assert table is not None
    table.optimize.compact()
    Synthetic(root, _commits=500).group_lag(START_MS + 2 * WINDOW_MS, [("b", "u", 1, 3, 4)])
    return root


COLUMNS = ("group_id", "topic", "partition", "committed_offset", "window_start", "member_id")


@pytest.mark.long
@given(
    conditions=st.lists(condition_on_lag(), max_size=3),
    columns=st.sampled_from([COLUMNS, COLUMNS[:1]]),
    rows_at_a_time=st.sampled_from([1, 3, 500_000]),
)
@settings(deadline=None, max_examples=60)
def test_many_rows_are_read_from_files_as_a_query_reads_them(
    lag_of_two_clusters: str, conditions: list[Condition], columns: tuple[str, ...], rows_at_a_time: int
) -> None:
    where = reduce(and_, conditions, tables.ALL_ROWS)
    reader = TableReader(lag_of_two_clusters)
    asked = reader.arrow("group_lag", columns=columns, where=where)
    with mock.patch.object(table_reader, "ROWS_AT_A_TIME", rows_at_a_time):
        read = reader.encoded("group_lag", columns=columns, where=where)
    assert all(not pa.types.is_string(field.type) for field in read.schema)
    assert all(column.num_chunks <= 1 for column in read.columns)
    assert sorted(map(str, read.to_pylist())) == sorted(map(str, asked.to_pylist()))


def test_rows_of_other_texts_are_left_out_file_by_file(tmp_path: Path) -> None:
    """All windows of half an hour took 2.5 GiB for one group of ten thousand."""
    synthetic = Synthetic(str(tmp_path))
    for window in range(6):
        synthetic.group_lag(START_MS + window * WINDOW_MS, [(f"g-{number}", "t", 0, 1, 2) for number in range(10)])
    kept: list[tuple[int, int]] = []
    left_out = table_reader._with_texts

    def counted(rows: pa.Table, terms: Sequence[Term]) -> pa.Table:
        answer = left_out(rows, terms)
        kept.append((rows.num_rows, answer.num_rows))
        return answer

    with mock.patch.object(table_reader, "ROWS_AT_A_TIME", 20), mock.patch.object(table_reader, "_with_texts", counted):
        read = TableReader(str(tmp_path)).encoded("group_lag", columns=COLUMNS, where=equal("group_id", "g-7"))
    assert read["group_id"].to_pylist() == ["g-7"] * 6
    assert kept == [(20, 2)] * 3


def test_columns_that_files_lack_are_null_in_many_rows(tmp_path: Path) -> None:
    synthetic = Synthetic(str(tmp_path))
    synthetic.group_lag(START_MS, [("g", "t", 0, 1, 2)])
    schema = pa.schema(
        field for field in tables.row_schema(TABLES["group_lag"]) if field.name not in ("group_type", "group_members")
    )
    rows = TableReader(str(tmp_path)).arrow("group_lag", columns=schema.names)
    write_deltalake(str(tmp_path / "old" / "group_lag"), rows.cast(schema))
    columns = ("group_id", "group_type", "group_members")
    read = TableReader(str(tmp_path / "old")).encoded("group_lag", columns=columns)
    assert read.to_pylist() == [{"group_id": "g", "group_type": None, "group_members": None}]


def test_many_rows_of_a_table_that_is_not_there_are_none(tmp_path: Path) -> None:
    assert TableReader(str(tmp_path)).encoded("group_lag", columns=("topic", "partition")).num_rows == 0


def test_times_as_spark_writes_them_are_read_from_files(tmp_path: Path) -> None:
    """Spark writes 96 bits of nanoseconds, delta-rs 64 of microseconds."""
    synthetic = Synthetic(str(tmp_path))
    for window in range(2):
        synthetic.group_lag(START_MS + window * WINDOW_MS, [("g", "t", window, 1, 2)])
    for file in (tmp_path / "group_lag").rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            parquet.write_table(parquet.read_table(file, partitioning=None), file, use_deprecated_int96_timestamps=True)
    where = tables.at_least("window_start", tables.utc(START_MS + WINDOW_MS))
    rows = TableReader(str(tmp_path)).encoded("group_lag", columns=("partition", "window_start"), where=where)
    assert rows.to_pylist() == [{"partition": 1, "window_start": tables.utc(START_MS + WINDOW_MS)}]
