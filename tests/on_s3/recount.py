"""Windows recounted from the records of the input topics, in plain Python, to be compared with the tables."""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from streaming import tables

Record = dict[str, Any]
Windows = dict[tuple[Any, ...], tuple[Any, ...]]
READ_S = 120.0
BATCH = 10_000


def read_topic(bootstrap_servers: Sequence[str], topic: str) -> list[Record]:
    """All records of a topic, in any order."""
    consumer = Consumer(
        {"bootstrap.servers": ",".join(bootstrap_servers), "group.id": "recount", "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
        places = [TopicPartition(topic, number, 0) for number in partitions]
        spans = [consumer.get_watermark_offsets(place, timeout=READ_S) for place in places]
        left = sum(end - start for start, end in spans)
        consumer.assign(places)
        records: list[Record] = []
        deadline = time.monotonic() + READ_S
        while len(records) < left:
            assert time.monotonic() < deadline, f"{topic}: {len(records)} of {left} records read"
            records += [json.loads(row.value() or b"") for row in consumer.consume(BATCH, 1.0) if row.error() is None]
        return records
    finally:
        consumer.close()


def loads(records: Iterable[Record], window_ms: int) -> Windows:
    """Of each window, broker and partition (topic and partition None: the broker itself): samples, time covered,
    bytes in and the newest size.
    """

    def counted(rows: list[Record]) -> tuple[Any, ...]:
        known = [row for row in rows if row["bytes_in_per_sec"] is not None]
        weights = [min(row["interval_ms"], 2 * window_ms) for row in known]
        covered_ms = sum(weights)
        total = sum(row["bytes_in_per_sec"] * weight for row, weight in zip(known, weights, strict=True))
        size = None if rows[-1]["topic"] is None else rows[-1].get("size_bytes")  # the table of brokers has no sizes
        return len(rows), covered_ms, total / covered_ms if covered_ms else None, size

    return _by_window(records, window_ms, ("broker", "topic", "partition"), counted)


def lags(records: Iterable[Record], window_ms: int) -> Windows:
    """Of each window, group and partition: offsets of the first and the newest sample."""

    def counted(rows: list[Record]) -> tuple[Any, ...]:
        return rows[0]["committed_offset"], rows[-1]["committed_offset"], rows[-1]["log_end_offset"]

    return _by_window(records, window_ms, ("group", "topic", "partition"), counted)


def _by_window(
    records: Iterable[Record], window_ms: int, key: tuple[str, ...], counted: Callable[[list[Record]], tuple[Any, ...]]
) -> Windows:
    rows: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda row: row["event_time_ms"]):
        start_ms = record["event_time_ms"] // window_ms * window_ms
        rows[(start_ms, *(record[name] for name in key))].append(record)
    return {place: counted(samples) for place, samples in rows.items()}


def stored_loads(root: str) -> Windows:
    """The same of `partition_load` and `broker_load`."""
    names = ("sample_count", "covered_ms", "bytes_in_per_sec")
    rows = {
        (tables.to_ms(row["window_start"]), row["broker"], row["topic"], row["partition"]):
        (*(row[name] for name in names), row["size_bytes"])
        for row in tables.read(root, "partition_load")
    }  # fmt: skip
    return rows | {
        (tables.to_ms(row["window_start"]), row["broker"], None, None): (*(row[name] for name in names), None)
        for row in tables.read(root, "broker_load")
    }


def stored_lags(root: str) -> Windows:
    """The same of `group_lag`."""
    return {
        (tables.to_ms(row["window_start"]), row["group_id"], row["topic"], row["partition"]):
        (row["committed_offset_first"], row["committed_offset"], row["log_end_offset"])
        for row in tables.read(root, "group_lag")
    }  # fmt: skip


def windows_that_differ(stored: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    """Keys, with both values where there are two; figures may differ in the last digits."""
    missing = [f"{key} is missing" for key in wanted.keys() - stored.keys()]
    more = [f"{key} is in the table alone" for key in stored.keys() - wanted.keys()]
    other = [
        f"{key}: {stored[key]}, recounted {wanted[key]}"
        for key in wanted.keys() & stored.keys()
        if not all(_same(*pair) for pair in zip(stored[key], wanted[key], strict=True))
    ]
    return missing + more + other


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-6 * max(abs(one), abs(other), 1.0)
    return bool(one == other)
