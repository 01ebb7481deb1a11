"""Files of a table stay few and are rarely written again, however long small commits go on."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming import tables
from streaming.contract import ColumnType, Table
from streaming.contract.columns import Column, long, timestamp
from streaming.tables.definitions import row_schema
from streaming.tables.joining import TIERS_BYTES, next_run

RUNS_A_DAY = 96
"""Upkeep runs each quarter of an hour by default."""


def joined(sizes: list[int], shrinks: float) -> tuple[list[int], int]:
    """One run of upkeep, a step for each run of files, until none are due. A joined file has `shrinks` times the bytes
    of its parts and takes the place of the oldest. Returns the sizes afterwards and the bytes written.
    """
    written = 0
    while chosen := next_run(sizes):
        whole = max(1, round(sum(sizes[index] for index in chosen) * shrinks))
        assert sum(sizes[index] for index in chosen) <= TIERS_BYTES[0], "a step reads as much as the largest tier"
        left = dict(enumerate(sizes))
        for index in chosen[1:]:
            del left[index]
        sizes = [*(left | {chosen[0]: whole}).values()]
        written += whole
    return sizes, written


def after_a_while(days: int, commits_a_run: int, commit_bytes: int, shrinks: float) -> tuple[list[int], int, int]:
    """Sizes of the files of a table after so many days, the most files at any time, and the bytes written by upkeep."""
    sizes: list[int] = []
    most = written = 0
    for _ in range(days * RUNS_A_DAY):
        sizes += [commit_bytes] * commits_a_run
        most = max(most, len(sizes))
        sizes, rewritten = joined(sizes, shrinks)
        written += rewritten
    return sizes, most, written


def few(total: int, commits_a_run: int) -> int:
    """Return how many files a table may have: twenty for each lower tier, and two for each half of the largest."""
    return 2 * 20 + commits_a_run + 2 * (total // (TIERS_BYTES[0] // 2) + 1)


@pytest.mark.long
@pytest.mark.parametrize("commit_bytes", [3_000, 40_000, 890_000, 1_100_000, 6_000_000])
def test_a_quarter_of_a_year_of_small_commits_leaves_few_files_and_writes_each_byte_a_few_times(
    commit_bytes: int,
) -> None:
    days = min(90, 40_000_000_000 // (commit_bytes * 15 * RUNS_A_DAY))  # up to 40 GB
    for shrinks in (1.0, 0.85):
        sizes, most, written = after_a_while(days, 15, commit_bytes, shrinks)
        assert most <= few(sum(sizes), 15)
        # Each run may write the newest file of the smallest tier again; besides that each byte is written a few times.
        assert written <= days * RUNS_A_DAY * TIERS_BYTES[-1] + 6 * sum(sizes) / shrinks**3


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(500, 120_000_000), max_size=200),
    shrinks=st.floats(0.5, 1.0),
)
def test_whatever_files_there_are_a_run_comes_to_rest_with_few(sizes: list[int], shrinks: float) -> None:
    after, _ = joined(sizes, shrinks)
    assert len([size for size in after if size < TIERS_BYTES[-1] // 2]) <= 1
    assert len(after) <= few(sum(after), 0)


@pytest.mark.long
def test_two_thousand_commits_leave_few_files(tmp_path: Path) -> None:
    """Commits of 3 kB to 90 kB, as windows of small and middle clusters make them, with upkeep after each twentieth."""
    draw = random.Random(2)
    columns = (long("number", "", nullable=False), timestamp("made_at", "", nullable=False))
    table = Table("table", "", ("number",), "made_at", (*columns, Column("payload", ColumnType.BINARY, "")))
    schema = row_schema(table)
    delta = DeltaTable.create(tmp_path / "table", schema)
    for run in range(100):
        # The files of twenty commits in one: each commit alone would make this test ten times as slow.
        added: list[AddAction | RemoveAction] = []
        for commit in range(20):
            made_at = tables.utc(1_795_236_000_000 + 1_000 * run)
            payload = draw.randbytes(draw.choice((2_000, 9_000, 90_000)))
            rows = pa.table({"number": [commit], "made_at": [made_at], "payload": [payload]}, schema)
            path = tmp_path / "table" / f"part-{run}-{commit}.parquet"
            pq.write_table(rows, path)
            added.append(AddAction(path.name, path.stat().st_size, {}, 0, True, '{"numRecords": 1}'))
        delta.create_write_transaction(added, mode="append", schema=schema)
        delta.update_incremental()
        tables.join_small_files(str(tmp_path), table)
    delta.update_incremental()
    assert delta.to_pyarrow_dataset().count_rows() == 2_000
    sizes = pa.table(delta.get_add_actions())["size_bytes"].to_pylist()
    assert len(sizes) <= few(sum(sizes), 20)
    assert sum(sizes) > TIERS_BYTES[1], "the table reaches the second tier"
    assert max(sizes) > TIERS_BYTES[1] // 2
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert written < 8 * sum(sizes)
