"""The stream part of a snapshot: the newest batch report of each streaming query, rejected records, sizes of tables.

Every row of a query shows what its process has done so far, and every process writes rows of the same kind, at the same
pace, whether its batches end or not. So rows are compared with those before them: they show a new process, and a batch
that hangs.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any

from pyarrow import compute as pc

from streaming import tables
from streaming.contract import TABLES
from streaming.settings import Settings
from streaming.tables import TableReader, TableState, above, at_least
from streaming.views.json_values import stored_object, stored_texts
from streaming.views.spans import WEEK_MS, counted_since

Row = Mapping[str, Any]
TIME = "finished_at"
REPORT_LOOKBACK_MS = 86_400_000
"""A query whose last row is this much older than the newest row of all is still shown: longer, and it is gone. It must
outlast a night, as what is gone is shown no longer, though the query is as silent as before."""
_AS_REPORTED = (
    "duration_ms", "trigger_interval_ms", "batches_total", "input_rows_total", "late_rows_total", "source_lag_records",
    "state_rows", "state_memory_bytes",
)  # fmt: skip
"""Columns that `StreamQuery` has by the same names."""
_REJECTED = ("source_topic", "reason", "rejected_at", "records_not_kept")


@dataclass(frozen=True, slots=True)
class QueryReports:
    """The newest row of one query, and what follows from those before it."""

    row: Row
    changed_at: datetime
    """Time of the first row with the content of the newest."""
    first_batch: int
    """Batch that the process began with: number of those that were done before it."""
    _begun_with: int

    def followed_by(self, row: Row) -> "QueryReports":
        """Returns the reports of the query once `row` has come; a row that is not newer changes nothing."""
        if row[TIME] <= self.row[TIME]:
            return self
        begun_with = _begun_with(row)
        return QueryReports(
            row,
            self.changed_at if _content(row) == _content(self.row) else row[TIME],
            # Totals may lack a batch that has just ended, in one row: the next is right again, and lower.
            min(self._begun_with, begun_with),
            begun_with,
        )


def first_report(row: Row) -> QueryReports:
    """Returns the reports after the first known row."""
    return QueryReports(row, row[TIME], _begun_with(row), _begun_with(row))


def _begun_with(row: Row) -> int:
    """Batches done in all less those that this process has done."""
    ran = "addBatch" in (stored_object(row["phases_json"]) or {})  # an idle query names the batch that comes next
    return int(row["batch_id"]) + ran - int(row["batches_total"])


def _content(row: Row) -> dict[str, Any]:
    # While a batch is under way nothing is reported, and the row repeats what was reported last. An idle query
    # reports every 10 s, each time with how many ms it took to find records.
    return {name: value for name, value in row.items() if name not in (TIME, "upkeep_failing_json")}


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """One streaming query as its newest kept micro-batch shows it; totals count from the start of its process."""

    query: str
    finished_ms: int
    changed_ms: int
    """Time since which the rows of the query show nothing new, ms."""
    first_batch: int
    """Number of the batch with which the query's process began."""
    duration_ms: int
    trigger_interval_ms: int
    batches_total: int
    input_rows_total: int
    late_rows_total: int
    watermark_ms: int | None
    source_lag_records: int | None
    state_rows: int | None
    state_memory_bytes: int | None
    phases_ms: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class StreamPart:
    """All queries by name, and how many records were rejected by (source, reason)."""

    queries: tuple[StreamQuery, ...] = ()
    rejected: Mapping[tuple[str, str], int] = field(default_factory=dict)
    rejected_not_kept: Mapping[str, int] = field(default_factory=dict)
    """Number of rejected records that were counted but not stored, by source."""
    upkeep_failing: tuple[str, ...] = ()
    """Jobs of the pipeline's upkeep whose newest run failed, as `table: job`."""


