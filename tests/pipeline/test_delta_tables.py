"""The upsert without Spark: idempotent, fuller rows win, final rows stay, and Delta refuses what makes no sense."""

import itertools
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from streaming import tables
from streaming.contract import BROKER_LOAD
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


STEP_MS = 60_000


def batch(number: int, samples: dict[tuple[int, int], int], query: str = "q") -> pa.Table:
    """Rows with so many samples, by window and broker."""
    rows = []
    for (step, broker), count in samples.items():
        times = {"window_start": at(step), "window_end": at(step + 1)}
        rows.append(window(broker, count, batch_id=number, query_id=query, **times))
    return arrow(*rows)


def at(step: int) -> datetime:
    """Start of the window of this number."""
    return tables.utc(START_MS + step * STEP_MS)


def watermark(samples: dict[tuple[int, int], int]) -> datetime:
    return at(max(step for step, _ in samples) - 1)


def new_table(root: str, rows_max: int) -> WindowTable:
    create_window_table(root, BROKER_LOAD)
    return WindowTable(tables.table_uri(root, "broker_load"), BROKER_LOAD, rows_max=rows_max)


def stored(root: str) -> list[tuple[Any, ...]]:
    columns = ("window_start", "broker", "sample_count", "is_final", "batch_id")
    return sorted(tuple(row.values()) for row in tables.read(root, "broker_load", columns=columns))


@pytest.mark.long
def test_windows_close_whether_their_writer_remembers_them_or_not(tmp_path: Path) -> None:
    root = str(tmp_path)
    table = new_table(root, 9)

    def write(writer: WindowTable, version: int, steps: list[int], passed: int) -> list[bool]:
        writer.upsert(batch(version, {(step, 1): 1 for step in steps}), ("q", version), at(passed))
        return [row[3] for row in stored(root)]

    assert write(table, 0, [0, 1], 1) == [True, False]
    assert write(table, 1, [2], 1) == [True, False, False]
    assert write(new_table(root, 9), 2, [3], 2) == [True, True, False, False]
    assert all(write(table, 3, [3], 4))


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


_rows = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5), st.booleans()), unique_by=lambda row: row[0])


@pytest.mark.long
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


@pytest.mark.long
def test_what_is_closed_is_not_written_again_with_each_batch(tmp_path: Path) -> None:
    root = str(tmp_path)
    table, uri = new_table(root, 9), tables.table_uri(root, "broker_load")
    written: list[set[str]] = []
    for number in range(6):
        table.upsert(batch(number, {(number + ahead, 1): 1 + number for ahead in (0, 1)}), ("q", number), at(number))
        written.append(set(DeltaTable(uri).file_uris()))
    for before, after in itertools.pairwise(written):
        (rewritten,) = before - after  # the open windows' one; all else stays
        assert "is_final=false" in rewritten
    assert [row[2:4] for row in stored(root)] == [*((count, True) for count in range(1, 6)), (6, False), (6, False)]


@pytest.mark.long
def test_old_records_read_again_meet_their_own_windows_only(tmp_path: Path) -> None:
    root = str(tmp_path)
    new_table(root, 9).upsert(batch(0, {(step, 1): 1 for step in range(4)}), ("q", 0), at(2))
    again = new_table(root, 2)
    # Final: two rows are met, the open ones aren't.
    assert again.upsert(batch(0, {(0, 1): 9}), ("new", 0), NEVER) == 0
    assert again.upsert(batch(1, {(2, 1): 9}), ("new", 1), NEVER) == 8
    again.upsert(batch(2, {(4, 1): 1}), ("new", 2), at(4))
    assert [row[2:4] for row in stored(root)] == [(1, True), (1, True), (9, True), (1, True), (1, False)]
