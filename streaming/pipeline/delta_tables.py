"""Writing the window tables: upserts by key that a replay repeats without changing anything.

A window row is an absolute aggregate. It replaces the row that is there only if it rests on at least as many samples:
after a lost checkpoint a fresh, partial window never overwrites a full one. A row that is final stays: Spark judges
lateness by the watermark of the batch before, so without this a sample could still change it one batch long.

There are two ways to one effect. A batch that fits the driver is written from there, which takes tens of milliseconds.
Of a larger batch the executors write the files, and the driver commits them (`part_commits.py`). Both commit through
delta-rs, on an object store by conditional puts. Knows no topics.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc
from pyarrow import dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming import tables
from streaming.contract import Table
from streaming.errors import TableUnavailable
from streaming.pipeline.batch_reporter import CountedSamples
from streaming.pipeline.checkpoints import CheckpointFiles, records_planned
from streaming.pipeline.guards import transaction_id
from streaming.pipeline.part_commits import (
    BatchSpan,
    WritesParts,
    commit,
    gained,
    on_driver,
    on_executors,
    planned,
    with_rows,
)
from streaming.pipeline.part_files import FINAL, Rule, closed_by, fullest
from streaming.pipeline.records import SPARK_TYPES

IS_OPEN = "is_final = false"

RULES: tuple[Rule, ...] = (
    ("window_ends_after_start", "window_end", ">", "window_start"),
    ("has_samples", "sample_count", ">=", 1),
    ("samples_in_order", "last_event_time_ms", ">=", "first_event_time_ms"),
)
"""What a row of any window table must fulfil, whoever writes it: constraints of the table, which Delta checks in what
is written from the driver, and each task in what it writes.
"""


_WRITE_LOCKS: dict[str, threading.Lock] = {}
DRIVER_ROWS_MAX = 500_000
"""Batches of up to this many window rows, which meet no more in the table, are written from the driver: 70 MB as Arrow,
1 GB of Python at the most. The executors write larger ones.
"""


def write_lock(location: str) -> threading.Lock:
    """Return the lock of the window table at `location`, for threads of this process that rewrite its files.

    A batch holds it while it writes, and a job of the upkeep while it commits joined files or files without expired
    rows. Without it delta-rs would refuse the commit that comes second.
    """
    return _WRITE_LOCKS.setdefault(location, threading.Lock())


def create_window_table(root: str, table: Table) -> None:
    """Make the table where it isn't there yet, with its constraints; raises TableUnavailable."""
    delta = tables.create_table(root, table.name)
    with _as_unavailable(table):
        present = delta.metadata().configuration
        for name, column, operator, limit in RULES:
            if f"delta.constraints.{name}" not in present:
                delta.alter.add_constraint({name: f"{column} {operator} {limit}"})


def shaped(rows: DataFrame, table: Table) -> DataFrame:
    """Exactly the table's columns, in its types and order."""
    return rows.select(*(f.col(column.name).cast(SPARK_TYPES[column.type]) for column in table.columns))


class TooManyRows(Exception):
    """The windows that a batch meets are more than the driver should hold; nothing was written."""


