"""`rebalancer status --groups`: each group's rebalances of the last hours and its membership now."""

from typing import TYPE_CHECKING, Any

from assignor_core.group.events import GroupEvent
from streaming.runtime.printable import printable
from streaming.settings import Settings
from streaming.tables import TableReader, utc
from streaming.views.group_history import GroupPast, look_back_ms, read_group_pasts

if TYPE_CHECKING:
    from rich.console import RenderableType

GROUPS_SHOWN = 200
"""On a terminal: a row takes about a millisecond."""


def read_groups_status(settings: Settings) -> list[dict[str, Any]]:
    """One entry a group, most rebalances first; empty where no window is."""
    span_ms = look_back_ms(settings.pipeline.window_ms)
    return [_entry(past, span_ms) for past in read_group_pasts(TableReader(settings.storage.tables), settings)]


def drawn_groups(entries: list[dict[str, Any]]) -> "RenderableType":
    """A row a group, those with most rebalances, and below it what could be better."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    if not entries:
        return Text("no window of group_lag in the tables yet")
    shown = entries[:GROUPS_SHOWN]
    table = Table("group", "type", "state", "members", "rebalances", "last", "why", box=None, pad_edge=False)
    for entry in shown:
        last = entry["events"][-1] if entry["events"] else None
        when = f"{utc(last['until_ms']):%H:%M:%S}" if last else ""
        why = last["cause"] if last else ""
        counts = (_known(entry["members"]), str(entry["rebalances"]))
        kind = (printable(entry["group_type"] or ""), printable(entry["state"] or "unknown"))
        table.add_row(printable(entry["group"]), *kind, *counts, when, why)
    hours = entries[0]["look_back_ms"] / 3_600_000
    lines = [Text(f"rebalances seen between windows of the last {hours:g} h; times UTC")]
    lines += [Text(printable(f"{entry['group']}: {hint}")) for entry in shown for hint in entry["hints"]]
    if len(shown) < len(entries):
        lines.append(Text(f"{len(shown)} of {len(entries)} groups, those with most rebalances; --json has all"))
    return Group(table, Text(), *lines)


def _known(count: int | None) -> str:
    return "unknown" if count is None else str(count)


def _entry(past: GroupPast, span_ms: int) -> dict[str, Any]:
    advised = past.advice
    return {
        "group": past.group,
        "state": past.state,
        "group_type": past.group_type,
        "members": past.members,
        "rebalances": advised.rebalances,
        "restarts": advised.restarts,
        "partitions_moved": advised.partitions_moved,
        "stopped_if_eager": advised.stopped_if_eager,
        "flapping": dict(advised.flapping),
        "hints": list(advised.hints),
        "look_back_ms": span_ms,
        "events": [_event(event) for event in past.events],
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
