"""What rows of `broker_load` say, for all who look at them: which windows are closed, and what a broker's load is.

A window is closed once its rows are final, or once an event later than its end plus the watermark was seen: from then
on no sample can change it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from streaming import tables
from streaming.settings import Settings

Row = Mapping[str, Any]

RESOURCES = ("bytes_in", "bytes_out", "disk")
COLUMNS = (
    "window_start", "window_end", "broker", "bytes_in_per_sec", "bytes_out_per_sec", "replication_bytes_in_per_sec",
    "replication_bytes_out_per_sec", "log_dir_used_bytes", "last_event_time_ms", "is_final",
)  # fmt: skip
"""What the functions below look at."""


def closed(rows: Sequence[Row], settings: Settings) -> dict[int, list[Row]]:
    """Rows of each closed window by its start, ms, oldest first."""
    newest_event_ms = max((row["last_event_time_ms"] for row in rows), default=0)
    windows: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        windows[tables.to_ms(row["window_start"])].append(row)
    return {
        start_ms: window
        for start_ms, window in sorted(windows.items())
        if all(row["is_final"] for row in window)
        or newest_event_ms >= tables.to_ms(window[0]["window_end"]) + settings.pipeline.watermark_ms
    }


def loads(window: Sequence[Row], resource: str) -> dict[int, float]:
    """Load of one resource by broker, where it is known: bytes/s of clients and of replication together, or bytes.

    Where some brokers of the window know their replication traffic, one that doesn't has an unknown load: what clients
    send alone would pass for a broker with less to do. Where none knows it, clients' traffic is the best there is.
    """
    if resource == "disk":
        return {row["broker"]: row["log_dir_used_bytes"] for row in window if row["log_dir_used_bytes"] is not None}
    clients, replication = f"{resource}_per_sec", f"replication_{resource}_per_sec"
    if all(row[replication] is None for row in window):
        return {row["broker"]: row[clients] for row in window if row[clients] is not None}
    known = (row for row in window if row[clients] is not None and row[replication] is not None)
    return {row["broker"]: row[clients] + row[replication] for row in known}


def capacities(settings: Settings, resource: str, brokers: Iterable[int]) -> dict[int, float] | None:
    """Capacity by broker where every one of `brokers` has one; None otherwise, as shares would not compare.

    Of counts of leaders or replicas, as in the plan, a broker's share is that of its capacity of bytes in.
    """
    attributes = {"bytes_out": "bytes_out_per_sec", "disk": "disk_bytes"}
    attribute = attributes.get(resource, "bytes_in_per_sec")
    given = {broker: getattr(capacity, attribute) for broker, capacity in settings.planner.capacities.items()}
    found = {broker: value for broker in sorted(brokers) if (value := given.get(broker)) is not None}
    return found if found.keys() >= set(brokers) else None
