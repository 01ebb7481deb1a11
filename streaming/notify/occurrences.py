"""What people are notified of: occurrences in control's tables, and groups that have stopped or have recovered.

A group has stopped by the rule of the alert RebalancerConsumerGroupStopped.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.wording import bytes_text, counted, many
from streaming.contract import PLAN
from streaming.settings import DAY_MS
from streaming.settings.notify import NotificationKind
from streaming.tables import TableReader, equal, of_cluster, to_ms
from streaming.views.executions import read_executions
from streaming.views.group_ranking import GroupTopic, lag_text
from streaming.views.plans import waiting_plan

TAKEN_WITHIN_MS = 30_000
"""How long control in mode `apply` may take to begin a plan, ms: it takes a plan at once, unless that waits for its
maintenance window.
"""
KINDS: Mapping[Event, NotificationKind] = {
    Event.STARTED: "execution_started",
    Event.PAUSED: "execution_paused",
    Event.RESUMED: "execution_resumed",
    Event.DONE: "execution_ended",
    Event.ABORTED: "execution_ended",
    Event.REFUSED: "execution_ended",
    Event.MEASURED: "execution_measured",
}
TITLES: Mapping[Event, str] = {
    Event.STARTED: "Execution of plan {plan} has started",
    Event.PAUSED: "Execution of plan {plan} is paused",
    Event.RESUMED: "Execution of plan {plan} continues",
    Event.DONE: "Plan {plan} is carried out",
    Event.ABORTED: "Execution of plan {plan} was aborted",
    Event.REFUSED: "Plan {plan} was refused",
    Event.MEASURED: "Load after plan {plan} is measured",
}
PLAN_ID_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One thing that happened; the same one has the same id in every process."""

    occurrence_id: str
    kind: NotificationKind
    subject: str
    """Id of the plan, the execution or the group."""
    at_ms: int
    title: str
    detail: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_occurrences(reader: TableReader, kafka_cluster: str, *, since_ms: int, now_ms: int) -> list[Occurrence]:
    """Events of executions since then, and the plan that waits for a person, oldest first; raises TableUnavailable."""
    executions = read_executions(reader, kafka_cluster, now_ms=now_ms)
    found = [*_of_executions(executions), *_of_waiting_plan(reader, kafka_cluster, executions, now_ms)]
    return sorted((one for one in found if one.at_ms >= since_ms), key=lambda one: (one.at_ms, one.occurrence_id))


def _of_executions(executions: Iterable[Execution]) -> Iterator[Occurrence]:
    for execution in executions:
        for record in execution.events:
            kind = KINDS.get(record.event)
            if kind is None:
                continue
            figures = record.figures
            yield Occurrence(
                f"execution:{execution.execution_id}:{record.sequence}",
                kind,
                execution.execution_id,
                record.at_ms,
                TITLES[record.event].format(plan=execution.plan_id[:PLAN_ID_SHOWN]),
                record.detail,
                {
                    "plan_id": execution.plan_id,
                    "event": record.event.value,
                    "movements_done": figures.movements_done,
                    "movements_total": figures.movements_total,
                    "bytes_moved": figures.bytes_moved,
                    "bytes_total": figures.bytes_total,
                    "max_over_mean": {when: dict(ratios) for when, ratios in figures.max_over_mean.items() if ratios},
                },
            )


def _of_waiting_plan(
    reader: TableReader, kafka_cluster: str, executions: Iterable[Execution], now_ms: int
) -> Iterator[Occurrence]:
    """Yields the occurrence of a waiting plan, only if control made the plan: who asks for a plan knows of it."""
    plan = waiting_plan(reader, kafka_cluster, executions, now_ms=now_ms)
    if plan is None:
        return
    created_ms = to_ms(plan["created_at"])
    of_plan = of_cluster(kafka_cluster) & equal("plan_id", plan["plan_id"])
    made = reader.newest_row(PLAN.name, "created_at", columns=("created_at", "decision_id", "mode"), where=of_plan)
    if made is None or made["decision_id"] is None:
        return
    if made["mode"] == "apply" and now_ms < created_ms + TAKEN_WITHIN_MS:
        return
    waits_for = "its maintenance window" if made["mode"] == "apply" else "a person to approve it"
    yield Occurrence(
        f"plan:{plan['plan_id']}:{created_ms}",
        "plan_waits",
        plan["plan_id"],
        created_ms,
        f"Plan {plan['plan_id'][:PLAN_ID_SHOWN]} waits for {waits_for}",
        f"{counted(plan['movement_count'], 'movement copies', 'movements copy')} {bytes_text(plan['bytes_to_move'])}; "
        f"the plan expires at {plan['expires_at']:%Y-%m-%d %H:%M} UTC. `rebalancer status` shows the plan",
        {
            "plan_id": plan["plan_id"],
            "movement_count": plan["movement_count"],
            "leader_movement_count": plan["leader_movement_count"],
            "bytes_to_move": plan["bytes_to_move"],
            "expires_at": plan["expires_at"].isoformat(),
        },
    )


