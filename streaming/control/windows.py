"""Closed windows of load as control reads them from the Delta tables.

A window is closed once its rows are final, or once an event later than its end plus the watermark was seen: from then
on no sample can change it. Unknown rates stay unknown: a broker without a known rate doesn't count as reporting.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from assignor_core.skew import skew_of
from assignor_core.trigger import SkewWindow
from streaming import tables
from streaming.settings import Settings

LOOKBACK_WINDOWS_EXTRA = 10
LOOKBACK_MIN_MS = 600_000

RESOURCES = ("bytes_in", "bytes_out", "disk")
COLUMNS = (
    "window_start", "window_end", "broker", "bytes_in_per_sec", "bytes_out_per_sec", "replication_bytes_in_per_sec",
    "replication_bytes_out_per_sec", "log_dir_used_bytes", "last_event_time_ms", "is_final",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrokerWindow:
    """Load of one broker in one window: bytes/s in and out (clients and replication), bytes on disk; None = unknown."""

    bytes_in: float | None
    bytes_out: float | None
    disk: float | None


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One closed window with the load of every broker that sent samples."""

    start_ms: int
    end_ms: int
    brokers: Mapping[int, BrokerWindow]

    def values(self, resource: str) -> dict[int, float]:
        """Known loads of one resource by broker."""
        found = {broker: getattr(load, resource) for broker, load in self.brokers.items()}
        return {broker: value for broker, value in sorted(found.items()) if value is not None}


def closed_windows(settings: Settings, *, now_ms: int) -> tuple[ClosedWindow, ...]:
    """The newest closed windows, oldest first: enough for the trigger and the planner, and no more."""
    wanted = max(settings.trigger.windows_considered, settings.planner.windows, settings.control.settle_windows)
    lookback_ms = (wanted + LOOKBACK_WINDOWS_EXTRA) * settings.pipeline.window_ms + settings.pipeline.watermark_ms
    return recorded_windows(settings, since_ms=now_ms - max(lookback_ms, LOOKBACK_MIN_MS))[-wanted:]


def recorded_windows(settings: Settings, *, since_ms: int) -> tuple[ClosedWindow, ...]:
    """All closed windows that began at `since_ms` or later, oldest first."""
    since = tables.utc(since_ms)
    where = (pc.field("window_start") >= since) & (pc.field("kafka_cluster") == settings.kafka.cluster_name)
    rows = tables.read(settings.storage.tables, "broker_load", columns=list(COLUMNS), where=where)
    newest_event_ms = max((row["last_event_time_ms"] for row in rows), default=0)
    by_window: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_window[tables.to_ms(row["window_start"])].append(row)
    windows = []
    for start_ms, window_rows in sorted(by_window.items()):
        end_ms = tables.to_ms(window_rows[0]["window_end"])
        if all(row["is_final"] for row in window_rows) or newest_event_ms >= end_ms + settings.pipeline.watermark_ms:
            windows.append(ClosedWindow(start_ms, end_ms, {row["broker"]: _broker_window(row) for row in window_rows}))
    return tuple(windows)


def skew_window(window: ClosedWindow, settings: Settings, brokers_alive: frozenset[int]) -> SkewWindow:
    """Skew figures of one window over the brokers that are alive; brokers that are gone don't count."""
    ratios: dict[str, dict[int, float]] = {}
    means: dict[str, float] = {}
    for resource in settings.trigger.resources:
        values = {broker: value for broker, value in window.values(resource).items() if broker in brokers_alive}
        if values:
            skew = skew_of(values, capacities(settings, resource, brokers_alive))
            ratios[resource] = {broker: 1.0 + deviation for broker, deviation in skew.deviation.items()}
            means[resource] = sum(values.values()) / len(values)
    reporting = brokers_alive & window.values("bytes_in").keys()
    return SkewWindow(window.end_ms, ratios, means, len(brokers_alive), len(reporting))


def skew_figures(window: ClosedWindow, settings: Settings, brokers: frozenset[int]) -> dict[str, Any]:
    """All figures of one window by resource over the brokers that count, for the decision's row."""
    figures = {}
    for resource in RESOURCES:
        values = {broker: value for broker, value in window.values(resource).items() if broker in brokers}
        if values:
            skew = skew_of(values, capacities(settings, resource, brokers))
            figures[resource] = {
                "max_over_mean": skew.max_over_mean,
                "coefficient_of_variation": skew.coefficient_of_variation,
                "deviation": {str(broker): ratio for broker, ratio in sorted(skew.deviation.items())},
            }
    return figures


def capacities(settings: Settings, resource: str, brokers: frozenset[int]) -> dict[int, float] | None:
    """Capacity by broker where every one of `brokers` has one; None otherwise, as shares would not compare."""
    attribute = {"bytes_in": "bytes_in_per_sec", "bytes_out": "bytes_out_per_sec", "disk": "disk_bytes"}[resource]
    given = {broker: getattr(capacity, attribute) for broker, capacity in settings.planner.capacities.items()}
    found = {broker: given.get(broker) for broker in sorted(brokers)}
    return None if None in found.values() else {broker: value for broker, value in found.items() if value is not None}


def _broker_window(row: Mapping[str, Any]) -> BrokerWindow:
    return BrokerWindow(
        bytes_in=_plus(row["bytes_in_per_sec"], row["replication_bytes_in_per_sec"]),
        bytes_out=_plus(row["bytes_out_per_sec"], row["replication_bytes_out_per_sec"]),
        disk=row["log_dir_used_bytes"],
    )


def _plus(client: float | None, replication: float | None) -> float | None:
    """Client and replication traffic together; without replication figures the client's is the best known."""
    return None if client is None else client + (replication or 0.0)
