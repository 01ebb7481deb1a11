"""Closed windows of load, their skew over the brokers that count, and the noise from window to window.

A window holds what is known: a broker without a known load is absent, never 0. This module knows no table, no plan and
no threshold.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any

from assignor_core.model import Capacity
from assignor_core.resources import MEASURED, Resource
from assignor_core.skew import relative_bounds, relative_loads, skew_of


@dataclass(frozen=True, slots=True)
class SkewWindow:
    """One closed window: each broker's load over the mean and the mean itself, by resource; how many reported."""

    window_end_ms: int
    ratios: Mapping[str, Mapping[int, float]]
    """resource: broker: load over mean load; utilisation where capacities are known."""
    mean_load: Mapping[str, float]
    brokers_expected: int
    brokers_reporting: int
    length_ms: int = 0
    ratios_at_most: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """resource: broker: highest possible ratio, of resources whose loads have bounds; `ratios` has the lowest."""

    @property
    def window_start_ms(self) -> int:
        """Start of the window, inclusive."""
        return self.window_end_ms - self.length_ms

    @property
    def completeness(self) -> float:
        """Share of the expected brokers that reported, 0 to 1."""
        return min(1.0, self.brokers_reporting / self.brokers_expected) if self.brokers_expected else 0.0

    def max_over_mean(self, resource: str) -> float:
        """The one figure of a resource, at least where loads have bounds alone; 1 where nothing is known."""
        return max(1.0, max(self.ratios.get(resource, {}).values(), default=1.0))

    def figure_name(self, resource: str) -> str:
        """What `max_over_mean` is called in a sentence."""
        return "max/mean at least" if resource in self.ratios_at_most else "max/mean"


@dataclass(frozen=True, slots=True)
class ClosedWindow:
    """One closed window: the brokers that sent samples, and their known loads by resource."""

    start_ms: int
    end_ms: int
    brokers: frozenset[int]
    loads: Mapping[str, Mapping[int, float]]
    """resource: broker: bytes/s of clients and replication together, or bytes on disk."""
    client_bytes_in: Mapping[int, float] = field(default_factory=dict)
    """broker: bytes/s that clients write to it, where it is known."""
    bounds: Mapping[str, Mapping[int, tuple[float, float]]] = field(default_factory=dict)
    """resource: broker: (least, most) of a load that is not known."""
    reads_unknown: frozenset[int] = frozenset()
    """Brokers that report what clients write, and of which nobody knows all that consumers read."""

    def values(self, resource: str) -> Mapping[int, float]:
        """Known loads of one resource by broker."""
        return self.loads.get(resource, {})


def resource_capacities(
    capacities: Mapping[int, Capacity], resource: str, brokers: Iterable[int]
) -> dict[int, float] | None:
    """Capacity by broker where every one of `brokers` has one; None otherwise, as shares would not compare.

    Of counts of leaders or replicas, as in the plan, a broker's share is that of its capacity of bytes in.
    """
    key = Resource(resource).capacity_key
    known: dict[int, float] = {}
    for broker in sorted(brokers):
        value = getattr(capacities.get(broker), key, None)
        if value is None:
            return None
        known[broker] = value
    return known


