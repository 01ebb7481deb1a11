"""Reasons of groups are put into words when they are asked for, whatever is asked for first."""

from pathlib import Path

from streaming.tables import TableReader
from streaming.views.group_ranking import REASONS_BLOCK, verdicts_by_group
from streaming.views.group_store import read_picture
from streaming.views.json_values import to_json
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for


def test_each_group_has_its_own_reason_in_any_order(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    groups = REASONS_BLOCK + 2
    rows = [(f"g{number:04}", f"t{number:04}", 0, 0, 5_000 + number) for number in range(groups)]
    with synthetic.together():
        for window in range(13):
            synthetic.group_lag(NOW_MS + window * WINDOW_MS, rows)
    picture = read_picture(
        TableReader(settings.storage.tables), settings.kafka.cluster_name, window_ms=settings.pipeline.window_ms
    )
    assert picture is not None
    verdicts = verdicts_by_group(picture)
    backwards = [to_json(row) for row in reversed(verdicts)]
    assert [to_json(row) for row in verdicts] == backwards[::-1]
    assert [row.group for row in verdicts] == [f"g{number:04}" for number in reversed(range(groups))]
    for row in verdicts:
        assert str(row.why).startswith(f"1 of 1 partition; t{row.group[1:]}-0: {row.lag_records:,} records wait")
