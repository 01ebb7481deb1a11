"""What rows of `broker_load` say, for all who look at them: which windows are closed, and what a broker's load is.

A window is closed once its rows are final, or once an event later than its end plus the watermark was seen: from then
on no sample can change it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from assignor_core.load_history.windows import resource_capacities
from assignor_core.model import Capacity
from assignor_core.resources import MEASURED, Resource
from streaming import tables
from streaming.settings import PlannerSettings

Row = Mapping[str, Any]

COLUMNS = (
    "window_start", "window_end", "broker", *(figure for resource in MEASURED for figure in resource.figures),
    "last_event_time_ms", "is_final",
)  # fmt: skip
"""What the functions below look at."""


def closed(rows: Sequence[Row], *, watermark_ms: int) -> dict[int, list[Row]]:
    """Rows of each closed window by broker; windows by their start, ms, oldest first."""
    newest_event_ms = max((row["last_event_time_ms"] for row in rows), default=0)
    windows: dict[datetime, list[Row]] = defaultdict(list)
    for row in rows:
        windows[row["window_start"]].append(row)
    return {
        tables.to_ms(start): sorted(window, key=itemgetter("broker"))
        for start, window in sorted(windows.items())
        if all(row["is_final"] for row in window)
        or newest_event_ms >= tables.to_ms(window[0]["window_end"]) + watermark_ms
    }


def loads(window: Sequence[Row], resource: Resource) -> dict[int, float]:
    """Load of one measured resource by broker, where it is known: clients' figure and replication's together.

    Where some brokers of the window know their replication traffic, one that doesn't has an unknown load: what clients
    send alone would pass for a broker with less to do. Where none knows it, clients' traffic is the best there is.
    """
    clients, *others = resource.figures
    known = [row for row in window if row[clients] is not None]
    if not known:
        return {}  # many clusters measure no such thing
    added = [clients, *(figure for figure in others if any(row[figure] is not None for row in window))]
    return {
        row["broker"]: sum(row[figure] for figure in added)
        for row in known
        if all(row[figure] is not None for figure in added)
    }


def capacities(planner: PlannerSettings, resource: Resource, brokers: Iterable[int]) -> dict[int, float] | None:
    """Capacity by broker from the settings, where every one of `brokers` has one; see `resource_capacities`."""
    return resource_capacities(capacities_of(planner), resource, brokers)


def capacities_of(planner: PlannerSettings) -> dict[int, Capacity]:
    """Capacities of brokers, as far as the settings give any."""
    return {
        broker: Capacity(given.bytes_in_per_sec, given.bytes_out_per_sec, given.disk_bytes)
        for broker, given in planner.capacities.items()
    }
