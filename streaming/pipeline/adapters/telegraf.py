"""Telegraf's JSON: one metric `{name, tags, fields, timestamp}` or a batch `{metrics: [...]}`.

Byte rates come from Jolokia's BrokerTopicMetrics (fields like `BytesInPerSec.Count`), lag from its Burrow input
(`burrow_partition`). A metric with the tag `topic` is one of that topic alone and not a broker's total.
"""

from collections.abc import Mapping
from typing import Any

from streaming.pipeline.adapters.normal import (
    METERS,
    Context,
    Misfit,
    Record,
    broker_of,
    counter_record,
    json_object,
    lag_record,
    reading,
    to_ms,
)

_BURROW = "burrow_partition"


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
        name, tags, fields = str(metric["name"]), dict(metric.get("tags") or {}), dict(metric["fields"])
        time_ms = to_ms(metric["timestamp"])
        if name == _BURROW:
            return [_lag(tags, fields, time_ms, context.of(tags))]
        counters = _counters(fields)
        if not counters or "topic" in tags:
            return []
        return [counter_record(context.of(tags), broker_of(tags, context), time_ms, counters)]


def _counters(fields: Mapping[str, Any]) -> dict[str, float]:
    """`BytesInPerSec.Count` and its like, by our stem."""
    counters = {}
    for name, value in fields.items():
        meter, _, attribute = name.partition(".")
        stem = METERS.get(meter.lower().removesuffix("persec"))
        if stem and attribute == "Count":
            counters[stem] = float(value)
    return counters


def _lag(tags: Mapping[str, str], fields: Mapping[str, Any], time_ms: int, context: Context) -> Record:
    committed, lag = int(fields["offset"]), int(fields["lag"])
    known = committed >= 0 and lag >= 0
    offsets = {
        "committed_offset": committed,
        "lag_records": lag,
        "log_end_offset": committed + lag if known else None,
        "client_id": tags.get("client_id"),
    }
    return lag_record(context, tags["group"], tags["topic"], int(tags["partition"]), time_ms, offsets)
