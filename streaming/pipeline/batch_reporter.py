"""The table pipeline_batch: figures of the newest batch of each query, also when idle, so that a live stream and a dead
one differ. Written without Spark, from Spark's own progress; knows nothing of what the queries compute.

Records that came too late are those that fitted less those that a window gained. Spark counts only groups, after its
first partial aggregation. The writer of the windows knows how many samples each batch added (`CountedSamples`); the
progress of the batch, which comes after, knows how many records fitted.
"""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from assignor_core.intervals import is_due
from streaming import tables
from streaming.contract import PIPELINE_BATCH
from streaming.errors import TableUnavailable
from streaming.pipeline.checkpoints import offsets_of
from streaming.pipeline.records import ACCEPTED_ROWS, REJECTED_ROWS
from streaming.settings import PipelineSettings

log = structlog.get_logger()

REPORT_INTERVAL_MS = 10_000
BATCHES_KEPT_MAX = 1_000
"""Batches kept, more than Spark keeps progress reports of."""


class ProgressReports:
    """The reports that Spark keeps of one query, for one reader that asks often.

    Spark writes each report as JSON whenever it is asked: about 10 ms of CPU for all twenty that it keeps, less than 1
    for the newest one (measured 2026-12-01). Each cluster of a deployment is asked several times a second.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self._reports: Sequence[Any] = ()

    def recent(self) -> Sequence[Any]:
        """The newest reports, oldest first."""
        newest = self.query.lastProgress
        if newest is not None and not (self._reports and report_key(self._reports[-1]) == report_key(newest)):
            self._reports = self.query.recentProgress
        return self._reports


def report_key(report: Any) -> tuple[str, int]:
    """Time and batch of a report. Times alone would not tell reports apart: a clock may be set back."""
    return report["timestamp"], report["batchId"]


class CountedSamples:
    """Samples that the windows gained, by query and batch. Writers' threads note them, the reporter's reads them."""

    def __init__(self) -> None:
        self._gained: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def note(self, query_id: str, batch_id: int, gained: Sequence[int | None]) -> None:
        """Notes how many samples each table of the batch gained; None where that isn't known, as for a batch that is
        repeated.
        """
        known = [samples for samples in gained if samples is not None]
        if len(known) < len(gained):
            return
        with self._lock:
            self._gained[query_id, batch_id] = sum(known)
            while len(self._gained) > BATCHES_KEPT_MAX:
                del self._gained[next(iter(self._gained))]

    def late(self, query_id: str, batch_id: int, accepted: int) -> int | None:
        """Records of the batch that no window took; None where the batch isn't known.

        >>> counted = CountedSamples()
        >>> counted.note("q", 7, [90, 4])
        >>> counted.late("q", 7, accepted=100), counted.late("q", 8, accepted=100)
        (6, None)
        """
        with self._lock:
            gained = self._gained.get((query_id, batch_id))
        return None if gained is None else max(0, accepted - gained)


@dataclass(slots=True)
class Totals:
    """Sums over the batches of one query that this process has seen."""

    last_report: tuple[str, int] | None = None
    """`report_key` of the newest report that is counted."""
    batches: int = 0
    input_rows: int = 0
    rejected_rows: int = 0
    late_rows: int = 0

    def add_new(self, reports: Sequence[Any], counted: CountedSamples) -> None:
        """Count those of Spark's newest progress reports, oldest first, that came since the last call."""
        keys = list(map(report_key, reports))
        seen = len(keys) - keys[::-1].index(self.last_report) if self.last_report in keys else 0
        for report in reports[seen:]:
            self._add(report, counted)
        if keys:
            self.last_report = keys[-1]

    def _add(self, progress: Any, counted: CountedSamples) -> None:
        """An idle query reports too, without a batch of its own."""
        if "addBatch" not in progress["durationMs"]:
            return
        self.batches += 1
        self.input_rows += progress["numInputRows"]
        self.rejected_rows += sum(row[REJECTED_ROWS] for row in progress["observedMetrics"].values())
        if progress["stateOperators"]:
            accepted = sum(row[ACCEPTED_ROWS] for row in progress["observedMetrics"].values())
            late = counted.late(progress["id"], progress["batchId"], accepted)
            # Spark counts after its first, partial aggregation: groups, so at least this many records.
            dropped = sum(state["numRowsDroppedByWatermark"] for state in progress["stateOperators"])
            self.late_rows += dropped if late is None else late