class WindowTable:
    """One window table as the only writer of its windows sees it: it remembers which ones are open, and reads no others
    again. The upkeep changes no open window.
    """

    def __init__(self, location: str, table: Table, *, rows_max: int) -> None:
        self._location = location
        self._table = table
        self._rows_max = rows_max
        self._open_since: datetime | None = None

    def upsert(self, rows: pa.Table, transaction: tuple[str, int], watermark: datetime) -> int | None:
        """Upsert from the driver in one commit; how many samples the table gained by it. None where this (application
        id, version) had been written, or where another checkpoint's windows are met, which this one counts anew.

        The rows of all windows that are still open, up to the newest of the batch, are read, brought up to date and put
        back in place of themselves; windows that `watermark` has passed become final with it. (delta-rs's own merge
        writes strings as views, which the filters of other Arrow readers can't compare.)

        Raises TooManyRows where these may be more than `rows_max` rows; TableUnavailable where the store or the table
        refuses: to write the same again then changes nothing that was written.
        """
        with write_lock(self._location), _as_unavailable(self._table):
            delta = tables.opened(self._location)
            if _has(delta, transaction):
                return None
            if rows.num_rows == 0:
                _note(delta, transaction)
                return 0
            # A dataset of all files costs a millisecond a file, whatever is read of them.
            open_since = self._open_since or _oldest_open(delta.to_pyarrow_dataset(file_pruning_predicate=IS_OPEN))
            span = pc.min_max(rows["window_start"]).as_py()
            since, until = min(open_since, span["min"]), span["max"]
            if _rows_between(delta, since, until) > self._rows_max:
                raise TooManyRows
            # Nothing newer than the batch can be closed by it.
            present, fresh = _put_back(delta, self._table, rows, since, until, watermark, transaction)
            open_since = _oldest_open(fresh)
            self._open_since = open_since if open_since <= until else None  # else there may be newer ones, not met
            return _gained(present, fresh, rows)

    def note(self, transaction: tuple[str, int]) -> None:
        """Commit the batch's (application id, version) without rows, where no write of the batch has left it.

        Every batch leaves its id, so that a start can tell a table that was rolled back from one that had no rows
        (`guards.check_tables_fit_checkpoints`). Raises TableUnavailable.
        """
        with write_lock(self._location), _as_unavailable(self._table):
            delta = tables.opened(self._location)
            if not _has(delta, transaction):
                _note(delta, transaction)

    def upsert_in_parts(
        self,
        write: WritesParts,
        span: BatchSpan,
        audit: Mapping[str, Any],
        transaction: tuple[str, int],
        watermark: datetime,
    ) -> int | None:
        """Upserts rows that `write` writes into files, in one commit; returns and raises as `upsert` does, and raises
        what `write` raises. The rows lack the columns of `audit`.
        """
        with write_lock(self._location):
            with _as_unavailable(self._table):
                delta = tables.opened(self._location)
                if _has(delta, transaction):
                    return None
                self._open_since = None  # as the rows are not read here
                is_partitioned = FINAL in delta.metadata().partition_columns
                plan = planned(
                    delta, self._table, span, audit=audit, rules=RULES, watermark=watermark,
                    open_since=None if is_partitioned else _oldest_open(delta.to_pyarrow_dataset()),
                )  # fmt: skip
            results = write(plan.upsert)
            with _as_unavailable(self._table):
                commit(delta, plan, results, transaction, now_ms=tables.to_ms(audit["updated_at"]))
            return gained(results)


def _has(delta: DeltaTable, transaction: tuple[str, int]) -> bool:
    """Return whether this batch, or a later one of the same query, has been written."""
    written = delta.transaction_version(transaction[0])
    return written is not None and written >= transaction[1]


def _note(delta: DeltaTable, transaction: tuple[str, int]) -> None:
    noted = CommitProperties(app_transactions=[Transaction(*transaction)])
    delta.create_write_transaction([], mode="append", schema=delta.schema(), commit_properties=noted)


@contextmanager
def _as_unavailable(table: Table) -> Iterator[None]:
    """What delta-rs, Arrow or the store refuse, as TableUnavailable that names the table. Not around calls of Spark: a
    JVM that is gone is an OSError, too.
    """
    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TableUnavailable(f"table {table.name} can't be written: {tables.first_line(error)}") from None


def _put_back(
    delta: DeltaTable, table: Table, rows: pa.Table, since: datetime, until: datetime, watermark: datetime,
    transaction: tuple[str, int],
) -> tuple[pa.Table, pa.Table]:  # fmt: skip
    """Bring the windows that start from `since` to `until` up to date, in one commit; their rows before and after."""
    met = f"window_start >= {tables.instant(since)} AND window_start <= {tables.instant(until)}"
    rows = tables.with_columns_of(delta, rows.cast(tables.row_schema(table)))
    windows = delta.to_pyarrow_dataset(file_pruning_predicate=met)
    is_met = (pc.field("window_start") >= since) & (pc.field("window_start") <= until)
    present = windows.to_table(rows.column_names, is_met)
    fresh = closed_by(fullest(present.cast(rows.schema), rows, table.key), watermark)
    write_deltalake(
        delta,
        # In the order of time, so that a reader of some windows skips files and parts of files by their statistics.
        fresh.sort_by(table.time_column),
        mode="overwrite",
        predicate=met,
        commit_properties=with_rows(delta, transaction),
    )
    return present, fresh


