"""The three streaming queries: byte rates, consumer lag, and what was rejected. One topic a query, nothing shared.

Two topics in one query would share a watermark: an idle one would hold back the other.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from streaming.pipeline.delta_tables import (
    WindowTable,
    append_spark,
    create_window_table,
    finalize_spark,
    shaped,
    upsert_spark,
)
from streaming.pipeline.group_events import GroupEventKeeper
from streaming.pipeline.lateness import CountedSamples
from streaming.pipeline.maintenance import Maintenance
from streaming.pipeline.mixed_windows import mixed_lag_windows, mixed_load_windows
from streaming.pipeline.sound_ranges import Range, wait_until_read
from streaming.pipeline.sources import BYTE_RATES, LAGS, accepted_rows, rejected_rows, summed_rows
from streaming.pipeline.windows import lag_windows, load_windows
from streaming.schemas import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, REJECTED_RECORD, Table
from streaming.settings import Settings
from streaming.tables import append, create_table, table_uri, utc

LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts a process (readlink) for each look at a file: some forty a batch, a fifth of a small batch's
time. This one renames as atomically on a local file system; that nobody else writes there the lock of ours sees to.
"""
REJECTS_TRIGGERS = 3
"""The rejects are read once in as many trigger intervals: the windows come first."""
REJECTS_PATIENCE_S = 15.0
"""So long a batch of rejects waits for the window queries to tell that all of its records fit; then it reads them."""
REJECTS_DRIVER_BYTES_MAX = 32_000_000
"""Of raw values; a topic full of rubbish is written on the executors."""
DRIVER_ROWS_MAX = 500_000
"""Batches of up to this many window rows are written from the driver: 70 MB as Arrow, 1 GB of Python at the most."""


@dataclass(frozen=True, slots=True)
class Target:
    """A window table, and which of a query's rows go there: those with a topic, those without, or (None) all."""

    table: Table
    with_topic: bool | None

    def rows_of(self, rows: DataFrame) -> DataFrame:
        """Its rows, in the table's columns."""
        topic = f.col("topic")
        of_table = {True: topic.isNotNull(), False: topic.isNull(), None: f.lit(True)}[self.with_topic]
        return shaped(rows.where(of_table), self.table)

    def arrow_of(self, rows: pa.Table) -> pa.Table:
        """The same on the driver."""
        if self.with_topic is not None:
            rows = rows.filter(pc.is_valid(rows["topic"]) if self.with_topic else pc.is_null(rows["topic"]))
        return rows.select(self.table.column_names())


def start_queries(
    session: SparkSession, settings: Settings, counted: CountedSamples | None = None
) -> list[StreamingQuery]:
    """Start all three; each has its checkpoint and goes on where it stopped. `counted` is told of every batch.

    The windows come first: what was rejected is of no hurry, and reading it costs as much.
    """
    replicas, totals = Target(PARTITION_LOAD, with_topic=True), Target(BROKER_LOAD, with_topic=False)
    lags = Target(GROUP_LAG, with_topic=None)
    of_loads, of_lags, rows = load_windows, lag_windows, summed_rows
    if settings.topics.foreign:
        of_loads, of_lags, rows = mixed_load_windows, mixed_lag_windows, accepted_rows
    load = of_loads(rows(session, settings, BYTE_RATES), settings.pipeline)
    lag = of_lags(rows(session, settings, LAGS), settings.pipeline)
    if "://" not in settings.storage.checkpoints:
        session.conf.set("spark.sql.streaming.checkpointFileManagerClass", LOCAL_CHECKPOINTS)
    context = session.sparkContext
    context.setLocalProperty("spark.scheduler.pool", "windows")
    queries = [
        _start_windows(settings, "byte_rate", load, (replicas, totals), counted),
        _start_windows(settings, "consumer_lag", lag, (lags,), counted),
    ]
    context.setLocalProperty("spark.scheduler.pool", "rejects")
    queries.append(_start_rejects(session, settings, queries.copy()))
    return queries


def _start_windows(
    settings: Settings, name: str, windows: DataFrame, targets: tuple[Target, ...], counted: CountedSamples | None
) -> StreamingQuery:
    for target in targets:
        create_window_table(settings.storage.tables, target.table)
    return (
        windows.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", f"{settings.storage.checkpoints}/{name}")
        .trigger(processingTime=f"{settings.pipeline.trigger_interval_ms} milliseconds")
        .foreachBatch(WindowWriter(name, targets, settings, counted).write)
        .start()
    )


