"""Raw Kafka records into typed rows, and the reason why a record doesn't fit.

Rules are data; the first that holds gives the reason. Each rule costs time on every record, so it is one short
condition over all fields; only misfits are searched for the field at fault. Future event times are judged against the
time that Kafka stamped on the record, or that of the batch where this is earlier: in a topic with CreateTime Kafka
stamps what the producer claims. A batch that is repeated keeps its time and judges the same. Such records are rejected
before the watermark: one of them would move it, and Spark would drop the rows of all others.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streaming.contract import RECORD_VERSION, ColumnType
from streaming.contract.records import EVENT_TIME_MIN_MS, RecordShape

SPARK_TYPES: dict[ColumnType, DataType] = {
    ColumnType.STRING: StringType(),
    ColumnType.LONG: LongType(),
    ColumnType.INTEGER: IntegerType(),
    ColumnType.DOUBLE: DoubleType(),
    ColumnType.BOOLEAN: BooleanType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.TIMESTAMP: TimestampType(),
}
CORRUPT = "_corrupt"
REJECTED_ROWS, ACCEPTED_ROWS = "rejected_rows", "accepted_rows"
"""Figures of each batch, among the observed metrics of Spark's progress."""
VALUE_BYTES_MAX = 1_048_576
MISFIT = StructType([StructField("reason", StringType()), StructField("field", StringType())])
KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


def record_schema(shape: RecordShape) -> StructType:
    """The fields of a record; all may be null, since the rules judge what is missing."""
    return StructType([StructField(field.name, SPARK_TYPES[field.type]) for field in shape.fields])


@dataclass(frozen=True, slots=True)
class Rule:
    """If `condition` holds, the record is rejected for `reason`; `fields` holds a condition for each field at fault."""

    reason: str
    condition: SparkColumn
    fields: tuple[tuple[str, SparkColumn], ...] = ()


