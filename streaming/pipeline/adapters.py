"""Samples that others write, as records of ours: one pure parser per format. Knows neither Spark nor a clock.

A parser takes the bytes of one Kafka record and gives our own records of both kinds (byte rates, consumer lag) as
dicts. What it doesn't know of it leaves out: such topics carry hundreds of other metrics. What it can't read is a
Misfit, raised for the whole or in the place of a part. The bytes of one topic on a broker are left out too: Kafka's
MBeans don't know them by partition, the collector does.

Cruise Control's metrics reporter writes bytes to its topic `__CruiseControlMetrics`, big-endian: class (1), version
(1), type (1), time ms (8), broker (4), for classes topic and partition the topic (4 + UTF-8), for partition its number
(4), then the value as a double (8). Rates are one-minute decaying means in bytes/s. It reports no reassignment traffic,
so what it calls replication includes reassignments.

OpenTelemetry's OTLP in JSON is what the Collector's Kafka exporter writes with encoding `otlp_json`. Lag comes from the
kafkametrics receiver (`kafka.consumer_group.*`, `kafka.partition.*`), byte rates from JMX (`kafka.network.io` with
`state` or, newer, `direction`). Sums may be cumulative (counters) or deltas (rates over their own interval).

Prometheus samples mirrored to Kafka are one a record: `{timestamp, value, name, labels}`, the JSON form that
remote-write adapters for Kafka use. Byte rates come from the broker's counters under the names that jmx_exporter's
rules give them, lag from the names of kafka_exporter and of Kafka Lag Exporter. A label without a value is no label, as
in Prometheus, and the value NaN says that a series has ended.

Telegraf's JSON is one metric `{name, tags, fields, timestamp}` or a batch `{metrics: [...]}`. Byte rates come from
Jolokia's BrokerTopicMetrics (fields like `BytesInPerSec.Count`), lag from its Burrow input (`burrow_partition`).

A sample, a point or a metric with the label or tag `topic` is one of that topic alone and not a broker's total.
"""

import json
import math
import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from streaming.contract import RECORD_VERSION
from streaming.contract.rates import (
    BYTES_IN,
    BYTES_OUT,
    MESSAGES_IN,
    RATES,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
)

Record = dict[str, Any]

METERS = {rate.meter.lower(): rate.stem for rate in RATES}
"""Meters of Kafka's BrokerTopicMetrics, lower case without PerSec: the stem of our field."""

_BROKER_LABELS = (
    "broker", "broker_id", "kafka_broker_id", "kafka.broker.id", "instance", "host", "host.name", "service.instance.id",
    "jolokia_agent_url", "agent_host",
)  # fmt: skip

_CLUSTER_LABELS = ("kafka_cluster", "kafka.cluster.alias", "strimzi_io_cluster", "cluster_name", "cluster")
"""Labels that name a cluster: ours, that of OpenTelemetry's kafkametrics receiver, Strimzi's, Kafka Lag Exporter's, and
Burrow's."""
DECAYING_MEAN_MS = 60_000
"""What a one-minute decaying mean stands for."""
_BROKER, _TOPIC, _PARTITION = 0, 1, 2
_VERSION = 0
_HEAD = struct.Struct(">bbbqi")
_LENGTH = struct.Struct(">i")
_VALUE = struct.Struct(">d")
_CRUISE_CONTROL_RATES = {
    0: BYTES_IN.stem, 1: BYTES_OUT.stem, 6: REPLICATION_BYTES_IN.stem, 7: REPLICATION_BYTES_OUT.stem,
    10: MESSAGES_IN.stem,
}  # fmt: skip
"""Types of class broker that we use."""
_IO, _MESSAGES = "kafka.network.io", "kafka.message.count"
_GROUP_FIELDS = {"kafka.consumer_group.lag": "lag_records", "kafka.consumer_group.offset": "committed_offset"}
_PARTITION_FIELDS = {
    "kafka.partition.current_offset": "log_end_offset",
    "kafka.partition.oldest_offset": "log_start_offset",
}
_OF_PARTITIONS = frozenset({*_GROUP_FIELDS, *_PARTITION_FIELDS})
_OURS = _OF_PARTITIONS | {_IO, _MESSAGES}
_DELTA = (1, "AGGREGATION_TEMPORALITY_DELTA")
_NOT_RECORDED = 1
"""The bit of a point's flags that says that it has no value."""
WHOLE_MAX = 10**30
"""Figures from here on are floats: quotients of larger whole numbers overflow."""
Row = tuple[str, dict[str, str], Mapping[str, Any], bool]
"""A metric's name, the labels of its resource, a data point, and whether it is a delta."""
_JMX_EXPORTER_COUNTER = re.compile(
    r"kafka_server_brokertopicmetrics_([a-z]+?)(?:persec)?(?:_count|_total|_count_total)"
)
_EXPORTER_FIELDS = {
    "kafka_consumergroup_lag": ("consumergroup", "lag_records"),
    "kafka_consumergroup_current_offset": ("consumergroup", "committed_offset"),
    "kafka_consumergroup_group_lag": ("group", "lag_records"),
    "kafka_consumergroup_group_offset": ("group", "committed_offset"),
}
"""Metrics of kafka_exporter and of Kafka Lag Exporter: the label that names the group, and our field."""
_BURROW = "burrow_partition"


