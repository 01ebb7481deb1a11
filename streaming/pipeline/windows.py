"""Tumbling event-time windows: accepted rows in, rows of the window tables out. Pure DataFrame to DataFrame.

A rate of a window is weighted by time: sum(rate x interval) / sum(interval) over the samples whose rate is known; null
where none is. What is a state (size, offset, role) is the newest sample's.
"""

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql import functions as f

from streaming.settings import PipelineSettings

RATES = (
    "bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec", "replication_bytes_in_per_sec",
    "replication_bytes_out_per_sec", "reassignment_bytes_in_per_sec", "reassignment_bytes_out_per_sec",
)  # fmt: skip
NEWEST_LOAD = ("role", "size_bytes", "rack", "log_dir_used_bytes", "log_dir_usable_bytes")
NEWEST_LAG = (
    "committed_offset", "log_end_offset", "log_start_offset", "lag_records", "member_id", "client_id", "group_state",
    "generation_id",
)  # fmt: skip


def load_windows(rows: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Byte-rate rows by window, broker and replica; broker totals are the groups whose topic is null."""
    grouped = _windowed(rows, settings, "broker", "topic", "partition")
    return grouped.agg(
        *(_weighted_mean(name).alias(name) for name in RATES),
        f.max("bytes_in_per_sec").alias("bytes_in_per_sec_max"),
        f.coalesce(f.sum(f.when(f.col("bytes_in_per_sec").isNotNull(), f.col("interval_ms"))), f.lit(0)).alias(
            "covered_ms"
        ),
        *_newest(NEWEST_LOAD),
        *_audit(),
    ).select("*", f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"))


def lag_windows(rows: DataFrame, settings: PipelineSettings) -> DataFrame:
    """Consumer-lag rows by window, group and partition."""
    grouped = _windowed(rows.withColumnRenamed("group", "group_id"), settings, "group_id", "topic", "partition")
    return grouped.agg(
        *_newest(NEWEST_LAG),
        f.max("lag_records").alias("lag_records_max"),
        *(f.min_by(name, "event_time_ms").alias(f"{name}_first") for name in ("committed_offset", "log_end_offset")),
        *_audit(),
    ).select("*", f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"))


def _windowed(rows: DataFrame, settings: PipelineSettings, *keys: str) -> GroupedData:
    late = f"{settings.watermark_ms} milliseconds"
    length = f.window("event_time", f"{settings.window_ms} milliseconds")
    return rows.withWatermark("event_time", late).groupBy(length, "kafka_cluster", *keys)


def _weighted_mean(name: str) -> SparkColumn:
    known = f.when(f.col(name).isNotNull(), f.col("interval_ms"))
    return f.try_divide(f.sum(f.col(name) * f.col("interval_ms")), f.sum(known))


def _newest(names: tuple[str, ...]) -> list[SparkColumn]:
    return [f.max_by(name, "event_time_ms").alias(name) for name in names]


def _audit() -> list[SparkColumn]:
    return [
        f.count("*").alias("sample_count"),
        f.min("event_time_ms").alias("first_event_time_ms"),
        f.max("event_time_ms").alias("last_event_time_ms"),
    ]