STOPPED = frozenset({"stop", "stall"})
LAG_MIN_RECORDS = 1_000
LASTS_MS = 600_000
GROUPS_AT_A_TIME = 100
"""Number of groups that one round names, at most; the next round names the others."""


class StoppedGroups:
    """Follows the verdicts of groups from round to round.

    `newest_of_groups` reads what was notified last of each group, by whichever process: a group is named once.
    """

    def __init__(self, newest_of_groups: Callable[[], Mapping[str, Occurrence]]) -> None:
        self._newest_of_groups = newest_of_groups
        self._since_ms: dict[str, int] = {}
        self._named: set[str] | None = None
        self._even_since_ms: dict[str, int] = {}

    def occurrences(
        self, topics: Iterable[GroupTopic], *, now_ms: int, abandoned: Collection[str] = ()
    ) -> list[Occurrence]:
        """Returns the occurrences to notify of now; raises TableUnavailable. No group that is `abandoned` is named as
        one that has stopped.
        """
        waiting = _waiting(topics)
        self._since_ms = {group: self._since_ms.get(group, now_ms) for group in waiting}
        named = self._names() if self._named is None else self._named
        well = named - waiting.keys()
        self._even_since_ms = {group: self._even_since_ms.get(group, now_ms) for group in well}
        stopped = [group for group in _lasting(self._since_ms, now_ms) if group not in named and group not in abandoned]
        recovered = _lasting(self._even_since_ms, now_ms)
        if not stopped and not recovered:
            self._named = named
            return []
        newest = self._newest_of_groups()
        found = [
            *(_stopped(group, waiting[group], newest.get(group), now_ms) for group in stopped[:GROUPS_AT_A_TIME]),
            *(_recovered(group, newest.get(group), now_ms) for group in recovered[:GROUPS_AT_A_TIME]),
        ]
        self._named = (named | set(stopped[:GROUPS_AT_A_TIME])) - set(recovered[:GROUPS_AT_A_TIME])
        return [one for one in found if one is not None]

    def _names(self) -> set[str]:
        return {group for group, one in self._newest_of_groups().items() if one.kind == "group_stopped"}


def _lasting(since_ms: Mapping[str, int], now_ms: int) -> list[str]:
    return sorted(group for group, begin_ms in since_ms.items() if now_ms >= begin_ms + LASTS_MS)


def _waiting(topics: Iterable[GroupTopic]) -> dict[str, GroupTopic]:
    """Returns by group its topic with the most records that wait, or a commit beyond the log end, on which nothing is
    committed.
    """
    worst: dict[str, GroupTopic] = {}
    for topic in topics:
        lag = topic.lag_records or 0
        is_cut_off = lag > LAG_MIN_RECORDS or (topic.beyond_end_records or 0) > 0
        if is_cut_off and any(topic.statuses.get(status) for status in STOPPED):
            known = worst.get(topic.group)
            if known is None or lag > (known.lag_records or 0):
                worst[topic.group] = topic
    return worst


def _stopped(group: str, topic: GroupTopic, newest: Occurrence | None, now_ms: int) -> Occurrence | None:
    if newest is not None and newest.kind == "group_stopped":
        return None  # another process was first
    partitions = sum(topic.statuses.get(status, 0) for status in STOPPED)
    beyond, waiting = topic.beyond_end_records, topic.lag_records or 0
    wait = "waits" if waiting == 1 else "wait"
    cut_off = (
        f", and a commit is {many(beyond, 'record')} beyond the log end, where nothing can be read" if beyond else ""
    )
    return Occurrence(
        _next_id(group, newest, now_ms),
        "group_stopped",
        group,
        now_ms,
        f"Consumer group {group} has stopped",
        f"Group {group} has committed nothing for {LASTS_MS // 60_000} min on {many(partitions, 'partition')} of topic "
        f"{topic.topic}; {lag_text(waiting, topic.lag_unit)} of the topic {wait}{cut_off}. `rebalancer lag` shows why",
        {"group": group, "topic": topic.topic, "partitions": partitions, "lag_records": topic.lag_records},
    )


def _recovered(group: str, newest: Occurrence | None, now_ms: int) -> Occurrence | None:
    if newest is None or newest.kind == "group_recovered":
        return None
    title = f"Consumer group {group} has recovered"
    detail = (
        f"For {LASTS_MS // 60_000} min group {group} has had no topic on which it commits nothing while more than "
        f"{LAG_MIN_RECORDS:,} records wait or its commit is beyond the log end"
    )
    occurrence_id = _next_id(group, newest, now_ms)
    return Occurrence(occurrence_id, "group_recovered", group, now_ms, title, detail, {"group": group})


def _next_id(group: str, newest: Occurrence | None, now_ms: int) -> str:
    """Returns a numbered id, so that only one of two processes that see an occurrence sends it.

    Rows expire, but an id that was used stays used. So where there is no row the numbers begin with the day.
    """
    number = now_ms - now_ms % DAY_MS if newest is None else int(newest.occurrence_id.rpartition(":")[2])
    return f"group:{group}:{number + 1}"
