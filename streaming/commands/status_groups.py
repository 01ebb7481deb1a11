"""`rebalancer status --groups`: what the windows of `group_lag` say of each group's rebalances and membership.

Owns reading and showing; telling rebalances from looks is the core's.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from assignor_core.group.events import GroupAdvice, GroupEvent, GroupLook, advice, group_events
from streaming.settings import Settings
from streaming.tables import TableReader, at_least, equal, utc

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_BACK_MS = 6 * 3_600_000
WINDOWS_MAX = 720
"""Bounds what is read, however short the windows are."""

_COLUMNS = (
    "group_id", "topic", "partition", "member_id", "group_state", "generation_id", "window_start",
    "last_event_time_ms",
)  # fmt: skip


def read_groups_status(settings: Settings) -> list[dict[str, Any]]:
    """One entry a group, most rebalances first; empty where no window is."""
    reader = TableReader(str(settings.storage.tables))
    newest = reader.newest("group_lag", "window_start")
    if newest is None:
        return []
    look_back_ms = min(LOOK_BACK_MS, WINDOWS_MAX * settings.pipeline.window_ms)
    since = newest - timedelta(milliseconds=look_back_ms)
    where = equal("kafka_cluster", settings.kafka.cluster_name) & at_least("window_start", since)
    rows = reader.rows("group_lag", columns=_COLUMNS, where=where)
    rows.sort(key=lambda row: (row["group_id"], row["window_start"]))
    found = [
        _entry(group, list(_looks(windows)), look_back_ms)
        for group, windows in groupby(rows, key=lambda row: str(row["group_id"]))
    ]
    return sorted(found, key=lambda entry: (-entry["rebalances"], entry["group"]))


def drawn_groups(found: list[dict[str, Any]]) -> "RenderableType":
    """A row a group, and below it what could be better."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not found:
        return Text("no window of group_lag in the tables yet")
    table = Table("group", "state", "members", "rebalances", "last", "why", box=None, pad_edge=False)
    for entry in found:
        last = entry["events"][-1] if entry["events"] else None
        when = f"{utc(last['until_ms']):%H:%M:%S}" if last else ""
        why = last["cause"] if last else ""
        counts = (str(entry["members"]), str(entry["rebalances"]))
        table.add_row(entry["group"], entry["state"] or "unknown", *counts, when, why)
    hours = found[0]["look_back_ms"] / 3_600_000
    lines = [Text(f"rebalances seen between windows of the last {hours:g} h; times UTC")]
    lines += [Text(f"{entry['group']}: {hint}") for entry in found for hint in entry["hints"]]
    return Group(table, Text(), *lines)


def _looks(rows: Iterator[Mapping[str, Any]]) -> Iterator[GroupLook]:
    """One look a window: the newest sample, of all partitions that it had."""
    for _, window in groupby(rows, key=lambda row: row["window_start"]):
        listed = list(window)
        at_ms = max(row["last_event_time_ms"] for row in listed)
        sample = [row for row in listed if row["last_event_time_ms"] == at_ms]
        owners = {(row["topic"], row["partition"]): row["member_id"] for row in sample}
        yield GroupLook(at_ms, sample[0]["group_state"], owners, sample[0]["generation_id"])


def _entry(group: str, looks: list[GroupLook], look_back_ms: int) -> dict[str, Any]:
    events = group_events(looks)
    told: GroupAdvice = advice(events)
    return {
        "group": group,
        "state": looks[-1].state,
        "members": len(looks[-1].members),
        "rebalances": told.rebalances,
        "restarts": told.restarts,
        "partitions_moved": told.partitions_moved,
        "stopped_if_eager": told.stopped_if_eager,
        "flapping": dict(told.flapping),
        "hints": list(told.hints),
        "look_back_ms": look_back_ms,
        "events": [_event(event) for event in events],
    }


def _event(event: GroupEvent) -> dict[str, Any]:
    return {
        "after_ms": event.after_ms,
        "until_ms": event.until_ms,
        "cause": event.cause.value,
        "rebalances": event.rebalances,
        "members_in": list(event.members_in),
        "members_out": list(event.members_out),
        "restarted": list(event.restarted),
        "partitions_moved": event.partitions_moved,
        "partitions_unowned": event.partitions_unowned,
    }
