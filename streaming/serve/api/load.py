"""Brokers, topics, partitions and groups: as the newest window has them, or their history; one group in full; all
clusters, the worst first.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from streaming.contract import GROUP_EVENT
from streaming.serve.api.pages import LIMIT_DEFAULT, page, unknown_cursor, unpack
from streaming.serve.api.parameters import FROM, STEP, TO
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.read_sources import ReadSources
from streaming.serve.snapshot import Snapshot, old_after_ms
from streaming.settings.clusters import PAUSED_MODE
from streaming.tables import ALL_ROWS, Condition, equal, to_ms
from streaming.views import history
from streaming.views.broker_load import BrokerLoad, LoadPart
from streaming.views.group_history import read_group_past
from streaming.views.group_picture import LagRules
from streaming.views.group_ranking import Choice, GroupVerdict
from streaming.views.group_store import read_picture
from streaming.views.history import Span, TableFamily
from streaming.views.intents import Intent, newest_intents
from streaming.views.json_values import stored_texts, to_json
from streaming.views.one_group import members_of, read_one_group
from streaming.views.past_rows import Before, Past, figures, read_past
from streaming.views.restarts import restart_content
from streaming.views.spans import stale_after_ms

T = TypeVar("T")
Values = Mapping[str, Any]
"""Parameters of a request that were given, by name."""
Body = dict[str, Any]
SPAN_DEFAULT_MS = 3_600_000
MEMBERS_MAX = 200
CAUSES_MAX = 50
NAMES_MAX = 100
"""Members that an event shows to have come, and as many that went."""


def clusters(sources: ReadSources, _given: Values) -> Body:
    """Clusters of the deployment, the worst first."""
    rows = overview(sources.of_all(), now_ms=sources.clock(), old_after_ms=old_after_ms(sources.settings.serve))
    return {"items": rows, "next_cursor": None}


def brokers(sources: ReadSources, given: Values) -> Body:
    """Brokers by id."""
    snapshot = sources.snapshot()
    where = equal("broker", given["broker"]) if "broker" in given else ALL_ROWS
    if _is_history(given):
        return _history(sources, given, history.BROKERS, where, rows_per_period=len(snapshot.load.brokers))
    rows = [row for row in snapshot.load.brokers if given.get("broker") in (None, row.broker)]
    with sources.tables() as reader:
        noted = newest_intents(reader, sources.kafka_cluster)

    log_dirs = defaultdict(list)
    for one in snapshot.log_dirs:
        log_dirs[one.broker].append(one)

    def noted_ms(broker: int, intent: Intent) -> int | None:
        note = noted.get(broker)
        return to_ms(note["event_time"]) if note is not None and note["intent"] == intent else None

    def shown(row: BrokerLoad) -> dict[str, Any]:
        own = [to_json(one) | {"used_share": one.used_share} for one in log_dirs[row.broker]]
        return {
            **to_json(row),
            "drained_ms": noted_ms(row.broker, Intent.DRAIN),
            "demoted_ms": noted_ms(row.broker, Intent.DEMOTE),
            "log_dirs": own,
        }

    return _numbered(rows, shown, given, **_window(snapshot.load))


def _window(load: LoadPart) -> dict[str, int | None]:
    return {"window_start_ms": load.window_start_ms, "window_end_ms": load.window_end_ms}


def topics(sources: ReadSources, given: Values) -> Body:
    """Topics by name, or the highest figure first, with their replicas and the sums over their partitions."""
    load = sources.snapshot().load
    if _is_history(given):
        _refuse_with_history(given, "search", "order")
        family, where = history.TOPICS, equal("topic", _needed(given, "topic"))
        return _history(sources, given, family, where, rows_per_period=_partitions(sources))
    rows = [row for row in load.topics.items() if given.get("topic") in (None, row[0]) and _is_found(given, row[0])]
    column = history.ORDERS[given.get("order", "name")]
    if column is not None:
        rows.sort(key=lambda row: (-(getattr(row[1], column) or 0), row[0]))
    return _numbered(rows, lambda row: {"topic": row[0], **to_json(row[1])}, given, **_window(load))


def _is_found(given: Values, name: str) -> bool:
    return given.get("search", "").casefold() in name.casefold()


def partitions(sources: ReadSources, given: Values) -> Body:
    """Partitions by topic and number, or the hottest first, as their leaders reported them."""
    if _is_history(given):
        _refuse_with_history(given, "broker", "order")
        where = equal("topic", _needed(given, "topic")) & equal("partition", _needed(given, "partition"))
        return _history(sources, given, history.PARTITIONS, where, rows_per_period=_partitions(sources))
    where = _equal(given, "topic") & _equal(given, "partition")
    if given.get("order", "name") != "name" or "broker" in given:
        return _hottest(sources, given, where)
    cursor = unpack(given.get("cursor"), int, str, int)
    window_ms = cursor[0] if cursor else sources.snapshot().load.window_start_ms
    if window_ms is None:
        return _before_any_window()
    after = (cursor[1], cursor[2]) if cursor else None
    limit = given.get("limit", LIMIT_DEFAULT)
    with sources.tables() as reader:
        cluster = sources.kafka_cluster
        rows = history.window_partitions(reader, cluster, window_ms, where, after=after, rows_max=limit + 1)
    return page(
        rows,
        limit,
        lambda item, _number: [window_ms, item["topic"], item["partition"]],
        window_start_ms=window_ms,
    )


def _hottest(sources: ReadSources, given: Values, where: Condition) -> Body:
    """The cursor is a place in the list of one window."""
    window_ms, first = unpack(given.get("cursor"), int, int) or (sources.snapshot().load.window_start_ms, 0)
    if window_ms is None:
        return _before_any_window()
    limit, column = given.get("limit", LIMIT_DEFAULT), history.ORDERS[given.get("order", "name")]
    with sources.tables() as reader:
        rows = history.window_partitions(
            reader, sources.kafka_cluster, window_ms, where,
            broker=given.get("broker"), column=column, first=first, rows_max=limit + 1,
        )  # fmt: skip
    return page(rows, limit, lambda _item, number: [window_ms, first + number + 1], window_start_ms=window_ms)


def _before_any_window() -> Body:
    return page([], None, lambda _item, _number: [], window_start_ms=None)


def groups(sources: ReadSources, given: Values) -> Body:
    """Consumer groups by verdict, the worst first, also those of a topic; the lag of one over time."""
    part = sources.snapshot().groups
    if _is_history(given):
        _refuse_with_history(given, "search")
        where = equal("group_id", _needed(given, "group")) & _equal(given, "topic") & _equal(given, "partition")
        if "partition" in given:
            _needed(given, "topic")
        family = history.GROUP_PARTITIONS if "topic" in given else history.GROUPS
        total = sum(row.partitions for row in part.groups)
        return _history(sources, given, family, where, rows_per_period=total)
    if "partition" in given:
        raise ApiProblem(400, "partition: is allowed only together with from, to or step")
    by_topic: dict[str, list[Any]] = {}
    has_topics = "group" in given or "topic" in given
    if has_topics:
        for topic in part.topics:
            if given.get("group") in (None, topic.group) and given.get("topic") in (None, topic.topic):
                by_topic.setdefault(topic.group, []).append(topic)

    def is_wanted(group: str) -> bool:
        of_topic = "topic" not in given or group in by_topic
        return of_topic and given.get("group") in (None, group) and _is_found(given, group)

    rows = list(filter(Choice(is_wanted).picks, part.groups))  # which are in order

    def shown(row: GroupVerdict) -> dict[str, Any]:
        topics = {"topics": [to_json(one) for one in by_topic.get(row.group, [])[:1000]]} if has_topics else {}
        return {**to_json(row), **topics}

    return _numbered(rows, shown, given, newest_event_ms=part.newest_event_ms)


def _is_history(given: Values) -> bool:
    return any(parameter.name in given for parameter in (FROM, TO, STEP))


def _needed(given: Values, name: str) -> Any:
    if name not in given:
        raise ApiProblem(
            400,
            f"{name}: is missing: a history (from, to, step) is of one {name}, since that of all would be too large",
        )
    return given[name]


def _refuse_with_history(given: Values, *names: str) -> None:
    for name in names:
        if name in given:
            raise ApiProblem(400, f"{name}: is not allowed together with from, to or step")


def _equal(given: Values, name: str) -> Condition:
    return equal(name, given[name]) if name in given else ALL_ROWS


def _partitions(sources: ReadSources) -> int:
    """Rows of partition_load in one window, about: followers have rows too."""
    load = sources.snapshot().load
    return 3 * sum(len(rates) for rates in load.leader_rates.values())


def _numbered(rows: Sequence[T], shown: Callable[[T], dict[str, Any]], given: Values, **fields: Any) -> Body:
    """A page of what the snapshot holds; the cursor is a place in the list. Only rows of the page are made JSON of."""
    (first,) = unpack(given.get("cursor"), int) or [0]
    listed = map(shown, rows[first:])
    return page(listed, given.get("limit"), lambda _item, number: [first + number + 1], **fields)


def _history(
    sources: ReadSources, given: Values, family: TableFamily, where: Condition, *, rows_per_period: int
) -> Body:
    cursor = unpack(given.get("cursor"), int, list)
    until_ms = given.get("to", sources.clock())
    from_ms = given.get("from", max(0, until_ms - SPAN_DEFAULT_MS))
    if from_ms >= until_ms:
        raise ApiProblem(400, f"from: {from_ms} must be earlier than to, which is {until_ms}")
    span = Span(from_ms, until_ms, given.get("step"), cursor[0] if cursor else None)
    limit = given.get("limit", LIMIT_DEFAULT)
    with sources.tables() as reader:
        past = history.read_history(
            reader,
            family,
            span,
            where,
            kafka_cluster=sources.kafka_cluster,
            window_ms=sources.settings.pipeline.window_ms,
            rows_per_period=rows_per_period,
            rows_max=limit + 1,
        )
    key = itemgetter("start_ms", *family.keys)
    rows = past.rows
    if cursor:
        try:
            rows = [row for row in rows if list(key(row)) > [cursor[0], *cursor[1]]]
        except TypeError:
            raise unknown_cursor() from None
    step = {"step_ms": past.step_ms, "table": past.table}
    return page(rows, limit, lambda item, _number: [item["start_ms"], list(key(item)[1:])], **step)


def group_partitions(sources: ReadSources, given: Values) -> Body:
    """One consumer group: causes of its lag, advice, members, and its partitions, the worst first."""
    group_id = given["group"]
    (first,) = unpack(given.get("cursor"), int) or [0]
    load, settings = sources.snapshot().load, sources.settings
    with sources.tables() as reader:
        picture = read_picture(
            reader,
            sources.kafka_cluster,
            window_ms=settings.pipeline.window_ms,
            where=equal("group_id", group_id),
            rules=LagRules.of(settings.lag),
        )
        if picture is None:
            raise ApiProblem(
                404, f"group {group_id[:100]!r} is not in the newest windows: /api/v1/groups lists those that are"
            )
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


def group_rebalances(sources: ReadSources, given: Values) -> Body:
    """Rebalances of one consumer group, with why and who came and went."""
    limit, cursor = given.get("limit", LIMIT_DEFAULT), unpack(given.get("cursor"), int, str)
    before = Before(given.get("from"), given.get("to"), (cursor[0], cursor[1]) if cursor else None)
    events = Past(GROUP_EVENT.name, "group_id", ("group_id", given["group"]))
    with sources.tables() as reader:
        rows = read_past(reader, events, sources.kafka_cluster, before, rows_max=limit + 1)
    return page(map(_event, rows), limit, lambda item, _number: [item["window_start_ms"], item["group_id"]])


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    names = {side: stored_texts(row[f"{side}_json"])[:NAMES_MAX] for side in ("members_in", "members_out")}
    return {name: value for name, value in figures(row).items() if not name.endswith("_json")} | names


def restart_check(sources: ReadSources, given: Values) -> Body:
    """Whether this broker may be restarted now, and what a restart would do, by a snapshot of the cluster."""
    assert sources.restarts is not None  # the application of one cluster has it
    check = sources.restarts.of(given["broker"])
    return restart_content(check, check.stops(accepts_single=given.get("accept_single") == "true"))


GROUPS_SHOWN = 3
SOUND = frozenset({"ok", "unknown"})
"""Verdicts on groups that nobody need look at."""

Row = dict[str, Any]


def overview(snapshots: Iterable[Snapshot], *, now_ms: int, old_after_ms: int) -> list[Row]:
    """Returns a row for each cluster, the worst first: clusters of which nothing new is known, then those with more
    skew per threshold, then those with more groups that have a bad verdict. A paused cluster may have old data.
    """
    return sorted((_row(snapshot, now_ms, old_after_ms) for snapshot in snapshots), key=_badness)


def _row(snapshot: Snapshot, now_ms: int, old_after_ms: int) -> Row:
    load, control, groups = snapshot.load, snapshot.control, snapshot.groups
    decision, execution = control.decision or {}, control.execution or {}
    age_ms = None if load.window_end_ms is None else now_ms - load.window_end_ms
    bad = [group for group in groups.groups if group.status not in SOUND]
    # A snapshot that is no longer replaced shows a bug of serve: what it says may be long over.
    is_left = now_ms - snapshot.read_at_ms > old_after_ms
    under_way = execution if execution.get("under_way") else {}
    return {
        "kafka_cluster": snapshot.kafka_cluster,
        "mode": snapshot.mode,
        "window_end_ms": load.window_end_ms,
        "is_stale": age_ms is None or age_ms > stale_after_ms(snapshot.window_ms),
        "failures": [*sorted(snapshot.failures), *(["snapshot"] if is_left else [])],
        "brokers": len(load.brokers),
        "brokers_unreported": len(load.silent_brokers),
        "max_over_mean": {name: skew.max_over_mean for name, skew in load.skew.items()},
        "threshold_enter": snapshot.threshold_enter,
        "trigger_resources": list(snapshot.trigger_resources),
        "verdict": decision.get("verdict"),
        "reason": decision.get("reason"),
        "detail": decision.get("detail"),
        "decided_ms": decision.get("decided_ms"),
        "waiting_plan_id": _waiting_plan_id(snapshot, now_ms),
        "execution_id": under_way.get("execution_id"),
        "execution_event": under_way.get("event"),
        "groups": {status: count for status, count in groups.statuses.items() if count},
        "worst_groups": [{"group": row.group, "status": row.status, "why": str(row.why)} for row in bad[:GROUPS_SHOWN]],
    }


def _waiting_plan_id(snapshot: Snapshot, now_ms: int) -> str | None:
    """Returns the id of the newest plan, if it may still be approved and no execution has begun since it was made."""
    plan, execution = snapshot.control.plan, snapshot.control.execution
    if plan is None or not plan["movement_count"] or plan["expires_ms"] <= now_ms:
        return None
    is_taken = execution is not None and (
        (execution["plan_id"] == plan["plan_id"] and not execution.get("needs_approval"))
        or (execution["started_ms"] or 0) >= plan["created_ms"]
    )
    return None if is_taken else str(plan["plan_id"])


def _badness(row: Row) -> tuple[Any, ...]:
    """Sorts the worst first."""
    skews = [row["max_over_mean"].get(resource) for resource in row["trigger_resources"]]
    known = [value for value in skews if value is not None]
    bad = sum(count for status, count in row["groups"].items() if status not in SOUND)
    is_blind = bool(row["failures"]) or (row["is_stale"] and row["mode"] != PAUSED_MODE)
    skew = max(known, default=0.0) / row["threshold_enter"]
    return not is_blind, not row["brokers_unreported"], -skew, -bad, row["kafka_cluster"]
