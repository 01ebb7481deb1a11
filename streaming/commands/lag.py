"""`rebalancer lag`: consumer groups by verdict, worst first, and why; one group by partition. From the tables alone."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from streaming.lag import LagPicture

WIDTH_IN_FILES = 240
"""One line a group stays one line where no terminal folds it."""
STYLES = {"ok": "green", "unknown": "dim", "warn": "yellow"}
"""Of verdicts; all others are red."""

Row = Mapping[str, Any]


@click.command()
@click.option("--group", "group_id", help="This group by partition, worst first.")
@click.option("--match", "pattern", default="", help="Only groups that match this regular expression.")
@click.option(
    "--compat", type=click.Choice(["burrow"]), help="Verdicts by Burrow's rules, its faults included: see docs/lag.md."
)
@settings_options
@json_option
def lag(
    config_file: Path | None,
    assignments: tuple[str, ...],
    *,
    group_id: str | None,
    pattern: str,
    compat: str | None,
    as_json: bool,
) -> int:
    """Consumer groups by verdict, worst first, and why. Reads the tables; needs neither Spark nor the cluster."""
    settings = settings_from(config_file, assignments)
    found = read_lag(settings, group_id=group_id, matches=_pattern(pattern), burrow=compat is not None)
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return 0
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = WIDTH_IN_FILES
    console.print(_drawn(found))
    return 0


def read_lag(
    settings: Settings, *, group_id: str | None, matches: re.Pattern[str], burrow: bool = False
) -> dict[str, Any]:
    """What is shown, as plain data: all groups, or the partitions of one; raises UsageProblem for one not there."""
    from streaming.commands.lag_causes import advice_of, causes_of
    from streaming.serve.groups import read_picture
    from streaming.serve.reading import TableReader
    from streaming.serve.snapshot import to_json

    reader = TableReader(settings.storage.tables)
    picture = read_picture(reader, settings)
    head = {
        "kafka_cluster": settings.kafka.cluster_name,
        "rules": "burrow" if burrow else "default",
        "newest_event_ms": picture.newest_event_ms if picture else None,
    }
    if group_id is not None:
        rows = _of_group(picture, group_id) if picture else []
        if picture is None or not rows:
            raise UsageProblem(f"group {group_id!r} is not among those seen lately: `rebalancer lag` lists them")
        causes = causes_of(reader, settings, group_id, rows, newest_ms=picture.newest_event_ms)
        partitions = _partitions(picture, rows, burrow=burrow)
        advice = to_json(advice_of(rows))
        return {**head, "group": group_id, "causes": to_json(causes), "members": advice, "partitions": partitions}
    if picture is None:
        return {**head, "groups": []}
    from streaming.serve.groups import verdicts_by_group

    groups = _burrow_groups(picture) if burrow else to_json(verdicts_by_group(picture))
    return {**head, "groups": [row for row in groups if matches.search(row["group"])]}


def _partitions(picture: "LagPicture", rows: list[dict[str, Any]], *, burrow: bool) -> list[dict[str, Any]]:
    from assignor_core.lag import LagStatus
    from streaming.lag import burrow_status_of, figures_of, reason_of

    order = sorted(rows, key=lambda row: (-row["status"], -(row["lag_records"] or 0), row["topic"], row["partition"]))
    return [
        {
            "topic": row["topic"],
            "partition": row["partition"],
            "status": (burrow_status_of(picture, row) if burrow else LagStatus(row["status"])).name.lower(),
            "why": "" if burrow else reason_of(row),
            "lag_records": row["lag_records"],
            "lag_seconds": row["lag_seconds"],
            "committed_offset": row["committed_offset"],
            "log_end_offset": row["log_end_offset"],
            "consumed_per_sec": row["consumed_per_sec"],
            "produced_per_sec": row["produced_per_sec"],
            "catch_up_seconds": figures_of(row).catch_up_seconds,
            "last_commit_ms": None if row["commit_ms"] is None else int(row["commit_ms"]),
            "member_id": row["member_id"],
            "client_id": row["client_id"],
        }
        for row in order
    ]


def _of_group(picture: "LagPicture", group_id: str) -> list[dict[str, Any]]:
    from pyarrow import compute as pc

    partitions = picture.partitions
    found: list[dict[str, Any]] = partitions.filter(pc.equal(partitions["group_id"], group_id)).to_pylist()
    return found


def _burrow_groups(picture: "LagPicture") -> list[dict[str, Any]]:
    """One row a group; there is no word why, as Burrow gives none but the worst partition's verdict."""
    from collections import Counter

    from assignor_core.lag import burrow_group_status
    from streaming.lag import burrow_status_of

    by_group: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for row in picture.partitions.to_pylist():
        by_group.setdefault(row["group_id"], []).append((burrow_status_of(picture, row), row))
    found = []
    for group, judged in by_group.items():
        status, worst = max(judged, key=lambda pair: (pair[0], pair[1]["lag_records"] or 0))
        known = [row["lag_records"] for _, row in judged if row["lag_records"] is not None]
        waited = [row["lag_seconds"] for _, row in judged if row["lag_seconds"] is not None]
        found.append({
            "group": group,
            "status": burrow_group_status(one for one, _ in judged).name.lower(),
            "why": f"{worst['topic']}-{worst['partition']}: {status.name}",
            "state": worst["group_state"],
            "partitions": len(judged),
            "statuses": dict(Counter(one.name.lower() for one, _ in sorted(judged, key=lambda pair: -pair[0]))),
            "lag_records": sum(known) if known else None,
            "lag_seconds": max(waited, default=None),
        })  # fmt: skip
    order = ("err", "warn", "ok", "notfound")
    return sorted(found, key=lambda row: (order.index(row["status"]), -(row["lag_records"] or 0), row["group"]))


def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageProblem(f"--match: {pattern!r} is no regular expression: {error}") from None


def _drawn(found: dict[str, Any]) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = found.get("groups", found.get("partitions", []))
    if not rows:
        return Text(f"cluster {found['kafka_cluster']}: no consumer group in the tables yet")
    first = "group" if "groups" in found else "partition"
    table = Table("verdict", first, box=None, pad_edge=False)
    table.add_column("lag, records", justify="right")
    table.add_column("in time", justify="right")
    table.add_column("why")
    for row in rows:
        name = row["group"] if "groups" in found else f"{row['topic']}-{row['partition']}"
        verdict = Text(row["status"], style=STYLES.get(row["status"], "red"))
        table.add_row(verdict, name, _count(row["lag_records"]), _time(row["lag_seconds"]), row["why"])
    told = [
        Text(f"{one['cause']}: {one['subject']}, {one['figure']}\n  {one['helps']}") for one in found.get("causes", [])
    ]
    if found.get("members"):
        told.append(Text(_advised(found["members"])))
    return Group(*told, table)


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
    from assignor_core.lag.reasons import duration

    return "unknown" if seconds is None else duration(seconds)
