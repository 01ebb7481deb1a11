"""What has happened so far in a demo, read from the tables: the milestones that the view and the report show."""

from dataclasses import dataclass
from typing import Any

from assignor_core.execution.events import EventRecord
from streaming import tables
from streaming.views.decisions import read_decisions
from streaming.views.executions import folded
from streaming.views.plans import read_plans


@dataclass(frozen=True, slots=True)
class Story:
    """Milestones as ms UTC (None = not yet) and the newest rows behind them."""

    first_window_ms: int | None = None
    detected_ms: int | None = None
    planned_ms: int | None = None
    execution_started_ms: int | None = None
    balanced_ms: int | None = None
    measured_ms: int | None = None
    failed: str | None = None
    decision: dict[str, Any] | None = None
    plan: dict[str, Any] | None = None
    event: EventRecord | None = None

    @property
    def over(self) -> bool:
        """Whether the result has been measured, or can no longer be."""
        return self.measured_ms is not None or self.failed is not None

    def now(self) -> str:
        """Returns the present step of the demo, in a sentence."""
        if self.failed:
            return f"failed: {self.failed}"
        if self.event is not None:
            return f"{self.event.event}: {self.event.detail}"
        if self.decision is not None:
            return str(f"{self.decision['verdict']}: {self.decision['detail']}")
        return "waiting for the first closed window (Spark is starting)"


def read_story(reader: tables.TableReader, cluster: str) -> Story:
    """Milestones of the plan that is carried out, until then of the newest. A demo's tables are small: all is read."""
    decisions = read_decisions(reader, cluster, columns=("decided_at", "verdict", "detail", "plan_id"))
    plans = {row["plan_id"]: row for row in read_plans(reader, cluster)}
    executions = folded(reader.rows("execution", where=tables.of_cluster(cluster)))
    carried_out = next((row.plan_id for row in executions if row.started_ms is not None), None)
    planned = next(
        (row for row in reversed(decisions) if row["plan_id"] and row["plan_id"] == (carried_out or row["plan_id"])),
        None,
    )
    plan = plans.get(planned["plan_id"]) if planned else None
    newest = max((row.history[-1] for row in executions), key=lambda event: event.at_ms, default=None)
    failed = next((row.end for row in executions if row.failed), None)
    measured = (row.measured.at_ms for row in executions if row.measured is not None)
    return Story(
        first_window_ms=tables.to_ms(decisions[0]["decided_at"]) if decisions else None,
        detected_ms=tables.to_ms(planned["decided_at"]) if planned else None,
        planned_ms=tables.to_ms(plan["created_at"]) if plan else None,
        execution_started_ms=next((row.started_ms for row in executions if row.started_ms is not None), None),
        balanced_ms=next((row.done_ms for row in executions if row.done_ms is not None), None),
        measured_ms=next(measured, None),
        failed=failed.detail if failed else None,
        decision=decisions[-1] if decisions else None,
        plan=plan,
        event=newest,
    )
