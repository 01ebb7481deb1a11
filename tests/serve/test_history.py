"""Histories by HTTP where rows of a period must not simply be added up."""

import pytest

from streaming import tables
from streaming.contract import PARTITION_LOAD
from streaming.settings import DAY_MS, HOUR_MS, PipelineSettings
from streaming.views.history import PARTITIONS, TOPICS, Span, TableFamily, read_history
from tests.pipeline.table_upkeep import TableUpkeep
from tests.serve.synthetic import WINDOW_MS, Synthetic

DAY0_MS = 1_795_219_200_000  # midnight UTC
MOVED_MS = DAY0_MS + 6 * HOUR_MS


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A day of two partitions, the leader of one moved at six from broker 1, which then has no replica, to broker 2."""
    folder = str(tmp_path_factory.mktemp("tables"))
    made = Synthetic(folder)
    stays = (3, "t", 1, "leader", 7.0)
    with made.together():
        for hour in range(24):
            start_ms = DAY0_MS + hour * HOUR_MS
            if start_ms == MOVED_MS:
                made.partition_load(start_ms, [(1, "t", 0, "leader", 8.0)], covered_ms=WINDOW_MS // 4)
                made.partition_load(start_ms, [(2, "t", 0, "leader", 4.0)], covered_ms=WINDOW_MS * 3 // 4)
                made.partition_load(start_ms, [stays])
            else:
                leads, rate = (1, 8.0) if start_ms < MOVED_MS else (2, 4.0)
                made.partition_load(start_ms, [(leads, "t", 0, "leader", rate), (4, "t", 0, "follower", rate), stays])
        made.partition_load(DAY0_MS + DAY_MS + HOUR_MS, [stays])
    TableUpkeep(folder, PARTITION_LOAD, PipelineSettings()).run_if_due(now_ms=DAY0_MS + DAY_MS)
    return folder


def past(root: str, family: TableFamily, from_ms: int, step_ms: int, *more: str) -> list[tuple[object, ...]]:
    """Rows of a span: keys, bytes in and the size, or the columns `more`."""
    history = read_history(
        tables.TableReader(root), family, Span(from_ms, from_ms + step_ms, step_ms), tables.ALL_ROWS,
        kafka_cluster="test", window_ms=WINDOW_MS, rows_per_period=2, rows_max=100,
    )  # fmt: skip
    columns = (*family.keys, "bytes_in_per_sec", *(more or ("size_bytes",)))
    return [tuple(row[name] for name in columns) for row in history.rows]


@pytest.mark.long
def test_a_topic_counts_a_partition_once_in_the_window_and_on_the_day_in_which_its_leader_moved(root: str) -> None:
    assert past(root, TOPICS, MOVED_MS, WINDOW_MS) == [("t", 8.0 / 4 + 4.0 * 3 / 4 + 7.0, 2_000_000)]
    ((_, rate, size),) = past(root, TOPICS, DAY0_MS, DAY_MS)
    # Six hours and a quarter of a window led by broker 1.
    assert rate == pytest.approx((8.0 * 6.25 + 4.0 * 17.75) / 24 + 7.0, rel=0.01)
    assert size == 2_000_000


@pytest.mark.long
def test_a_partition_has_the_mean_of_its_leaders_by_how_long_each_has_led(root: str) -> None:
    assert past(root, PARTITIONS, MOVED_MS, WINDOW_MS) == [("t", 0, 5.0, 1_000_000), ("t", 1, 7.0, 1_000_000)]
    (moved, stays) = past(root, PARTITIONS, DAY0_MS, DAY_MS)
    assert moved[2] == pytest.approx((8.0 * 6.25 + 4.0 * 17.75) / 24, rel=0.01)
    assert stays == ("t", 1, 7.0, 1_000_000)


def test_a_read_rate_is_shown_where_the_write_rate_is_not_known(tables_in_memory: str) -> None:
    made = Synthetic(tables_in_memory)
    unknown = {"bytes_in_per_sec": None, "covered_ms": 0}
    for broker in (1, 2):
        made.partition_load(DAY0_MS, [(broker, "t", 0, "leader", 6.0)], **unknown)
    assert past(tables_in_memory, TOPICS, DAY0_MS, WINDOW_MS, "bytes_out_per_sec") == [("t", None, 6.0)]
