"""The pipeline's process: waits for the topics, starts the queries, watches them, ends in order.

One dead query ends the process with an exit code of its own, so that a supervisor starts it again; a signal lets the
batch under way finish. What it remembers is in the checkpoints and the tables.
"""

import json
import signal
import threading
import time
from datetime import UTC, datetime
from types import FrameType
from typing import Any

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from streaming import tables
from streaming.errors import TableUnavailable
from streaming.kafka_clients import admin_client
from streaming.pipeline.queries import start_queries
from streaming.pipeline.session import build_session
from streaming.settings import Settings

log = structlog.get_logger()

EXIT_QUERY_FAILED = 4
POLL_INTERVAL_S = 1.0
TOPIC_POLL_S = 2.0
HEARTBEAT_INTERVAL_MS = 10_000
STOP_GRACE_S = 25.0


def run_pipeline(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT (0) or until a query dies (4)."""
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    if not _wait_for_topics(settings, stopping):
        return 0
    session = build_session(settings.pipeline)
    try:
        queries = start_queries(session, settings)
        log.info("pipeline_started", queries=[query.name for query in queries])
        return _watch(queries, settings, stopping)
    finally:
        session.stop()


def _wait_for_topics(settings: Settings, stopping: threading.Event) -> bool:
    """Until the collector has made both topics; False when told to stop first."""
    wanted = {settings.topics.byte_rate, settings.topics.consumer_lag}
    admin = admin_client(settings.kafka)
    try:
        told = False
        while not stopping.is_set():
            missing = sorted(wanted - set(admin.list_topics()))
            if not missing:
                return True
            if not told:
                log.info("waiting_for_topics", missing=missing, hint="`rebalancer collect` makes them")
                told = True
            stopping.wait(TOPIC_POLL_S)
    finally:
        admin.close()
    return False


def _watch(queries: list[StreamingQuery], settings: Settings, stopping: threading.Event) -> int:
    heartbeats = [Heartbeat(query, settings) for query in queries]
    while not stopping.wait(POLL_INTERVAL_S):
        for query in queries:
            if not query.isActive:
                log.error("query_failed", query=query.name, error=_first_line(query.exception()))
                return EXIT_QUERY_FAILED
        now_ms = _now_ms()
        for heartbeat in heartbeats:
            heartbeat.beat(now_ms=now_ms)
    _stop(queries)
    log.info("pipeline_stopped")
    return 0


def _stop(queries: list[StreamingQuery]) -> None:
    """Let batches under way finish: `stop()` would cut them in the middle and leave work to be repeated."""
    deadline = time.monotonic() + STOP_GRACE_S
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()


class Heartbeat:
    """Writes one row per interval and query to pipeline_batch, also when idle: a live stream and a dead one differ."""

    def __init__(self, query: StreamingQuery, settings: Settings) -> None:
        self._query = query
        self._settings = settings
        self._written_ms = 0
        self._seen_batch = -1
        self._batches = 0
        self._rows = 0

    def beat(self, *, now_ms: int) -> None:
        """Take note of the newest batch; write if the interval has passed."""
        progress = self._query.lastProgress
        if progress is None:
            return
        if progress["batchId"] != self._seen_batch:
            self._batches += max(1, progress["batchId"] - self._seen_batch) if self._seen_batch >= 0 else 1
            self._rows += progress["numInputRows"]
            self._seen_batch = progress["batchId"]
        if now_ms - self._written_ms < HEARTBEAT_INTERVAL_MS:
            return
        self._written_ms = now_ms
        try:
            self._append(progress, now_ms)
        except TableUnavailable as error:
            log.warning("heartbeat_not_written", error=str(error))

    def _append(self, progress: Any, now_ms: int) -> None:
        query_id = str(self._query.id)
        state = (progress["stateOperators"] or [{}])[0]
        row = {
            "query_name": self._query.name,
            "query_id": query_id,
            "batch_id": progress["batchId"],
            "finished_at": tables.utc(now_ms),
            "duration_ms": progress["durationMs"].get("triggerExecution", 0),
            "input_rows": progress["numInputRows"],
            "batches_total": self._batches,
            "input_rows_total": self._rows,
            "rejected_rows_total": 0,
            "late_rows_total": 0,
            "watermark": _watermark(progress),
            "source_lag_records": _source_lag(progress),
            "state_rows": state.get("numRowsTotal"),
            "state_memory_bytes": state.get("memoryUsedBytes"),
            "trigger_interval_ms": self._settings.pipeline.trigger_interval_ms,
            "phases_json": json.dumps(dict(progress["durationMs"])),
        }
        tables.append(
            self._settings.storage.tables,
            "pipeline_batch",
            [row],
            transaction_id=f"heartbeat:{query_id}",
            transaction_version=now_ms,
        )


def _event_time(progress: Any) -> dict[str, str]:
    return dict(progress["eventTime"]) if progress else {}


def _watermark(progress: Any) -> datetime | None:
    text = _event_time(progress).get("watermark")
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC) if text else None


def _source_lag(progress: Any) -> int | None:
    """Records not yet read: newest offsets less the offsets where the batch ended, over all sources."""
    lags = []
    for source in progress["sources"]:
        ends, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        lags += [max(0, latest[key] - ends.get(key, 0)) for key in latest]
    return sum(lags) if lags else None


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    found = json.loads(text) if isinstance(text, str) else text
    return {(topic, partition): offset for topic, rows in (found or {}).items() for partition, offset in rows.items()}


def _first_line(error: object) -> str:
    return (str(error).splitlines() or [""])[0]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
