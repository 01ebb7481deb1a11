"""Which records fit and which don't, rule by rule, in Spark but without a broker."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.contract.records import BYTE_RATE, CONSUMER_LAG, COUNTER_MAX, FOREIGN_BYTE_RATE, PARTITION_MAX
from streaming.pipeline.records import VALUE_BYTES_MAX, accepted, judged, rejected
from tests.pipeline.test_windows import BASE_MS, lag_record, load_record, session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture

KAFKA_SCHEMA = "topic string, partition int, offset long, timestamp timestamp, key binary, value binary"
KAFKA_TIME = datetime.fromtimestamp(BASE_MS / 1000, tz=UTC)
SKEW_MS = 60_000


def value(**changes: Any) -> bytes:
    """A record that fits, with changes."""
    return json.dumps(load_record(1, 0, 0) | changes).encode()


def without(name: str) -> bytes:
    record = load_record(1, 0, 0)
    del record[name]
    return json.dumps(record).encode()


LOADS: list[tuple[bytes | None, str | None, str | None]] = [
    (value(), None, None),
    (value(added_later=[1, {"x": None}]), None, None),
    (value(topic=None, partition=None, role=None), None, None),
    (value(event_time_ms=BASE_MS + SKEW_MS), None, None),
    (value(bytes_in_per_sec=None), None, None),
    (b" " + value() + b"\n", None, None),
    (None, "empty", None),
    (b"", "empty", None),
    (b"{" + b" " * VALUE_BYTES_MAX + b"}", "too_large", None),
    (b"\xff\xfe" + value(), "not_utf8", None),
    (b"rubbish", "not_json", None),
    (value()[:-9], "not_json", None),
    (b"[" + value() + b"]", "not_json", None),
    (b"17", "not_json", None),
    (value(broker="one"), "wrong_type", None),
    (value(broker=2**40), "wrong_type", None),
    (value(event_time_ms=2**80), "wrong_type", None),
    (value(size_bytes=1.5), "wrong_type", None),
    (value(bytes_in_per_sec=float("nan")), "not_a_number", "bytes_in_per_sec"),
    (value(bytes_in_per_sec=float("inf")), "not_a_number", "bytes_in_per_sec"),
    *((without(name), "missing_field", name) for name in BYTE_RATE.required),
    (value(topic=None), "missing_field", "topic"),
    (value(partition=None), "missing_field", "partition"),
    (value(role=None), "missing_field", "role"),
    (value(topic=None, role=None), "missing_field", "topic"),
    (value(v=2), "unknown_version", "v"),
    (value(bytes_out_per_sec=-0.5), "negative", "bytes_out_per_sec"),
    (value(partition=-1), "negative", "partition"),
    (value(interval_ms=2**62), "out_of_range", "interval_ms"),
    (value(partition=PARTITION_MAX), None, None),
    (value(partition=PARTITION_MAX + 1), "out_of_range", "partition"),
    (value(bytes_out_per_sec=1e300), "out_of_range", "bytes_out_per_sec"),
    (value(event_time_ms=BASE_MS // 1000), "past", "event_time_ms"),
    (value(event_time_ms=BASE_MS + SKEW_MS + 1), "future", "event_time_ms"),
    (value(event_time_ms=BASE_MS * 1000), "future", "event_time_ms"),
]
LAGS: list[tuple[bytes | None, str | None, str | None]] = [
    (json.dumps(lag_record(0, 0, None, 7)).encode(), None, None),
    (json.dumps({**lag_record(0, 0, 1, 7), "group": None}).encode(), "missing_field", "group"),
    (json.dumps({**lag_record(0, 0, 1, 7), "lag_records": -1}).encode(), "negative", "lag_records"),
    (json.dumps({**lag_record(0, 0, 1, 7), "partition": 2**31 - 1}).encode(), "out_of_range", "partition"),
    (json.dumps({**lag_record(0, 0, 1, 7), "committed_offset": 2**62}).encode(), "out_of_range", "committed_offset"),
    (json.dumps({**lag_record(0, 0, 1, 7), "lag_records": 2**63 - 1}).encode(), "out_of_range", "lag_records"),
]
FOREIGN: list[tuple[bytes | None, str | None, str | None]] = [
    (value(bytes_in_total=COUNTER_MAX), None, None),
    (value(bytes_in_total=1e306), "out_of_range", "bytes_in_total"),
    (value(replication_bytes_out_total=1.1 * COUNTER_MAX), "out_of_range", "replication_bytes_out_total"),
]


@pytest.mark.parametrize(
    ("shape", "cases"),
    [(BYTE_RATE, LOADS), (CONSUMER_LAG, LAGS), (FOREIGN_BYTE_RATE, FOREIGN)],
    ids=["loads", "lags", "foreign loads"],
)
def test_each_misfit_has_its_reason(session: SparkSession, shape: Any, cases: list[Any]) -> None:
    rows = [("in", 0, offset, KAFKA_TIME, b"k", case[0]) for offset, case in enumerate(cases)]
    judged_rows = judged(session.createDataFrame(rows, KAFKA_SCHEMA), shape, clock_skew_max_ms=SKEW_MS)
    by_offset = {row["source_offset"]: row for row in rejected(judged_rows, shape).collect()}
    for offset, (raw, reason, field) in enumerate(cases):
        row = by_offset.get(offset)
        assert (row and row["reason"], row and row["field"]) == (reason, field), raw
        if row and raw is not None:
            assert row["value"] == raw[:VALUE_BYTES_MAX]
    assert accepted(judged_rows).count() == len([case for case in cases if case[1] is None])


def test_raw_keys_and_values_are_cut(session: SparkSession) -> None:
    long = b"k" * (VALUE_BYTES_MAX + 1)
    raw = session.createDataFrame([("in", 0, 0, KAFKA_TIME, long, long)], KAFKA_SCHEMA)
    (row,) = rejected(judged(raw, BYTE_RATE, clock_skew_max_ms=SKEW_MS), BYTE_RATE).collect()
    assert (len(row["key"]), len(row["value"])) == (VALUE_BYTES_MAX, VALUE_BYTES_MAX)
