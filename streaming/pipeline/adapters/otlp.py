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
)

_IO, _MESSAGES = "kafka.network.io", "kafka.message.count"
_GROUP_FIELDS = {"kafka.consumer_group.lag": "lag_records", "kafka.consumer_group.offset": "committed_offset"}
_PARTITION_FIELDS = {
    "kafka.partition.current_offset": "log_end_offset",
    "kafka.partition.oldest_offset": "log_start_offset",
}
_DELTA = (1, "AGGREGATION_TEMPORALITY_DELTA")


@dataclass(frozen=True, slots=True)
class Point:
    """One data point with the labels of its resource below its own."""

    metric: str
    labels: Mapping[str, str]
    time_ms: int
    interval_ms: int | None
    """Of a delta; None of what is cumulative or a gauge."""
    value: float


def read_otlp(value: bytes, context: Context) -> list[Record | Misfit]:
    """Records of every point in it that we know, a Misfit for each of a broker unknown; raises Misfit."""
    payload = json_object(value)
    try:
        points = list(_points(payload))
        return [*_byte_rates(points, context), *_lags(points, context)]
    except KeyError as error:
        raise Misfit("missing_field", str(error.args[0])) from None
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise Misfit("wrong_type") from None


def _points(payload: Mapping[str, Any]) -> Iterator[Point]:
    for of_resource in payload["resourceMetrics"]:
        shared = _labels(of_resource.get("resource", {}).get("attributes", []))
        metrics = [metric for scope in of_resource.get("scopeMetrics", []) for metric in scope.get("metrics", [])]
        for metric in metrics:
            kind = metric.get("sum") or metric.get("gauge") or {}
            delta = kind.get("aggregationTemporality") in _DELTA
            yield from (_point(metric["name"], shared, row, delta=delta) for row in kind.get("dataPoints", []))


def _point(metric: str, shared: Mapping[str, str], row: Mapping[str, Any], *, delta: bool) -> Point:
    time_ns = int(row["timeUnixNano"])
    interval_ms = (time_ns - int(row["startTimeUnixNano"])) // 1_000_000 if delta else None
    value = float(row["asInt"] if "asInt" in row else row["asDouble"])
    return Point(metric, {**shared, **_labels(row.get("attributes", []))}, time_ns // 1_000_000, interval_ms, value)


def _labels(attributes: list[Mapping[str, Any]]) -> dict[str, str]:
    """Strings and whole numbers; OTLP writes the latter as strings too."""
    return {row["key"]: str(next(iter(row["value"].values()), "")) for row in attributes}


def _byte_rates(points: list[Point], context: Context) -> Iterator[Record | Misfit]:
    for point in points:
        stem = _stem(point)
        if stem is not None and "topic" not in point.labels:
            yield _byte_rate(point, stem, context)


def _byte_rate(point: Point, stem: str, context: Context) -> Record | Misfit:
    try:
        broker = broker_of(point.labels, context)
    except Misfit as misfit:
        return misfit
    if point.interval_ms is None:
        return counter_record(context, broker, point.time_ms, {stem: point.value})
    if point.interval_ms <= 0:
        return Misfit("negative", "interval_ms")
    rate = point.value * 1000 / point.interval_ms
    return rate_record(context, broker, point.time_ms, point.interval_ms, {stem: rate})


def _stem(point: Point) -> str | None:
    if point.metric == _MESSAGES:
        return "messages_in"
    way = point.labels.get("direction") or point.labels.get("state")
    return f"bytes_{way}" if point.metric == _IO and way in ("in", "out") else None


def _lags(points: list[Point], context: Context) -> Iterator[Record]:
    """The offsets of a partition stand in points without a group: they are joined to each group's."""
    logs: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    groups: dict[tuple[str, str, str, int], dict[str, int]] = defaultdict(dict)
    for point in points:
        if point.metric in _PARTITION_FIELDS:
            field = _PARTITION_FIELDS[point.metric]
            logs[point.labels["topic"], point.labels["partition"]][field] = int(point.value)
        elif point.metric in _GROUP_FIELDS:
            key = (point.labels["group"], point.labels["topic"], point.labels["partition"], point.time_ms)
            groups[key][_GROUP_FIELDS[point.metric]] = int(point.value)
    for (group, topic, partition, time_ms), fields in groups.items():
        yield lag_record(context, group, topic, int(partition), time_ms, {**logs[topic, partition], **fields})
