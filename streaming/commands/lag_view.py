"""How `rebalancer lag` shows what it found on a terminal. Knows plain data only: neither tables nor rules."""

from collections import Counter
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from assignor_core.lag.reasons import duration
from assignor_core.wording import many
from streaming.runtime.printable import printable

RECORDS = "records"
STYLES = {"ok": "green", "unknown": "dim", "warn": "yellow"}
"""Of verdicts; all others are red."""


def drawn(report: dict[str, Any], *, now_ms: int) -> RenderableType:
    """All groups, or one with its causes and partitions; first how old the newest sample is."""
    newest_ms = report["newest_event_ms"]
    if newest_ms is None:
        return Text(f"cluster {report['kafka_cluster']}: no consumer group in the tables yet")
    age = f"newest sample {duration(max(0, now_ms - newest_ms) / 1000)} ago"
    if "partitions" in report:
        return _group(report, age)
    if not report["groups"]:
        return Text(f"cluster {report['kafka_cluster']}: none of {report['groups_seen']} groups matches; {age}")
    return _groups(report, age)


def _groups(report: dict[str, Any], age: str) -> RenderableType:
    rows = report["groups"]
    statuses = report.get("statuses") or Counter(row["status"] for row in rows)
    matching = report.get("groups_matching", len(rows))
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    unit = _unit(rows)
    table = _table(unit, "group")
    for row in rows:
        figures = (_lag(row, unit), _time(row["lag_seconds"]))
        table.add_row(_verdict(row), printable(row["group"]), *figures, printable(row["why"]))
    shown = str(matching) if matching == report["groups_seen"] else f"{matching} of {report['groups_seen']}"
    noun = "group" if shown == "1" else "groups"
    head = Text(f"cluster {report['kafka_cluster']}: {shown} {noun}, {counts}; {age}")
    if matching == len(rows):
        return Group(head, table)
    return Group(head, table, Text(f"the {len(rows)} worst of {matching}; all with --limit 0, some with --match"))


def _group(report: dict[str, Any], age: str) -> RenderableType:
    rows = report["partitions"]
    members = report["group_members"]
    lags = [row["lag_records"] for row in rows if row["lag_records"] is not None]
    unit = _unit(rows)
    noun = "record" if unit == RECORDS else "offset"
    behind = f"{many(sum(lags), noun)} behind" if lags else "lag unknown"
    known = "members unknown" if members is None else many(members, "member")
    parts = (report["state"] or "state unknown", known, many(len(rows), "partition"))
    kind = f"{report['group_type']} group" if report["group_type"] else "group"
    lines = [Text(printable(f"{kind} {report['group']}: {', '.join(parts)}, {behind}; {age}"))]
    for one in report["causes"]:
        lines += [
            Text(printable(f"{one['cause']}: {one['subject']}, {one['figure']}")),
            Text(f"  {printable(one['helps'])}"),
        ]
    if report["members"]:
        lines.append(Text(_advised(report["members"])))
    table = _table(unit, "partition", "member")
    for row in rows:
        name = f"{row['topic']}-{row['partition']}"
        figures = (_lag(row, unit), _time(row["lag_seconds"]))
        table.add_row(_verdict(row), printable(name), *figures, printable(_member(row)), printable(row["why"]))
    return Group(*lines, table)


def _member(row: dict[str, Any]) -> str:
    """The owner and its host; whether the partition is on its way to another one (KIP-848)."""
    target = row.get("target_member_id")
    going = " (moves)" if target is not None and target != row["member_id"] else ""
    host = f" at {row['client_host']}" if row.get("client_host") else ""
    return f"{row['client_id'] or ''}{host}{going}".strip()


def _unit(rows: list[dict[str, Any]]) -> str | None:
    """What all lags are numbers of; None where some are of records and others of offsets."""
    units = {row.get("lag_unit", RECORDS) for row in rows if row["lag_records"]}
    return None if len(units) > 1 else next(iter(units), RECORDS)


def _lag(row: dict[str, Any], unit: str | None) -> str:
    """The lag, with its unit where the column has none."""
    named = unit is None and row["lag_records"]
    return f"{_count(row['lag_records'])} {row['lag_unit']}" if named else _count(row["lag_records"])


def _table(unit: str | None, first: str, *more: str) -> Table:
    table = Table("verdict", first, box=None, pad_edge=False)
    table.add_column("lag" if unit is None else f"lag, {unit}", justify="right")
    table.add_column("in time", justify="right")
    for name in (*more, "why"):
        table.add_column(name)
    return table


def _verdict(row: dict[str, Any]) -> Text:
    return Text(row["status"], style=STYLES.get(row["status"], "red"))


def _advised(advice: dict[str, Any]) -> str:
    """The number of members needed and what each option costs."""
    if advice["needed"] is None:
        heaviest = advice["heaviest_partition_ratio"]
        return f"members: no number is enough, one partition alone takes {heaviest:.0%} of what a member can read"
    options = [
        f"{one['members']}: fullest {one['heaviest_ratio']:.0%}, R-score {one['r_score']:.2f}"
        for one in advice["options"]
    ]
    return f"members: {advice['needed']} needed; " + "; ".join(options)


def _count(records: int | None) -> str:
    return "unknown" if records is None else f"{records:,}"


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)
