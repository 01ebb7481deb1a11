"""Cruise Control's metrics reporter: the bytes on its topic `__CruiseControlMetrics`.

Big-endian: class (1), version (1), type (1), time ms (8), broker (4), for classes topic and partition the topic
(4 + UTF-8), for partition its number (4), then the value as a double (8). Rates are one-minute decaying means in
bytes/s. It reports no reassignment traffic, so what it calls replication includes reassignments.
"""

import struct
from dataclasses import dataclass

from streaming.contract.rates import BYTES_IN, BYTES_OUT, MESSAGES_IN, REPLICATION_BYTES_IN, REPLICATION_BYTES_OUT
from streaming.pipeline.adapters.normal import Context, Misfit, Record, rate_record

INTERVAL_MS = 60_000
"""What a one-minute decaying mean stands for."""

_BROKER, _TOPIC, _PARTITION = 0, 1, 2
_VERSION = 0
_HEAD = struct.Struct(">bbbqi")
_LENGTH = struct.Struct(">i")
_VALUE = struct.Struct(">d")

_RATES = {
    0: BYTES_IN.stem, 1: BYTES_OUT.stem, 6: REPLICATION_BYTES_IN.stem, 7: REPLICATION_BYTES_OUT.stem,
    10: MESSAGES_IN.stem,
}  # fmt: skip
"""Types of class broker that we use."""


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
    stem = _RATES.get(metric.type_id)
    if metric.topic is not None or stem is None:
        return []
    return [rate_record(context, metric.broker, metric.time_ms, INTERVAL_MS, {stem: metric.value})]


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
