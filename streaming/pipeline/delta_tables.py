"""Writing the window tables: upserts by key that a replay repeats without changing anything.

A window row is an absolute aggregate. It replaces the row that is there only if it rests on at least as many samples:
after a lost checkpoint a fresh, partial window never overwrites a full one. A row that is final stays: Spark judges
lateness by the watermark of the batch before, so without this a sample could still change it one batch long.

There are two ways to one effect: a batch that fits the driver is written through delta-rs, which commits in tens of
milliseconds where Spark's MERGE plans and starts jobs for seconds on two cores; a larger one is merged by Spark itself,
on all executors. On an object store all is committed through delta-rs, by conditional puts. Knows no topics.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

import numpy as np
import pyarrow as pa
from delta.tables import DeltaTable as SparkDeltaTable
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc
from pyarrow import dataset as ds
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming import tables
from streaming.contract import Table
from streaming.errors import TableUnavailable
from streaming.pipeline.checkpoints import CheckpointFiles, records_planned
from streaming.pipeline.guards import transaction_id
from streaming.pipeline.lateness import CountedSamples
from streaming.pipeline.records import SPARK_TYPES
from streaming.tables.places import local_folder

TRANSACTION_ID = "spark.databricks.delta.write.txnAppId"
TRANSACTION_VERSION = "spark.databricks.delta.write.txnVersion"
KEEPS_FULLER = "s.sample_count >= t.sample_count AND NOT t.is_final"

IS_OPEN = "is_final = false"

CONSTRAINTS = {
    "window_ends_after_start": "window_end > window_start",
    "has_samples": "sample_count >= 1",
    "samples_in_order": "last_event_time_ms >= first_event_time_ms",
}
"""What a row of any window table must fulfil, whoever writes it: Delta refuses the commit otherwise."""


_WRITE_LOCKS: dict[str, threading.Lock] = {}
DRIVER_ROWS_MAX = 500_000
"""Batches of up to this many window rows, which meet no more in the table, are written from the driver: 70 MB as Arrow,
1 GB of Python at the most. Larger ones are, too, a window at a time, where no window has more.
"""
WINDOWS_MAX = 100
"""Windows that are written one by one, at most: each takes a commit and a scan of the batch. Rows of more windows are
merged at once, on the executors.
"""


def write_lock(location: str) -> threading.Lock:
    """Return the lock of the window table at `location`, for threads of this process that rewrite its files.

    A batch holds it while it writes, and a job of the upkeep while it deletes rows or joins files. Without it delta-rs
    would refuse the commit that comes second, and Spark, which has no atomic commit on a disk beside other writers,
    might replace the commit that comes first.
    """
    return _WRITE_LOCKS.setdefault(location, threading.Lock())


def create_window_table(root: str, table: Table) -> None:
    """Make the table where it isn't there yet, with its constraints; raises TableUnavailable."""
    delta = tables.create_table(root, table.name)
    with _as_unavailable(table):
        present = delta.metadata().configuration
        for name, rule in CONSTRAINTS.items():
            if f"delta.constraints.{name}" not in present:
                delta.alter.add_constraint({name: rule})


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

        Where these may be more than `rows_max` rows it is done a window at a time, in a commit for each. Raises
        TooManyRows where one window has more. Raises TableUnavailable where the store or the table refuses: to write
        the same again then changes nothing that was written.
        """
        with write_lock(self._location), _as_unavailable(self._table):
            return self._upsert(rows, transaction, watermark)

    def note(self, transaction: tuple[str, int]) -> None:
        """Commit the batch's (application id, version) without rows, where no write of the batch has left it.

        Every batch leaves its id, so that a start can tell a table that was rolled back from one that had no rows
        (`guards.check_tables_fit_checkpoints`). Raises TableUnavailable.
        """
        with write_lock(self._location), _as_unavailable(self._table):
            delta = tables.opened(self._location)
            if not _has(delta, transaction):
                _note(delta, transaction)

    def forget(self) -> None:
        """Somebody else has written: look anew which windows are open."""
        self._open_since = None

    def _upsert(self, rows: pa.Table, transaction: tuple[str, int], watermark: datetime) -> int | None:
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
            return self._upsert_by_window(delta, rows, transaction, watermark)
        # Nothing newer than the batch can be closed by it.
        present, fresh = _put_back(delta, self._table, rows, since, until, watermark, transaction)
        open_since = _oldest_open(fresh)
        self._open_since = open_since if open_since <= until else None  # else there may be newer ones, not met
        return _gained(present, fresh, rows)

    def _upsert_by_window(
        self, delta: DeltaTable, rows: pa.Table, transaction: tuple[str, int], watermark: datetime
    ) -> int | None:
        """Upserts a window at a time. Raises TooManyRows before any write if one window has over `rows_max` rows."""
        self.forget()
        starts = set(pc.unique(rows["window_start"]).to_pylist()) | _passed(delta, watermark)
        first, last = min(starts), max(starts)
        span = f"window_start >= {tables.instant(first)} AND window_start <= {tables.instant(last)}"
        met = pc.field("window_start").isin(pa.array(sorted(starts), rows.schema.field("window_start").type))
        present = delta.to_pyarrow_dataset(file_pruning_predicate=span).to_table(["window_start"], met)
        for counted in (present["window_start"].value_counts(), rows["window_start"].value_counts()):
            if any(each["counts"].as_py() > self._rows_max for each in counted):
                raise TooManyRows

        def of_window(start: datetime) -> pa.Table:
            return rows.filter(pc.equal(rows["window_start"], start))

        return _put_back_by_window(delta, self._table, starts, of_window, watermark, transaction)


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
    transaction: tuple[str, int] | None,
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
        commit_properties=CommitProperties(app_transactions=[Transaction(*transaction)] if transaction else None),
    )
    return present, fresh


def _put_back_by_window(
    delta: DeltaTable,
    table: Table,
    starts: set[datetime],
    of_window: Callable[[datetime], pa.Table],
    watermark: datetime,
    transaction: tuple[str, int],
) -> int | None:
    """Puts rows into the table a window at a time, for windows with these `starts`, in a commit for each window.
    Returns how many samples the table gained, None also if part had been written before. To repeat a window changes
    nothing: only the last commit has the transaction. Raises TableUnavailable.
    """
    gained: list[int | None] = []
    in_order = sorted(starts)
    for start in in_order:
        rows, is_last = of_window(start), start == in_order[-1]
        with _as_unavailable(table):
            written = _put_back(delta, table, rows, start, start, watermark, transaction if is_last else None)
        begun = pc.any(pc.equal(written[0]["batch_id"], transaction[1])).as_py()
        gained.append(None if begun else _gained(*written, rows))
    known = [samples for samples in gained if samples is not None]
    return sum(known) if len(known) == len(gained) else None


def _gained(present: pa.Table, fresh: pa.Table, rows: pa.Table) -> int | None:
    """Samples that windows gained by a batch's rows; None where another checkpoint's windows are counted anew."""
    if not rows.num_rows:
        return 0
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


def _passed(delta: DeltaTable, watermark: datetime) -> set[datetime]:
    """Starts of the windows that are open though the watermark has passed them."""
    passed = (~pc.field("is_final")) & (pc.field("window_end") <= watermark)
    windows = delta.to_pyarrow_dataset(file_pruning_predicate=IS_OPEN)
    return set(windows.to_table(["window_start"], passed)["window_start"].to_pylist())


def fullest(present: pa.Table, new: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """One row per key: a final one, else the one that rests on more samples, the new one of equals."""
    both = pa.concat_tables([present, new])
    # Ranks of equals rise with the row, as the sort is stable. To sort whole rows would cost as much as to write them.
    ranked = np.lexsort((both["sample_count"].to_numpy(), both["is_final"].to_numpy()))
    rank = np.empty_like(ranked)
    rank[ranked] = np.arange(len(ranked))
    by_key = both.select(list(key)).append_column("_rank", pa.array(rank)).group_by(list(key))
    best = by_key.aggregate([("_rank", "max")])["_rank_max"].to_numpy()
    return both.take(pa.array(ranked[best]))


def closed_by(rows: pa.Table, watermark: datetime) -> pa.Table:
    """Returns `rows` with those of windows that end at or before `watermark` marked final."""
    passed = pc.less_equal(rows["window_end"], pa.scalar(watermark, rows["window_end"].type))
    index = rows.column_names.index("is_final")
    return rows.set_column(index, rows.schema.field(index), pc.or_(rows["is_final"], passed))


def upsert_spark(rows: DataFrame, location: str, table: Table, transaction: tuple[str, int], oldest: datetime) -> None:
    """Merges `rows` into the table on the executors; `oldest` is the first window start in `rows`."""
    session = rows.sparkSession
    # The literal bound lets Delta leave out every file of older windows.
    keys = " AND ".join(f"t.{name} = s.{name}" for name in table.key)
    matching = f"t.window_start >= {_spark_literal(oldest)} AND {keys}"
    # Each by its name: of "all" columns a table of a newer release has more than these rows.
    columns: dict[str, str | SparkColumn] = {name: f"s.{name}" for name in table.column_names()}
    session.conf.set(TRANSACTION_ID, transaction[0])
    session.conf.set(TRANSACTION_VERSION, str(transaction[1]))
    try:
        (
            SparkDeltaTable.forPath(session, location)
            .alias("t")
            .merge(rows.alias("s"), matching)
            .whenMatchedUpdate(condition=KEEPS_FULLER, set=columns)
            .whenNotMatchedInsert(values=columns)
            .execute()
        )
    finally:
        # Left set, they would make Delta skip the next write to the same table, silently.
        session.conf.unset(TRANSACTION_ID)
        session.conf.unset(TRANSACTION_VERSION)


def finalize_spark(session: SparkSession, location: str, watermark: datetime) -> None:
    """Mark windows that the watermark has passed: their rows will not change again. Safe to repeat."""
    passed = f"window_end <= {_spark_literal(watermark)} AND NOT is_final"
    SparkDeltaTable.forPath(session, location).update(passed, {"is_final": "true"})


def upsert_by_window(
    rows: DataFrame, location: str, table: Table, transaction: tuple[str, int], watermark: datetime
) -> int | None:
    """Puts `rows` into the table from the driver, which holds one window at a time, in a commit for each; marks what
    `watermark` has passed, too. Returns how many samples the table gained, None where that isn't known. Raises
    TableUnavailable.

    On object stores it is the only way: Spark's Delta asks there whether an entry of the log exists and then puts it,
    so it could replace a commit of another writer.
    """
    with _as_unavailable(table):
        delta = tables.opened(location)
    if _has(delta, transaction):
        return None
    starts = set(rows.select("window_start").distinct().toArrow()["window_start"].to_pylist())
    with _as_unavailable(table):
        starts |= _passed(delta, watermark)

    def of_window(start: datetime) -> pa.Table:
        return rows.where(f.col("window_start") == f.lit(start)).toArrow()

    return _put_back_by_window(delta, table, starts, of_window, watermark, transaction)


def _spark_literal(time: datetime) -> str:
    return f"TIMESTAMP '{time.astimezone(UTC).isoformat()}'"


@dataclass(frozen=True, slots=True)
class Target:
    """A window table, and which of a query's rows go there: those with a topic, those without, or (None) all."""

    table: Table
    with_topic: bool | None

    def rows_of(self, rows: DataFrame) -> DataFrame:
        """Returns the rows that go to the table, in the table's columns."""
        topic = f.col("topic")
        of_table = {True: topic.isNotNull(), False: topic.isNull(), None: f.lit(True)}[self.with_topic]
        return shaped(rows.where(of_table), self.table)

    def arrow_of(self, rows: pa.Table) -> pa.Table:
        """Returns the rows on the driver that go to the table, in the table's columns."""
        if self.with_topic is not None:
            rows = rows.filter(pc.is_valid(rows["topic"]) if self.with_topic else pc.is_null(rows["topic"]))
        return rows.select(self.table.column_names())