def _gained(present: pa.Table, fresh: pa.Table, rows: pa.Table) -> int | None:
    """Samples that windows gained by a batch's rows; None where another checkpoint's windows are counted anew."""
    by_others = set(pc.unique(present["query_id"]).to_pylist()) - set(pc.unique(rows["query_id"]).to_pylist())
    return None if by_others else _samples(fresh) - _samples(present)


def _rows_between(delta: DeltaTable, since: datetime, until: datetime) -> int:
    """Returns how many rows are of windows that start in this span at most, by the files' statistics."""
    files = tables.file_statistics(delta, "window_start")
    begins = pc.less_equal(files["least"], pa.scalar(until, files["least"].type))
    ends = pc.greater_equal(files["greatest"], pa.scalar(since, files["greatest"].type))
    return pc.sum(files["num_records"].filter(pc.fill_null(pc.and_(begins, ends), True))).as_py() or 0


def _samples(windows: pa.Table) -> int:
    return pc.sum(windows["sample_count"]).as_py() or 0


def _oldest_open(windows: ds.Dataset | pa.Table) -> datetime:
    """Start of the oldest window that is not final; the end of time where all are."""
    is_open = ~pc.field("is_final")
    rows = windows.filter(is_open) if isinstance(windows, pa.Table) else windows.to_table(["window_start"], is_open)
    return pc.min(rows["window_start"]).as_py() or datetime.max.replace(tzinfo=UTC)


class Target:
    """A window table, and which of a query's rows go there: those with a topic, those without, or (None) all."""

    def __init__(self, root: str, table: Table, *, with_topic: bool | None, python_on_executors: bool) -> None:
        """`root` is the folder of all tables."""
        self._table = table
        self._with_topic = with_topic
        self._python_on_executors = python_on_executors
        self._windows = WindowTable(tables.table_uri(root, table.name), table, rows_max=DRIVER_ROWS_MAX)

    def note(self, audit: Mapping[str, Any]) -> None:
        """Commit a batch without rows."""
        self._windows.note(self._transaction(audit))

    def upsert(
        self, session: SparkSession, rows: pa.Table, audit: Mapping[str, Any], watermark: datetime
    ) -> int | None:
        """Upsert those of a batch's rows that go here, from the driver if the windows that they meet fit there, too."""
        if self._with_topic is not None:
            rows = rows.filter(pc.is_valid(rows["topic"]) if self._with_topic else pc.is_null(rows["topic"]))
        own = rows.select([name for name in self._table.column_names() if name not in audit])
        try:
            whole = _with_constants(own, audit).select(self._table.column_names())
            return self._windows.upsert(whole, self._transaction(audit), watermark)
        except TooManyRows:
            starts = pc.min_max(own["window_start"]).as_py()
            span = BatchSpan(own.num_rows, starts["min"], starts["max"])
            return self._upsert_in_parts(session.createDataFrame(own), span, audit, watermark)

    def upsert_counted(
        self, rows: DataFrame, counts: Sequence[Mapping[str, Any]], audit: Mapping[str, Any], watermark: datetime
    ) -> int | None:
        """Upsert rows that are not on the driver yet; `counts` are theirs by window, with and without a topic."""
        own = [each for each in counts if self._with_topic in (None, each["with_topic"])]
        count, starts = sum(each["rows"] for each in own), [each["window_start"] for each in own]
        is_own = {True: f.col("topic").isNotNull(), False: f.col("topic").isNull(), None: f.lit(True)}[self._with_topic]
        columns = [column for column in self._table.columns if column.name not in audit]
        chosen = rows.where(is_own).select(*(f.col(each.name).cast(SPARK_TYPES[each.type]) for each in columns))
        if count <= DRIVER_ROWS_MAX:
            return self.upsert(rows.sparkSession, chosen.toArrow(), audit, watermark)
        return self._upsert_in_parts(chosen, BatchSpan(count, min(starts), max(starts)), audit, watermark)

    def _upsert_in_parts(
        self, rows: DataFrame, span: BatchSpan, audit: Mapping[str, Any], watermark: datetime
    ) -> int | None:
        write = (on_executors if self._python_on_executors else on_driver)(rows, self._table)
        return self._windows.upsert_in_parts(write, span, audit, self._transaction(audit), watermark)

    def _transaction(self, audit: Mapping[str, Any]) -> tuple[str, int]:
        """(Application id, version) of a batch's write: a write that is made twice does nothing the second time."""
        return transaction_id(audit["query_id"], self._table), audit["batch_id"]


