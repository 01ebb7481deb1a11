"""Tumbling event-time windows: sums of samples in, rows of the window tables out. Pure DataFrame to DataFrame.

A rate of a window is weighted by time: sum(rate x interval) / sum(interval) over the samples whose rate is known; null
where none is. What is a state (size, offset, role) is the newest sample's.

If other tools' samples come in besides our own, counters are made into rates, and figures come one by one. A counter's
rate needs the sample before. To be right after any restart and in any order of arrival, that sample is not remembered
but counted twice by Spark itself: each sample falls into its own window and, as the one before, into the next. A
counter that has shrunk to less than half was set to zero in between: what it shows since then is counted, as Prometheus
does. A counter that has shrunk by less was read out of order, by agents whose clocks differ: nothing has grown until it
is above what it was. Foreign rates win over our own of one broker, which without JMX are sums over its partitions.
"""

from dataclasses import replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from streaming.contract.rates import BYTES_IN, RATE_NAMES, RATES, SAMPLE_MAXIMA, Rate
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
RESET_SHARE = 0.5
"""A counter below this share of what it was began again at zero. Where a real one comes back above it between two
samples, at most what it had counted is missed, once; to take disorder for a reset would add the broker's whole count.
"""
KNOWN_WITH = {LAST_STABLE_OFFSET.name: LOG_END_OFFSET.name, CLEANUP_POLICY.name: LOG_END_OFFSET.name}
"""A sample with a log end and without one of these fields says that no transaction is open, and no compaction known."""


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
    """What the newest and the oldest sample have, each field with its time, as in checkpoints of version 3."""
    return [
        *(f.max_by(name, newest).alias(name) for name in sums.newest),
        *(f.min_by(name, oldest).alias(name) for name in map(first, sums.oldest)),
    ]


def mixed_load_windows(rows: DataFrame, settings: PipelineSettings, version: int) -> DataFrame:
    """Returns load windows as `load_windows` does, for rows that have the column `foreign` and counters too."""
    length = f.expr(f"INTERVAL {settings.window_ms} MILLISECONDS")
    spans = f.window("event_time", f"{2 * settings.window_ms} milliseconds", f"{settings.window_ms} milliseconds")
    spread = rows.withWatermark("event_time", f"{settings.watermark_ms} milliseconds").withColumn("span", spans)
    inside = f.col("event_time") >= f.col("span.start") + length
    grouped = spread.withColumn("inside", inside).groupBy("span", "kafka_cluster", "broker", "topic", "partition")
    aggregated = grouped.agg(
        *(part for rate in RATES for part in _parts(rate, settings.window_ms)),
        *(f.max(f.when(f.col("inside"), f.col(name))).alias(_sampled_max(name)) for name in SAMPLE_MAXIMA),
        *(f.max_by(name, _inside_ms(name)).alias(name) for name in held_fields(NEWEST_LOAD, version)),
        f.count_if("inside").alias("sample_count"),
        f.min(f.when(f.col("inside"), f.col("event_time_ms"))).alias("first_event_time_ms"),
        f.max(f.when(f.col("inside"), f.col("event_time_ms"))).alias("last_event_time_ms"),
    )
    started = aggregated.where("sample_count > 0").withColumn("window_start", f.col("span.start") + length)
    counted = started.select("*", *(_grown(rate.name).alias(f"{rate.name}_counted") for rate in RATES))
    return counted.select(
        "kafka_cluster", "broker", "topic", "partition", *held_fields(NEWEST_LOAD, version),
        *absent_fields(rows, NEWEST_LOAD, version),
        "sample_count", "first_event_time_ms", "last_event_time_ms",
        *(_rate(rate).alias(rate.name) for rate in RATES),
        *(f.greatest(_sampled_max(name), f"{name}_counted.rate_max").alias(maximum(name)) for name in SAMPLE_MAXIMA),
        _covered(BYTES_IN.name).cast("long").alias("covered_ms"),
        "window_start",
        f.col("span.end").alias("window_end"),
    )  # fmt: skip


def mixed_lag_windows(rows: DataFrame, settings: PipelineSettings, version: int) -> DataFrame:
    """Returns lag windows as `lag_windows` does, for samples that may hold one offset each: a field unknown in one
    sample comes from the others.
    """
    renamed = rows.withColumnRenamed("group", "group_id").withWatermark(
        "event_time", f"{settings.watermark_ms} milliseconds"
    )
    length = f.window("event_time", f"{settings.window_ms} milliseconds")
    aggregated = renamed.groupBy(length, "kafka_cluster", "group_id", "topic", "partition").agg(
        *(
            f.max_by(name, _known_ms(KNOWN_WITH.get(name, name))).alias(name)
            for name in held_fields(NEWEST_LAG, version)
        ),
        f.max(LAG_RECORDS.name).alias(maximum(LAG_RECORDS.name)),
        *(f.min_by(name, _known_ms(name)).alias(first(name)) for name in OLDEST_LAG),
        f.count("*").alias("sample_count"),
        f.min("event_time_ms").alias("first_event_time_ms"),
        f.max("event_time_ms").alias("last_event_time_ms"),
    )
    # Not +, which fails on overflow, at each start again: records are bounded, but a checkpoint may hold older ones.
    end = f.coalesce("log_end_offset", f.try_add("committed_offset", "lag_records"))
    return aggregated.withColumn("log_end_offset", end).select(
        "*",
        *absent_fields(rows, NEWEST_LAG, version),
        f.col("window.start").alias("window_start"),
        f.col("window.end").alias("window_end"),
    )


