"""Closed windows of load as control reads them from the Delta tables.

Unknown rates stay unknown: a broker without a known load doesn't count as reporting.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from assignor_core.deciding.trigger import SkewWindow
from assignor_core.resources import MEASURED, Resource
from assignor_core.skew import skew_of
from streaming import tables
from streaming.settings import Settings
from streaming.views.broker_windows import COLUMNS, capacities, closed, loads

LOOKBACK_WINDOWS_EXTRA = 10
LOOKBACK_MIN_MS = 600_000


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One closed window: the brokers that sent samples, and their known loads by resource."""

    start_ms: int
    end_ms: int
    brokers: frozenset[int]
    loads: Mapping[Resource, Mapping[int, float]]

    def values(self, resource: Resource) -> Mapping[int, float]:
        """Known loads of one measured resource by broker, clients' and replication's together, in its unit."""
        return self.loads[resource]


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
    return tuple(
        ClosedWindow(
            start_ms,
            tables.to_ms(window[0]["window_end"]),
            frozenset(row["broker"] for row in window),
            {resource: loads(window, resource) for resource in MEASURED},
        )
        for start_ms, window in closed(rows, settings).items()
    )


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
    reporting = brokers_alive & window.values(Resource.BYTES_IN).keys()
    return SkewWindow(window.end_ms, ratios, means, len(brokers_alive), len(reporting))


def skew_figures(window: ClosedWindow, settings: Settings, brokers: frozenset[int]) -> dict[str, Any]:
    """All figures of one window by resource over the brokers that count, for the decision's row."""
    figures: dict[str, Any] = {}
    for resource in MEASURED:
        values = {broker: value for broker, value in window.values(resource).items() if broker in brokers}
        if values:
            skew = skew_of(values, capacities(settings, resource, brokers))
            figures[resource] = {
                "max_over_mean": skew.max_over_mean,
                "coefficient_of_variation": skew.coefficient_of_variation,
                "deviation": {str(broker): ratio for broker, ratio in sorted(skew.deviation.items())},
            }
    return figures