class WindowWriter:
    """Writes the batches of one query into its tables: nobody else writes rows there while the pipeline runs."""

    def __init__(
        self,
        targets: Sequence[Target],
        *,
        watermark_ms: int,
        counted: CountedSamples,
        now_ms: Callable[[], int],
        checkpoint: CheckpointFiles | None,
    ) -> None:
        """`checkpoint` has the query's files if its offsets bound the rows of a batch, as one record is one sample."""
        self._targets = targets
        self._watermark_ms = watermark_ms
        self._counted = counted
        self._now_ms = now_ms
        self._checkpoint = checkpoint

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Upsert the batch's windows and mark those that are closed by it."""
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        audit = {
            "is_final": False,
            "updated_at": tables.utc(self._now_ms()),
            "batch_id": batch_id,
            "query_id": query_id,
        }
        if self._is_known_to_fit_driver(batch_id):
            gained = self._write_collected(batch.sparkSession, batch.drop("window").toArrow(), audit)
        else:
            gained = self._write_counted(batch, audit)
        self._counted.note(query_id, batch_id, gained)

    def _is_known_to_fit_driver(self, batch_id: int) -> bool:
        """Whether the offsets alone show that the rows fit the driver: to count rows takes a Spark job."""
        if self._checkpoint is None:
            return False
        try:
            return records_planned(self._checkpoint, batch_id) <= DRIVER_ROWS_MAX
        except (OSError, ValueError, TableUnavailable):  # the plan of the batch before can't be read, or is gone
            return False

    def _write_counted(self, batch: DataFrame, audit: Mapping[str, Any]) -> list[int | None]:
        """Writes the rows of each table from the driver if they fit there, else on the executors."""
        # Read once: every further action would fetch from Kafka and load the state again.
        rows = batch.drop("window").persist()
        try:
            with_topic = f.col("topic").isNotNull().alias("with_topic")
            newest = f.max("last_event_time_ms").alias("newest")
            counted = rows.groupBy("window_start", with_topic).agg(f.count("*").alias("rows"), newest)
            counts = counted.toArrow().to_pylist()
            if sum(each["rows"] for each in counts) <= DRIVER_ROWS_MAX:
                return self._write_collected(batch.sparkSession, rows.toArrow(), audit)
            watermark = self._watermark(max(each["newest"] for each in counts))
            return [target.upsert_counted(rows, counts, audit, watermark) for target in self._targets]
        finally:
            rows.unpersist()

    def _write_collected(
        self, session: SparkSession, collected: pa.Table, audit: Mapping[str, Any]
    ) -> list[int | None]:
        """Writes the rows from the driver; returns how many samples each table gained, as `upsert` counts them."""
        if collected.num_rows == 0:
            for target in self._targets:
                target.note(audit)
            return [0] * len(self._targets)
        watermark = self._watermark(pc.max(collected["last_event_time_ms"]).as_py())
        return [target.upsert(session, collected, audit, watermark) for target in self._targets]

    def _watermark(self, newest_ms: int) -> datetime:
        """Returns the time before which Spark drops rows: the newest event less the delay."""
        return tables.utc(newest_ms - self._watermark_ms)


def _with_constants(rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
    """Returns `rows` with columns that have the same value in every row. The values are not Spark's literals: they
    would be part of its generated code, which Spark would compile again for each batch.
    """
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows
