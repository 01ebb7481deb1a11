"""The load part of a snapshot: brokers, skew and hot partitions of the newest closed window, and the skew before it.

A window is closed once its rows are final or an event later than its end plus the watermark was seen, the same rule
that the trigger goes by; skew is `assignor_core.skew`, so page, metrics and trigger show one figure.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.skew import Skew, skew_of
from streaming import tables
from streaming.serve.reading import TableReader, text
from streaming.settings import Settings
from streaming.tables import instant

HISTORY_WINDOWS = 60
LEFT_OUT_OF_STATUS = {"status": False}
"""Metadata of a field that is too large for /api/status."""
RESOURCES = ("bytes_in", "bytes_out", "disk", "leaders", "replicas")

_RATES = (
    "bytes_in_per_sec", "bytes_out_per_sec", "messages_in_per_sec", "replication_bytes_in_per_sec",
    "replication_bytes_out_per_sec", "reassignment_bytes_in_per_sec", "reassignment_bytes_out_per_sec",
)  # fmt: skip
_DISK = ("log_dir_used_bytes", "log_dir_usable_bytes")
_COLUMNS = ("window_start", "window_end", "broker", "rack", *_RATES, *_DISK, "last_event_time_ms", "is_final")


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """One broker; rates are None where they are unknown in the newest closed window, or where it sent no sample."""

    broker: int
    rack: str | None
    bytes_in_per_sec: float | None
    bytes_out_per_sec: float | None
    messages_in_per_sec: float | None
    replication_bytes_in_per_sec: float | None
    replication_bytes_out_per_sec: float | None
    reassignment_bytes_in_per_sec: float | None
    reassignment_bytes_out_per_sec: float | None
    log_dir_used_bytes: int | None
    log_dir_usable_bytes: int | None
    leaders: int | None
    replicas: int | None
    last_sample_ms: int

    def load(self, resource: str) -> float | None:
        """What skew of `resource` is measured on: client and replication traffic together, bytes, or a count."""
        match resource:
            case "bytes_in":
                return _plus(self.bytes_in_per_sec, self.replication_bytes_in_per_sec)
            case "bytes_out":
                return _plus(self.bytes_out_per_sec, self.replication_bytes_out_per_sec)
            case "disk":
                return self.log_dir_used_bytes
            case "leaders":
                return self.leaders
            case _:
                return self.replicas


@dataclass(frozen=True, slots=True)
class HotPartition:
    """A partition among those with most bytes written."""

    broker: int
    topic: str
    partition: int
    bytes_in_per_sec: float


@dataclass(frozen=True, slots=True)
class WindowSkew:
    """max/mean of bytes_in in one closed window."""

    window_end_ms: int
    max_over_mean: float


@dataclass(frozen=True, slots=True)
class LoadPart:
    """The newest closed window; everything is empty before there is one."""

    window_start_ms: int | None = None
    window_end_ms: int | None = None
    brokers: tuple[BrokerLoad, ...] = ()
    brokers_reporting: int | None = None
    skew: Mapping[str, Skew] = field(default_factory=dict)
    hot_partitions: tuple[HotPartition, ...] = ()
    history: tuple[WindowSkew, ...] = ()
    leader_rates: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict, metadata=LEFT_OUT_OF_STATUS)
    """Bytes written per second to each partition of a topic, in partition order; None where it is unknown."""


def read_load(reader: TableReader, settings: Settings) -> LoadPart:
    """The load part; at most `HISTORY_WINDOWS` windows before the newest are read, however old that one is."""
    newest = reader.newest("broker_load", "window_start")
    if newest is None:
        return LoadPart()
    since = newest - timedelta(milliseconds=HISTORY_WINDOWS * settings.pipeline.window_ms)
    where = f"kafka_cluster = {text(settings.kafka.cluster_name)} and window_start >= {instant(since)}"
    rows = reader.rows("broker_load", columns=_COLUMNS, where=where)
    closed = _closed(rows, settings.pipeline.watermark_ms)
    if not closed:
        return LoadPart()
    start_ms = max(closed)
    counts, led = _partitions(reader, settings, start_ms)
    brokers = _brokers(rows, closed[start_ms], counts)
    history = [_window_skew(window, settings) for _, window in sorted(closed.items())]
    return LoadPart(
        window_start_ms=start_ms,
        window_end_ms=tables.to_ms(closed[start_ms][0]["window_end"]),
        brokers=brokers,
        brokers_reporting=sum(broker.bytes_in_per_sec is not None for broker in brokers),
        skew={name: skew for name in RESOURCES if (skew := _skew(brokers, name, settings)) is not None},
        hot_partitions=_hottest(led, settings.serve.hot_partitions),
        history=tuple(row for row in history if row is not None),
        leader_rates=_by_topic(led),
    )


def _closed(rows: list[dict[str, Any]], watermark_ms: int) -> dict[int, list[dict[str, Any]]]:
    newest_event_ms = max((row["last_event_time_ms"] for row in rows), default=0)
    windows: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        windows[tables.to_ms(row["window_start"])].append(row)
    return {
        start_ms: window
        for start_ms, window in windows.items()
        if all(row["is_final"] for row in window)
        or newest_event_ms >= tables.to_ms(window[0]["window_end"]) + watermark_ms
    }


def _brokers(
    rows: list[dict[str, Any]], window: list[dict[str, Any]], counts: Mapping[int, tuple[int, int]]
) -> tuple[BrokerLoad, ...]:
    """Every broker seen lately; one that is silent in the newest window has no figures but its last sample's time."""
    last_sample: dict[int, int] = defaultdict(int)
    rack: dict[int, str | None] = {}
    for row in sorted(rows, key=lambda row: int(row["last_event_time_ms"])):
        last_sample[row["broker"]] = row["last_event_time_ms"]
        rack[row["broker"]] = row["rack"]
    current = {row["broker"]: row for row in window}
    silent = dict.fromkeys((*_RATES, *_DISK))
    return tuple(
        BrokerLoad(
            broker=broker,
            rack=rack[broker],
            **{name: current.get(broker, silent)[name] for name in (*_RATES, *_DISK)},
            leaders=counts[broker][0] if broker in counts else None,
            replicas=counts[broker][1] if broker in counts else None,
            last_sample_ms=last_sample[broker],
        )
        for broker in sorted(last_sample)
    )


