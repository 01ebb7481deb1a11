"""What rows of `broker_load` say, for all readers: which windows are closed, and what a broker's load is.

A window is closed once its rows are final, or once an event later than its end plus the watermark was seen: from then
on no sample can change it.

Where nobody knows what consumers read of a broker, its bytes out have bounds. At least, consumers read what groups
commit. No request shows a consumer that commits nothing, so Kafka itself has no upper bound. One follows from an
assumption, `trigger.readers_without_commits_max`: at most so many consumers read a partition that no group commits for,
and each reads what is written, and the whole log again in `WHOLE_LOG_MS` at the fastest. That is what a group may count
as reading, too (`streaming/collect/bytes_out.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assignor_core.load_history.windows import resource_capacities
from assignor_core.model import Capacity
from assignor_core.resources import MEASURED, Resource
from streaming import tables
from streaming.contract.rates import BYTES_IN, BYTES_OUT, WHOLE_LOG_MS
from streaming.contract.records import REMOTE_RECORDS, REMOTE_SIZE_BYTES, SIZE_BYTES
from streaming.settings import PlannerSettings
from streaming.settings.fields import filled

Row = Mapping[str, Any]
COLUMNS = (
    "window_start", "window_end", "broker", *(figure for resource in MEASURED for figure in resource.figures),
    "last_event_time_ms", "is_final",
)  # fmt: skip
"""What the functions below read."""
BOUNDED_BY = (
    "broker", BYTES_IN.name, BYTES_OUT.name, SIZE_BYTES.name, REMOTE_RECORDS.name, REMOTE_SIZE_BYTES.name,
)  # fmt: skip
"""What `bounds_of` reads in rows of `partition_load`."""
Bounds = Mapping[int, tuple[float, float | None]]
"""Least and most bytes out per second by broker; the most is None where it has no bound."""


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
    return {broker: filled(Capacity, given) for broker, given in planner.capacities.items()}


def reads_unknown(window: Sequence[Row]) -> frozenset[int]:
    """Brokers that report what clients write, and of which nobody knows all that consumers read.

    None where some broker of the window knows its replication traffic: the sums of the others lack it, and bounds of
    what consumers read do not compare with the first.
    """
    clients, replication = Resource.BYTES_OUT.figures
    if any(row[replication] is not None for row in window):
        return frozenset()
    return frozenset(row["broker"] for row in window if row[clients] is None and row[BYTES_IN.name] is not None)


def bounds_of(led: pa.Table, readers_max: int | None) -> Bounds:
    """(Least, most) bytes/s that consumers read from each broker, of the rows that leaders have in one window.

    The most is None if what is written to an unread partition, or the size of its log, is unknown, and of all brokers
    if nothing is assumed of readers (`readers_max` is None).
    """
    if not led.num_rows:
        return {}
    written, read, size, remote_records, remote_size = (_floats(led, name) for name in BOUNDED_BY[1:])
    remote = np.where(np.isnan(remote_records), 0.0, remote_size)
    by_readers = (np.nan if readers_max is None else readers_max) * (written + (size + remote) * 1000 / WHOLE_LOG_MS)
    if readers_max == 0:
        by_readers = np.zeros(len(read))
    brokers, place = np.unique(led["broker"].to_numpy(), return_inverse=True)
    least = np.bincount(place, np.nan_to_num(read, nan=0.0), len(brokers))
    most = np.bincount(place, np.where(np.isnan(read), by_readers, read), len(brokers))
    found = zip(brokers.tolist(), least.tolist(), most.tolist(), strict=True)
    return {broker: (low, None if np.isnan(high) else high) for broker, low, high in found}


def _floats(rows: pa.Table, name: str) -> npt.NDArray[np.float64]:
    """NaN where it is unknown."""
    return np.asarray(rows[name].cast(pa.float64()).to_numpy(), dtype=np.float64)
