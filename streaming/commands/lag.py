"""`rebalancer lag`: consumer groups by verdict, worst first, and why; one group by partition. From the tables alone."""

import difflib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streaming.commands.options import json_option, settings_from, settings_options
from streaming.errors import UsageProblem
from streaming.runtime import clocks
from streaming.settings import Settings

if TYPE_CHECKING:
    from assignor_core.lag import BurrowStatus
    from streaming.tables import TableReader
    from streaming.views.group_picture import LagPicture
    from streaming.views.group_store import LagWindows

Row = Mapping[str, Any]
GROUPS_SHOWN = 200


@click.command()
@click.option("--group", "group_id", help="This group by partition, worst first.")
@click.option("--match", "pattern", default="", help="Only groups that match this regular expression.")
@click.option(
    "--limit",
    default=GROUPS_SHOWN,
    show_default=True,
    type=click.IntRange(min=0),
    help="Show so many groups, the worst; 0: all. JSON holds all.",
)
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
    limit: int,
    compat: str | None,
    as_json: bool,
) -> int:
    """Consumer groups by verdict, worst first, and why. Reads the tables; needs neither Spark nor the cluster."""
    from streaming.commands.tables_there import check_tables

    settings = settings_from(config_file, assignments)
    matches = _pattern(pattern)
    check_tables(settings)
    groups_max = 0 if as_json else limit
    report = read_lag(settings, group_id=group_id, matches=matches, burrow=compat is not None, groups_max=groups_max)
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return 0
    from streaming.commands.console import console
    from streaming.commands.lag_view import drawn

    console().print(drawn(report, now_ms=clocks.now_ms()))
    return 0


def read_lag(
    settings: Settings, *, group_id: str | None, matches: re.Pattern[str], burrow: bool = False, groups_max: int = 0
) -> dict[str, Any]:
    """What is shown, as plain data: all groups, or the partitions of one; raises UsageProblem for one not there.

    With `groups_max` above 0 so many of the groups that match, the worst; the others are counted.
    """
    from streaming.tables import TableReader
    from streaming.views.group_picture import LagRules
    from streaming.views.group_store import LagWindows, read_picture_of_group

    reader, cluster = TableReader(settings.storage.tables), settings.kafka.cluster_name
    of_groups = LagRules.of(settings.lag)
    rules: dict[str, Any] = {"kafka_cluster": cluster, "rules": "burrow" if burrow else "default"}
    if group_id is not None:
        # With causes come members and assignors, which the view of all groups does without.
        from streaming.views.one_group import read_one_group

        picture = read_picture_of_group(
            reader, cluster, group_id, window_ms=settings.pipeline.window_ms, rules=of_groups
        )
        if picture is None:
            raise _unknown_group(reader, group_id, settings)
        burrow_of = _burrow(picture) if burrow else None
        head = rules | {"newest_event_ms": picture.newest_event_ms}
        return head | read_one_group(reader, settings, picture, group_id, burrow_of=burrow_of)
    # What verdicts need first: the age of a lag takes far more windows, and is shown of some groups.
    windows = LagWindows(reader, cluster, window_ms=settings.pipeline.window_ms, verdicts_only=True, rules=of_groups)
    windows.refresh()
    if burrow or groups_max == 0:
        windows.complete()
    picture = windows.picture()
    head = rules | {"newest_event_ms": picture.newest_event_ms if picture else None}
    if picture is None:
        return {**head, "groups": [], "groups_seen": 0}
    if burrow:
        groups = _burrow_groups(picture)
        return head | _worst(groups, [row for row in groups if matches.search(row["group"])], groups_max)
    return head | _verdicts(windows, picture, matches, groups_max)


def _verdicts(
    windows: "LagWindows", picture: "LagPicture", matches: re.Pattern[str], groups_max: int
) -> dict[str, Any]:
    """Groups that match; where not all are asked for, reasons and older lags are looked for of those that are shown."""
    from streaming.views.as_json import to_json
    from streaming.views.group_columns import LOG_ENDS
    from streaming.views.group_ranking import ranked_groups, verdicts_by_group

    if not groups_max:
        verdicts = verdicts_by_group(picture)
        matching = [row for row in verdicts if matches.search(row.group)]
        return {"groups": to_json(matching), "groups_seen": len(verdicts)}
    ranked = ranked_groups(picture.partitions)
    report = _worst(ranked, [row for row in ranked if matches.search(row.group)], groups_max)
    shown = report["groups"]
    windows.complete([row.group for row in shown if not row.lag_seconds_is_final], columns=LOG_ENDS)
    complete = windows.picture([row.group for row in shown]) if shown else None
    return report | {"groups": to_json(verdicts_by_group(complete) if complete else ())}


def _worst(groups: Sequence[Any], matching: Sequence[Any], groups_max: int) -> dict[str, Any]:
    """The first `groups_max` of those that match; all, where it is 0."""
    report = {"groups": matching[: groups_max or None], "groups_seen": len(groups)}
    if not 0 < groups_max < len(matching):
        return report
    statuses = Counter(row["status"] if isinstance(row, dict) else row.status for row in matching)
    return report | {"groups_matching": len(matching), "statuses": statuses}


def _unknown_group(reader: "TableReader", group_id: str, settings: Settings) -> UsageProblem:
    """Says whether there are groups at all, and which one may have been meant."""
    from streaming.views.group_memberships import read_group_names

    cluster = settings.kafka.cluster_name
    known = read_group_names(reader, cluster, window_ms=settings.pipeline.window_ms)
    if not known:
        return UsageProblem(f"group {group_id!r}: no group of cluster {cluster} is in the tables yet")
    close = difflib.get_close_matches(group_id, known, n=1, cutoff=0.6) or [name for name in known if group_id in name]
    meant = f"did you mean {close[0]!r}?" if close else "`rebalancer lag` lists them"
    return UsageProblem(f"group {group_id!r} is not among the {len(known)} seen lately: {meant}")


def _burrow_groups(picture: "LagPicture") -> list[dict[str, Any]]:
    """One row a group; there is no word why, as Burrow gives none but the worst partition's verdict."""
    from assignor_core.lag import burrow_group_status
    from streaming.views.group_ranking import states_by_group

    burrow_of = _burrow(picture)
    states = states_by_group(picture.partitions)
    by_group: dict[str, list[tuple[Any, dict[str, Any]]]] = {}
    for row in picture.partitions.to_pylist():
        by_group.setdefault(row["group_id"], []).append((burrow_of(row), row))
    groups = []
    for group, judged in by_group.items():
        status, worst = max(judged, key=lambda pair: (pair[0], pair[1]["lag_records"] or 0))
        known = [row["lag_records"] for _, row in judged if row["lag_records"] is not None]
        waited = [row["lag_seconds"] for _, row in judged if row["lag_seconds"] is not None]
        groups.append({
            "group": group,
            "status": burrow_group_status(one for one, _ in judged).name.lower(),
            "why": f"{worst['topic']}-{worst['partition']}: {status.name}",
            "state": states[group],
            "partitions": len(judged),
            "statuses": dict(Counter(one.name.lower() for one, _ in sorted(judged, key=lambda pair: -pair[0]))),
            "lag_records": sum(known) if known else None,
            "lag_seconds": max(waited, default=None),
        })  # fmt: skip
    order = ("err", "warn", "ok", "notfound")
    return sorted(groups, key=lambda row: (order.index(row["status"]), -(row["lag_records"] or 0), row["group"]))


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
