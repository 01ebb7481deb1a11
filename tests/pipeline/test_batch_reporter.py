"""The rows of pipeline_batch show a query that works, one that is idle and one that hangs, and serve reads them so."""

from pathlib import Path
from typing import Any

import pytest

from streaming.pipeline.batch_reporter import REPORT_INTERVAL_MS, BatchReporter
from streaming.pipeline.lateness import CountedSamples
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.tables import utc
from tests.serve.synthetic import NOW_MS, settings_for

ROUNDS = 6


class Query:
    """What the reporter sees of a streaming query: reports of batches, of idleness, or no more at all."""

    def __init__(self, name: str) -> None:
        self.name, self.id = name, name
        self.recentProgress: list[dict[str, Any]] = []

    @property
    def lastProgress(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        return self.recentProgress[-1]

    def report(self, now_ms: int, batch: int, **durations_ms: int) -> None:
        """One more of Spark's progress reports."""
        self.recentProgress.append({
            "id": self.id, "batchId": batch, "timestamp": utc(now_ms).isoformat(), "durationMs": durations_ms,
            "numInputRows": 5 if "addBatch" in durations_ms else 0, "observedMetrics": {}, "stateOperators": [],
            "eventTime": {}, "sources": [],
        })  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_for(tmp_path)


def test_a_query_that_hangs_and_one_that_is_idle_are_told_apart(settings: Settings) -> None:
    working, idle, hanging = queries = [Query(name) for name in ("byte_rate", "consumer_lag", "rejects")]
    reporter = BatchReporter(
        queries,  # type: ignore[arg-type]
        settings.storage.tables,
        settings.pipeline,
        CountedSamples(),
    )
    for number in range(ROUNDS):
        now_ms = NOW_MS + number * REPORT_INTERVAL_MS
        working.report(now_ms, number, addBatch=900, triggerExecution=1_000)
        idle.report(now_ms, 7, latestOffset=3 + number % 2, triggerExecution=3 + number % 2)
        if number < 2:
            hanging.report(now_ms, number, addBatch=900, triggerExecution=1_000)
        reporter.report(now_ms=now_ms)
    end_ms = NOW_MS + (ROUNDS - 1) * REPORT_INTERVAL_MS
    shown = {query.query: query for query in read_snapshot(settings, end_ms).streams.queries}
    assert {query.finished_ms for query in shown.values()} == {end_ms}, "the process lives"
    assert {name: query.changed_ms for name, query in shown.items()} == {
        "byte_rate": end_ms, "consumer_lag": end_ms, "rejects": NOW_MS + REPORT_INTERVAL_MS,
    }  # fmt: skip
    assert (shown["byte_rate"].batches_total, shown["byte_rate"].input_rows_total) == (ROUNDS, 5 * ROUNDS)
    assert (shown["consumer_lag"].batches_total, shown["rejects"].batches_total) == (0, 2)
