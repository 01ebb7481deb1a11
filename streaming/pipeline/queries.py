"""The three streaming queries: byte rates, consumer lag, and what was rejected. One topic a query, nothing shared.

Two topics in one query would share a watermark: an idle one would hold back the other.
"""

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, REJECTED_RECORD
from streaming.pipeline.delta_tables import append_spark, create_window_table, shaped
from streaming.pipeline.lateness import CountedSamples
from streaming.pipeline.maintenance import Maintenance
from streaming.pipeline.mixed_windows import mixed_lag_windows, mixed_load_windows
from streaming.pipeline.sound_ranges import Range, wait_until_read
from streaming.pipeline.sources import BYTE_RATES, LAGS, accepted_rows, rejected_rows, summed_rows
from streaming.pipeline.window_writer import Target, WindowWriter
from streaming.pipeline.windows import lag_windows, load_windows
from streaming.settings import Settings
from streaming.tables import append, create_table, table_uri
from streaming.tables.places import local_folder

LOCAL_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
"""Spark's default starts a process (readlink) for each look at a file: some forty a batch, a fifth of a small batch's
time. This one renames as atomically on a local file system; that nobody else writes there the lock of ours sees to.
"""
REJECTS_TRIGGERS = 3
"""The rejects are read once in as many trigger intervals: the windows come first."""
REJECTS_PATIENCE_S = 15.0
"""So long a batch of rejects waits for the window queries to tell that all of its records fit; then it reads them."""
REJECTS_DRIVER_BYTES_MAX = 32_000_000
"""Of raw keys and values; a topic full of rubbish is written on the executors."""
REJECT_BYTES = 1_000
"""What each record costs in Python besides: a million of `{}` would take gigabytes."""


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
    if local_folder(settings.storage.checkpoints) is not None:
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


def _start_rejects(session: SparkSession, settings: Settings, windows: list[StreamingQuery]) -> StreamingQuery:
    create_table(settings.storage.tables, REJECTED_RECORD.name)
    maintenance = Maintenance(settings, REJECTED_RECORD)
    checkpoint = f"{settings.storage.checkpoints}/rejects"
    offsets_noted = (local_folder(settings.storage.checkpoints) or Path(settings.storage.checkpoints)) / "rejects"

    def write(batch: DataFrame, batch_id: int) -> None:
        # In a sound set-up there are none, and to find that out would cost as much as the windows. (Of foreign records
        # not every misfit is known to the window queries.)
        if not settings.topics.foreign:
            known = wait_until_read(windows, offsets_noted, batch_id, patience_s=REJECTS_PATIENCE_S)
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
    raw = [f.coalesce(f.octet_length(name), f.lit(0)) for name in ("key", "value")]
    size = rows.agg(f.sum(raw[0] + raw[1] + REJECT_BYTES).alias("bytes")).first()
    if size is None or not size["bytes"]:
        return False
    query_id = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "rejects"
    transaction = (f"{query_id}:{REJECTED_RECORD.name}", batch_id)
    if size["bytes"] > REJECTS_DRIVER_BYTES_MAX:
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