def judged(
    raw: DataFrame, shape: RecordShape, *, clock_skew_max_ms: int, name: str = "judged", credible: bool = False
) -> DataFrame:
    """Columns in: Kafka's, or of them `timestamp` and `value` at least; of adapted records `payload` (one of ours) and
    `misfit` (struct of reason and field); `samples`, how many records that fit a row stands for, null where it is one
    record to be judged. `credible`: their `timestamp` is a `credible_time` already.

    Out: `kafka` (struct of Kafka's columns), `payload`, `misfit`, `record` (struct of the fields), `reason` (null =
    fits) and what else came in. The batch's progress counts under `name` how many fit and how many don't.
    """
    schema = record_schema(shape).add(CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    adapted, some_known = "misfit" in raw.columns, "samples" in raw.columns
    payload = f.col("payload" if adapted else "value")
    parsed = raw.select(
        f.struct(*(column for column in KAFKA_COLUMNS if column in raw.columns)).alias("kafka"),
        payload.alias("payload"),
        (f.col("misfit") if adapted else f.lit(None).cast(MISFIT)).alias("misfit"),
        f.from_json(payload.cast("string"), schema, options).alias("record"),
        *(column for column in raw.columns if column not in (*KAFKA_COLUMNS, "payload", "misfit")),
    )
    # The batch's time is a constant of the generated code: Java would compile all of it anew for each batch.
    kafka_time = f.col("kafka.timestamp") if credible else credible_time("kafka.timestamp")
    rules = _rules(shape, f.unix_millis(kafka_time) + f.lit(clock_skew_max_ms))
    reason = f.coalesce("misfit.reason", *(f.when(rule.condition, f.lit(rule.reason)) for rule in rules))
    if some_known:
        reason = f.when(f.col("samples").isNull(), reason)
    samples = f.coalesce("samples", f.lit(1)) if some_known else f.lit(1)
    # Counting is also a barrier: a filter moved below it would parse the record anew for each mention of a field.
    return parsed.withColumn("reason", reason).observe(
        name,
        f.count("reason").alias(REJECTED_ROWS),
        f.coalesce(f.sum(f.when(f.col("reason").isNull(), samples)), f.lit(0)).alias(ACCEPTED_ROWS),
    )


def accepted(judged_rows: DataFrame) -> DataFrame:
    """Rows that fit: the fields, and their event time as a timestamp."""
    fitting = judged_rows.where(f.col("reason").isNull()).select("record.*").drop(CORRUPT)
    return fitting.withColumn("event_time", f.timestamp_millis("event_time_ms"))


def rejected(judged_rows: DataFrame, shape: RecordShape) -> DataFrame:
    """Rows of the table rejected_record."""
    at_fault = [
        f.when((f.col("reason") == rule.reason) & condition, f.lit(field))
        for rule in _rules(shape, f.lit(0))
        for field, condition in rule.fields
    ]
    return judged_rows.where(f.col("reason").isNotNull()).select(
        f.col("kafka.topic").alias("source_topic"),
        f.col("kafka.partition").alias("source_partition"),
        f.col("kafka.offset").alias("source_offset"),
        f.col("kafka.timestamp").alias("record_time"),
        "reason",
        f.when(f.col("misfit").isNotNull(), f.col("misfit.field")).otherwise(f.coalesce(*at_fault)).alias("field"),
        f.substring("kafka.key", 1, VALUE_BYTES_MAX).alias("key"),
        f.substring("kafka.value", 1, VALUE_BYTES_MAX).alias("value"),
        f.current_timestamp().alias("rejected_at"),
        f.lit(None).cast("long").alias("records_not_kept"),
    )


def _rules(shape: RecordShape, latest: SparkColumn) -> list[Rule]:
    """`latest` is the greatest event time that is not in the future, ms."""
    value = f.col("payload")
    text = value.cast("string")
    corrupt = record_field(CORRUPT).isNotNull()
    numbers = [field.name for field in shape.fields if field.not_negative and field.type is ColumnType.DOUBLE]
    whole = [field.name for field in shape.fields if field.not_negative and field.type is not ColumnType.DOUBLE]
    return [
        Rule("empty", value.isNull() | (f.octet_length(value) == 0)),
        Rule("too_large", f.octet_length(value) > VALUE_BYTES_MAX),
        Rule("not_utf8", ~f.is_valid_utf8(text)),
        # Before the next rule: NaN is not JSON, though Spark reads it.
        *_not_finite(numbers),
        # Parsed a second time only if the first failed: it would cost as much as all the rest.
        Rule("not_json", ~f.trim(text).startswith("{") | (corrupt & f.get_json_object(text, "$").isNull())),
        Rule("wrong_type", corrupt),
        _any_of("missing_field", [(name, record_field(name).isNull()) for name in shape.required]),
        *_alone(shape.together),
        Rule("unknown_version", record_field("v") != RECORD_VERSION, (("v", f.lit(True)),)),
        *_negative(numbers, "double"),
        *_negative(whole, "long"),
        *_too_great(shape.greatest),
        Rule("past", record_field("event_time_ms") < EVENT_TIME_MIN_MS, (("event_time_ms", f.lit(True)),)),
        Rule("future", record_field("event_time_ms") > latest, (("event_time_ms", f.lit(True)),)),
    ]


def credible_time(kafka_time: str) -> SparkColumn:
    """Kafka's time of a record, but no later than that of the batch, which Spark keeps with the batch's offsets."""
    # Not `least`, which is never null: rows that come summed from Arrow have no time of their own.
    return f.when(f.col(kafka_time) > f.current_timestamp(), f.current_timestamp()).otherwise(f.col(kafka_time))


def record_field(name: str) -> SparkColumn:
    """Returns the column of one field of the parsed record."""
    return f.col(f"record.{name}")


def _any_of(reason: str, fields: Iterable[tuple[str, SparkColumn]]) -> Rule:
    fields = tuple(fields)
    return Rule(reason, reduce(or_, (condition for _, condition in fields)), fields)


def _alone(names: tuple[str, ...]) -> list[Rule]:
    """Returns rules for records in which some of these fields are there and others are not."""
    if not names:
        return []
    missing = [(name, record_field(name).isNull()) for name in names]
    together = f.concat(*(record_field(name).cast("string") for name in names)).isNotNull()
    any_there = f.coalesce(*(record_field(name).cast("string") for name in names)).isNotNull()
    return [Rule("missing_field", any_there & ~together, tuple(missing))]


def _not_finite(names: list[str]) -> list[Rule]:
    """NaN or infinite, of doubles; to Spark NaN is greater than all numbers."""
    if not names:
        return []
    fields = [(name, f.isnan(record_field(name)) | (f.abs(record_field(name)) == float("inf"))) for name in names]
    greatest, least = f.greatest(*map(record_field, names)), f.least(*map(record_field, names))
    condition = f.isnan(greatest) | (greatest == float("inf")) | (least == float("-inf"))
    return [Rule("not_a_number", condition, tuple(fields))]


def _negative(names: list[str], kind: str) -> list[Rule]:
    if not names:
        return []
    fields = [(name, record_field(name) < 0) for name in names]
    return [Rule("negative", f.least(*(record_field(name).cast(kind) for name in names)) < 0, tuple(fields))]


def _too_great(limits: tuple[tuple[str, float], ...]) -> list[Rule]:
    return [_any_of("out_of_range", [(name, record_field(name) > most) for name, most in limits])] if limits else []
