"""Prometheus samples mirrored to Kafka, one a record: `{timestamp, value, name, labels}`, the JSON form that
remote-write adapters for Kafka use.

Byte rates come from the broker's counters under the names that jmx_exporter's rules give them, lag from the names of
kafka_exporter. A sample with the label `topic` is one of that topic alone and not a broker's total.
"""

import re
from datetime import UTC, datetime
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

_COUNTER = re.compile(r"kafka_server_brokertopicmetrics_([a-z]+?)(?:persec)?(?:_count|_total|_count_total)")
_LAG_FIELDS = {"kafka_consumergroup_lag": "lag_records", "kafka_consumergroup_current_offset": "committed_offset"}


def read_prometheus(value: bytes, context: Context) -> list[Record | Misfit]:
    """The one record of a sample that we know; raises Misfit."""
    sample = json_object(value)
    with reading():
        labels = {str(key): str(label) for key, label in dict(sample["labels"]).items()}
        name = str(sample.get("name") or labels["__name__"])
        figure = float(sample["value"])
        time_ms = _time_ms(sample["timestamp"])
        counter = _COUNTER.fullmatch(name.lower())
        stem = METERS.get(counter[1]) if counter else None
        if stem and "topic" not in labels:
            return [counter_record(context.of(labels), broker_of(labels, context), time_ms, {stem: figure})]
        if name in _LAG_FIELDS:
            fields, own = {_LAG_FIELDS[name]: int(figure)}, context.of(labels)
            group, topic, partition = labels["consumergroup"], labels["topic"], int(labels["partition"])
            return [lag_record(own, group, topic, partition, time_ms, fields)]
        return []


def _time_ms(timestamp: Any) -> int:
    """A number in any unit, or ISO 8601."""
    if isinstance(timestamp, int | float):
        return to_ms(timestamp)
    moment = datetime.fromisoformat(timestamp)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
