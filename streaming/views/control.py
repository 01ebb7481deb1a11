"""The control part of a snapshot: newest decision, newest plan, the execution under way, and totals of all there were.

Totals are counts of the table rows of a period (`streaming.views.spans`), so they survive restarts of every process.
Only rows newer than those already counted are read again; deciding and acting is control's own business.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from assignor_core.execution.accuracy import Accuracy
from assignor_core.execution.events import EventRecord
from assignor_core.execution.life_cycle import Execution
from assignor_core.resources import REPORTED
from streaming import tables
from streaming.settings import Settings
from streaming.tables import TableReader, above, at_least, equal, of_cluster, one_of
from streaming.views.accuracy import AccuracyReader
from streaming.views.executions import KnownExecutions, event_columns
from streaming.views.past_rows import figures
from streaming.views.plans import plan_price
from streaming.views.spans import counted_since

RECENT_EVENTS = 20
CLOCK_LAG_MAX_MS = 600_000
"""An approval by a machine whose clock is further behind is shown once its execution goes on."""

_DECISION = (
    "decision_id", "decided_at", "window_end", "verdict", "reason", "detail", "resource", "max_over_mean",
    "threshold_enter", "threshold_exit", "breached", "breach_started_at", "completeness_ratio", "brokers_expected",
    "brokers_reporting", "cooldown_end_at", "mode", "plan_id",
)  # fmt: skip
_PLAN_SKEW = tuple(
    f"{resource}_{suffix}"
    for resource in REPORTED
    for suffix in ("max_over_mean_before", "max_over_mean_after", "lower_bound")
)
_PLAN = (
    "plan_id", "created_at", "expires_at", "decision_id", "mode", "movement_count", "leader_movement_count",
    "bytes_to_move", "planning_ms", *_PLAN_SKEW,
)  # fmt: skip
_EXECUTION = (
    "execution_id", "sequence", "plan_id", "event_time", "event", "detail", "movements_total", "movements_done",
    "bytes_total", "bytes_moved", "throttle_bytes_per_sec", "throttled_brokers", "bytes_in_max_over_mean_before",
    "bytes_in_max_over_mean_predicted", "bytes_in_max_over_mean_measured",
)  # fmt: skip
"""What is shown. Tables of every version have these columns; what others would say of an execution is unknown here."""

Figures = Mapping[str, Any]
"""A row by column name (see `streaming.contract`), its times as `..._ms`, ms since 1970 UTC, instead of timestamps."""


@dataclass(frozen=True, slots=True)
class ControlPart:
    """What control did last, and how often it did what; totals are None where they are unknown."""

    decision: Figures | None = None
    plan: Figures | None = None
    """The newest, with `least_bytes`, `duration_ms` and `cheaper` besides, see `plan_price`."""
    execution: Figures | None = None
    """Newest event of the execution that is under way, else of the newest, with `started_ms`, `ended_ms` and
    `under_way` besides."""
    events: tuple[Figures, ...] = ()
    """Newest events of that execution, newest first."""
    decisions: Mapping[tuple[str, str, str], int] | None = None
    """(verdict, reason, resource) -> evaluations; resource is "" where none decided."""
    failures: int | None = None
    throttles_left: tuple[int, ...] | None = None
    """Brokers that keep the throttle of an execution that has ended: they were down at its end, or refused."""
    last_success_ms: int | None = None
    planning_seconds: tuple[float, ...] | None = None
    execution_seconds: tuple[float, ...] | None = None
    accuracy: Accuracy = field(default_factory=Accuracy)
    """How far the newest plans were off that were carried out and measured."""

    def from_zero(self) -> "ControlPart":
        """Returns this part with totals at 0 where they are unknown, for tables that are sure to be yet to come."""
        return replace(
            self,
            decisions=self.decisions or {},
            failures=self.failures or 0,
            throttles_left=self.throttles_left or (),
            planning_seconds=self.planning_seconds or (),
            execution_seconds=self.execution_seconds or (),
        )


class ControlReader:
    """Reads the part again and again; remembers what it has counted."""

    def __init__(self, reader: TableReader, settings: Settings) -> None:
        self._reader = reader
        self._cluster = settings.kafka.cluster_name
        self._of_cluster = of_cluster(self._cluster)
        self._settings = settings.control
        self._decision: Figures | None = None
        self._decisions: Counter[tuple[str, str, str]] = Counter()
        self._decided_at: datetime | None = None
        self._decisions_since: datetime | None = None
        self._plan: Figures | None = None
        self._planning: list[float] = []
        self._planned_at: datetime | None = None
        self._plans_since: datetime | None = None
        self._executions = KnownExecutions()
        self._event_at: datetime | None = None
        self._accuracy = AccuracyReader(reader, self._cluster)

    def read(self) -> ControlPart:
        """Reads the part from the tables as they are now."""
        self._read_decisions()
        self._read_plans()
        self._read_events()
        executions = self._executions
        shown = executions.in_focus
        return ControlPart(
            decision=self._decision,
            plan=self._plan,
            execution=_execution(shown) if shown else None,
            events=_newest_events(shown) if shown else (),
            decisions=dict(self._decisions) if self._there("decision") else None,
            failures=executions.failures if self._there("execution") else None,
            throttles_left=executions.throttles_left if self._there("execution") else None,
            last_success_ms=executions.last_done_ms,
            planning_seconds=tuple(self._planning) if self._there("plan") else None,
            execution_seconds=executions.durations_s if self._there("execution") else None,
            accuracy=self._accuracy.read(),
        )

    def _there(self, name: str) -> bool:
        return self._reader.version(name) is not None

    def _read_decisions(self) -> None:
        since = self._counted_since("decision", "decided_at", self._settings.decision_retention_ms)
        if since != self._decisions_since:
            self._decisions_since, self._decided_at, self._decisions = since, None, Counter()
        # Identifiers, not only the time, would be needed if control wrote out of order; it is a single writer.
        rows = self._newer("decision", _DECISION, "decided_at", self._decided_at, since)
        self._decisions.update((row["verdict"], row["reason"], row["resource"] or "") for row in rows)
        newest = tables.newest(rows, "decided_at")
        if newest is not None:
            self._decided_at, self._decision = newest["decided_at"], figures(newest)

    def _read_plans(self) -> None:
        # Plans that nobody carried out expire with the decisions.
        retention_ms = min(self._settings.decision_retention_ms, self._settings.execution_retention_ms)
        since = self._counted_since("plan", "created_at", retention_ms)
        if since != self._plans_since:
            self._plans_since, self._planned_at, self._planning = since, None, []
        rows = self._newer("plan", _PLAN, "created_at", self._planned_at, since)
        self._planning += [row["planning_ms"] / 1000 for row in rows]
        newest = tables.newest(rows, "created_at")
        if newest is not None:
            price = plan_price(self._reader, self._cluster, newest["plan_id"])
            self._planned_at, self._plan = newest["created_at"], {**figures(newest), **price}

    def _read_events(self) -> None:
        # Several events may bear one time, and clocks of machines differ: events of the last minutes are read again,
        # and of what is open all that is not known, however far behind the clock was that wrote it.
        known = None if self._event_at is None else self._event_at - timedelta(milliseconds=CLOCK_LAG_MAX_MS)
        rows = self._newer("execution", _EXECUTION, "event_time", known, None, again=True)
        self._executions.add(rows, self._whole)
        self._executions.add(self._unknown_of_open(), self._whole)
        newest = tables.newest(rows, "event_time")
        if newest is not None:
            self._event_at = newest["event_time"]
            since = counted_since(newest["event_time"], retention_ms=self._settings.execution_retention_ms)
            self._executions.count_from(tables.to_ms(since))

    def _unknown_of_open(self) -> list[dict[str, Any]]:
        """Rows of open executions behind those that are known, requests to abort among them."""
        lengths = {execution.execution_id: len(execution.events) for execution in self._executions.open}
        if not lengths:
            return []
        unknown = one_of("execution_id", sorted(lengths)) & at_least("sequence", min(lengths.values()))
        return self._reader.rows("execution", columns=_EXECUTION, where=unknown)

    def _whole(self, execution_id: str) -> list[dict[str, Any]]:
        """All rows of an execution: some were written by a clock that is behind the newest row."""
        return self._reader.rows("execution", columns=_EXECUTION, where=equal("execution_id", execution_id))

    def _counted_since(self, name: str, time: str, retention_ms: int) -> datetime | None:
        newest = self._reader.newest_of_cluster(name, time, self._cluster)
        return None if newest is None else counted_since(newest, retention_ms=retention_ms)

    def _newer(
        self,
        name: str,
        columns: tuple[str, ...],
        time: str,
        known: datetime | None,
        since: datetime | None,
        *,
        again: bool = False,
    ) -> list[dict[str, Any]]:
        """Rows newer than the newest known (and that one `again`); where none is known, those from `since` on."""
        where = self._of_cluster
        if known is not None:
            where &= at_least(time, known) if again else above(time, known)
        elif since is not None:
            where &= at_least(time, since)
        return self._reader.rows(name, columns=columns, where=where)


def _execution(execution: Execution) -> Figures:
    return {
        **_event(execution, execution.shown),
        "started_ms": execution.started_ms,
        "ended_ms": execution.ended_ms,
        # One that pauses until its hours come has nothing on the cluster, and isn't stuck.
        "under_way": execution.under_way,
        "needs_approval": execution.needs_approval,
    }


def _newest_events(execution: Execution) -> tuple[Figures, ...]:
    return tuple(_event(execution, record) for record in execution.history[::-1][:RECENT_EVENTS])


def _event(execution: Execution, record: EventRecord) -> Figures:
    columns = event_columns(execution, record)
    return figures({name: columns[name] for name in _EXECUTION})
