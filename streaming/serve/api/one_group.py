"""One consumer group: its partitions, members, causes and advice, and its rebalances."""

from collections.abc import Mapping
from typing import Any

from streaming.contract import GROUP_EVENT
from streaming.serve.api.load import Body, Values
from streaming.serve.api.looks import Looks
from streaming.serve.api.pages import LIMIT_DEFAULT, page, unknown_cursor, unpack
from streaming.serve.api.problems import Problem
from streaming.tables import equal
from streaming.views.group_history import read_group_past
from streaming.views.group_picture import LagRules
from streaming.views.group_store import read_picture
from streaming.views.json_values import stored_texts
from streaming.views.one_group import members_of, read_one_group
from streaming.views.past_rows import Before, Past, figures, read_past

MEMBERS_MAX = 200
CAUSES_MAX = 50
NAMES_MAX = 100
"""Members that an event shows to have come, and as many that went."""


def group_partitions(looks: Looks, given: Values) -> Body:
    """One consumer group: causes of its lag, advice, members, and its partitions, the worst first."""
    group_id = given["group"]
    cursor = unpack(given.get("cursor"), int)
    first = cursor[0] if cursor else 0
    if first < 0:
        raise unknown_cursor()
    load, settings = looks.snapshot().load, looks.settings
    with looks.tables() as reader:
        picture = read_picture(
            reader,
            looks.kafka_cluster,
            window_ms=settings.pipeline.window_ms,
            where=equal("group_id", group_id),
            rules=LagRules.of(settings.lag),
        )
        if picture is None:
            raise Problem(404, f"group {group_id[:100]!r}: is not in the newest windows")
        report = read_one_group(reader, settings, picture, group_id, load=load)
        past = read_group_past(reader, settings, group_id, partitions=len(report["partitions"]))
    partitions = report.pop("partitions")
    members = members_of(partitions)
    head = report | {
        "newest_event_ms": picture.newest_event_ms,
        "causes": report["causes"][:CAUSES_MAX],
        "advice": report["members"],
        "hints": list(past.advice.hints) if past else [],
        "members": members[:MEMBERS_MAX],
        "members_left_out": max(0, len(members) - MEMBERS_MAX),
        "total": len(partitions),
    }
    return page(partitions[first:], given.get("limit"), lambda _item, number: [first + number + 1], **head)


def group_rebalances(looks: Looks, given: Values) -> Body:
    """Rebalances of one consumer group, with why and who came and went."""
    limit, cursor = given.get("limit", LIMIT_DEFAULT), unpack(given.get("cursor"), int, str)
    before = Before(given.get("from"), given.get("to"), (max(0, cursor[0]), cursor[1]) if cursor else None)
    events = Past(GROUP_EVENT.name, "group_id", ("group_id", given["group"]))
    with looks.tables() as reader:
        rows = read_past(reader, events, looks.kafka_cluster, before, rows_max=limit + 1)
    return page(map(_event, rows), limit, lambda item, _number: [item["window_start_ms"], item["group_id"]])


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    names = {side: stored_texts(row[f"{side}_json"])[:NAMES_MAX] for side in ("members_in", "members_out")}
    return {name: value for name, value in figures(row).items() if not name.endswith("_json")} | names
