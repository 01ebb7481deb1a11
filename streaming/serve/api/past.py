"""Plans, executions, decisions, movements: what the tables have kept, the newest first."""

from collections.abc import Mapping
from typing import Any

from assignor_core.execution.life_cycle import Execution
from streaming.serve.api.load import Body, Values
from streaming.serve.api.pages import LIMIT_DEFAULT, Cursor, pack, page, unknown_cursor, unpack
from streaming.serve.api.parameters import INT_MAX, VALUE_SHOWN
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.read_sources import ReadSources
from streaming.tables import Row, TableReader, to_ms
from streaming.views.approvals import waits_for
from streaming.views.decisions import read_seen
from streaming.views.executions import read_executions
from streaming.views.json_values import stored_object
from streaming.views.movements import (
    MovementFilter,
    read_chosen_movements,
    read_movements,
    read_past_moves,
    read_progress,
    read_states,
)
from streaming.views.past_rows import (
    ACTS,
    DECISIONS,
    EXECUTIONS,
    PLANS,
    Before,
    Past,
    execution_events,
    execution_figures,
    figures,
    read_execution_of,
    read_past,
    read_row,
    with_ends,
)
from streaming.views.plans import is_superseded, plan_content, plan_details, plan_ids
from streaming.views.rolls import last_event, open_roll, roll_content

EXECUTIONS_PER_PAGE = 25
"""Executions on a page: each may have thousands of events, of which its state is made."""
EVENTS_MAX = 500
PLAN_ID_CHARACTERS = 64


def decisions(sources: ReadSources, given: Values) -> Body:
    """Evaluations of the trigger, with the skew of each resource."""
    return _page(sources, given, DECISIONS, _decision)


def seen(sources: ReadSources, given: Values) -> Body:
    """What trigger and planner saw when they decided: loads of brokers in that window, thresholds, reason and plan."""
    with sources.tables() as reader:
        found = read_seen(reader, sources.kafka_cluster, given["decision_id"])
    if found is None:
        decision_id = given["decision_id"][:VALUE_SHOWN]
        raise ApiProblem(404, f"decision {decision_id!r} is unknown: /api/v1/decisions lists those that are stored")
    return found


def plans(sources: ReadSources, given: Values) -> Body:
    """Plans, without their movements."""
    return _page(sources, given, PLANS, figures)


def plan(sources: ReadSources, given: Values) -> Body:
    """One plan, with what it does to brokers, how long it lasts, cheaper ones, and whether it waits for approval."""
    cluster, now_ms = sources.kafka_cluster, sources.clock()
    with sources.tables() as reader:
        row = _known_plan(reader, cluster, given["plan_id"])
        plan_id = row["plan_id"]
        content = plan_content(reader, cluster, plan_id)
        known = read_executions(reader, cluster, now_ms=now_ms)
    shown = figures(row)
    lives = bool(shown["movement_count"]) and now_ms < shown["expires_ms"]
    taken_by = [one for one in known if one.plan_id == plan_id]
    details = plan_details(content)
    waits = {
        "waits": details["is_readable"] and lives and not is_superseded(row, known),
        "execution_id": taken_by[-1].execution_id if taken_by else None,
        "waits_for": waits_for(taken_by[-1], now_ms) if taken_by else None,
    }
    return {**shown, **details, **waits}


def movements(sources: ReadSources, given: Values) -> Body:
    """Movements of one plan, in its order or the largest first; `total` counts all that were asked for."""
    limit, is_by_bytes = given.get("limit", LIMIT_DEFAULT), given.get("order") == "bytes"
    cursor = _sequence_cursor(given, *([int, int] if is_by_bytes else [int]))
    with sources.tables() as reader:
        row = _known_plan(reader, sources.kafka_cluster, given["plan_id"])
        if not is_by_bytes and "topic" not in given:
            # In the plan's own order one page can be read alone, however large the plan is.
            after_sequence = cursor[0] if cursor else -1
            rows = read_movements(reader, row["plan_id"], after=after_sequence, rows_max=limit + 1)
            total = row["movement_count"]
        else:
            after = (cursor[0], cursor[-1]) if cursor else None
            rows, total = read_chosen_movements(
                reader, row["plan_id"], topic_part=given.get("topic", ""), is_by_bytes=is_by_bytes,
                after=after, rows_max=limit + 1,
            )  # fmt: skip

    def cursor_of(item: Mapping[str, Any], _number: int) -> list[Any]:
        return [item["bytes_to_move"], item["sequence"]] if is_by_bytes else [item["sequence"]]

    return page(map(figures, rows), limit, cursor_of, total=total)


def _sequence_cursor(given: Values, *types: type) -> Cursor | None:
    """The cursor of a list of movements, which ends with the sequence of one."""
    cursor = unpack(given.get("cursor"), *types)
    if cursor and cursor[-1] > INT_MAX:
        raise unknown_cursor()
    return cursor


