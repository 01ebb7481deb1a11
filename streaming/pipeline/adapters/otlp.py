"""OpenTelemetry's OTLP in JSON, as the Collector's Kafka exporter writes it with encoding `otlp_json`.

Lag comes from the kafkametrics receiver (`kafka.consumer_group.*`, `kafka.partition.*`), byte rates from JMX
(`kafka.network.io` with `state` or, newer, `direction`). A point with `topic` is one of that topic alone. Sums may be
cumulative (counters) or deltas (rates over their own interval).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.pipeline.adapters.normal import (
    Context,
    Misfit,
    Record,
    broker_of,
    counter_record,
    json_object,
    lag_record,
    rate_record,
    reading,
)

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

Row = tuple[str, dict[str, str], Mapping[str, Any], bool]
"""A metric's name, the labels of its resource, a data point, and whether it is a delta."""


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
        shared = _labels(of_resource.get("resource", {}).get("attributes", []))
        metrics = [metric for scope in of_resource.get("scopeMetrics", []) for metric in scope.get("metrics", [])]
        for metric in metrics:
            if metric["name"] not in _OURS:
                continue
            kind = metric.get("sum") or metric.get("gauge") or {}
            delta = kind.get("aggregationTemporality") in _DELTA
            for row in kind.get("dataPoints", []):
                if not int(row.get("flags", 0)) & _NOT_RECORDED:
                    yield metric["name"], shared, row, delta


def _read(row: Row, context: Context) -> Point | Misfit:
    metric, shared, content, delta = row
    try:
        with reading():
            labels = {**shared, **_labels(content.get("attributes", []))}
            time_ns = int(content["timeUnixNano"])
            interval_ms = (time_ns - int(content["startTimeUnixNano"])) // 1_000_000 if delta else None
            value = float(content["asInt"] if "asInt" in content else content["asDouble"])
            if metric in _OF_PARTITIONS:
                labels["topic"], int(labels["partition"]), int(value)  # what is joined below is there
            return Point(metric, labels, time_ns // 1_000_000, interval_ms, value, context.of(labels))
    except Misfit as misfit:
        return misfit


def _labels(attributes: list[Mapping[str, Any]]) -> dict[str, str]:
    """Strings and whole numbers; OTLP writes the latter as strings too."""
    return {row["key"]: str(next(iter(row["value"].values()), "")) for row in attributes}


def _byte_rates(points: list[Point]) -> Iterator[Record | Misfit]:
    for point in points:
        stem = _stem(point)
        if stem is not None and "topic" not in point.labels:
            yield _byte_rate(point, stem)


def _byte_rate(point: Point, stem: str) -> Record | Misfit:
    try:
        broker = broker_of(point.labels, point.context)
    except Misfit as misfit:
        return misfit
    if point.interval_ms is None:
        return counter_record(point.context, broker, point.time_ms, {stem: point.value})
    if point.interval_ms <= 0:
        return Misfit("negative", "interval_ms")
    rate = point.value * 1000 / point.interval_ms
    return rate_record(point.context, broker, point.time_ms, point.interval_ms, {stem: rate})


def _stem(point: Point) -> str | None:
    if point.metric == _MESSAGES:
        return "messages_in"
    way = point.labels.get("direction") or point.labels.get("state")
    return f"bytes_{way}" if point.metric == _IO and way in ("in", "out") else None


def _lags(points: list[Point]) -> Iterator[Record | Misfit]:
    """The offsets of a partition stand in points without a group: they are joined to each group's of their cluster."""
    logs: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    groups: dict[tuple[str, tuple[str, str, str], int], dict[str, int]] = defaultdict(dict)
    contexts: dict[str, Context] = {}
    for point in points:
        if point.metric not in _OF_PARTITIONS:
            continue
        contexts[point.context.kafka_cluster] = point.context
        where = point.context.kafka_cluster, point.labels["topic"], point.labels["partition"]
        if point.metric in _PARTITION_FIELDS:
            logs[where][_PARTITION_FIELDS[point.metric]] = int(point.value)
        elif "group" not in point.labels:
            yield Misfit("missing_field", "group")
        else:
            groups[point.labels["group"], where, point.time_ms][_GROUP_FIELDS[point.metric]] = int(point.value)
    for (group, where, time_ms), fields in groups.items():
        cluster, topic, partition = where
        yield lag_record(contexts[cluster], group, topic, int(partition), time_ms, {**logs[where], **fields})
