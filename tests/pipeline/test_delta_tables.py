"""The upsert without Spark: idempotent, fuller rows win, final rows stay, and Delta refuses what makes no sense."""

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from hypothesis import given
from hypothesis import strategies as st

from streaming import tables
from streaming.contract import BROKER_LOAD, PARTITION_LOAD
from streaming.errors import TableUnavailable
from streaming.pipeline.delta_tables import TooManyRows, WindowTable, create_window_table
from streaming.pipeline.part_files import fullest
from tests.serve.synthetic import Synthetic

START_MS = 1_795_219_200_000
NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def window(broker: int, samples: int, **columns: Any) -> dict[str, Any]:
    made = Synthetic("").window(START_MS)
    return {**made, "broker": broker, "covered_ms": 1, "sample_count": samples, "is_final": False, **columns}


def arrow(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=tables.row_schema(BROKER_LOAD))


def counts(root: Path) -> dict[int, int]:
    return {row["broker"]: row["sample_count"] for row in tables.read(str(root), "broker_load")}


def test_a_transaction_is_written_once_and_the_fuller_row_wins(tmp_path: Path) -> None:
    create_window_table(str(tmp_path), BROKER_LOAD)
    create_window_table(str(tmp_path), BROKER_LOAD)  # at every start
    table = WindowTable(tables.table_uri(str(tmp_path), "broker_load"), BROKER_LOAD, rows_max=1_000)
    assert table.upsert(arrow(window(1, 3), window(2, 3)), ("q", 0), NEVER) == 6
    assert table.upsert(arrow(window(1, 9)), ("q", 0), NEVER) is None
    assert counts(tmp_path) == {1: 3, 2: 3}
    assert table.upsert(arrow(window(1, 2), window(2, 4), window(3, 1)), ("q", 1), NEVER) == 2
    assert counts(tmp_path) == {1: 3, 2: 4, 3: 1}
    assert table.upsert(arrow(window(3, 1, query_id="another")), ("another", 0), NEVER) is None
    later = datetime(2100, 1, 1, tzinfo=UTC)
    table.upsert(arrow(window(3, 1)), ("q", 2), later)
    assert table.upsert(arrow(window(1, 99)), ("q", 3), later) == 0
    assert counts(tmp_path) == {1: 3, 2: 4, 3: 1}  # final rows stay as they are


def test_a_table_of_an_earlier_version_is_written_on(tmp_path: Path) -> None:
    """Its comments were other ones, and a column of today wasn't there."""
    columns = [field for field in tables.arrow_schema(BROKER_LOAD) if field.name != "rack"]
    DeltaTable.create(
        tables.table_uri(str(tmp_path), "broker_load"),
        pa.schema([field.with_metadata({"comment": f"once {field.name}"}) for field in columns]),
    )
    create_window_table(str(tmp_path), BROKER_LOAD)
    table = WindowTable(tables.table_uri(str(tmp_path), "broker_load"), BROKER_LOAD, rows_max=1_000)
    assert table.upsert(arrow(window(1, 3)), ("q", 0), NEVER) == 3
    assert table.upsert(arrow(window(1, 9, rack="a")), ("q", 1), NEVER) == 6
    assert [(row["sample_count"], row["rack"]) for row in tables.read(str(tmp_path), "broker_load")] == [(9, "a")]


def test_a_table_of_an_earlier_version_gets_what_remote_storage_holds(tmp_path: Path) -> None:
    root, new = str(tmp_path), {"remote_records", "remote_size_bytes"}
    replica = {"topic": "t", "partition": 0, "role": "leader", "size_bytes": 7}
    old = pa.schema([field for field in tables.row_schema(PARTITION_LOAD) if field.name not in new])
    before = pa.Table.from_pylist([window(1, 3, **replica)], schema=old)
    write_deltalake(tables.table_uri(root, "partition_load"), before)
    create_window_table(root, PARTITION_LOAD)
    table = WindowTable(tables.table_uri(root, "partition_load"), PARTITION_LOAD, rows_max=1_000)
    remote = window(2, 1, **replica, remote_records=10, remote_size_bytes=900)
    rows = pa.Table.from_pylist([window(1, 9, **replica), remote], schema=tables.row_schema(PARTITION_LOAD))
    table.upsert(rows, ("q", 0), NEVER)
    columns = ("broker", "sample_count", "remote_records", "remote_size_bytes")
    stored = {tuple(row.values()) for row in tables.read(root, "partition_load", columns=columns)}
    assert stored == {(1, 9, None, None), (2, 1, 10, 900)}


