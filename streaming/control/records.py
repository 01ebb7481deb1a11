"""Plans and executions as the journal keeps them: the names of events, and what follows from those of one execution."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assignor_core.execution.reconcile import changes_since, differences
from assignor_core.live import LiveCluster
from assignor_core.plan import Plan
from streaming import tables

APPROVED = "approved"
MEASURED = "measured"
PAUSED = "paused"
RESUMED = "resumed"
ABORT_REQUESTED = "abort_requested"
SWEPT = "swept"
ENDED = frozenset({"done", MEASURED, "aborted", "refused"})


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan as the tables keep it."""

    plan: Plan
    json: Mapping[str, Any]
    created_ms: int
    expires_ms: int

    def misfits(self, live: LiveCluster) -> tuple[str, ...]:
        """How the cluster has changed since the plan was made; empty when the plan can be started as approved."""
        seen = self.json.get("observed")  # plans from a model or another tool have none
        return (*differences(self.plan, live), *(changes_since(seen, self.plan, live) if seen else ()))


@dataclass(slots=True)
class ExecutionRecord:
    """One carrying out of a plan, with the events of it that are known, oldest first."""

    execution_id: str
    plan_id: str
    events: list[dict[str, Any]] = field(default_factory=list)
    abort_requested: bool = False

    @property
    def last_event(self) -> str:
        """Name of the newest event."""
        return str(self.events[-1]["event"]) if self.events else ""

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do on the cluster."""
        return any(event["event"] in ENDED for event in self.events)

    @property
    def owes(self) -> bool:
        """Whether it has ended and brokers that were down still bear its throttle."""
        return self.ended and bool(self.events[-1]["throttled_brokers"])

    @property
    def to_be_measured(self) -> bool:
        """Whether it was carried out, and nobody has told yet what came of it."""
        names = {event["event"] for event in self.events}
        return "done" in names and MEASURED not in names

    @property
    def started_ms(self) -> int:
        """When it began."""
        return tables.to_ms(self.events[0]["event_time"])

    @property
    def since_ms(self) -> int:
        """When it began, or went on after its newest pause: what clients are compared with."""
        resumed = (event for event in reversed(self.events) if event["event"] == RESUMED)
        return tables.to_ms(next(resumed, self.events[0])["event_time"])

    @property
    def paused(self) -> bool:
        """Whether it waits for its time, with nothing of it left on the cluster."""
        return self.last_event == PAUSED

    @property
    def in_windows_only(self) -> bool:
        """Whether it may submit movements in maintenance windows only."""
        return bool(self.events[-1].get("in_windows_only"))

    def worked_ms(self, now_ms: int) -> int:
        """Time since it began, its pauses left out."""
        times = [*(tables.to_ms(event["event_time"]) for event in self.events[1:]), now_ms]
        pauses = (
            end - tables.to_ms(event["event_time"])
            for event, end in zip(self.events, times, strict=True)
            if event["event"] == PAUSED
        )
        return now_ms - self.started_ms - sum(pauses)
