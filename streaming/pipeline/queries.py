"""The three streaming queries: byte rates, consumer lag, and what was rejected. One topic a query, nothing shared.

Two topics in one query would share a watermark: an idle one would hold back the other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from streaming.kafka_clients import spark_options
from streaming.pipeline.delta_tables import ensure_table, merge_windows, shaped
from streaming.pipeline.records import BYTE_RATE, CONSUMER_LAG, RecordShape, accepted, judged, rejected
from streaming.pipeline.windows import lag_windows, load_windows
from streaming.schemas import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, REJECTED_RECORD, Table
from streaming.settings import Settings

REJECTS_INTERVAL_MS = 15_000


@dataclass(frozen=True, slots=True)
class Target:
    """A window table, and which of a query's rows go there."""

    table: Table
    rows: Callable[[DataFrame], DataFrame]


def start_queries(session: SparkSession, settings: Settings) -> list[StreamingQuery]:
    """Start all three; each has its checkpoint and goes on where it stopped."""
    totals = Target(BROKER_LOAD, lambda rows: rows.where(f.col("topic").isNull()))
    replicas = Target(PARTITION_LOAD, lambda rows: rows.where(f.col("topic").isNotNull() & f.col("role").isNotNull()))
    lags = Target(GROUP_LAG, lambda rows: rows)
    load = load_windows(_accepted(session, settings, settings.topics.byte_rate, BYTE_RATE), settings.pipeline)
    lag = lag_windows(_accepted(session, settings, settings.topics.consumer_lag, CONSUMER_LAG), settings.pipeline)
    return [
        _start_windows(session, settings, "byte_rate", load, (replicas, totals)),
        _start_windows(session, settings, "consumer_lag", lag, (lags,)),
        _start_rejects(session, settings),
    ]


def _accepted(session: SparkSession, settings: Settings, topic: str, shape: RecordShape) -> DataFrame:
    return accepted(
        judged(_raw(session, settings, topic), shape, clock_skew_max_ms=settings.pipeline.clock_skew_max_ms)
    )


def _raw(session: SparkSession, settings: Settings, topic: str) -> DataFrame:
    reader = session.readStream.format("kafka").option("subscribe", topic)
    for key, value in spark_options(settings.kafka).items():
        reader = reader.option(f"kafka.{key}", value)
    return (
        reader.option("startingOffsets", "earliest")
        .option("failOnDataLoss", "true")
        .option("maxOffsetsPerTrigger", settings.pipeline.records_per_batch_max)
        .load()
    )


def _start_windows(
    session: SparkSession, settings: Settings, name: str, windows: DataFrame, targets: tuple[Target, ...]
) -> StreamingQuery:
    locations = [ensure_table(session, settings.storage.tables, target.table) for target in targets]

    def write(batch: DataFrame, batch_id: int) -> None:
        # Read once: every further action would fetch from Kafka and load the state again.
        rows = batch.persist()
        try:
            query_id = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or name
            audited = _audited(rows, batch_id, query_id)
            for target, location in zip(targets, locations, strict=True):
                chosen = shaped(target.rows(audited), target.table)
                merge_windows(chosen, location, target.table, (f"{query_id}:{target.table.name}", batch_id))
        finally:
            rows.unpersist()

    return (
        windows.writeStream.queryName(name)
        .outputMode("update")
        .option("checkpointLocation", f"{settings.storage.checkpoints}/{name}")
        .trigger(processingTime=f"{settings.pipeline.trigger_interval_ms} milliseconds")
        .foreachBatch(write)
        .start()
    )


def _audited(rows: DataFrame, batch_id: int, query_id: str) -> DataFrame:
    return (
        rows.withColumn("is_final", f.lit(False))
        .withColumn("updated_at", f.lit(datetime.now(UTC)))
        .withColumn("batch_id", f.lit(batch_id))
        .withColumn("query_id", f.lit(query_id))
    )


def _start_rejects(session: SparkSession, settings: Settings) -> StreamingQuery:
    location = ensure_table(session, settings.storage.tables, REJECTED_RECORD)
    skew = settings.pipeline.clock_skew_max_ms
    shapes = ((settings.topics.byte_rate, BYTE_RATE), (settings.topics.consumer_lag, CONSUMER_LAG))
    sides = [rejected(judged(_raw(session, settings, topic), shape, clock_skew_max_ms=skew)) for topic, shape in shapes]
    return (
        shaped(sides[0].unionByName(sides[1]), REJECTED_RECORD)
        .writeStream.queryName("rejects")
        .outputMode("append")
        .format("delta")
        .option("checkpointLocation", f"{settings.storage.checkpoints}/rejects")
        .trigger(processingTime=f"{max(REJECTS_INTERVAL_MS, settings.pipeline.trigger_interval_ms)} milliseconds")
        .start(location)
    )
