"""Tumbling event-time windows: sums of samples in, rows of the window tables out. Pure DataFrame to DataFrame.

A rate of a window is weighted by time: sum(rate x interval) / sum(interval) over the samples whose rate is known; null
where none is. What is a state (size, offset, role) is the newest sample's.
"""

from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from streaming.contract.rates import BYTES_IN, RATE_NAMES, SAMPLE_MAXIMA
from streaming.contract.records import (
    ADDRESS,
    BROKER_STATES,
    CLEANUP_POLICY,
    CLIENT_HOST,
    COMMITTED_OFFSET,
    GROUP_PARTITIONS_LEFT_OUT,
    GROUP_STATES,
    LAG_RECORDS,
    LAST_STABLE_OFFSET,
    LOG_END_OFFSET,
    OUT_OF_SYNC_REPLICAS,
    REPLICA_STATES,
)
from streaming.pipeline.records import record_field
from streaming.pipeline.sums import AUDIT, TIME, WEIGHT_WINDOWS, Sums, first, known_ms, maximum, weight
from streaming.settings import PipelineSettings

NEWEST_LOAD = tuple(field.name for field in (*REPLICA_STATES, *BROKER_STATES))
NEWEST_LAG = tuple(field.name for field in GROUP_STATES)
OLDEST_LAG = (COMMITTED_OFFSET.name, LOG_END_OFFSET.name)

STRUCTS_SINCE_VERSION = 4
"""Version of the windows since which the newest sample's fields are one value of Spark's state."""
HELD_SINCE = {
    LAST_STABLE_OFFSET.name: 5, CLIENT_HOST.name: 5, GROUP_PARTITIONS_LEFT_OUT.name: 5,
    OUT_OF_SYNC_REPLICAS.name: 6, ADDRESS.name: 6, CLEANUP_POLICY.name: 6,
}  # fmt: skip
"""Fields that Spark's state holds from this version of the windows on; with an earlier checkpoint they are null."""

LOAD_SUMS = Sums(
    keys=("kafka_cluster", "broker", "topic", "partition"),
    weighted=RATE_NAMES, maxima=SAMPLE_MAXIMA, newest=NEWEST_LOAD, oldest=(),
)  # fmt: skip
"""Sums of byte rates; broker totals are the groups whose topic is null."""
LAG_SUMS = Sums(
    keys=("kafka_cluster", "group", "topic", "partition"),
    weighted=(), maxima=(LAG_RECORDS.name,), newest=NEWEST_LAG, oldest=OLDEST_LAG,
)  # fmt: skip


def sums_of_one(sums: Sums, window_ms: int) -> dict[str, SparkColumn]:
    """The columns of `sums`, of a single record that is the struct column `record`."""
    interval = weighing_ms(record_field(sums.interval), window_ms)
    return (
        {name: record_field(name) for name in (*sums.keys, *sums.newest)}
        | {weight(name): record_field(name) * interval for name in sums.weighted}
        | {known_ms(name): f.when(record_field(name).isNotNull(), interval) for name in sums.weighted}
        | {maximum(name): record_field(name) for name in sums.maxima}
        | {first(name): record_field(name) for name in sums.oldest}
        | dict(zip(AUDIT, (f.lit(1).cast("long"), record_field(TIME), record_field(TIME)), strict=True))
    )


def weighing_ms(interval: SparkColumn, window_ms: int) -> SparkColumn:
    """The interval by which a sample weighs, ms."""
    return f.least(interval, f.lit(WEIGHT_WINDOWS * window_ms))


def load_windows(rows: DataFrame, settings: PipelineSettings, version: int) -> DataFrame:
    """Sums of byte rates by window, broker and replica; `version` as in `guards.py`."""
    windowed = _windowed(rows, LOAD_SUMS, settings, version)
    means = {name: f.try_divide(f.col(weight(name)), f.col(known_ms(name))) for name in RATE_NAMES}
    covered = f.coalesce(known_ms(BYTES_IN.name), f.lit(0)).alias("covered_ms")
    with_means = windowed.select("*", *(mean.alias(name) for name, mean in means.items()), covered)
    return with_means.drop(*LOAD_SUMS.added())


def lag_windows(rows: DataFrame, settings: PipelineSettings, version: int) -> DataFrame:
    """Sums of consumer lag by window, group and partition."""
    return _windowed(rows, LAG_SUMS, settings, version).withColumnRenamed("group", "group_id")


def _windowed(rows: DataFrame, sums: Sums, settings: PipelineSettings, version: int) -> DataFrame:
    """The columns of `sums` by window and key, with the window's start and end."""
    newest, oldest = "last_event_time_ms", "first_event_time_ms"
    # All samples of a row are of one window, so its newest stands for them, before the watermark too.
    held = replace(sums, newest=held_fields(sums.newest, version))
    timed = rows.withColumn("event_time", f.timestamp_millis(newest))
    late = f"{settings.watermark_ms} milliseconds"
    length = f.window("event_time", f"{settings.window_ms} milliseconds")
    grouped = timed.withWatermark("event_time", late).groupBy(length, *sums.keys)
    states = _states if version >= STRUCTS_SINCE_VERSION else _states_one_by_one
    windows = grouped.agg(
        *(f.sum(name).alias(name) for name in (*sums.added(), "sample_count")),
        *(f.max(name).alias(name) for name in map(maximum, sums.maxima)),
        *states(held, newest, oldest),
        f.min(oldest).alias(oldest),
        f.max(newest).alias(newest),
    )
    structs = [name for name in windows.columns if name.startswith("_")]
    fields = [f.col(f"{name}.*") for name in structs]
    span = (f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end"))
    return windows.select("*", *fields, *absent_fields(rows, sums.newest, version), *span).drop(*structs)


def held_fields(names: tuple[str, ...], version: int) -> tuple[str, ...]:
    """Returns the fields among `names` that checkpoints of this version hold."""
    return tuple(name for name in names if HELD_SINCE.get(name, 0) <= version)


def absent_fields(rows: DataFrame, names: tuple[str, ...], version: int) -> list[SparkColumn]:
    """Nulls for the fields that checkpoints of this version do not hold."""
    held = held_fields(names, version)
    return [f.lit(None).cast(rows.schema[name].dataType).alias(name) for name in names if name not in held]


def _states(sums: Sums, newest: str, oldest: str) -> list[SparkColumn]:
    """What the newest and the oldest sample have: one value each in Spark's state, with one time."""
    of_oldest = tuple(map(first, sums.oldest))
    states = [f.max_by(f.struct(*sums.newest), newest).alias("_newest")] if sums.newest else []
    return states + ([f.min_by(f.struct(*of_oldest), oldest).alias("_oldest")] if of_oldest else [])


def _states_one_by_one(sums: Sums, newest: str, oldest: str) -> list[SparkColumn]:
    """Returns what the newest and the oldest sample have, with a time beside each field, as checkpoints of version 3
    have it.
    """
    return [
        *(f.max_by(name, newest).alias(name) for name in sums.newest),
        *(f.min_by(name, oldest).alias(name) for name in map(first, sums.oldest)),
    ]