def test_a_table_with_a_column_of_a_newer_release_is_written_on(tmp_path: Path) -> None:
    root, uri = str(tmp_path), tables.table_uri(str(tmp_path), "broker_load")
    create_window_table(root, BROKER_LOAD)
    DeltaTable(uri).alter.add_columns([Field("of_tomorrow", PrimitiveType("double"))])
    unknown = pa.array([0.5], pa.float64())
    write_deltalake(uri, arrow(window(1, 3)).append_column("of_tomorrow", unknown), mode="append")
    later = {"window_start": datetime(2027, 1, 1, tzinfo=UTC), "window_end": datetime(2027, 1, 2, tzinfo=UTC)}
    table = WindowTable(uri, BROKER_LOAD, rows_max=1_000)
    table.upsert(arrow(window(1, 2), window(1, 4, **later)), ("q", 0), NEVER)
    columns = ["sample_count", "of_tomorrow"]
    stored = pa.table(DeltaTable(uri).to_pyarrow_table(columns=columns)).sort_by("sample_count").to_pylist()
    assert [tuple(row.values()) for row in stored] == [(3, 0.5), (4, None)]


def test_windows_close_whether_their_writer_remembers_them_or_not(tmp_path: Path) -> None:
    create_window_table(str(tmp_path), BROKER_LOAD)
    uri = tables.table_uri(str(tmp_path), "broker_load")
    table = WindowTable(uri, BROKER_LOAD, rows_max=1_000)
    step_ms = 60_000

    def write(writer: WindowTable, version: int, starts: list[int], watermark_ms: int) -> dict[int, bool]:
        rows = [
            window(1, 1, window_start=tables.utc(START_MS + start), window_end=tables.utc(START_MS + start + step_ms))
            for start in starts
        ]
        writer.upsert(arrow(*rows), ("q", version), tables.utc(START_MS + watermark_ms))
        stored = tables.read(str(tmp_path), "broker_load")
        return {tables.to_ms(row["window_start"]) - START_MS: row["is_final"] for row in stored}

    assert write(table, 0, [0, step_ms], step_ms) == {0: True, step_ms: False}
    assert write(table, 1, [2 * step_ms], step_ms) == {0: True, step_ms: False, 2 * step_ms: False}
    assert write(WindowTable(uri, BROKER_LOAD, rows_max=1_000), 2, [3 * step_ms], 2 * step_ms) == {
        0: True, step_ms: True, 2 * step_ms: False, 3 * step_ms: False,
    }  # fmt: skip
    assert all(write(table, 3, [3 * step_ms], 4 * step_ms).values())


STEP_MS = 60_000


def batch(number: int, samples: dict[tuple[int, int], int]) -> pa.Table:
    rows = []
    for (step, broker), count in samples.items():
        start, end = (tables.utc(START_MS + at * STEP_MS) for at in (step, step + 1))
        rows.append(window(broker, count, batch_id=number, query_id="q", window_start=start, window_end=end))
    return arrow(*rows)


def watermark(samples: dict[tuple[int, int], int]) -> datetime:
    return tables.utc(START_MS + (max(step for step, _ in samples) - 1) * STEP_MS)


def new_table(root: str, rows_max: int) -> WindowTable:
    create_window_table(root, BROKER_LOAD)
    return WindowTable(tables.table_uri(root, "broker_load"), BROKER_LOAD, rows_max=rows_max)


def stored(root: str) -> list[tuple[Any, ...]]:
    columns = ("window_start", "broker", "sample_count", "is_final", "batch_id")
    return sorted(tuple(row.values()) for row in tables.read(root, "broker_load", columns=columns))


def test_windows_of_too_many_rows_are_left_to_the_executors(tmp_path: Path) -> None:
    root = str(tmp_path)
    new_table(root, 9).upsert(
        batch(0, {(step, broker): 1 for step in range(2) for broker in range(3)}), ("q", 0), NEVER
    )
    before = stored(root)
    with pytest.raises(TooManyRows):
        new_table(root, 2).upsert(batch(1, {(0, 1): 9}), ("q", 1), NEVER)
    assert stored(root) == before
    assert new_table(root, 6).upsert(batch(1, {(0, 1): 9}), ("q", 1), NEVER) == 8


