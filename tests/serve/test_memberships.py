"""Members and rebalances of groups, from tables written by the test: counted once, whoever reads them when."""

from pathlib import Path

import pytest

from streaming import tables
from streaming.serve.snapshot import SnapshotReader, read_snapshot
from streaming.settings import Settings
from streaming.views import spans
from streaming.views.group_memberships import GroupMembership
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

START_MS = NOW_MS - 10 * WINDOW_MS
WEEK_MS = NOW_MS - NOW_MS % spans.WEEK_MS
"""Start of the week of `NOW_MS`."""


def membership(settings: Settings, group: str) -> GroupMembership:
    (row,) = [row for row in read_snapshot(settings, NOW_MS).memberships if row.group == group]
    return row


def test_members_are_those_of_the_newest_sample(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.group_lag(START_MS, [("g", "gone", 0, 1, 2)], member_id="left-a-window-ago")
    start_ms = START_MS + WINDOW_MS
    synthetic.group_lag(start_ms, [("g", "t", 0, 1, 2), ("g", "t", 1, 1, 2)], member_id="a")
    synthetic.group_lag(start_ms, [("g", "t", 2, 1, 2)], member_id="b")
    synthetic.group_lag(start_ms, [("g", "t", 3, 1, 2)], member_id=None)
    synthetic.group_lag(start_ms, [("idle", "t", 0, 1, 2)], member_id=None, group_state="Empty")
    synthetic.group_lag(start_ms, [("dark", "t", 0, 1, 2)], member_id=None, group_state="Unknown")
    members = {row.group: row.members for row in read_snapshot(settings, NOW_MS).memberships}
    assert members == {"g": 2, "idle": 0, "dark": None}


def test_a_group_that_never_rebalanced_has_none(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.group_lag(START_MS, [("calm", "t", 0, 1, 2)])
    assert membership(settings, "calm") == GroupMembership("calm", 1, 0, None)
    synthetic.group_event(START_MS, "other")
    assert membership(settings, "calm") == GroupMembership("calm", 1, 0, None)


def test_groups_that_rebalance_most_stand_first(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.group_lag(START_MS, [(group, "t", 0, 1, 2) for group in ("a", "b", "c")])
    synthetic.group_event(START_MS, "c", rebalances=3)
    assert [row.group for row in read_snapshot(settings, NOW_MS).memberships] == ["c", "a", "b"]


def test_what_goes_on_over_windows_is_one_in_length(settings: Settings, synthetic: Synthetic) -> None:
    synthetic.group_lag(START_MS + 9 * WINDOW_MS, [("g", "t", 0, 1, 2), ("h", "t", 0, 1, 2)])
    synthetic.group_event(START_MS, "g", rebalances=4)
    for index, state in enumerate(("PreparingRebalance", "CompletingRebalance", "Stable"), start=3):
        synthetic.group_event(START_MS + index * WINDOW_MS, "g", group_state=state)
    synthetic.group_event(START_MS + WINDOW_MS, "h", group_state="PreparingRebalance")
    synthetic.group_event(START_MS + 7 * WINDOW_MS, "h")
    assert membership(settings, "g") == GroupMembership("g", 1, 7, 3 * WINDOW_MS)
    assert membership(settings, "h") == GroupMembership("h", 1, 2, WINDOW_MS), "the samples in between are missing"


@pytest.mark.long
def test_totals_survive_a_restart_and_expiry_and_begin_anew_with_the_week(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    reader = SnapshotReader(settings)
    last_week, this_week = WEEK_MS - WINDOW_MS, WEEK_MS
    synthetic.group_lag(last_week, [("g", "t", 0, 1, 2)])
    for start_ms in (last_week - 50 * WINDOW_MS, last_week):
        synthetic.group_event(start_ms, "g")
    assert _totals(settings, reader) == [2, 2]
    synthetic.group_lag(this_week, [("g", "t", 0, 1, 2)])
    assert _totals(settings, reader) == [0, 0], "the running process and one that has just started"
    synthetic.group_event(this_week, "g", rebalances=3)
    synthetic.group_event(this_week + WINDOW_MS, "g")
    assert _totals(settings, reader) == [4, 4]
    events = tables.open_table(settings.storage.tables, "group_event")
    assert events is not None
    events.delete(
        f"window_start < arrow_cast('{tables.utc(this_week).isoformat()}', 'Timestamp(Microsecond, Some(\"UTC\"))')"
    )
    assert _totals(settings, reader) == [4, 4]


def test_where_retention_is_short_totals_begin_anew_before_rows_expire(root: str) -> None:
    settings = settings_for(root, pipeline={"retention_ms": 20 * WINDOW_MS})
    synthetic = Synthetic(settings.storage.tables)
    first = NOW_MS - NOW_MS % (10 * WINDOW_MS)
    for index in (-1, 0, 9):
        synthetic.group_lag(first + index * WINDOW_MS, [("g", "t", 0, 1, 2)])
        synthetic.group_event(first + index * WINDOW_MS, "g")
    assert membership(settings, "g").rebalances_total == 2


def _totals(settings: Settings, running: SnapshotReader) -> list[int]:
    snapshots = (running.read(NOW_MS), read_snapshot(settings, NOW_MS))
    return [snapshot.memberships[0].rebalances_total for snapshot in snapshots]


@pytest.mark.long
def test_events_that_can_not_be_read_hide_no_lag(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    synthetic.group_lag(START_MS, [("g", "t", 0, 1, 2)])
    synthetic.group_event(START_MS, "g")
    reader = SnapshotReader(settings)
    whole = reader.read(NOW_MS)
    synthetic.group_event(START_MS + WINDOW_MS, "g")
    for file in (Path(settings.storage.tables) / "group_event").rglob("*.parquet"):
        file.write_bytes(b"no parquet")
    synthetic.group_lag(START_MS + WINDOW_MS, [("g", "t", 0, 1, 9)])
    broken = reader.read(NOW_MS)
    assert list(broken.failures) == ["memberships"]
    assert broken.memberships == whole.memberships
    assert broken.groups.topics[0].lag_records == 8


def test_a_group_is_abandoned_if_for_days_nobody_came_went_or_committed(
    settings: Settings, synthetic: Synthetic
) -> None:
    """Who committed lately has read, with members or without; a rebalance shows that members were there."""
    for window in range(10):
        rows: list[tuple[str, str, int, int | None, int]] = [
            ("reads", "t", 0, 100 + window, 200), ("left", "t", 0, 1, 200), ("old", "t", 0, 1, 200),
            ("never", "t", 0, 1, 200),
        ]  # fmt: skip
        synthetic.group_lag(START_MS + window * WINDOW_MS, rows, member_id=None, group_state="Empty")
    synthetic.group_lag(START_MS, [("held", "t", 0, 1, 200)])
    synthetic.group_lag(START_MS + 9 * WINDOW_MS, [("held", "t", 0, 1, 200)])
    synthetic.group_event(NOW_MS - 2 * 86_400_000, "left")
    synthetic.group_event(NOW_MS - 4 * 86_400_000, "old")
    abandoned = {row.group: row.is_abandoned for row in read_snapshot(settings, NOW_MS).memberships}
    assert abandoned == {"reads": False, "left": False, "old": True, "never": True, "held": False}
