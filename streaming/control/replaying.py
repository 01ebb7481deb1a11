"""Recorded windows as a trace for the trigger's simulator: loads by broker, by capacity where known."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from assignor_core.deciding.simulation import Trace
from assignor_core.deciding.windows import resource_capacities
from assignor_core.load import Floats
from assignor_core.model import Capacity
from assignor_core.resources import Resource
from streaming.control.windows import WindowTables, recorded_windows


def recorded_trace(
    window_tables: WindowTables, resources: Iterable[Resource], capacities: Mapping[int, Capacity], *, since_ms: int
) -> Trace:
    """All closed windows since then, with the load of these resources; NaN where a broker's load is unknown."""
    windows = recorded_windows(window_tables, since_ms=since_ms)
    brokers = tuple(sorted({broker for window in windows for broker in window.brokers}))
    loads: dict[str, Floats] = {}
    for resource in resources:
        known = [window.values(resource) for window in windows]
        values = np.array([[row.get(broker, np.nan) for broker in brokers] for row in known], dtype=np.float64)
        given = resource_capacities(capacities, resource, brokers)
        if given:
            sizes = np.array([given[broker] for broker in brokers])
            values = values / (sizes / sizes.mean())
        loads[resource] = values.reshape(len(windows), len(brokers))
    ends = tuple(window.end_ms for window in windows)
    return Trace(window_tables.kafka_cluster, ends, brokers, MappingProxyType(loads))
