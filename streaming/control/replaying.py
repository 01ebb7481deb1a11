"""Recorded windows as a trace for the trigger's simulator: loads by broker, by capacity where known."""

from types import MappingProxyType

import numpy as np

from assignor_core.deciding.simulation import Trace
from assignor_core.deciding.windows import resource_capacities
from assignor_core.load import Floats
from streaming.control.windows import recorded_windows
from streaming.settings import Settings
from streaming.views.broker_windows import capacities_of


def recorded_trace(settings: Settings, *, since_ms: int) -> Trace:
    """All closed windows since then, with the resources that may trigger; NaN where a broker's load is unknown."""
    windows = recorded_windows(settings, since_ms=since_ms)
    brokers = tuple(sorted({broker for window in windows for broker in window.brokers}))
    loads: dict[str, Floats] = {}
    for resource in settings.trigger.resources:
        known = [window.values(resource) for window in windows]
        values = np.array([[row.get(broker, np.nan) for broker in brokers] for row in known], dtype=np.float64)
        given = resource_capacities(capacities_of(settings), resource, brokers)
        if given:
            sizes = np.array([given[broker] for broker in brokers])
            values = values / (sizes / sizes.mean())
        loads[resource] = values.reshape(len(windows), len(brokers))
    ends = tuple(window.end_ms for window in windows)
    return Trace(settings.kafka.cluster_name, ends, brokers, MappingProxyType(loads))