class Misfit(Exception):
    """A record, or a part of it, that can't be read: `reason` is one word of a fixed list, `field` what is at fault."""

    def __init__(self, reason: str, field: str | None = None) -> None:
        super().__init__(reason, field)
        self.reason = reason
        self.field = field


@contextmanager
def reading() -> Iterator[None]:
    """What a sample lacks, or has in another type than expected, as Misfit."""
    try:
        yield
    except KeyError as error:
        raise Misfit("missing_field", str(error.args[0])) from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise Misfit("wrong_type") from None


@dataclass(frozen=True, slots=True)
class Context:
    """What a sample lacks: its cluster, and the broker of a host or of an agent's address."""

    kafka_cluster: str
    broker_ids: Mapping[str, int]
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Our name of each cluster that samples name in words of their own."""

    def of(self, labels: Mapping[str, str]) -> Self:
        """The context of a sample with these labels. Raises Misfit where they name a cluster that nobody knows: its
        groups and brokers would mix with those of the same names here.

        >>> Context("main", {}, {"west": "dr"}).of({"cluster": "west"}).kafka_cluster
        'dr'
        """
        name = next((name for name in _CLUSTER_LABELS if labels.get(name)), None)
        if name is None or labels[name] == self.kafka_cluster:
            return self
        if labels[name] not in self.clusters:
            raise Misfit("unknown_cluster", name)
        return replace(self, kafka_cluster=self.clusters[labels[name]])


Parser = Callable[[bytes, Context], list[Record | Misfit]]
"""Raises Misfit where nothing can be read; one in the list stands for a part that can't."""


def rate_record(context: Context, broker: int, time_ms: int, interval_ms: int, rates: Mapping[str, float]) -> Record:
    """Rates of one broker as they are, over the `interval_ms` before `time_ms`; keys are stems, like `bytes_in`."""
    record = _broker_record(context, broker, time_ms)
    return record | {"interval_ms": interval_ms} | {f"{stem}_per_sec": value for stem, value in rates.items()}


def counter_record(context: Context, broker: int, time_ms: int, counters: Mapping[str, float]) -> Record:
    """Counters of one broker since it started; the windows make rates of them."""
    record = _broker_record(context, broker, time_ms)
    return record | {"interval_ms": 0} | {f"{stem}_total": value for stem, value in counters.items()}


def lag_record(
    context: Context, group: str, topic: str, partition: int, time_ms: int, fields: Mapping[str, int | str | None]
) -> Record:
    """Offsets of one group and partition; exporters write a negative offset or lag if none is known."""
    known = {name: None if isinstance(value, int) and value < 0 else value for name, value in fields.items()}
    return {
        "v": RECORD_VERSION, "kafka_cluster": context.kafka_cluster, "group": group, "topic": topic,
        "partition": partition, "event_time_ms": time_ms, **known,
    }  # fmt: skip


def log_end_of(committed: int | None, lag: int | None) -> int | None:
    """The log end that a committed offset and its lag show; None where either is unknown, for exporters negative.

    >>> log_end_of(100, 50), log_end_of(100, -1), log_end_of(None, 50)
    (150, None, None)
    """
    if committed is None or lag is None or committed < 0 or lag < 0:
        return None
    return committed + lag


