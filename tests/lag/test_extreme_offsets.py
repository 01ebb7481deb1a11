"""Offsets as great as the contract allows: any client may commit one that no log will ever reach.

One such commit must end nobody and hide no other group.
"""

from pathlib import Path

import pytest

from streaming.contract.records import OFFSET_MAX, PARTITION_MAX
from streaming.serve.snapshot import SnapshotReader
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, TableReader
from streaming.views.group_columns import PARTITION_BITS
from streaming.views.group_ranking import BY_TOPIC, ranked_groups
from streaming.views.group_store import read_picture
from streaming.views.history import GROUPS, Span, read_history
from tests.lag.test_command import Lag
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

EXTREMES = [(2**53 + 1, 100), (10**17, 100), (OFFSET_MAX, 100), (100, 10**17), (0, OFFSET_MAX)]
"""(Committed offset, log end offset)."""
COMPATIBLE = {"serve": {"compatible_metrics": ["kafka_exporter"]}}


@pytest.fixture
def settings(root: str) -> Settings:
    return settings_for(root)


def write(synthetic: Synthetic, committed: int, end: int, *, partitions: int = 1) -> int:
    """One window with a group of such offsets beside one that is 10 records behind. Returns the lag of a partition."""
    lag = max(0, end - committed)
    rows = [("odd", "t", number, committed, end) for number in range(partitions)]
    with synthetic.together():
        synthetic.group_lag(NOW_MS - WINDOW_MS, rows, lag_records=lag, lag_records_max=lag)
        synthetic.group_lag(NOW_MS - WINDOW_MS, [("usual", "t", 0, 90, 100)])
    return lag


@pytest.mark.parametrize(("committed", "end"), EXTREMES)
def test_a_snapshot_shows_them_beside_all_others(committed: int, end: int, root: str) -> None:
    settings = settings_for(root, **COMPATIBLE)
    lag = write(Synthetic(settings.storage.tables), committed, end)
    snapshot = SnapshotReader(settings).read(NOW_MS)
    assert not snapshot.failures
    assert {row.group: row.lag_records for row in snapshot.groups.groups} == {"odd": pytest.approx(lag), "usual": 10}
    by_topic = {row.group: row for row in snapshot.groups.topics}
    assert by_topic["odd"].lag_max_records == pytest.approx(lag)
    assert by_topic["usual"].lag_max_records == 10
    assert str(next(row.why for row in snapshot.groups.groups if row.group == "odd"))


@pytest.mark.long
@pytest.mark.parametrize(("committed", "end"), EXTREMES)
def test_the_command_shows_them(committed: int, end: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_for(tmp_path)
    write(Synthetic(settings.storage.tables), committed, end)
    for arguments in ([], ["--group", "odd"], ["--group", "usual"], ["--compat", "burrow"]):
        assert "odd" in Lag(settings, capsys).text(*arguments) or "usual" in arguments


def test_sums_over_partitions_stay_sums(root: str) -> None:
    """Twenty times the greatest lag, and the greatest commit, are more than 64 bits hold."""
    settings = settings_for(root, **COMPATIBLE)
    write(Synthetic(settings.storage.tables), 0, OFFSET_MAX, partitions=20)
    snapshot = SnapshotReader(settings).read(NOW_MS)
    assert [(row.group, row.lag_records) for row in snapshot.groups.groups] == [("odd", 20 * OFFSET_MAX), ("usual", 10)]
    assert [row.lag_records for row in snapshot.groups.topics] == [20 * OFFSET_MAX, 10]
    sums = {row["group"]: row["lag_records"] for row in snapshot.groups.offsets[BY_TOPIC]}
    assert sums == {"odd": 20.0 * OFFSET_MAX, "usual": 10.0}
    picture = read_picture(TableReader(settings.storage.tables), "test", window_ms=WINDOW_MS)
    assert picture is not None
    assert [row.group for row in ranked_groups(picture.partitions)] == ["odd", "usual"]


def test_the_history_of_such_a_group_shows_as_much_as_a_whole_number_can_be(root: str, synthetic: Synthetic) -> None:
    write(synthetic, 0, OFFSET_MAX, partitions=20)
    reader = TableReader(root)
    span = Span(NOW_MS - 10 * WINDOW_MS, NOW_MS)
    shown = read_history(
        reader, GROUPS, span, ALL_ROWS, kafka_cluster="test", window_ms=WINDOW_MS, rows_per_period=21, rows_max=100
    )
    lags = {row["group_id"]: row["lag_records"] for row in shown.rows}
    assert lags["usual"] == 10
    assert 9 * OFFSET_MAX < lags["odd"] < 2**63
    assert all(isinstance(lag, int) for lag in lags.values())


def test_a_number_of_a_partition_that_no_topic_has_is_left_out(settings: Settings, synthetic: Synthetic) -> None:
    assert PARTITION_MAX < 1 << PARTITION_BITS
    rows = [("g", "t", number, 90, 100) for number in (0, PARTITION_MAX, PARTITION_MAX + 1, 2**31 - 1)]
    synthetic.group_lag(NOW_MS - WINDOW_MS, rows)
    snapshot = SnapshotReader(settings).read(NOW_MS)
    assert not snapshot.failures
    assert [(row.group, row.partitions) for row in snapshot.groups.groups] == [("g", 2)]