class BatchReporter:
    """Writes one row per query and interval to pipeline_batch, all queries in one commit."""

    def __init__(
        self,
        queries: Sequence[StreamingQuery],
        root: str,
        settings: PipelineSettings,
        counted: CountedSamples,
        failing_jobs: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """`failing_jobs` returns the jobs of the upkeep whose newest run failed."""
        self._reports = [(query, ProgressReports(query)) for query in queries]
        self._failing_jobs = failing_jobs
        self._counted = counted
        self._root = root
        self._trigger_interval_ms = settings.trigger_interval_ms
        self._totals = {str(query.id): Totals() for query in queries}
        self._written_ms: int | None = None
        self._knows_time = False
        """Whether no row is of a time that is yet to come, as far as this process has written or looked."""

    def report(self, *, now_ms: int) -> None:
        """Take note of new batches; write if the interval has passed. To be called more often than batches end."""
        newest: list[tuple[StreamingQuery, Any]] = []
        for query, reports in self._reports:
            recent = reports.recent()
            self._totals[str(query.id)].add_new(recent, self._counted)
            if recent:
                newest.append((query, recent[-1]))
        if not is_due(self._written_ms, REPORT_INTERVAL_MS, now_ms):
            return
        rows = [self._row(query, progress, now_ms) for query, progress in newest]
        if not rows:
            return
        if self._written_ms is not None and now_ms < self._written_ms:
            self._knows_time = False
        self._written_ms = now_ms
        try:
            self._drop_rows_ahead(now_ms)
            tables.append(
                self._root,
                PIPELINE_BATCH.name,
                rows,
                transaction_id=f"heartbeat:{rows[0]['query_id']}",
                transaction_version=tables.AtTime(now_ms),
            )
        except TableUnavailable as error:
            log.warning("heartbeat_not_written", error=str(error))

    def _drop_rows_ahead(self, now_ms: int) -> None:
        """Rows of a clock that was ahead would be the newest until then, and show a pipeline that has died as alive."""
        if self._knows_time:
            return
        own = tables.one_of("query_name", [query.name for query, _ in self._reports])
        dropped = tables.delete(self._root, PIPELINE_BATCH.name, own & tables.above("finished_at", tables.utc(now_ms)))
        if dropped:
            log.warning("heartbeats_ahead_dropped", rows=dropped)
        self._knows_time = True

    def _row(self, query: StreamingQuery, progress: Any, now_ms: int) -> dict[str, Any]:
        totals = self._totals[str(query.id)]
        state = (progress["stateOperators"] or [{}])[0]
        return {
            "query_name": query.name,
            "query_id": str(query.id),
            "batch_id": progress["batchId"],
            # The time of the row, not of the batch: a long batch is no dead process. While a batch hangs, the rows stay
            # the same; an idle query reports every 10 s, each time with other durations.
            "finished_at": tables.utc(now_ms),
            "duration_ms": progress["durationMs"].get("triggerExecution", 0),
            "input_rows": progress["numInputRows"],
            "batches_total": totals.batches,
            "input_rows_total": totals.input_rows,
            "rejected_rows_total": totals.rejected_rows,
            "late_rows_total": totals.late_rows,
            "watermark": _watermark(progress),
            "source_lag_records": _source_lag(progress),
            "state_rows": state.get("numRowsTotal"),
            "state_memory_bytes": state.get("memoryUsedBytes"),
            "trigger_interval_ms": self._trigger_interval_ms,
            "phases_json": json.dumps(dict(progress["durationMs"])),
            "upkeep_failing_json": json.dumps(list(self._failing_jobs())),
        }


def _watermark(progress: Any) -> datetime | None:
    text = dict(progress["eventTime"]).get("watermark")
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC) if text else None


def _source_lag(progress: Any) -> int | None:
    """Records not yet read: newest offsets less the offsets where the batch ended, over all sources."""
    lags = []
    for source in progress["sources"]:
        ends, latest = offsets_of(source["endOffset"]), offsets_of(source["latestOffset"])
        lags += [max(0, latest[key] - ends.get(key, 0)) for key in latest]
    return sum(lags) if lags else None
