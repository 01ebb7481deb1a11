"""Files of a table stay few and are rarely written again, however long small commits go on."""

import random
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.tables import join_small_files
from streaming.tables.upkeep import TIERS_BYTES, tier_due

RUNS_A_DAY = 96
"""Upkeep runs each quarter of an hour by default."""


def joined(sizes: list[int], target: int, shrinks: float) -> tuple[list[int], int]:
    """Join neighbours as delta-rs does: runs of files, each below `target`, as long as their sum is at most `target`.

    A joined file has `shrinks` times the bytes of its parts. Returns the sizes afterwards and the bytes written.
    """
    after: list[int] = []
    written = 0
    run: list[int] = []
    for size in [*sizes, target + 1]:
        if size <= target and sum(run) + size <= target:
            run.append(size)
            continue
        if len(run) > 1:
            whole = max(1, round(sum(run) * shrinks))
            after.append(whole)
            written += whole
        else:
            after += run
        run = [size] if size <= target else []
        if size > target:
            after.append(size)
    return after[:-1], written


def after_a_while(days: int, commits_a_run: int, commit_bytes: int, shrinks: float) -> tuple[list[int], int, int]:
    """Sizes of the files of a table after so many days, the most files at any time, and the bytes written by upkeep."""
    sizes: list[int] = []
    most = written = 0
    for _ in range(days * RUNS_A_DAY):
        sizes += [commit_bytes] * commits_a_run
        most = max(most, len(sizes))
        sizes, rewritten = joined(sizes, tier_due(sizes), shrinks)
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
def test_whatever_files_there_are_repeated_runs_come_to_rest_with_few(sizes: list[int], shrinks: float) -> None:
    for _ in range(400):
        after, _ = joined(sizes, tier_due(sizes), shrinks)
        if after == sizes:
            break
        assert len(after) < len(sizes)
        sizes = after
    small = [size for size in sizes if size < TIERS_BYTES[-1] // 2]
    assert all(
        first + second > TIERS_BYTES[-1] for first, second in pairwise(sizes) if first in small and second in small
    )


@pytest.mark.long
def test_two_thousand_commits_leave_few_files(tmp_path: Path) -> None:
    """Commits of 3 kB to 90 kB, as windows of small and middle clusters make them, with upkeep after each twentieth."""
    draw = random.Random(2)
    schema = pa.schema([("payload", pa.binary())])
    delta = DeltaTable.create(tmp_path / "table", schema)
    for run in range(100):
        # The files of twenty commits in one: each commit alone would make this test ten times as slow.
        added: list[AddAction | RemoveAction] = []
        for commit in range(20):
            rows = pa.table({"payload": [draw.randbytes(draw.choice((2_000, 9_000, 90_000)))]}, schema)
            path = tmp_path / "table" / f"part-{run}-{commit}.parquet"
            pq.write_table(rows, path)
            added.append(AddAction(path.name, path.stat().st_size, {}, 0, True, '{"numRecords": 1}'))
        delta.create_write_transaction(added, mode="append", schema=schema)
        delta.update_incremental()
        join_small_files(delta)
    sizes = pa.table(delta.get_add_actions())["size_bytes"].to_pylist()
    assert len(sizes) <= few(sum(sizes), 20)
    assert sum(sizes) > TIERS_BYTES[1], "the table reaches the second tier"
    assert max(sizes) > TIERS_BYTES[1] // 2
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    assert written < 8 * sum(sizes)
