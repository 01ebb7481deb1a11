"""The input topics as judged rows, or sums of them: ours as they are, other tools' through an adapter. Knows no tables.

Each query reads our topic; if `topics.foreign` names any, all of these in a second source of the same query. Both meet
before the watermark, so there is one, and neither holds back the other. Both are Python on the executors: ours, summed
in Arrow, is sent with the job, while foreign formats need this package there.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial, reduce

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from streaming.cluster.clients import spark_options
from streaming.contract import RECORD_VERSION
from streaming.contract.records import BYTE_RATE, CONSUMER_LAG, EVENT_TIME_MIN_MS, FOREIGN_BYTE_RATE, RecordShape
from streaming.pipeline import sums
from streaming.pipeline.adapters import PARSERS, Context, Misfit, Record
from streaming.pipeline.checkpoints import Offsets, by_topic
from streaming.pipeline.records import (
    KAFKA_COLUMNS,
    VALUE_BYTES_MAX,
    accepted,
    credible_time,
    judged,
    record_schema,
    rejected,
)
from streaming.pipeline.windows import LAG_SUMS, LOAD_SUMS, sums_of_one
from streaming.settings import KafkaSettings, PipelineSettings, TopicSettings

FETCH_OPTIONS = {
    # Kafka's 1 MiB is some thousand records: the executors would wait for the next fetch as long as they work.
    "max.partition.fetch.bytes": str(8 * 1_048_576),
    "max.poll.records": "5000",
    "receive.buffer.bytes": str(1_048_576),
}

_ROW = StructType([StructField(name, StringType()) for name in ("payload", "reason", "field")])
Adapted = list[tuple[str | None, str | None, str | None]]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two kinds of record: its field that the other lacks, and its shapes."""

    mark: str
    shape: RecordShape
    foreign_shape: RecordShape
    sums: sums.Sums
    reports_misfits: bool
    """A record that can't be read is of neither kind: one of the two reports it."""


@dataclass(frozen=True, slots=True)
class InputTopics:
    """The topics that the queries read: the connection, names and formats, and how much to read at a time."""

    session: SparkSession
    kafka: KafkaSettings
    topics: TopicSettings
    pipeline: PipelineSettings
    read_tasks: int = 1
    """Least number of tasks that read a topic at a time. Spark divides partitions if a topic has fewer."""
    begin: Offsets = field(default_factory=dict)
    """Offsets where a query without a checkpoint begins, for every partition of its topics; empty: at the topics'
    start.
    """

    def raw_rows(self, *names: str) -> DataFrame:
        """Kafka's columns, from `begin` on where there is no checkpoint yet."""
        begin = by_topic({(topic, number): first for (topic, number), first in self.begin.items() if topic in names})
        return (
            self.session.readStream.format("kafka")
            .options(**kafka_options(self.kafka, *names))
            .option("startingOffsets", json.dumps(begin) if begin else "earliest")
            .option("minPartitions", self.read_tasks)
            .option("failOnDataLoss", "true")
            .option("maxOffsetsPerTrigger", self.pipeline.records_per_batch_max)
            .load()
        )

    def own_rows(self, side: Side) -> DataFrame:
        """Kafka's columns of our topic of one kind of record."""
        return self.raw_rows(self.topics.byte_rate if side is BYTE_RATES else self.topics.consumer_lag)


BYTE_RATES = Side("broker", BYTE_RATE, FOREIGN_BYTE_RATE, LOAD_SUMS, reports_misfits=True)
LAGS = Side("group", CONSUMER_LAG, CONSUMER_LAG, LAG_SUMS, reports_misfits=False)
# Sent with the job, so that executors need Python and pyarrow, but not this package.
cloudpickle.register_pickle_by_value(sums)  # type: ignore[no-untyped-call]


def summed_rows(source: InputTopics, side: Side) -> DataFrame:
    """Sums of our topic's records."""
    return sums_of(source.own_rows(side), source.pipeline, side)


def sums_of(raw: DataFrame, settings: PipelineSettings, side: Side) -> DataFrame:
    """Returns Kafka's records that fit, as columns of the side's sums, each row of one window and key.

    Records beyond doubt come summed from Arrow, the others one by one from Spark's own parser and rules.
    """
    raw = raw.select(credible_time("timestamp").alias("timestamp"), "value")
    columns_of_sums = sums_of_one(side.sums, settings.window_ms)
    if settings.python_on_executors:
        columns = from_arrow_schema(side.sums.schema(to_arrow_schema(record_schema(side.shape))))
        some_summed = raw.mapInArrow(summing(settings, side), StructType(raw.schema.fields + columns.fields))
        raw = some_summed.select(
            "timestamp", "value", f.struct(*columns.names).alias("sums"), f.col("sample_count").alias("samples")
        )
        is_one = f.col("samples").isNull()
        columns_of_sums = {
            name: f.when(is_one, one).otherwise(f.col(f"sums.{name}")) for name, one in columns_of_sums.items()
        }
    fitting = _judged_own(raw, settings, side, credible=True).where(f.col("reason").isNull())
    return fitting.select(*(column.alias(name) for name, column in columns_of_sums.items()))


