"""`rebalancer lag`: consumer groups by verdict, worst first, and why; one group by partition. From the tables alone."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.runtime.printable import printable
from streaming.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from assignor_core.lag import BurrowStatus
    from streaming.tables import TableReader
    from streaming.views.group_picture import LagPicture, LagRules
    from streaming.views.group_ranking import Choice, GroupVerdict
    from streaming.views.group_store import LagWindows

Row = Mapping[str, Any]
GROUPS_SHOWN = 200
ALL = re.compile("")
SORTS = ("verdict", "lag", "time", "name")
RECORDS = "records"
STYLES = {"ok": "green", "unknown": "dim", "warn": "yellow"}
"""Styles of verdicts; all other verdicts are red."""


@click.command()
@click.option("--group", "group_id", help="Show this group by partition, worst first.")
@click.option("--match", "pattern", default="", help="Show only groups that match this regular expression.")
@click.option("--topic", help="Show only this topic, and the groups that read it.")
@click.option(
    "--status", "statuses", multiple=True, metavar="VERDICT", help="Show only groups with this verdict; repeatable."
)
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default=SORTS[0],
    show_default=True,
    help="Order of groups: the worst, the most lag or the oldest lag first, or by name.",
)
@click.option(
    "--limit",
    default=GROUPS_SHOWN,
    show_default=True,
    type=click.IntRange(min=0),
    help="Show the first groups, this many; 0: all. JSON has all groups.",
)
@click.option(
    "--compat", type=click.Choice(["burrow"]), help="Judge by Burrow's rules, including their faults: see docs/lag.md."
)
@settings_options
@json_option
def lag(
    config_file: Path | None,
    assignments: tuple[str, ...],
    *,
    group_id: str | None,
    pattern: str,
    topic: str | None,
    statuses: tuple[str, ...],
    sort: str,
    limit: int,
    compat: str | None,
    as_json: bool,
) -> int:
    """Consumer groups by verdict, worst first, and why. Reads the tables; needs neither Spark nor the cluster."""
    from streaming.commands.options import check_tables

    settings = settings_from(config_file, assignments)
    burrow = compat is not None
    matches, wanted = _pattern(pattern), _statuses(statuses, burrow=burrow)
    check_tables(settings)
    report = read_lag(
        settings, group_id=group_id, matches=matches, topic=topic, statuses=wanted, sort=sort, burrow=burrow,
        groups_max=0 if as_json else limit,
    )  # fmt: skip
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return 0
    from streaming.commands.console import console

    console().print(drawn(report, now_ms=clocks.now_ms(), first="worst" if sort == SORTS[0] else "first"))
    return 0


def read_lag(
    settings: Settings,
    *,
    group_id: str | None = None,
    matches: re.Pattern[str] = ALL,
    topic: str | None = None,
    statuses: frozenset[str] = frozenset(),
    sort: str = SORTS[0],
    burrow: bool = False,
    groups_max: int = 0,
) -> dict[str, Any]:
    """What is shown, as plain data: groups, or the partitions of one; raises UsageProblem for one not there.

    With `groups_max` above 0 so many of the groups that are chosen, the first; the others are counted.
    """
    from streaming.tables import TableReader
    from streaming.views.group_picture import LagRules
    from streaming.views.group_ranking import Choice
    from streaming.views.group_store import LagWindows

    reader, cluster = TableReader(settings.storage.tables), settings.kafka.cluster_name
    rules = LagRules.of(settings.lag)
    head = {"kafka_cluster": cluster, "rules": "burrow" if burrow else "default"}
    if group_id is not None:
        choice = Choice(statuses=statuses, sort=sort)
        return head | _one_group(reader, settings, group_id, choice, rules=rules, topic=topic, burrow=burrow)
    choice = Choice(lambda group: matches.search(group) is not None, statuses, sort)
    # What verdicts need first: the age of a lag takes far more windows, and is shown of some groups.
    windows = LagWindows(reader, cluster, window_ms=settings.pipeline.window_ms, verdicts_only=True, rules=rules)
    windows.refresh()
    is_complete = burrow or groups_max == 0 or sort == "time"
    if is_complete:
        windows.complete()
    picture = windows.picture()
    if picture is None:
        return {**head, "newest_event_ms": None, "groups": [], "groups_seen": 0, "groups_matching": 0, "statuses": {}}
    return head | _groups(windows, picture, choice, topic, burrow=burrow, rows_max=groups_max, is_complete=is_complete)


def _groups(
    windows: "LagWindows", picture: "LagPicture", choice: "Choice", topic: str | None, *, burrow: bool, rows_max: int,
    is_complete: bool,
) -> dict[str, Any]:  # fmt: skip
    """The groups that are chosen. Where older windows were not read, they are read of the groups that are shown."""
    from streaming.views.group_ranking import SEVERITY, count_groups, ranked_groups, verdicts_by_group
    from streaming.views.json_values import to_json

    of_topic = picture.of_topic(topic)
    chosen: Sequence[Any] = choice.of(_burrow_groups(of_topic) if burrow else ranked_groups(of_topic.partitions))
    shown = chosen[: rows_max or None]
    counts = Counter(row.status for row in chosen)
    report = {
        "newest_event_ms": picture.newest_event_ms,
        "groups_seen": count_groups(picture.partitions),
        "groups_matching": len(chosen),
        "statuses": {status: counts[status] for status in sorted(counts, key=lambda status: -SEVERITY[status])},
    }
    if burrow:
        return report | {"groups": to_json(shown)}
    if not is_complete and shown:
        windows.complete([row.group for row in shown if not row.lag_seconds_is_final])
        complete = windows.picture([row.group for row in shown])
        of_topic = complete.of_topic(topic) if complete else of_topic
        shown = replace(choice, statuses=()).of(ranked_groups(of_topic.partitions))
    return report | {"groups": to_json(verdicts_by_group(of_topic, shown))}


def _one_group(
    reader: "TableReader", settings: Settings, group_id: str, choice: "Choice", *, rules: "LagRules",
    topic: str | None, burrow: bool,
) -> dict[str, Any]:  # fmt: skip
    """One group, with those of its partitions that are chosen."""
    from streaming.tables import equal
    from streaming.views.group_ranking import Choice
    from streaming.views.group_store import read_picture
    from streaming.views.one_group import read_one_group

    cluster, window_ms = settings.kafka.cluster_name, settings.pipeline.window_ms
    picture = read_picture(reader, cluster, window_ms=window_ms, where=equal("group_id", group_id), rules=rules)
    if picture is None:
        raise _unknown_group(reader, group_id, settings)
    burrow_of = _burrow(picture) if burrow else None
    report = read_one_group(reader, settings, picture, group_id, burrow_of=burrow_of)
    if topic is not None and topic not in {row["topic"] for row in report["partitions"]}:
        raise UsageProblem(f"group {group_id!r} was not seen to read topic {topic!r}: is the name right?")
    if choice != Choice() or topic is not None:
        report["partitions"] = choice.of_partitions(report["partitions"], topic)
    return {"newest_event_ms": picture.newest_event_ms, **report}


def _unknown_group(reader: "TableReader", group_id: str, settings: Settings) -> UsageProblem:
    """Returns the error that names whether there are groups at all, and which group may have been meant."""
    from streaming.views.group_memberships import read_group_names

    cluster = settings.kafka.cluster_name
    known = read_group_names(reader, cluster, window_ms=settings.pipeline.window_ms)
    if not known:
        return UsageProblem(f"group {group_id!r}: no group of cluster {cluster} is in the tables yet")
    close = difflib.get_close_matches(group_id, known, n=1, cutoff=0.6) or [name for name in known if group_id in name]
    meant = f"did you mean {close[0]!r}?" if close else "`rebalancer lag` lists them"
    return UsageProblem(f"group {group_id!r} is not among the {len(known)} seen lately: {meant}")


def _burrow_groups(picture: "LagPicture") -> "list[GroupVerdict]":
    """The groups with Burrow's verdicts; why is the verdict of the worst partition alone, as Burrow says no more."""
    from assignor_core.lag import burrow_group_status
    from streaming.views.group_ranking import verdicts_by_group

    burrow_of = _burrow(picture)
    judged: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for row in picture.partitions.to_pylist():
        judged.setdefault(row["group_id"], []).append((burrow_of(row), row))
    groups = []
    for verdict in verdicts_by_group(picture, has_reasons=False):
        partitions = judged[verdict.group]
        status, worst = max(partitions, key=lambda pair: (pair[0], pair[1]["lag_records"] or 0))
        groups.append(
            replace(
                verdict,
                status=burrow_group_status(one for one, _ in partitions).name.lower(),
                why=f"{worst['topic']}-{worst['partition']}: {status.name}",
                statuses=Counter(one.name.lower() for one in sorted((one for one, _ in partitions), reverse=True)),
            )
        )
    return groups