def broker_of(labels: Mapping[str, str], context: Context) -> int:
    """The broker that a sample is of: a label that is its id, or one that the settings' `broker_ids` knows.

    >>> broker_of({"instance": "kafka-1:7071"}, Context("main", {"kafka-1:7071": 1}))
    1
    """
    for name in _BROKER_LABELS:
        value = labels.get(name)
        if value is None:
            continue
        if value in context.broker_ids:
            return context.broker_ids[value]
        if value.isascii() and value.isdigit():
            return int(value)
    raise Misfit("unknown_broker", next((name for name in _BROKER_LABELS if name in labels), None))


def number(value: Any) -> float:
    """A figure, whole ones exactly. Raises TypeError for a truth value, ValueError for words, OverflowError.

    >>> number(7), number("7"), number("1.5e3")
    (7, 7, 1500.0)
    """
    if isinstance(value, bool):
        raise TypeError("a truth value is no figure")
    if isinstance(value, int):
        return value if abs(value) < WHOLE_MAX else float(value)
    return int(value) if re.fullmatch("-?[0-9]{1,30}", str(value)) else float(value)


def to_ms(timestamp: float) -> int:
    """Milliseconds, from a time in s, ms, us or ns: for a century to come no two of them can be confused.

    >>> to_ms(1700000000), to_ms(1700000000000), to_ms(1700000000000000), to_ms(1700000000000000000)
    (1700000000000, 1700000000000, 1700000000000, 1700000000000)
    """
    if isinstance(timestamp, bool):
        raise TypeError("a time is a number")
    for limit, factor in ((1e11, 1000), (1e14, 1)):
        if timestamp < limit:
            return int(timestamp * factor)
    return int(timestamp // (1_000 if timestamp < 1e17 else 1_000_000))


def json_object(value: bytes) -> dict[str, Any]:
    """The object that the bytes spell; raises Misfit."""
    try:
        parsed = json.loads(value)
    except UnicodeDecodeError:
        raise Misfit("not_utf8") from None
    except (ValueError, RecursionError):
        raise Misfit("not_json") from None
    if not isinstance(parsed, dict):
        raise Misfit("not_json")
    return parsed


def _broker_record(context: Context, broker: int, time_ms: int) -> Record:
    return {
        "v": RECORD_VERSION, "kafka_cluster": context.kafka_cluster, "broker": broker, "topic": None,
        "partition": None, "event_time_ms": time_ms,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as it was written; `topic` and `partition` are None where its class has none."""

    type_id: int
    time_ms: int
    broker: int
    topic: str | None
    partition: int | None
    value: float


def read_cruise_control(value: bytes, context: Context) -> list[Record | Misfit]:
    """One rate of one broker, or nothing of other metrics; raises Misfit."""
    metric = decode(value)
    stem = _CRUISE_CONTROL_RATES.get(metric.type_id)
    if metric.topic is not None or stem is None:
        return []
    return [rate_record(context, metric.broker, metric.time_ms, DECAYING_MEAN_MS, {stem: metric.value})]


def decode(data: bytes) -> Metric:
    """The metric that the bytes spell; raises Misfit.

    >>> decode(bytes.fromhex("0000000000018bcfe568000000000340934a0000000000"))
    Metric(type_id=0, time_ms=1700000000000, broker=3, topic=None, partition=None, value=1234.5)
    """
    try:
        kind, version, type_id, time_ms, broker = _HEAD.unpack_from(data, 0)
        if version != _VERSION:
            raise Misfit("unknown_version")
        if kind not in (_BROKER, _TOPIC, _PARTITION):
            raise Misfit("wrong_type", "class")
        at = _HEAD.size
        topic = partition = None
        if kind != _BROKER:
            topic, at = _text(data, at)
        if kind == _PARTITION:
            (partition,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size
        (value,) = _VALUE.unpack_from(data, at)
    except struct.error:
        raise Misfit("truncated") from None
    return Metric(type_id, time_ms, broker, topic, partition, value)


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    end = at + _LENGTH.size + length
    if length < 0 or end > len(data):
        raise Misfit("truncated")
    try:
        return data[at + _LENGTH.size : end].decode(), end
    except UnicodeDecodeError:
        raise Misfit("not_utf8") from None


@dataclass(frozen=True, slots=True)
class Point:
    """One data point with the labels of its resource below its own."""

    metric: str
    labels: Mapping[str, str]
    time_ms: int
    interval_ms: int | None
    """Interval of a delta, ms; None for a value that is cumulative or a gauge."""
    value: float
    context: Context
    """Context of the point's cluster."""


def read_otlp(value: bytes, context: Context) -> list[Record | Misfit]:
    """Records of every point in it that we know, a Misfit for each that can't be read; raises Misfit."""
    payload = json_object(value)
    with reading():
        rows = list(_rows(payload))
    read = [_read(row, context) for row in rows]
    points = [point for point in read if isinstance(point, Point)]
    misfits = [misfit for misfit in read if isinstance(misfit, Misfit)]
    return [*misfits, *_byte_rates(points), *_lags(points)]


def _rows(payload: Mapping[str, Any]) -> Iterator[Row]:
    """The data points of metrics that are ours, unread. A point that says that nothing was recorded is none."""
    for of_resource in payload["resourceMetrics"]:
        shared = _labels((of_resource.get("resource") or {}).get("attributes"))
        scopes = of_resource.get("scopeMetrics") or []
        metrics = [metric for scope in scopes for metric in scope.get("metrics") or []]
        for metric in metrics:
            if metric["name"] not in _OURS:
                continue
            kind = metric.get("sum") or metric.get("gauge") or {}
            delta = kind.get("aggregationTemporality") in _DELTA
            for row in kind.get("dataPoints") or []:
                if not int(row.get("flags") or 0) & _NOT_RECORDED:
                    yield metric["name"], shared, row, delta


def _read(row: Row, context: Context) -> Point | Misfit:
    metric, shared, content, delta = row
    try:
        with reading():
            labels = {**shared, **_labels(content.get("attributes"))}
            time_ns = int(content["timeUnixNano"])
            interval_ms = (time_ns - int(content["startTimeUnixNano"])) // 1_000_000 if delta else None
            value = number(content["asInt"] if "asInt" in content else content["asDouble"])
            if metric in _OF_PARTITIONS:
                labels["topic"], int(labels["partition"]), int(value)  # what is joined below is there
            return Point(metric, labels, time_ns // 1_000_000, interval_ms, value, context.of(labels))
    except Misfit as misfit:
        return misfit


def _labels(attributes: list[Mapping[str, Any]] | None) -> dict[str, str]:
    """Strings and whole numbers, which OTLP writes as strings too. A null of protobuf's JSON stands for nothing."""
    return {row["key"]: str(next(iter((row.get("value") or {}).values()), "")) for row in attributes or []}


def _byte_rates(points: list[Point]) -> Iterator[Record | Misfit]:
    for point in points:
        stem = _stem(point)
        if stem is not None and not point.labels.get("topic"):
            yield _byte_rate(point, stem)


def _byte_rate(point: Point, stem: str) -> Record | Misfit:
    try:
        broker = broker_of(point.labels, point.context)
        if point.interval_ms is None:
            return counter_record(point.context, broker, point.time_ms, {stem: point.value})
        if point.interval_ms <= 0:
            raise Misfit("negative", "interval_ms")
        with reading():
            rate = point.value * 1000 / point.interval_ms
    except Misfit as misfit:
        return misfit
    return rate_record(point.context, broker, point.time_ms, point.interval_ms, {stem: rate})


def _stem(point: Point) -> str | None:
    if point.metric == _MESSAGES:
        return "messages_in"
    way = point.labels.get("direction") or point.labels.get("state")
    return f"bytes_{way}" if point.metric == _IO and way in ("in", "out") else None


def _lags(points: list[Point]) -> Iterator[Record | Misfit]:
    """The offsets of a partition stand in points without a group: they are joined to each group's of their cluster,
    each to the nearest in time, as a payload may hold several samples.
    """
    logs: dict[tuple[str, str, str], dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    groups: dict[tuple[str, tuple[str, str, str], int], dict[str, int]] = defaultdict(dict)
    contexts: dict[str, Context] = {}
    for point in points:
        if point.metric not in _OF_PARTITIONS:
            continue
        contexts[point.context.kafka_cluster] = point.context
        where = point.context.kafka_cluster, point.labels["topic"], point.labels["partition"]
        if point.metric in _PARTITION_FIELDS:
            logs[where][_PARTITION_FIELDS[point.metric]][point.time_ms] = int(point.value)
        elif "group" not in point.labels:
            yield Misfit("missing_field", "group")
        else:
            groups[point.labels["group"], where, point.time_ms][_GROUP_FIELDS[point.metric]] = int(point.value)
    for (group, where, time_ms), fields in groups.items():
        cluster, topic, partition = where
        of_log = {name: offsets[_nearest(offsets, time_ms)] for name, offsets in logs[where].items()}
        known = {"log_end_offset": log_end_of(fields.get("committed_offset"), fields.get("lag_records")), **of_log}
        yield lag_record(contexts[cluster], group, topic, int(partition), time_ms, {**known, **fields})


def _nearest(times_ms: Iterable[int], time_ms: int) -> int:
    return min(times_ms, key=lambda other_ms: (abs(other_ms - time_ms), other_ms))


def read_prometheus(value: bytes, context: Context) -> list[Record | Misfit]:
    """The one record of a sample that we know, nothing of a series that has ended; raises Misfit."""
    sample = json_object(value)
    with reading():
        labels = _texts(sample["labels"])
        name = str(sample.get("name") or labels["__name__"])
        figure = number(sample["value"])
        time_ms = _time_ms(sample["timestamp"])
        counter = _JMX_EXPORTER_COUNTER.fullmatch(name.lower())
        stem = METERS.get(counter[1]) if counter else None
        if math.isnan(figure):
            return []
        if stem and not labels.get("topic"):
            return [counter_record(context.of(labels), broker_of(labels, context), time_ms, {stem: figure})]
        if name in _EXPORTER_FIELDS:
            label, field_name = _EXPORTER_FIELDS[name]
            group, topic, partition = labels[label], labels["topic"], int(labels["partition"])
            return [lag_record(context.of(labels), group, topic, partition, time_ms, {field_name: int(figure)})]
        return []


def _texts(labels: Any) -> dict[str, str]:
    """Labels or tags as texts, without those that are null."""
    return {str(name): str(label) for name, label in dict(labels).items() if label is not None}


def _time_ms(timestamp: Any) -> int:
    """A number in any unit, as such or as text, or ISO 8601.

    >>> _time_ms(1700000000), _time_ms("1700000000000"), _time_ms("2023-11-14T22:13:20Z")
    (1700000000000, 1700000000000, 1700000000000)
    """
    if isinstance(timestamp, int | float):
        return to_ms(timestamp)
    if re.fullmatch(r"[0-9]{9,19}", timestamp):
        return to_ms(int(timestamp))
    moment = datetime.fromisoformat(timestamp)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def read_telegraf(value: bytes, context: Context) -> list[Record | Misfit]:
    """Records of every metric in it that we know, a Misfit for each that can't be read; raises Misfit."""
    payload = json_object(value)
    metrics = payload.get("metrics", [payload])
    if not isinstance(metrics, list):
        raise Misfit("wrong_type", "metrics")
    items: list[Record | Misfit] = []
    for metric in metrics:
        try:
            items += _records(metric, context)
        except Misfit as misfit:
            items.append(misfit)
    return items


def _records(metric: Any, context: Context) -> list[Record]:
    with reading():
        name, tags, fields = str(metric["name"]), _texts(metric.get("tags") or {}), dict(metric["fields"])
        time_ms = _time_ms(metric["timestamp"])
        if name == _BURROW:
            return [_lag(tags, fields, time_ms, context.of(tags))]
        counters = _counters(fields)
        if not counters or tags.get("topic"):
            return []
        return [counter_record(context.of(tags), broker_of(tags, context), time_ms, counters)]


def _counters(fields: Mapping[str, Any]) -> dict[str, float]:
    """`BytesInPerSec.Count` and its like, by our stem."""
    counters = {}
    for name, value in fields.items():
        meter, _, attribute = name.partition(".")
        stem = METERS.get(meter.lower().removesuffix("persec"))
        if stem and attribute == "Count" and value is not None:
            counters[stem] = number(value)
    return counters


def _lag(tags: Mapping[str, str], fields: Mapping[str, Any], time_ms: int, context: Context) -> Record:
    committed, lag = int(number(fields["offset"])), int(number(fields["lag"]))
    if fields.get("timestamp") == 0:
        # Burrow knows no commit of the partition: its null is zeros in Telegraf.
        committed = lag = -1
    offsets = {
        "committed_offset": committed,
        "lag_records": lag,
        "log_end_offset": log_end_of(committed, lag),
        "client_id": tags.get("client_id"),
    }
    return lag_record(context, tags["group"], tags["topic"], int(tags["partition"]), time_ms, offsets)


PARSERS: dict[str, Parser] = {
    "cruise-control": read_cruise_control,
    "telegraf-json": read_telegraf,
    "otlp-json": read_otlp,
    "prometheus-json": read_prometheus,
}
"""Parsers by the name that the settings use."""
