"""The rows of pipeline_batch show a query that works, one that is idle and one that hangs, and serve reads them so."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from streaming import tables
from streaming.pipeline.batch_reporter import REPORT_INTERVAL_MS, BatchReporter, CountedSamples, ProgressReports
from streaming.serve.samples import samples
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


def reporter_of(settings: Settings, *queries: Query) -> BatchReporter:
    return BatchReporter(
        queries,  # type: ignore[arg-type]
        settings.storage.tables,
        settings.pipeline,
        CountedSamples(),
    )


def test_a_query_that_hangs_and_one_that_is_idle_are_told_apart(settings: Settings) -> None:
    working, idle, hanging = queries = [Query(name) for name in ("byte_rate", "consumer_lag", "rejects")]
    reporter = reporter_of(settings, *queries)
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


def test_jobs_of_the_upkeep_that_fail_are_shown_until_they_succeed(settings: Settings) -> None:
    query, failing = Query("byte_rate"), list[str]()
    reporter = reporter_of(settings, query)
    reporter._failing_jobs = lambda: failing
    shown = []
    for number, jobs in enumerate((list[str](), ["partition_load: expire", "group_event: keep"], [])):
        now_ms = NOW_MS + number * REPORT_INTERVAL_MS
        failing[:] = jobs
        query.report(NOW_MS, 1, addBatch=900, triggerExecution=1_000)
        reporter.report(now_ms=now_ms)
        snapshot = read_snapshot(settings, now_ms)
        assert snapshot.streams.upkeep_failing == tuple(jobs)
        assert [stream.changed_ms for stream in snapshot.streams.queries] == [NOW_MS], "its batch hangs all the same"
        shown += [
            sample.value for sample in samples(snapshot, settings, ("", "", "")) if sample.name == "upkeep_failing_jobs"
        ]
    assert shown == [0, 2, 0]


@pytest.mark.long
@pytest.mark.parametrize("is_new_process", [True, False])
def test_after_a_clock_was_ahead_heartbeats_show_what_is_now(settings: Settings, is_new_process: bool) -> None:
    """Else they would be those of the time to come until it is there, and a pipeline that dies would look alive."""
    query, end_ms = Query("byte_rate"), NOW_MS + (ROUNDS - 1) * REPORT_INTERVAL_MS
    reporter = reporter_of(settings, query)
    for number in range(2):
        ahead_ms = NOW_MS + 3_600_000 + number * REPORT_INTERVAL_MS
        query.report(ahead_ms, number, addBatch=900, triggerExecution=1_000)
        reporter.report(now_ms=ahead_ms)
    if is_new_process:
        query = Query("byte_rate")
        reporter = reporter_of(settings, query)
    for number in range(ROUNDS):
        now_ms = NOW_MS + number * REPORT_INTERVAL_MS
        query.report(now_ms, number + 2, addBatch=900, triggerExecution=1_000)
        reporter.report(now_ms=now_ms)
    (shown,) = read_snapshot(settings, end_ms).streams.queries
    assert (shown.finished_ms, shown.changed_ms) == (end_ms, end_ms)
    assert shown.batches_total == (ROUNDS if is_new_process else ROUNDS + 2)
    rows = tables.read(settings.storage.tables, "pipeline_batch")
    assert len(rows) == ROUNDS
    assert max(tables.to_ms(row["finished_at"]) for row in rows) == end_ms


def test_each_report_of_a_query_counts_once_however_many_are_new(settings: Settings) -> None:
    query, batches = Query("byte_rate"), itertools.count()
    reporter = reporter_of(settings, query)
    for number, new in enumerate((1, 3, 0, 2)):
        for _ in range(new):  # all in one millisecond
            query.report(NOW_MS, next(batches), addBatch=900, triggerExecution=1_000)
        query.recentProgress = query.recentProgress[-4:]  # Spark keeps the newest
        reporter.report(now_ms=NOW_MS + number * REPORT_INTERVAL_MS)
    newest = max(tables.read(settings.storage.tables, "pipeline_batch"), key=lambda row: row["finished_at"])
    assert newest["batches_total"] == 6


class Counting:
    """Counts how often all reports are read: Spark writes each of them anew then, as JSON."""

    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []
        self.reads = 0

    @property
    def lastProgress(self) -> Any:  # noqa: N802 (Spark's name)
        return self.kept[-1] if self.kept else None

    @property
    def recentProgress(self) -> list[Any]:  # noqa: N802
        self.reads += 1
        return self.kept.copy()


def test_all_reports_are_read_once_a_new_one_has_come() -> None:
    query: Any = Counting()
    reports = ProgressReports(query)
    assert [list(reports.recent()) for _ in range(5)] == [[]] * 5
    for batch in range(4):
        query.kept = [*query.kept, {"timestamp": "2026-12-01T00:00:00.000Z", "batchId": batch}][-2:]
        for _ in range(5):
            assert list(reports.recent()) == query.kept
    assert query.reads == 4
    for second in (7, 8, 3):  # an idle query reports its newest batch again, and a clock may be set back
        query.kept = [*query.kept, {"timestamp": f"2026-12-01T00:00:0{second}.000Z", "batchId": 3}]
        assert list(reports.recent()) == query.kept