@dataclass(frozen=True, slots=True)
class Place:
    """Table that the rows of a target go to, and its location."""

    target: Target
    location: str
    window_table: WindowTable

    @classmethod
    def of(cls, target: Target, root: str) -> Self:
        """Returns the place of the target's table below `root`, the folder of all tables."""
        location = tables.table_uri(root, target.table.name)
        return cls(target, location, WindowTable(location, target.table, rows_max=DRIVER_ROWS_MAX))

    def transaction(self, audit: Mapping[str, Any]) -> tuple[str, int]:
        """(Application id, version) of a batch's write: a write that is made twice does nothing the second time."""
        return transaction_id(audit["query_id"], self.target.table), audit["batch_id"]

    def merge(
        self, rows: DataFrame, audit: Mapping[str, Any], oldest: datetime, watermark: datetime, *, by_window: bool
    ) -> int | None:
        """Rows that have the table's columns; `oldest` is the first window start in them. Returns how many samples the
        table gained, where that is known.

        From the driver, a window at a time, if `by_window` and on an object store, where Spark's commits are no
        conditional puts; else on the executors.
        """
        self.window_table.forget()
        with write_lock(self.location):
            if by_window or local_folder(self.location) is None:
                return upsert_by_window(rows, self.location, self.target.table, self.transaction(audit), watermark)
            upsert_spark(rows, self.location, self.target.table, self.transaction(audit), oldest)
            finalize_spark(rows.sparkSession, self.location, watermark)
        self.window_table.note(self.transaction(audit))  # a MERGE of no rows makes no commit
        return None


class WindowWriter:
    """Writes the batches of one query into its tables: nobody else writes rows there while the pipeline runs."""

    def __init__(
        self,
        name: str,
        places: Sequence[Place],
        *,
        watermark_ms: int,
        counted: CountedSamples,
        now_ms: Callable[[], int],
        checkpoint: CheckpointFiles | None = None,
    ) -> None:
        """`checkpoint` has the query's files if its offsets bound the rows of a batch, as one record is one sample."""
        self._name = name
        self._places = places
        self._watermark_ms = watermark_ms
        self._counted = counted
        self._now_ms = now_ms
        self._checkpoint = checkpoint

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Upsert the batch's windows and mark those that are closed by it."""
        query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._name
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
        """Writes the batch from the driver if the rows fit there, at once or by window, else on the executors."""
        # Read once: every further action would fetch from Kafka and load the state again.
        rows = batch.drop("window").persist()
        try:
            newest = f.max("last_event_time_ms").alias("newest")
            spans = rows.groupBy("window_start").agg(f.count("*").alias("rows"), newest).collect()
            if sum(span["rows"] for span in spans) <= DRIVER_ROWS_MAX:
                return self._write_collected(batch.sparkSession, rows.toArrow(), audit)
            stamped = rows.withColumns({name: f.lit(value) for name, value in audit.items()})
            watermark = self._watermark(max(span["newest"] for span in spans))
            fits_by_window = len(spans) <= WINDOWS_MAX and max(span["rows"] for span in spans) <= DRIVER_ROWS_MAX
            oldest = min(span["window_start"] for span in spans)
            return [
                place.merge(place.target.rows_of(stamped), audit, oldest, watermark, by_window=fits_by_window)
                for place in self._places
            ]
        finally:
            rows.unpersist()

    def _write_collected(
        self, session: SparkSession, collected: pa.Table, audit: Mapping[str, Any]
    ) -> list[int | None]:
        """Writes the rows from the driver; returns how many samples each table gained, as `upsert` counts them."""
        if collected.num_rows == 0:
            for place in self._places:
                place.window_table.note(place.transaction(audit))
            return [0] * len(self._places)
        rows = _with_constants(collected, audit)
        watermark = self._watermark(pc.max(rows["last_event_time_ms"]).as_py())
        gained: list[int | None] = []
        for place in self._places:
            own = place.target.arrow_of(rows)
            try:
                gained.append(place.window_table.upsert(own, place.transaction(audit), watermark))
            except TooManyRows:
                oldest = pc.min(own["window_start"]).as_py()
                gained.append(place.merge(session.createDataFrame(own), audit, oldest, watermark, by_window=False))
        return gained

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