def skew_window(
    window: ClosedWindow,
    resources: Iterable[Resource],
    capacities: Mapping[int, Capacity],
    counted: Collection[int],
) -> SkewWindow:
    """Skew of one window over the brokers that count: those that are alive and not being drained.

    Where loads have bounds alone, ratios and mean are the least that is possible. A broker whose bytes out are unknown
    and have no bounds leaves nothing to compare: the window has no skew of bytes out then.
    """
    ratios: dict[str, dict[int, float]] = {}
    at_most: dict[str, dict[int, float]] = {}
    means: dict[str, float] = {}
    for resource in resources:
        values = {broker: value for broker, value in window.values(resource).items() if broker in counted}
        bounds = {
            row: pair for row, pair in window.bounds.get(resource, {}).items() if row in counted and row not in values
        }
        if resource is Resource.BYTES_OUT and not window.reads_unknown.intersection(counted) <= bounds.keys():
            continue
        if bounds:
            most = values | {row: high for row, (_, high) in bounds.items()}
            values |= {row: low for row, (low, _) in bounds.items()}
            possible = relative_bounds(values, most, resource_capacities(capacities, resource, counted))
            ratios[resource] = {row: low for row, (low, _) in possible.items()}
            at_most[resource] = {row: high for row, (_, high) in possible.items()}
        elif values:
            ratios[resource] = relative_loads(values, resource_capacities(capacities, resource, counted))
        if values:
            means[resource] = sum(values.values()) / len(values)
    reporting = set(counted) & window.values(Resource.BYTES_IN).keys()
    length_ms = window.end_ms - window.start_ms
    return SkewWindow(window.end_ms, ratios, means, len(counted), len(reporting), length_ms, at_most)


def skew_figures(
    window: ClosedWindow, capacities: Mapping[int, Capacity], counted: Collection[int]
) -> dict[str, dict[str, Any]]:
    """All figures of one window by resource over the brokers that count, for the decision's row."""
    figures = {}
    for resource in MEASURED:
        values = {broker: value for broker, value in window.values(resource).items() if broker in counted}
        if values:
            skew = skew_of(values, resource_capacities(capacities, resource, counted))
            figures[resource.value] = {
                "max_over_mean": skew.max_over_mean,
                "coefficient_of_variation": skew.coefficient_of_variation,
                "deviation": {str(broker): ratio for broker, ratio in sorted(skew.deviation.items())},
            }
    return figures


def without_catch_up(window: ClosedWindow, catch_up_bytes_per_sec: Mapping[int, float]) -> ClosedWindow:
    """The window without what consumers read only to catch up, by broker: that load ends by itself.

    >>> window = ClosedWindow(0, 10, frozenset({1}), {"bytes_out": {1: 50.0, 2: 20.0}})
    >>> dict(without_catch_up(window, {1: 30.0, 3: 5.0}).values("bytes_out"))
    {1: 20.0, 2: 20.0}
    """
    read = window.values(Resource.BYTES_OUT)
    ends = catch_up_bytes_per_sec
    lasting = {broker: max(0.0, rate - ends.get(broker, 0.0)) for broker, rate in read.items()}
    bounds = {
        broker: (max(0.0, low - ends.get(broker, 0.0)), max(0.0, high - ends.get(broker, 0.0)))
        for broker, (low, high) in window.bounds.get(Resource.BYTES_OUT, {}).items()
    }
    return replace(
        window,
        loads={**window.loads, Resource.BYTES_OUT: lasting},
        bounds={**window.bounds, Resource.BYTES_OUT: bounds},
    )


SIGMA_PER_MEDIAN = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


def load_noise(windows: Sequence[SkewWindow], resource: str) -> float:
    """Standard deviation of the change of a broker's share of the load from window to window, as a fraction of it.

    Taken from the median, so a broker whose load has just risen for good does not count as noise. 0 of fewer than two
    windows.

    >>> loads = ((1.0, 1.0, 1.0), (1.1, 1.0, 0.9), (1.0, 1.0, 1.0))
    >>> windows = [SkewWindow(10, {"bytes_in": dict(enumerate(row))}, {}, 3, 3) for row in loads]
    >>> round(load_noise(windows, "bytes_in"), 3)
    0.141
    """
    changes = [
        2 * abs(after[broker] - before[broker]) / (after[broker] + before[broker])
        for before, after in pairwise(window.ratios.get(resource, {}) for window in windows)
        for broker in sorted(before.keys() & after.keys())
        if before[broker] > 0 and after[broker] > 0
    ]
    return SIGMA_PER_MEDIAN * median(changes) if changes else 0.0