@pytest.mark.parametrize(
    "broken",
    [
        {"window_end": tables.utc(START_MS)},
        {"sample_count": 0},
        {"first_event_time_ms": START_MS + 5, "last_event_time_ms": START_MS},
    ],
    ids=lambda broken: next(iter(broken)),
)
def test_delta_refuses_rows_that_make_no_sense(tmp_path: Path, broken: dict[str, Any]) -> None:
    create_window_table(str(tmp_path), BROKER_LOAD)
    table = WindowTable(tables.table_uri(str(tmp_path), "broker_load"), BROKER_LOAD, rows_max=1_000)
    with pytest.raises(TableUnavailable, match="table broker_load can't be written: ") as refused:
        table.upsert(arrow(window(1, 3) | broken), ("q", 0), NEVER)
    assert "\n" not in str(refused.value)
    assert counts(tmp_path) == {}


def test_rows_without_a_key_are_refused_before_they_are_written(tmp_path: Path) -> None:
    create_window_table(str(tmp_path), BROKER_LOAD)
    table = WindowTable(tables.table_uri(str(tmp_path), "broker_load"), BROKER_LOAD, rows_max=1_000)
    with pytest.raises(ValueError, match="kafka_cluster"):
        table.upsert(arrow(window(1, 3, kafka_cluster=None)), ("q", 0), NEVER)
    assert counts(tmp_path) == {}


_rows = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.booleans()), unique_by=lambda row: row[0])


@given(_rows, _rows)
def test_of_each_key_the_final_one_stays_else_the_fuller_else_the_newer(
    present: list[tuple[int, int, bool]], new: list[tuple[int, int, bool]]
) -> None:
    def table(rows: list[tuple[int, int, bool]], batch: int) -> pa.Table:
        return arrow(*(window(broker, count, is_final=final, batch_id=batch) for broker, count, final in rows))

    fresh = [(broker, count, False) for broker, count, _ in new]  # a batch's rows are never final
    kept = {row["broker"]: row for row in fullest(table(present, 0), table(fresh, 1), BROKER_LOAD.key).to_pylist()}
    before = {broker: (count, final) for broker, count, final in present}
    assert kept.keys() == before.keys() | {broker for broker, _, _ in fresh}
    for broker, count, _ in fresh:
        stays = broker in before and (before[broker][1] or before[broker][0] > count)
        assert kept[broker]["batch_id"] == (0 if stays else 1)


def test_what_is_closed_is_not_written_again_with_each_batch(tmp_path: Path) -> None:
    create_window_table(str(tmp_path), BROKER_LOAD)
    uri = tables.table_uri(str(tmp_path), "broker_load")
    table, step_ms = WindowTable(uri, BROKER_LOAD, rows_max=1_000), 60_000
    written: list[set[str]] = []
    for batch in range(6):
        starts = [START_MS + (batch + ahead) * step_ms for ahead in (0, 1)]
        rows = [
            window(1, 1 + batch, window_start=tables.utc(start), window_end=tables.utc(start + step_ms))
            for start in starts
        ]
        table.upsert(arrow(*rows), ("q", batch), watermark=tables.utc(starts[0]))
        written.append(set(DeltaTable(uri).file_uris()))
    for before, after in itertools.pairwise(written):
        (rewritten,) = before - after  # the open windows' one; all else stays
        assert "is_final=false" in rewritten
    rows_now = tables.read(str(tmp_path), "broker_load")
    assert sorted(row["sample_count"] for row in rows_now if row["is_final"]) == [1, 2, 3, 4, 5]
    assert len(rows_now) == 7


def at(step: int, samples: int = 1) -> dict[str, Any]:
    start_ms = START_MS + step * 60_000
    return window(1, samples, window_start=tables.utc(start_ms), window_end=tables.utc(start_ms + 60_000))


def test_old_records_read_again_meet_their_own_windows_only(tmp_path: Path) -> None:
    create_window_table(str(tmp_path), BROKER_LOAD)
    uri = tables.table_uri(str(tmp_path), "broker_load")
    table = WindowTable(uri, BROKER_LOAD, rows_max=1_000)
    table.upsert(arrow(*map(at, range(4))), ("q", 0), tables.utc(START_MS + 2 * 60_000))
    again = WindowTable(uri, BROKER_LOAD, rows_max=2)
    assert (
        again.upsert(arrow(at(0, samples=9)), ("new", 0), NEVER) == 0
    )  # final: two rows are met, the open ones aren't
    assert again.upsert(arrow(at(2, samples=9)), ("new", 1), NEVER) == 8
    again.upsert(arrow(at(4)), ("new", 2), tables.utc(START_MS + 4 * 60_000))
    stored = sorted(tables.read(str(tmp_path), "broker_load"), key=lambda row: row["window_start"])
    assert [(row["sample_count"], row["is_final"]) for row in stored] == [
        (1, True), (1, True), (9, True), (1, True), (1, False),
    ]  # fmt: skip