def _burrow(picture: "LagPicture") -> "Callable[[Row], BurrowStatus]":
    """Burrow's verdict on a partition of the picture."""
    from streaming.views.group_picture import burrow_status_of

    history = picture.history()
    return lambda row: burrow_status_of(history, row, now_ms=picture.newest_event_ms)


def _pattern(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageProblem(f"--match: {pattern!r} is no regular expression: {error}") from None


def _statuses(given: Sequence[str], *, burrow: bool) -> frozenset[str]:
    from assignor_core.lag import BurrowStatus, LagStatus

    known = [one.name.lower() for one in (BurrowStatus if burrow else LagStatus)]
    unknown = [one for one in given if one.lower() not in known]
    if unknown:
        raise UsageProblem(f"--status: {unknown[0]!r} is not a verdict; verdicts are {', '.join(known)}")
    return frozenset(one.lower() for one in given)


def drawn(report: dict[str, Any], *, now_ms: int, first: str = "worst") -> "RenderableType":
    """All groups, or one with its causes and partitions; on top how old the newest sample is. `first` is what those are
    that are shown where some are left out."""
    from rich.text import Text

    from assignor_core.lag.reasons import duration
    from assignor_core.wording import many

    newest_ms = report["newest_event_ms"]
    if newest_ms is None:
        return Text(f"cluster {report['kafka_cluster']}: no consumer group in the tables yet")
    age = f"newest sample {duration(max(0, now_ms - newest_ms) / 1000)} ago"
    if "partitions" in report:
        return _drawn_group(report, age)
    if not report["groups"]:
        seen = many(report["groups_seen"], "group")
        return Text(f"cluster {report['kafka_cluster']}: none of {seen} matches; {age}")
    return _drawn_groups(report, age, first)


def _drawn_groups(report: dict[str, Any], age: str, first: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    rows, matching = report["groups"], report["groups_matching"]
    counts = ", ".join(f"{count} {status}" for status, count in report["statuses"].items())
    unit = _unit(rows)
    table = _table(unit, "group")
    for row in rows:
        table.add_row(*_cells(row, unit, row["group"]), printable(row["why"]))
    shown = str(matching) if matching == report["groups_seen"] else f"{matching} of {report['groups_seen']}"
    noun = "group" if shown == "1" else "groups"
    head = Text(f"cluster {report['kafka_cluster']}: {shown} {noun}, {counts}; {age}")
    if matching == len(rows):
        return Group(head, table)
    return Group(head, table, Text(f"the {len(rows)} {first} of {matching}; all with --limit 0, some with --match"))


def _drawn_group(report: dict[str, Any], age: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    from assignor_core.wording import many

    rows, members = report["partitions"], report["group_members"]
    lags = [row["lag_records"] for row in rows if row["lag_records"] is not None]
    unit = _unit(rows)
    noun = "record" if unit == RECORDS else "offset"
    behind = f"{many(sum(lags), noun)} behind" if lags else "lag unknown"
    known = "members unknown" if members is None else many(members, "member")
    parts = (report["state"] or "state unknown", known, many(len(rows), "partition"))
    kind = f"{report['group_type']} group" if report["group_type"] else "group"
    lines = [f"{kind} {report['group']}: {', '.join(parts)}, {behind}; {age}"]
    for one in report["causes"]:
        lines += [f"{one['cause']}: {one['subject']}, {one['figure']}", f"  {one['helps']}"]
    if report["members"]:
        lines.append(_advised(report["members"]))
    table = _table(unit, "partition", "member")
    for row in rows:
        cells = _cells(row, unit, f"{row['topic']}-{row['partition']}")
        table.add_row(*cells, printable(_member(row)), printable(row["why"]))
    return Group(*(Text(printable(line)) for line in lines), table)


def _member(row: dict[str, Any]) -> str:
    """The owner and its host; whether the partition is on its way to another one (KIP-848)."""
    target = row.get("target_member_id")
    going = " (moves)" if target is not None and target != row["member_id"] else ""
    host = f" at {row['client_host']}" if row.get("client_host") else ""
    return f"{row['client_id'] or ''}{host}{going}".strip()


def _unit(rows: list[dict[str, Any]]) -> str | None:
    """What all lags are numbers of; None where some are of records and others of offsets."""
    units = {row["lag_unit"] for row in rows if row["lag_records"]}
    return None if len(units) > 1 else next(iter(units), RECORDS)


def _table(unit: str | None, first: str, *more: str) -> "Table":
    from rich.table import Table

    table = Table("verdict", first, box=None, pad_edge=False)
    table.add_column("lag" if unit is None else f"lag, {unit}", justify="right")
    table.add_column("in time", justify="right")
    for name in (*more, "why"):
        table.add_column(name)
    return table


def _cells(row: dict[str, Any], unit: str | None, name: str) -> "tuple[Text | str, ...]":
    """Verdict, name, lag and its age. A lag has its unit where the column has none."""
    from rich.text import Text

    from assignor_core.lag.reasons import duration
    from streaming.views.group_ranking import lag_text

    records, seconds = row["lag_records"], row["lag_seconds"]
    count = "unknown" if records is None else f"{records:,}"
    if unit is None and records:
        count = lag_text(records, row["lag_unit"])
    return (
        Text(row["status"], style=STYLES.get(row["status"], "red")),
        printable(name),
        count,
        "unknown" if seconds is None else duration(seconds),
    )


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