def _known_plan(reader: TableReader, kafka_cluster: str, beginning: str) -> Row:
    """The row of the only plan whose id begins so; raises ApiProblem 404 where there is none, or more than one."""
    ids = [beginning] if len(beginning) == PLAN_ID_CHARACTERS else plan_ids(reader, kafka_cluster, beginning)
    if len(ids) > 1:
        raise ApiProblem(
            404, f"plan {beginning!r}: the ids of {len(ids)} plans begin so: give more characters of the id"
        )
    row = read_row(reader, PLANS, kafka_cluster, ids[0]) if ids else None
    if row is None:
        raise ApiProblem(404, f"plan {beginning!r} is unknown: /api/v1/plans lists those that are stored")
    return row


def executions(sources: ReadSources, given: Values) -> Body:
    """Executions by when they were approved, as they stand now."""
    limit = min(given.get("limit", EXECUTIONS_PER_PAGE), EXECUTIONS_PER_PAGE)
    cluster = sources.kafka_cluster
    with sources.tables() as reader:
        firsts = read_past(reader, EXECUTIONS, cluster, _before(given), rows_max=limit + 1)
        read = (read_execution_of(reader, cluster, row["execution_id"]) for row in firsts)
        rows = [execution_figures(execution) for execution in read if execution is not None]
    return page(rows, limit, lambda item, _number: [item["approved_ms"], item["execution_id"]])


def execution(sources: ReadSources, given: Values) -> Body:
    """One execution: how far each wave and each receiving broker is, and its newest events."""
    with sources.tables() as reader:
        known = _known(reader, sources.kafka_cluster, given["execution_id"])
        progress = read_progress(reader, known)
    return execution_figures(known) | progress | {"events": execution_events(known, events_max=EVENTS_MAX)}


def execution_movements(sources: ReadSources, given: Values) -> Body:
    """Movements of one execution in the plan's order, each with where it stands; `total` counts those asked for."""
    limit = given.get("limit", LIMIT_DEFAULT)
    cursor = _sequence_cursor(given, int)
    with sources.tables() as reader:
        known = _known(reader, sources.kafka_cluster, given["execution_id"])
        rows, total = read_states(
            reader, known, topic_part=given.get("topic", ""), state=given.get("state"),
            after=cursor[0] if cursor else -1, rows_max=limit + 1,
        )  # fmt: skip
    return page(map(figures, rows), limit, lambda item, _number: [item["sequence"]], total=total)


def _known(reader: TableReader, kafka_cluster: str, execution_id: str) -> Execution:
    known = read_execution_of(reader, kafka_cluster, execution_id)
    if known is None:
        raise ApiProblem(404, f"execution {execution_id!r} is unknown: /api/v1/executions lists those that are stored")
    return known


def roll(sources: ReadSources, _given: Values) -> Body:
    """The rolling restart that has not ended, as the tables have it; null if there is none."""
    with sources.tables() as reader:
        found = open_roll(reader, sources.kafka_cluster)
        if found is None:
            return {"roll": None}
        at, detail = last_event(reader, found.roll_id)
    return {"roll": roll_content(found) | {"event_ms": to_ms(at), "detail": detail}}


def audit(sources: ReadSources, given: Values) -> Body:
    """Acts that were asked for by HTTP or at a command line: who, how signed in, from where, and what came of each."""
    return _page(sources, given, ACTS, figures, with_ends)


def _page(sources: ReadSources, given: Values, past: Past, shown: Any, completed: Any = None) -> Body:
    """`completed` gets reader, cluster and rows, and returns the rows with what other rows add."""
    limit = given.get("limit", LIMIT_DEFAULT)
    with sources.tables() as reader:
        rows = read_past(reader, past, sources.kafka_cluster, _before(given), rows_max=limit + 1)
        rows = completed(reader, sources.kafka_cluster, rows) if completed and rows else rows
    keyed = [{**shown(row), "_key": past.key(row)} for row in rows]
    keys = [row.pop("_key") for row in keyed]
    return page(keyed, limit, lambda _item, number: list(keys[number]))


def _before(given: Values) -> Before:
    cursor = unpack(given.get("cursor"), int, str)
    return Before(given.get("from"), given.get("to"), (cursor[0], cursor[1]) if cursor else None)


def _decision(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = figures(row)
    skew = stored_object(shown.pop("skew_json", None)) or {}
    shown.pop("trace", None)  # a page of a hundred decisions would be mostly that
    return {**shown, "skew": {name: ratios for name, ratios in skew.items() if isinstance(ratios, dict)}}


def past_moves(sources: ReadSources, given: Values) -> Body:
    """Movements of plans that executions took up, with what became of the execution and why it was."""
    wanted = MovementFilter(given.get("topic"), given.get("partition"), given.get("broker"))
    if wanted.partition is not None and wanted.topic is None:
        raise ApiProblem(400, "topic: is missing: a partition is given with its topic")
    cursor = unpack(given.get("cursor"), int, str, int)
    after = (cursor[0], cursor[1], cursor[2]) if cursor else None
    limit = given.get("limit", LIMIT_DEFAULT)
    before = Before(given.get("from"), given.get("to"))
    with sources.tables() as reader:
        found = read_past_moves(reader, sources.kafka_cluster, wanted, before, after, rows_max=limit)
    body = page(found.rows, limit, lambda item, _number: [item["approved_ms"], item["execution_id"], item["sequence"]])
    if body["next_cursor"] is None and found.searched_to is not None:
        body["next_cursor"] = pack(list(found.searched_to))
    return body