class WindowWriter:
    """Writes the batches of one query into its tables: the only writer of those tables while the pipeline runs."""

    def __init__(
        self, name: str, targets: tuple[Target, ...], settings: Settings, counted: CountedSamples | None
    ) -> None:
        self._name = name
        self._counted = counted if counted is not None else CountedSamples()
        places = [table_uri(settings.storage.tables, target.table.name) for target in targets]
        self._targets = [
            (target, place, WindowTable(place, target.table)) for target, place in zip(targets, places, strict=True)
        ]
        self._maintenance = [Maintenance(settings, target.table) for target in targets]
        of_groups = any(target.table is GROUP_LAG for target in targets)
        self._group_events = GroupEventKeeper(settings) if of_groups else None
        self._watermark_ms = settings.pipeline.watermark_ms

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """Upsert the batch's windows and mark those that are closed by it."""
        # Read once: every further action would fetch from Kafka and load the state again.
        rows = batch.persist()
        try:
            span = rows.agg(
                f.count("*").alias("rows"),
                f.min("window_start").alias("oldest"),
                f.max("last_event_time_ms").alias("newest"),
            ).first()
            if span is None or not span["rows"]:
                return
            query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or self._name
            audit = {"is_final": False, "updated_at": datetime.now(UTC), "batch_id": batch_id, "query_id": query_id}
            # From here on Spark drops what is older than the newest event less the delay.
            watermark = utc(span["newest"] - self._watermark_ms)
            fits_driver = span["rows"] <= DRIVER_ROWS_MAX
            collected = _with_constants(rows.drop("window").toArrow(), audit) if fits_driver else None
            gained: list[int | None] = []
            for target, location, window_table in self._targets:
                transaction = (f"{query_id}:{target.table.name}", batch_id)
                if collected is not None:
                    gained.append(window_table.upsert(target.arrow_of(collected), transaction, watermark))
                else:
                    chosen = target.rows_of(rows.withColumns({name: f.lit(value) for name, value in audit.items()}))
                    upsert_spark(chosen, location, target.table, transaction, span["oldest"])
                    finalize_spark(batch.sparkSession, location, watermark)
                    window_table.forget()
                    gained.append(None)
            self._counted.note(query_id, batch_id, gained)
        finally:
            rows.unpersist()
        if self._group_events is not None:
            self._group_events.keep_if_due(now_ms=time.time_ns() // 1_000_000)
        for maintenance in self._maintenance:
            maintenance.run_if_due(now_ms=time.time_ns() // 1_000_000)


def _with_constants(rows: pa.Table, values: Mapping[str, object]) -> pa.Table:
    """The same value in every row. Not as Spark's literals: they would be part of its generated code, made anew, and
    compiled anew, for each batch.
    """
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows


def _start_rejects(session: SparkSession, settings: Settings, windows: list[StreamingQuery]) -> StreamingQuery:
    create_table(settings.storage.tables, REJECTED_RECORD.name)
    maintenance = Maintenance(settings, REJECTED_RECORD)
    checkpoint = f"{settings.storage.checkpoints}/rejects"

    def write(batch: DataFrame, batch_id: int) -> None:
        # In a sound set-up there are none, and to find that out would cost as much as the windows. (Of foreign records
        # not every misfit is known to the window queries.)
        if not settings.topics.foreign:
            known = wait_until_read(windows, Path(checkpoint), batch_id, patience_s=REJECTS_PATIENCE_S)
            if known is Range.SOUND:
                return
        rows = batch.persist()
        try:
            written = _write_rejects(rows, batch_id, settings)
        finally:
            rows.unpersist()
        if written:
            maintenance.run_if_due(now_ms=time.time_ns() // 1_000_000)

    return (
        shaped(rejected_rows(session, settings), REJECTED_RECORD)
        .writeStream.queryName("rejects")
        .outputMode("append")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime=f"{REJECTS_TRIGGERS * settings.pipeline.trigger_interval_ms} milliseconds")
        .foreachBatch(write)
        .start()
    )


def _write_rejects(rows: DataFrame, batch_id: int, settings: Settings) -> bool:
    """False where there are none: then there is no commit either."""
    size = rows.agg(f.count("*").alias("rows"), f.sum(f.octet_length("value")).alias("bytes")).first()
    if size is None or not size["rows"]:
        return False
    query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "rejects"
    transaction = (f"{query_id}:{REJECTED_RECORD.name}", batch_id)
    if (size["bytes"] or 0) > REJECTS_DRIVER_BYTES_MAX:
        one_of_each = rows.dropDuplicates(list(REJECTED_RECORD.key))
        append_spark(one_of_each, table_uri(settings.storage.tables, REJECTED_RECORD.name), transaction)
        return True
    # One row a record, though each of the samples in it is judged.
    found = {tuple(row[name] for name in REJECTED_RECORD.key): row for row in rows.toArrow().to_pylist()}
    append(
        settings.storage.tables,
        REJECTED_RECORD.name,
        list(found.values()),
        transaction_id=transaction[0],
        transaction_version=transaction[1],
    )
    return True
