"""Writes the batches of a window query into its tables, from the driver where their rows fit there. Knows no topics."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from streaming.contract import Table
from streaming.errors import TableUnavailable
from streaming.pipeline.checkpoint_files import CheckpointFiles
from streaming.pipeline.delta_tables import (
    TooManyRows,
    WindowTable,
    finalize_spark,
    shaped,
    upsert_by_window,
    upsert_spark,
    write_lock,
)
from streaming.pipeline.guards import transaction_id
from streaming.pipeline.lateness import CountedSamples
from streaming.pipeline.offsets import records_planned
from streaming.tables import table_uri, utc
from streaming.tables.places import local_folder

DRIVER_ROWS_MAX = 500_000
"""Batches of up to this many window rows, which meet no more in the table, are written from the driver: 70 MB as Arrow,
1 GB of Python at the most. Larger ones are, too, a window at a time, where no window has more.
"""
WINDOWS_MAX = 100
"""Windows that are written one by one, at most: each takes a commit and a scan of the batch. Rows of more windows are
merged at once, on the executors.
"""


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
        location = table_uri(root, target.table.name)
        return cls(target, location, WindowTable(location, target.table, rows_max=DRIVER_ROWS_MAX))

    def transaction(self, audit: Mapping[str, Any]) -> tuple[str, int]:
        """Returns the (application id, version) of a batch's write: if the write is made twice, the second one does
        nothing.
        """
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
        audit = {"is_final": False, "updated_at": utc(self._now_ms()), "batch_id": batch_id, "query_id": query_id}
        if self._is_known_to_fit_driver(batch_id):
            gained = self._write_collected(batch.sparkSession, batch.drop("window").toArrow(), audit)
        else:
            gained = self._write_counted(batch, audit)
        self._counted.note(query_id, batch_id, gained)

    def _is_known_to_fit_driver(self, batch_id: int) -> bool:
        """Returns whether the offsets alone show that the rows fit the driver: to count the rows takes one more Spark
        job and a copy of them.
        """
        if self._checkpoint is None:
            return False
        try:
            return records_planned(self._checkpoint, batch_id) <= DRIVER_ROWS_MAX
        except (OSError, ValueError, TableUnavailable):  # the plan of the batch before can't be read, or is gone
            return False

    def _write_counted(self, batch: DataFrame, audit: Mapping[str, Any]) -> list[int | None]:
        """Writes the batch from the driver if the rows fit there, at once or window by window, otherwise on the
        executors.
        """
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
        return utc(newest_ms - self._watermark_ms)


def _with_constants(rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
    """Returns `rows` with columns that have the same value in every row. The values are not Spark's literals: they
    would be part of its generated code, which Spark would compile again for each batch.
    """
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows
