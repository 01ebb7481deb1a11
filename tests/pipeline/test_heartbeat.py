"""What a heartbeat tells of a query that works, one that is idle and one that hangs, and that serve reads it so."""

from pathlib import Path
from typing import Any

import pytest

from streaming.pipeline.heartbeat import HEARTBEAT_INTERVAL_MS, Heartbeat
from streaming.pipeline.lateness import CountedSamples
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from streaming.tables import utc
from tests.serve.synthetic import NOW_MS, settings_for

BEATS = 6


class Query:
    """What the heartbeat sees of a streaming query: reports of batches, of idleness, or no more at all."""

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
    heartbeat = Heartbeat(
        queries,  # type: ignore[arg-type]
        settings.storage.tables,
        settings.pipeline,
        CountedSamples(),
    )
    for beat in range(BEATS):
        now_ms = NOW_MS + beat * HEARTBEAT_INTERVAL_MS
        working.report(now_ms, beat, addBatch=900, triggerExecution=1_000)
        idle.report(now_ms, 7, latestOffset=3 + beat % 2, triggerExecution=3 + beat % 2)
        if beat < 2:
            hanging.report(now_ms, beat, addBatch=900, triggerExecution=1_000)
        heartbeat.beat(now_ms=now_ms)
    end_ms = NOW_MS + (BEATS - 1) * HEARTBEAT_INTERVAL_MS
    found = {query.query: query for query in read_snapshot(settings, end_ms).streams.queries}
    assert {query.finished_ms for query in found.values()} == {end_ms}, "the process lives"
    assert {name: query.changed_ms for name, query in found.items()} == {
        "byte_rate": end_ms, "consumer_lag": end_ms, "rejects": NOW_MS + HEARTBEAT_INTERVAL_MS,
    }  # fmt: skip
    assert (found["byte_rate"].batches_total, found["byte_rate"].input_rows_total) == (BEATS, 5 * BEATS)
    assert (found["consumer_lag"].batches_total, found["rejects"].batches_total) == (0, 2)
