"""Raw Kafka records into typed rows, and the reason why a record doesn't fit.

Rules are data: one (reason, field, condition) each, the first that holds is the verdict. Future stamps are judged
against the time Kafka stamped on the record, so a replay judges the same; they are rejected before the watermark, or
one of them would move it and drop everybody's rows.
"""

from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from streaming.schemas import RECORD_VERSION

CORRUPT = "_corrupt"
REJECTED_ROWS = "rejected_rows"
"""Figure of each batch, among the observed metrics of Spark's progress."""
VALUE_BYTES_MAX = 1_048_576

_STRING, _LONG, _INTEGER, _DOUBLE = StringType(), LongType(), IntegerType(), DoubleType()


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Fields of one topic's records; `required` must be there, `not_negative` must not be below zero."""

    fields: dict[str, StringType | LongType | IntegerType | DoubleType]
    required: tuple[str, ...]
    not_negative: tuple[str, ...]


_BYTE_RATES = (
    "bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec", "replication_bytes_in_per_sec",
    "replication_bytes_out_per_sec", "reassignment_bytes_in_per_sec", "reassignment_bytes_out_per_sec",
)  # fmt: skip
_BYTE_SIZES = ("size_bytes", "log_dir_used_bytes", "log_dir_usable_bytes")
_OFFSETS = ("committed_offset", "log_end_offset", "log_start_offset", "lag_records")

BYTE_RATE = RecordShape(
    fields={
        "v": _INTEGER, "kafka_cluster": _STRING, "broker": _INTEGER, "topic": _STRING, "partition": _INTEGER,
        "role": _STRING, "event_time_ms": _LONG, "interval_ms": _LONG, "rack": _STRING,
        **dict.fromkeys(_BYTE_RATES, _DOUBLE), **dict.fromkeys(_BYTE_SIZES, _LONG),
    },
    required=("v", "kafka_cluster", "broker", "event_time_ms", "interval_ms"),
    not_negative=("broker", "partition", "event_time_ms", "interval_ms", *_BYTE_RATES, *_BYTE_SIZES),
)  # fmt: skip

CONSUMER_LAG = RecordShape(
    fields={
        "v": _INTEGER, "kafka_cluster": _STRING, "group": _STRING, "topic": _STRING, "partition": _INTEGER,
        "event_time_ms": _LONG, **dict.fromkeys(_OFFSETS, _LONG), "member_id": _STRING, "client_id": _STRING,
        "group_state": _STRING, "generation_id": _INTEGER,
    },
    required=("v", "kafka_cluster", "group", "topic", "partition", "event_time_ms"),
    not_negative=("partition", "event_time_ms", *_OFFSETS),
)  # fmt: skip

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


def judged(raw: DataFrame, shape: RecordShape, *, clock_skew_max_ms: int) -> DataFrame:
    """Columns in: Kafka's. Out: `kafka` (struct of Kafka's columns), the fields, `reason` and `field` (null = fits)."""
    fields = [StructField(name, kind) for name, kind in shape.fields.items()]
    schema = StructType([*fields, StructField(CORRUPT, _STRING)])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = raw.select(
        f.struct(*KAFKA_COLUMNS).alias("kafka"),
        f.from_json(f.col("value").cast("string"), schema, options).alias("record"),
    )
    rules = _rules(shape, clock_skew_max_ms)
    reason = f.coalesce(*(f.when(condition, f.lit(name)) for name, _, condition in rules))
    field = f.coalesce(*(f.when(condition, f.lit(column or "")) for _, column, condition in rules))
    return parsed.select(
        "kafka",
        *(f.col(f"record.{name}").alias(name) for name in shape.fields),
        reason.alias("reason"),
        f.nullif(field, f.lit("")).alias("field"),
    )


def accepted(judged_rows: DataFrame) -> DataFrame:
    """Rows that fit, with their event time as a timestamp; the batch's progress tells how many did not."""
    counted = judged_rows.observe("judged", f.count("reason").alias(REJECTED_ROWS))
    fitting = counted.where(f.col("reason").isNull()).drop("reason", "field")
    return fitting.withColumn("event_time", f.timestamp_millis("event_time_ms"))


def rejected(judged_rows: DataFrame) -> DataFrame:
    """Rows of the table rejected_record."""
    return judged_rows.where(f.col("reason").isNotNull()).select(
        f.col("kafka.topic").alias("source_topic"),
        f.col("kafka.partition").alias("source_partition"),
        f.col("kafka.offset").alias("source_offset"),
        f.col("kafka.timestamp").alias("record_time"),
        "reason",
        "field",
        f.col("kafka.key").alias("key"),
        f.substring("kafka.value", 1, VALUE_BYTES_MAX).alias("value"),
        f.current_timestamp().alias("rejected_at"),
    )


def _rules(shape: RecordShape, clock_skew_max_ms: int) -> list[tuple[str, str | None, SparkColumn]]:
    value = f.col("kafka.value")
    text = value.cast("string")
    numbers = [name for name in shape.not_negative if shape.fields[name] == _DOUBLE]
    latest = f.unix_millis("kafka.timestamp") + f.lit(clock_skew_max_ms)
    return [
        ("empty", None, value.isNull() | (f.octet_length(value) == 0)),
        ("too_large", None, f.octet_length(value) > VALUE_BYTES_MAX),
        ("not_utf8", None, ~f.is_valid_utf8(text)),
        # Before the next rule: NaN is not JSON, though Spark reads it.
        *(("not_a_number", name, _not_finite(f.col(f"record.{name}"))) for name in numbers),
        ("not_json", None, f.get_json_object(text, "$").isNull() | ~f.trim(text).startswith("{")),
        ("wrong_type", None, f.col(f"record.{CORRUPT}").isNotNull()),
        *(("missing_field", name, f.col(f"record.{name}").isNull()) for name in shape.required),
        ("unknown_version", "v", f.col("record.v") != RECORD_VERSION),
        *(("negative", name, f.col(f"record.{name}") < 0) for name in shape.not_negative),
        ("future", "event_time_ms", f.col("record.event_time_ms") > latest),
    ]


def _not_finite(column: SparkColumn) -> SparkColumn:
    return f.isnan(column) | (f.abs(column) == float("inf"))
