"""Of most windows only offsets are read: verdicts are those of all columns."""

from pathlib import Path

from streaming.tables import TableReader
from streaming.views.group_picture import COLUMNS
from streaming.views.group_store import judge, read_picture
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

WINDOWS = 12


def test_verdicts_are_those_of_rows_read_whole(tmp_path: Path) -> None:
    """One group reads all, one stands still, one falls behind; of one a partition is gone, and one has ended."""
    settings = settings_for(tmp_path)
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for index in range(WINDOWS):
            end = 1_000 * (index + 1)
            rows = [("reads", "t", 0, end, end), ("stands", "t", 0, 500, end), ("behind", "t", 0, end // 2, end)]
            rows += [("reads", "t", 1, end, end)] if index < 6 else []
            rows += [("ended", "t", 0, 100, end)] if index < 4 else []
            synthetic.group_lag(NOW_MS - (WINDOWS - index) * WINDOW_MS, rows)
    reader = TableReader(settings.storage.tables)
    whole = judge(reader.arrow("group_lag", columns=COLUMNS), window_ms=WINDOW_MS)
    picture = read_picture(reader, settings.kafka.cluster_name, window_ms=WINDOW_MS)
    assert whole is not None
    assert picture is not None
    assert picture.with_figures().to_pylist() == whole.with_figures().to_pylist()
    assert picture.partitions["group_id"].to_pylist() == ["behind", "reads", "stands"]
    assert picture.newest_event_ms == whole.newest_event_ms


def test_without_a_table_there_is_nothing(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    assert read_picture(TableReader(settings.storage.tables), "test", window_ms=WINDOW_MS) is None