def _sampled_max(name: str) -> str:
    """Column of the highest rate among the samples that are rates, not counters."""
    return f"{name}_sampled_max"


def _known_ms(name: str) -> SparkColumn:
    return f.when(f.col(name).isNotNull(), f.col("event_time_ms"))


def _inside_ms(name: str) -> SparkColumn:
    return f.when(f.col("inside") & f.col(name).isNotNull(), f.col("event_time_ms"))


def _parts(rate: Rate, window_ms: int) -> list[SparkColumn]:
    """Sums of rate x interval and of intervals, foreign and own apart, and the counter's samples of both windows."""
    name, counter = rate.name, rate.counter
    known = f.col("inside") & f.col(name).isNotNull()
    interval = weighing_ms(f.col("interval_ms"), window_ms)
    sample = f.struct(f.col("event_time_ms").alias("time_ms"), f.col(counter).alias("value"))
    return [
        *(
            f.coalesce(f.sum(f.when(known & side, part)), f.lit(0)).alias(f"{name}_{whose}_{what}")
            for whose, side in (("foreign", f.col("foreign")), ("own", ~f.col("foreign")))
            for what, part in (("sum", f.col(name) * interval), ("ms", interval))
        ),
        f.collect_list(f.when(f.col(counter).isNotNull(), sample)).alias(f"{name}_samples"),
    ]


def _grown(name: str) -> SparkColumn:
    """Struct of what the counter grew by inside the window, over how many ms, and its fastest step per second."""
    start = f.struct(
        f.lit(None).cast("long").alias("time_ms"), f.lit(None).cast("double").alias("value"),
        f.lit(0.0).alias("grown"), f.lit(0).cast("long").alias("covered_ms"),
        f.lit(None).cast("double").alias("rate_max"),
    )  # fmt: skip
    return f.aggregate(f.array_sort(f"{name}_samples"), start, _step)


def _step(seen: SparkColumn, sample: SparkColumn) -> SparkColumn:
    """One sample on: it counts if one before it is known and it lies inside the window; a time counts once."""
    step_ms = sample["time_ms"] - seen["time_ms"]
    counts = (step_ms > 0) & (sample["time_ms"] >= f.unix_millis("window_start"))
    was_reset = sample["value"] < seen["value"] * RESET_SHARE
    grown = f.when(was_reset, sample["value"]).otherwise(f.greatest(sample["value"] - seen["value"], f.lit(0.0)))
    return f.struct(
        sample["time_ms"].alias("time_ms"),
        f.when(was_reset, sample["value"]).otherwise(f.greatest(sample["value"], seen["value"])).alias("value"),
        f.when(counts, seen["grown"] + grown).otherwise(seen["grown"]).alias("grown"),
        f.when(counts, seen["covered_ms"] + step_ms).otherwise(seen["covered_ms"]).alias("covered_ms"),
        f.when(counts, f.greatest(seen["rate_max"], grown * 1000 / step_ms))
        .otherwise(seen["rate_max"])
        .alias("rate_max"),
    )


def _rate(rate: Rate) -> SparkColumn:
    """Foreign where known, less the part that ours keeps apart; else our own; else null."""
    foreign = _foreign_rate(rate.name)
    if rate.meter_includes is not None:
        part = f.coalesce(_foreign_rate(rate.meter_includes), f.lit(0.0))
        foreign = f.when(foreign.isNotNull(), f.greatest(foreign - part, f.lit(0.0)))
    return f.coalesce(foreign, f.try_divide(f"{rate.name}_own_sum", f"{rate.name}_own_ms"))


def _foreign_rate(name: str) -> SparkColumn:
    total = f.col(f"{name}_foreign_sum") + f.col(f"{name}_counted.grown") * 1000
    return f.try_divide(total, f.col(f"{name}_foreign_ms") + f.col(f"{name}_counted.covered_ms"))


def _covered(name: str) -> SparkColumn:
    foreign = f.col(f"{name}_foreign_ms") + f.col(f"{name}_counted.covered_ms")
    return f.when(foreign > 0, foreign).otherwise(f.col(f"{name}_own_ms"))
