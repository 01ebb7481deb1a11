"""Rows of pipeline_batch beside those before: a query that falls silent, a process that dies, a batch that hangs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streaming import tables
from streaming.serve.snapshot import SnapshotReader, read_snapshot
from streaming.settings import Settings
from streaming.views.streams import StreamQuery
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for

HOUR_MS = 3_600_000
REPORT_MS = 10_000
RAN = '{"addBatch": 900, "triggerExecution": 1500}'


def queries(settings: Settings) -> dict[str, StreamQuery]:
    return {query.query: query for query in read_snapshot(settings, NOW_MS).streams.queries}


def first_batches(settings: Settings, synthetic: Synthetic, rows: Sequence[tuple[int, int, str]]) -> list[int]:
    """`first_batch` after each row (batch, batches of the process, phases), seen by one that looks at each."""
    reader = SnapshotReader(settings)
    first = []
    for index, (batch, batches, phases) in enumerate(rows):
        figures: dict[str, Any] = {"batch_id": batch, "batches_total": batches, "phases_json": phases}
        synthetic.batch_row(NOW_MS + index * REPORT_MS, **figures)
        first.append(reader.read(NOW_MS).streams.queries[0].first_batch)
    assert queries(settings)["byte_rate"].first_batch == first[-1], "whoever starts later sees the same"
    return first


def idle(took_ms: int) -> str:
    return json.dumps({"latestOffset": took_ms, "triggerExecution": took_ms})


def test_a_query_that_fell_silent_stays_for_a_day_while_others_live(settings: Settings, synthetic: Synthetic) -> None:
    silent_since = NOW_MS - 23 * HOUR_MS
    synthetic.batch_row(silent_since, "consumer_lag")
    synthetic.batch_row(NOW_MS)
    reader = SnapshotReader(settings)
    for shown in (queries(settings), {query.query: query for query in reader.read(NOW_MS).streams.queries}):
        assert {name: query.finished_ms for name, query in shown.items()} == {
            "byte_rate": NOW_MS,
            "consumer_lag": silent_since,
        }
    synthetic.batch_row(NOW_MS + 2 * HOUR_MS)
    for later in (reader.read(NOW_MS), read_snapshot(settings, NOW_MS)):
        assert [query.query for query in later.streams.queries] == ["byte_rate"]


@pytest.mark.parametrize(
    "rows",
    [[(7, 1, RAN), (8, 2, RAN), (8, 2, RAN), (11, 5, RAN), (12, 5, idle(3)), (12, 5, idle(4)), (12, 6, RAN)],
     [(7, 1, RAN), (9, 2, RAN), (10, 4, RAN), (11, 5, RAN)]],
    ids=["busy or idle", "totals lack the batch that has just ended"],
)  # fmt: skip
def test_one_process_has_one_first_batch(
    settings: Settings, synthetic: Synthetic, rows: list[tuple[int, int, str]]
) -> None:
    assert set(first_batches(settings, synthetic, rows)) == {7}


def test_lives_of_one_batch_and_one_report_differ(settings: Settings, synthetic: Synthetic) -> None:
    """batches_total is 1 in each of them, and never falls. The newest is told once a row has followed."""
    lives = [(7, 1, RAN), (8, 1, RAN), (9, 1, RAN), (10, 1, RAN), (11, 1, RAN)]
    assert first_batches(settings, synthetic, lives) == [7, 7, 8, 9, 10]


def test_a_batch_that_hangs_changes_nothing_and_an_idle_query_does(settings: Settings, synthetic: Synthetic) -> None:
    same: dict[str, Any] = {"watermark": tables.utc(NOW_MS)}
    for number in range(6):
        ran = min(number, 2)
        synthetic.batch_row(NOW_MS + number * REPORT_MS, batch_id=7 + ran, batches_total=8 + ran, **same)
        synthetic.batch_row(NOW_MS + number * REPORT_MS, "consumer_lag", phases_json=idle(3 + number % 2), **same)
    shown = queries(settings)
    assert shown["byte_rate"].finished_ms == shown["consumer_lag"].finished_ms == NOW_MS + 5 * REPORT_MS
    assert shown["byte_rate"].changed_ms == NOW_MS + 2 * REPORT_MS
    assert shown["consumer_lag"].changed_ms == NOW_MS + 5 * REPORT_MS


def test_a_table_that_is_made_anew_begins_anew(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    synthetic, reader = Synthetic(settings.storage.tables), SnapshotReader(settings)
    synthetic.batch_row(NOW_MS)
    synthetic.batch_row(NOW_MS, "rejects")
    assert len(reader.read(NOW_MS).streams.queries) == 2
    (tmp_path / "tables" / "pipeline_batch").rename(tmp_path / "old")
    earlier = Synthetic(settings.storage.tables)
    for number in range(3):
        earlier.batch_row(NOW_MS - HOUR_MS + number * REPORT_MS)
    for _ in range(2):  # the first read may find the ruins
        snapshot = reader.read(NOW_MS)
    (query,) = snapshot.streams.queries
    assert query.finished_ms == NOW_MS - HOUR_MS + 2 * REPORT_MS
