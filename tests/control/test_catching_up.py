"""What consumers that catch up read, from windows of `group_lag` with samples that lack a commit. No broker."""

from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.live import LiveCluster, LivePartition
from assignor_core.load_history.windows import ClosedWindow
from streaming import tables
from streaming.control import evidence
from streaming.control.evidence import TableEvidence
from streaming.control.windows import WindowTables
from streaming.errors import TableUnavailable
from streaming.settings import PlannerSettings
from tests.control.windows import window_columns

CLUSTER, WINDOW_MS, START_MS = "main", 60_000, 1_795_236_000_000
NEWEST_MS = 45_000
"""A window's newest sample, since its start."""
RECORD_BYTES = 100
LIVE = LiveCluster(
    "c", {1: "a", 2: "b"}, {("t", 0): LivePartition((1,), 1, (1,)), ("t", 1): LivePartition((2,), 2, (2,))}
)

Ends = tuple[int | None, int | None]
"""Committed offset and log end of a sample."""


class Written:
    """Windows of a group, and what is read to catch up by them."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._commits = 0

    def lag(self, window: int, first: Ends, newest: Ends, *, partition: int = 0, group: str = "billing") -> None:
        """One row; the lag of a sample is known where both offsets are."""
        (committed_first, log_end_first), (committed, log_end) = first, newest
        self._append("group_lag", window, {
            "group_id": group, "topic": "t", "partition": partition, "group_state": "Stable",
            "committed_offset_first": committed_first, "log_end_offset_first": log_end_first,
            "committed_offset": committed, "log_end_offset": log_end,
            "lag_records": None if committed is None or log_end is None else log_end - committed,
        })  # fmt: skip

    def load(self, window: int) -> None:
        """Of the topic: records of so many bytes."""
        self._append("partition_load", window, {
            "broker": 1, "topic": "t", "partition": 0, "role": "leader", "bytes_in_per_sec": 10.0 * RECORD_BYTES,
            "messages_in_per_sec": 10.0,
        })  # fmt: skip

    def _append(self, name: str, window: int, values: dict[str, Any]) -> None:
        start_ms = START_MS + window * WINDOW_MS
        audit = {**window_columns(CLUSTER, start_ms, WINDOW_MS), "last_event_time_ms": start_ms + NEWEST_MS}
        self._commits += 1
        tables.append(self.root, name, [{**audit, **values}], transaction_id="test", transaction_version=self._commits)

    def records_per_sec(self, first: int, last: int) -> dict[int, float]:
        """Read to catch up in these windows, by broker."""
        closed = tuple(
            ClosedWindow(START_MS + number * WINDOW_MS, START_MS + (number + 1) * WINDOW_MS, frozenset({1, 2}), {}, {})
            for number in (first, last)
        )
        window_tables = WindowTables(self.root, CLUSTER, WINDOW_MS, 1_000, 30)
        of_tables = TableEvidence(
            mock.Mock(), LIVE, mock.Mock(), window_tables, DecisionPolicy(), PlannerSettings(), START_MS
        )
        read = of_tables.catch_up_bytes_per_sec(closed)
        return {broker: rate / RECORD_BYTES for broker, rate in read.items()}


@pytest.fixture
def written(tables_in_memory: str) -> Written:
    made = Written(tables_in_memory)
    made.load(0)
    return made


def test_a_lag_is_of_one_sample_where_the_first_window_lacks_a_commit(written: Written) -> None:
    written.lag(0, (None, 1_000), (None, 1_800))
    written.lag(1, (500, 2_000), (1_700, 2_700))
    written.lag(2, (2_000, 3_000), (3_500, 3_600))
    # From 1,500 to 100 in 105 s. The log end of the first window less the commit of the second is no lag at all.
    assert written.records_per_sec(0, 2) == {1: pytest.approx(1_400 / 105)}


def test_a_lag_is_of_one_sample_where_the_last_window_lacks_a_commit(written: Written) -> None:
    written.lag(0, (500, 2_000), (1_700, 2_700))
    written.lag(1, (2_000, 3_000), (3_500, 3_600))
    written.lag(2, (None, 4_000), (None, 4_800))
    assert written.records_per_sec(0, 2) == {1: pytest.approx(1_400 / 105)}


def test_the_first_commit_may_be_that_of_a_newest_sample(written: Written) -> None:
    written.lag(0, (None, 1_000), (300, 1_800))
    written.lag(1, (1_000, 2_000), (2_600, 2_700))
    assert written.records_per_sec(0, 1) == {1: pytest.approx(1_400 / 60)}


def test_a_log_end_that_is_unknown_shows_no_lag(written: Written) -> None:
    written.lag(0, (500, None), (1_700, 2_700))
    written.lag(1, (2_600, 3_000), (3_500, 3_600))
    assert written.records_per_sec(0, 1) == {1: pytest.approx(900 / 60)}


def test_partitions_come_and_go_between_windows(written: Written) -> None:
    written.lag(0, (500, 2_000), (1_700, 2_700), partition=1)
    written.lag(1, (0, 1_000), (600, 1_100))
    written.lag(1, (0, 9_000), (0, 9_100), group="audit")
    written.lag(2, (3_500, 3_600), (3_500, 3_600), partition=1)
    written.lag(2, (600, 1_200), (1_200, 1_200))
    assert written.records_per_sec(0, 2) == {
        1: pytest.approx(1_000 / 105), 2: pytest.approx(1_400 / 165),
    }  # fmt: skip
    assert written.records_per_sec(0, 0) == {2: pytest.approx(500 / 45)}


def test_a_commit_that_no_log_will_reach_ends_nothing(written: Written) -> None:
    written.lag(0, (0, 1_000), (300, 1_800))
    written.lag(0, (10**18, 1_000), (10**18, 1_800), group="odd")
    written.lag(1, (1_000, 2_000), (2_600, 2_700))
    assert written.records_per_sec(0, 1) == {1: pytest.approx(900 / 105)}


@pytest.mark.long
def test_files_show_the_same(written: Written, tmp_path: Path) -> None:
    on_disk = Written(str(tmp_path / "tables"))
    for one in (written, on_disk):
        if one is on_disk:
            one.load(0)
        one.lag(0, (None, 1_000), (None, 1_800))
        one.lag(0, (500, 2_000), (1_700, 2_700), partition=1)
        one.lag(1, (500, 2_000), (1_700, 2_700))
        one.lag(2, (2_000, 3_000), (3_500, 3_600))
        one.lag(2, (3_000, 3_600), (3_500, 3_600), partition=1)
    assert on_disk.records_per_sec(0, 2) == written.records_per_sec(0, 2) != {}


def test_without_windows_of_groups_nobody_catches_up(written: Written) -> None:
    assert written.records_per_sec(0, 2) == {}


@pytest.mark.parametrize("error", [pa.ArrowInvalid("5 not in range"), ValueError("no number"), IndexError("index 9")])
def test_rows_that_do_not_fit_make_the_table_unavailable(
    written: Written, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """control tries again then; any other error ends it."""
    written.lag(0, (0, 1_000), (600, 1_100))
    monkeypatch.setattr(evidence, "windows_of", mock.Mock(side_effect=error))
    with pytest.raises(TableUnavailable, match="table group_lag: rows can't be shown"):
        written.records_per_sec(0, 1)
