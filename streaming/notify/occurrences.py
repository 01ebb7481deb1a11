"""What people are notified of, read from control's tables."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.wording import bytes_text, counted
from streaming.contract import PLAN
from streaming.settings.notify import NotificationKind
from streaming.tables import TableReader, equal, of_cluster, to_ms
from streaming.views.executions import read_executions
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