def summing(settings: PipelineSettings, side: Side) -> "partial[Iterator[pa.RecordBatch]]":
    """What is done with Arrow's batches of `timestamp` and `value` on the executors."""
    shape, of_side, window_ms = side.shape, side.sums, settings.window_ms
    fitting = sums.Fitting(
        to_arrow_schema(record_schema(shape)), shape.required, shape.together, shape.not_negative, shape.greatest,
        RECORD_VERSION, EVENT_TIME_MIN_MS, settings.skew_max_ms,
    )  # fmt: skip
    return partial(sums.summed, fitting=fitting, sums=of_side, window_ms=window_ms)


def accepted_rows(source: InputTopics, side: Side) -> DataFrame:
    """Our rows of one kind that fit and those of foreign topics, record by record; `foreign` marks the latter."""
    own = accepted(_own(source, side))
    foreign = accepted(_foreign(source, side)).withColumn("foreign", f.lit(True))
    return own.withColumn("foreign", f.lit(False)).unionByName(foreign, allowMissingColumns=True)


def rejected_rows(source: InputTopics) -> DataFrame:
    """Records of all topics that don't fit, in the columns of the table rejected_record."""
    parts = [rejected(_own(source, side), side.shape) for side in (BYTE_RATES, LAGS)]
    if source.topics.foreign:
        parts += [rejected(_foreign(source, side), side.foreign_shape) for side in (BYTE_RATES, LAGS)]
    return reduce(DataFrame.unionByName, parts)


def kafka_options(settings: KafkaSettings, *topics: str) -> dict[str, str]:
    """Options of Spark's Kafka source, for streams and for batches: what to read and how."""
    of_client = {f"kafka.{key}": value for key, value in (spark_options(settings) | FETCH_OPTIONS).items()}
    return {"subscribe": ",".join(topics), **of_client}


def adapt(topic: str, value: bytes | None, formats: dict[str, str], context: Context, side: Side) -> Adapted:
    """(payload, None, None) for each of our records that a foreign one gives; of what can't be read (None, reason,
    field), at most once.

    >>> adapt("t", b"{", {"t": "telegraf-json"}, Context("main", {}), BYTE_RATES)
    [(None, 'not_json', None)]
    """
    try:
        items = _items(value, formats[topic], context)
    except Misfit as misfit:
        items = [misfit]
    records = [item for item in items if not isinstance(item, Misfit) and side.mark in item]
    rows: Adapted = [(json.dumps(record), None, None) for record in records]
    misfits = [item for item in items if isinstance(item, Misfit)]
    if misfits and side.reports_misfits:
        rows.append((None, misfits[0].reason, misfits[0].field))
    return rows


def _items(value: bytes | None, name: str, context: Context) -> list[Record | Misfit]:
    if not value:
        raise Misfit("empty")
    if len(value) > VALUE_BYTES_MAX:
        raise Misfit("too_large")
    return PARSERS[name](value, context)


def _judged_own(raw: DataFrame, settings: PipelineSettings, side: Side, *, credible: bool = False) -> DataFrame:
    return judged(
        raw, side.shape, clock_skew_max_ms=settings.skew_max_ms, name=f"judged_{side.mark}", credible=credible
    )


def _own(source: InputTopics, side: Side) -> DataFrame:
    return _judged_own(source.own_rows(side), source.pipeline, side)


def _foreign(source: InputTopics, side: Side) -> DataFrame:
    formats: dict[str, str] = dict(source.topics.foreign)
    context = Context(source.kafka.cluster_name, dict(source.topics.broker_ids), dict(source.topics.clusters))

    @f.udf(returnType=ArrayType(_ROW), useArrow=False)
    def read(topic: str, value: bytearray | None) -> Adapted:
        return adapt(topic, None if value is None else bytes(value), formats, context, side)

    raw = source.raw_rows(*sorted(formats))
    rows = raw.select(*KAFKA_COLUMNS, f.explode(read("topic", "value")).alias("row"))
    misfit = f.when(f.col("row.reason").isNotNull(), f.struct("row.reason", "row.field"))
    adapted = rows.select(*KAFKA_COLUMNS, f.col("row.payload").cast("binary").alias("payload"), misfit.alias("misfit"))
    skew = source.pipeline.skew_max_ms
    return judged(adapted, side.foreign_shape, clock_skew_max_ms=skew, name=f"judged_foreign_{side.mark}")