def _partitions(reader: TableReader, settings: Settings, start_ms: int) -> tuple[dict[int, tuple[int, int]], pa.Table]:
    """Leaders and replicas by broker, and the rows of leaders, of one window."""
    start = instant(tables.utc(start_ms))
    where = f"kafka_cluster = {text(settings.kafka.cluster_name)} and window_start = {start}"
    columns = ("broker", "topic", "partition", "role", "bytes_in_per_sec")
    rows = reader.arrow("partition_load", columns=columns, where=where)
    led = rows.filter(pc.equal(rows["role"], "leader"))
    replicas = {entry["values"]: entry["counts"] for entry in pc.value_counts(rows["broker"]).to_pylist()}
    leaders = {entry["values"]: entry["counts"] for entry in pc.value_counts(led["broker"]).to_pylist()}
    counts = {broker: (leaders.get(broker, 0), count) for broker, count in sorted(replicas.items())}
    return counts, led


def _hottest(led: pa.Table, count: int) -> tuple[HotPartition, ...]:
    hottest = led.filter(pc.is_valid(led["bytes_in_per_sec"])).sort_by(
        [("bytes_in_per_sec", "descending"), ("topic", "ascending"), ("partition", "ascending")]
    )
    return tuple(
        HotPartition(row["broker"], row["topic"], row["partition"], row["bytes_in_per_sec"])
        for row in hottest.slice(0, count).to_pylist()
    )


def _by_topic(led: pa.Table) -> dict[str, tuple[float | None, ...]]:
    rates: dict[str, dict[int, float | None]] = defaultdict(dict)
    columns = (led[name].to_pylist() for name in ("topic", "partition", "bytes_in_per_sec"))
    for topic, partition, rate in zip(*columns, strict=True):
        rates[topic][partition] = rate
    return {topic: tuple(known.get(p) for p in range(max(known) + 1)) for topic, known in sorted(rates.items())}


def _skew(brokers: tuple[BrokerLoad, ...], resource: str, settings: Settings) -> Skew | None:
    known = {broker.broker: value for broker in brokers if (value := broker.load(resource)) is not None}
    return skew_of(known, _capacities(settings, resource, known)) if known else None


def _window_skew(window: list[dict[str, Any]], settings: Settings) -> WindowSkew | None:
    loads = {row["broker"]: _plus(row["bytes_in_per_sec"], row["replication_bytes_in_per_sec"]) for row in window}
    known = {broker: value for broker, value in loads.items() if value is not None}
    if not known:
        return None
    skew = skew_of(known, _capacities(settings, "bytes_in", known))
    return WindowSkew(tables.to_ms(window[0]["window_end"]), skew.max_over_mean)


def _capacities(settings: Settings, resource: str, brokers: Mapping[int, float]) -> dict[int, float] | None:
    """Capacity by broker where every one has one; counts of replicas have none."""
    attribute = {"bytes_in": "bytes_in_per_sec", "bytes_out": "bytes_out_per_sec", "disk": "disk_bytes"}.get(resource)
    if attribute is None:
        return None
    found = {
        broker: value
        for broker, capacity in settings.planner.capacities.items()
        if broker in brokers and (value := getattr(capacity, attribute)) is not None
    }
    return found if len(found) == len(brokers) else None


def _plus(client: float | None, replication: float | None) -> float | None:
    """Client and replication traffic together; without replication figures the client's is the best known."""
    return None if client is None else client + (replication or 0.0)
