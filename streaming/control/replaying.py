"""Recorded windows as a trace for the trigger's simulator, loads by capacity where known; decisions made again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.deciding.reasons import Reason, Verdict
from assignor_core.load import Floats
from assignor_core.load_history.windows import resource_capacities
from assignor_core.model import Capacity
from assignor_core.replays.recorded_decisions import Decided, decided_again
from assignor_core.replays.traces import Trace
from assignor_core.resources import Resource
from streaming.control.windows import WindowTables, recorded_windows
from streaming.control.wiring import window_tables_of
from streaming.settings import Settings
from streaming.tables import TableReader, to_ms
from streaming.views.decisions import read_decisions
from streaming.views.executions import changes_ms
from streaming.views.intents import drained_at


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


@dataclass(frozen=True, slots=True)
class DecidedAgain:
    """A decision of the past, and what it comes to now."""

    then: Decided
    now: Decided

    @property
    def is_same(self) -> bool:
        """Whether verdict and reason are those of then."""
        return (self.then.verdict, self.then.reason) == (self.now.verdict, self.now.reason)


def decisions_again(settings: Settings, policy: DecisionPolicy, *, since_ms: int) -> list[DecidedAgain]:
    """All decisions since then, oldest first, beside what they come to by `policy`.

    The memory of noise and of recurring load begins with the oldest window that is kept. Raises TableUnavailable.
    """
    reader, cluster = TableReader(settings.storage.tables), settings.kafka.cluster_name
    columns = ("decided_at", "window_end", "verdict", "reason", "detail")
    past = [
        Decided(
            to_ms(row["decided_at"]),
            to_ms(row["window_end"]),
            Verdict(row["verdict"]),
            Reason(row["reason"]),
            row["detail"],
        )
        for row in read_decisions(reader, cluster, columns=columns)
        if row["window_end"] is not None and to_ms(row["decided_at"]) >= since_ms
    ]
    windows = recorded_windows(window_tables_of(settings), since_ms=0)
    changed_ms = changes_ms(reader, cluster, since_ms=0)
    drained = drained_at(reader, cluster)
    again = decided_again(windows, past, policy, changed_ms=changed_ms, drained_at=drained)
    return [DecidedAgain(then, now) for then, now in zip(past, again, strict=True)]