class StreamReader:
    """Reads the part again and again; rejected records are counted once each."""

    def __init__(self, reader: TableReader, settings: Settings) -> None:
        self._reader = reader
        # Both window queries read foreign topics; a record that is neither's counts for byte_rate.
        foreign = dict.fromkeys(settings.topics.foreign, "byte_rate")
        own = {settings.topics.byte_rate: "byte_rate", settings.topics.consumer_lag: "consumer_lag"}
        self._sources = {**foreign, **own}
        self._rejected: Counter[tuple[str, str]] = Counter()
        self._not_kept: Counter[str] = Counter()
        self._rejected_at: datetime | None = None
        self._rejected_since: datetime | None = None
        self._retention_ms = settings.pipeline.retention_ms
        self._reports: dict[str, QueryReports] = {}
        self._newest_report: datetime | None = None

    def read(self) -> StreamPart:
        """Reads the part from the tables as they are now."""
        self._count_rejected()
        return StreamPart(self._queries(), dict(self._rejected), dict(self._not_kept), self._upkeep_failing())

    def _upkeep_failing(self) -> tuple[str, ...]:
        """Every query's row of one time shows the same jobs."""
        newest = tables.newest((reports.row for reports in self._reports.values()), TIME)
        return () if newest is None else tuple(stored_texts(newest["upkeep_failing_json"]))

    def _queries(self) -> tuple[StreamQuery, ...]:
        newest = self._reader.newest("pipeline_batch", TIME)
        if newest is None:
            return ()
        self._read_reports(newest)
        return tuple(_query(name, reports) for name, reports in sorted(self._reports.items()))

    def _read_reports(self, newest: datetime) -> None:
        oldest = newest - timedelta(milliseconds=REPORT_LOOKBACK_MS)
        if self._newest_report is None or newest < self._newest_report:  # the first read, or the table was made again
            self._reports, self._newest_report = {}, oldest
        columns = TABLES["pipeline_batch"].column_names()
        where = at_least(TIME, max(oldest, self._newest_report))
        for row in sorted(self._reader.rows("pipeline_batch", columns=columns, where=where), key=itemgetter(TIME)):
            known = self._reports.get(row["query_name"])
            self._reports[row["query_name"]] = first_report(row) if known is None else known.followed_by(row)
        self._newest_report = newest
        self._reports = {name: reports for name, reports in self._reports.items() if reports.row[TIME] >= oldest}

    def _count_rejected(self) -> None:
        newest = self._reader.newest("rejected_record", "rejected_at")
        if newest is None:
            return
        since = counted_since(newest, retention_ms=self._retention_ms, span_max_ms=WEEK_MS)
        if since != self._rejected_since:
            self._rejected_since, self._rejected_at = since, None
            self._rejected, self._not_kept = Counter(), Counter()
        where = at_least("rejected_at", since) if self._rejected_at is None else above("rejected_at", self._rejected_at)
        rejected = self._reader.arrow("rejected_record", columns=_REJECTED, where=where)
        if not rejected.num_rows:
            return
        counts = rejected.group_by(["source_topic", "reason"]).aggregate(
            [("rejected_at", "count"), ("records_not_kept", "count"), ("records_not_kept", "sum")]
        )
        for row in counts.to_pylist():
            source, not_kept = self._sources.get(row["source_topic"], "other"), row["records_not_kept_sum"] or 0
            self._rejected[(source, row["reason"])] += (
                row["rejected_at_count"] - row["records_not_kept_count"] + not_kept
            )
            self._not_kept[source] += not_kept
        self._rejected_at = pc.max(rejected["rejected_at"]).as_py()


def _query(name: str, reports: QueryReports) -> StreamQuery:
    row = reports.row
    return StreamQuery(
        query=name,
        finished_ms=tables.to_ms(row[TIME]),
        changed_ms=tables.to_ms(reports.changed_at),
        first_batch=reports.first_batch,
        watermark_ms=None if row["watermark"] is None else tables.to_ms(row["watermark"]),
        **{name: row[name] for name in _AS_REPORTED},
        phases_ms=_phases_ms(row["phases_json"]),
    )


def _phases_ms(text: str | None) -> dict[str, int]:
    phases = stored_object(text) or {}
    return {name: value for name, value in phases.items() if isinstance(value, int)}


def read_table_states(reader: TableReader) -> tuple[TableState, ...]:
    """Version, files and bytes of every table that is there."""
    states = (reader.state(name) for name in sorted(TABLES))
    return tuple(state for state in states if state is not None)
