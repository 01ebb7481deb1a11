"""Rows of decision, plan, movement and execution: written once each, read back after a restart.

The journal is the only memory of control. Each row has an id of its own and each append a transaction that makes it
repeatable, so a crash between two writes neither loses nor doubles one.
"""

import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import structlog

from assignor_core.deciding.observation import GivenUp
from assignor_core.deciding.policy import TriggerPolicy
from assignor_core.deciding.state import TriggerState
from assignor_core.deciding.step import Decision
from assignor_core.disks import LogDirs
from assignor_core.errors import CoreError
from assignor_core.execution.approvals import approvals_missing, has_approved, person_of
from assignor_core.execution.caution import SkewOutcome
from assignor_core.execution.events import ABORT_SEQUENCE, Event, EventRecord, Figures
from assignor_core.execution.life_cycle import Execution, begin
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.resources import REPORTED, Resource
from streaming import tables
from streaming.contract import EXECUTION, LOG_DIR, PLAN
from streaming.control.obstacles import expired
from streaming.errors import LeaseLost, RefusedForSafety, TableUnavailable, UsageProblem
from streaming.views import executions as view
from streaming.views.approvals import approval_detail, instant_text, waits_for
from streaming.views.decisions import newest_decision
from streaming.views.executions import OpenExecutions
from streaming.views.intents import drained_brokers
from streaming.views.json_values import WRONG_SHAPE
from streaming.views.log_dirs import log_dir_rows
from streaming.views.movements import movement_rows, plan_of_movements
from streaming.views.plans import kept_plan, plan_ids

log = structlog.get_logger()

TABLES_WRITTEN = (
    "decision",
    "plan",
    "movement",
    "execution",
    "log_dir",
    "broker_restart",
    "load_memory",
    "recurring_load",
)
PLAN_ID_CHARACTERS_MIN = 6
PLANS_NAMED = 5
APPROVAL_TRIES_MAX = 10
"""How often an approval is tried where others write in its place at the same moment."""
RESTORED = "If the table was restored to an earlier version, restore the version of before"


class TimesAhead:
    """Times that lie in the future, as a clock was ahead that has been set right since: when each was first seen."""

    def __init__(self) -> None:
        self._seen_ms: dict[int, int] = {}

    def at_most_now(self, time_ms: int, now_ms: int) -> int:
        """The time, or when it was first seen if it lies in the future. Not just `now_ms`: that would be later at each
        read, so what happened would never be over.

        >>> ahead = TimesAhead()
        >>> ahead.at_most_now(5, 7), ahead.at_most_now(900, 7), ahead.at_most_now(900, 8), ahead.at_most_now(900, 6)
        (5, 7, 7, 6)
        """
        if time_ms <= now_ms:
            return time_ms
        return min(now_ms, self._seen_ms.setdefault(time_ms, now_ms))


@dataclass(slots=True, eq=False)
class ExecutionRecord:
    """What this process knows of one execution. The journal replaces `execution` with every event that it writes.

    Executor, sweep and measurement share one record, so that each continues the numbering of the others.
    """

    execution: Execution


def owner() -> str:
    """Returns the name by which this process signs its rows."""
    return _owner(os.getpid())


@cache
def _owner(pid: int) -> str:
    """A fork has another id."""
    return f"{socket.gethostname()}/{pid}"


class Journal:
    """Control's tables below one root, for one Kafka cluster.

    `mode` (control.mode) is written beside each decision and plan; a plan expires `plan_ttl_ms` after it is written.
    So many people as `approvals` have to approve a plan before it is carried out.
    """

    def __init__(self, root: str, kafka_cluster: str, *, mode: str, plan_ttl_ms: int, approvals: int = 1) -> None:
        self._root = root
        self._cluster = kafka_cluster
        self._mode = mode
        self._plan_ttl_ms = plan_ttl_ms
        self._approvals = approvals
        self._open_executions = OpenExecutions(root, kafka_cluster)
        self._ahead = TimesAhead()

    def make_tables(self) -> None:
        """Create the tables that control writes, so that analysts and serve find them from the start."""
        for name in TABLES_WRITTEN:
            tables.ensure_table(self._root, name)

    def trigger_state(self) -> TriggerState:
        """State after the newest evaluation; a fresh one where there was none, or one that can't be read."""
        row = newest_decision(self._reader(), self._cluster, columns=("state_json",))
        if row is None:
            return TriggerState()
        try:
            return TriggerState.read(json.loads(row["state_json"]))
        except WRONG_SHAPE as error:
            log.error("trigger_state_unreadable", error=f"{type(error).__name__}: {error}")
            return TriggerState()

    def drained_brokers(self) -> frozenset[int]:
        """Drained brokers: they must end empty and get no replicas."""
        return drained_brokers(self._reader(), self._cluster)

    def last_decision(self) -> tables.Row | None:
        """The newest evaluation; None where there was none."""
        return newest_decision(self._reader(), self._cluster)

    def write_decision(
        self, decision: Decision, state: TriggerState, skew: Mapping[str, Any], trigger: TriggerPolicy, *, now_ms: int
    ) -> None:
        """One row per evaluation by `trigger`, with the state after it and the window's `skew` by resource.

        Evaluating the same window again writes nothing.
        """
        evaluation, window = decision.evaluation, decision.window
        breached_ms = state.breached_since_ms
        row = {
            "decision_id": decision_id(self._cluster, window.window_end_ms),
            "kafka_cluster": self._cluster,
            "decided_at": tables.utc(now_ms),
            "window_end": tables.utc(window.window_end_ms),
            "verdict": evaluation.verdict.value,
            "reason": evaluation.reason.value,
            "detail": evaluation.detail,
            "resource": evaluation.resource,
            "max_over_mean": evaluation.max_over_mean,
            "threshold_enter": trigger.enter_ratio,
            "threshold_exit": trigger.exit_ratio,
            "breached": breached_ms is not None,
            "breach_started_at": None if breached_ms is None else tables.utc(breached_ms),
            "completeness_ratio": window.completeness,
            "brokers_expected": window.brokers_expected,
            "brokers_reporting": window.brokers_reporting,
            "cooldown_end_at": tables.utc(state.cooldown_end_ms) if state.cooldown_end_ms > now_ms else None,
            "mode": self._mode,
            "plan_id": decision.proposed.plan.plan_id if decision.proposed else None,
            "skew_json": json.dumps(skew, sort_keys=True),
            "state_json": json.dumps(asdict(state), sort_keys=True),
            "trace": json.dumps([row.to_json() for row in decision.trace]),
        }
        self._append("decision", [row], f"decision:{self._cluster}", window.window_end_ms)

    def write_log_dirs(self, log_dirs: LogDirs, *, now_ms: int) -> None:
        """How full log dirs are now, in the place of how full they were."""
        rows = log_dir_rows(log_dirs, self._cluster, now_ms=now_ms)
        transaction_id = f"log_dir:{self._cluster}"
        tables.replace(
            self._root,
            LOG_DIR.name,
            rows,
            kafka_cluster=self._cluster,
            transaction_id=transaction_id,
            transaction_version=tables.AtTime(now_ms),
        )

    def write_plan(self, proposed: ProposedPlan, *, decision: str | None, now_ms: int) -> KeptPlan:
        """The plan and its movements, which are written once for each id; the plan as it is stored."""
        kept = KeptPlan(proposed, now_ms, now_ms + self._plan_ttl_ms)
        plan, span_ms = proposed.plan, proposed.window_span_ms
        movements = movement_rows(plan, now_ms=now_ms)
        if not self._append("movement", movements, f"movement:{plan.plan_id}", 0) and not self._has_movements(plan):
            # The same plan was made before, and its rows have expired.
            self._append("movement", movements, f"movement:{plan.plan_id}", tables.AtTime(now_ms))
        row = {
            "plan_id": plan.plan_id,
            "kafka_cluster": self._cluster,
            "created_at": tables.utc(now_ms),
            "expires_at": tables.utc(kept.expires_ms),
            "decision_id": decision,
            "mode": self._mode,
            "window_start": tables.utc(span_ms[0]) if span_ms else None,
            "window_end": tables.utc(span_ms[1]) if span_ms else None,
            "movement_count": plan.movement_count,
            "leader_movement_count": sum(movement.kind == "leader" for movement in plan.movements),
            "bytes_to_move": round(plan.bytes_to_move),
            "planning_ms": round(proposed.elapsed_ms),
            **_skew_columns(plan),
            "plan_json": json.dumps(proposed.to_json(), sort_keys=True),
        }
        # A plan that is made again later lives anew: its new row carries the new time of expiry.
        self._append("plan", [row], f"plan:{plan.plan_id}", tables.AtTime(now_ms))
        return kept

    def _has_movements(self, plan: Plan) -> bool:
        reader = tables.TableReader(self._root)
        if plan_ids(reader, self._cluster, plan.plan_id):  # the smaller table; movements are written before their plan
            return True
        of_plan = tables.equal("plan_id", plan.plan_id)
        return bool(reader.rows("movement", columns=("sequence",), where=of_plan))

    def plan(self, plan_id: str) -> KeptPlan:
        """The plan with this id (or a beginning of it that is unique); raises UsageProblem."""
        if len(plan_id) < PLAN_ID_CHARACTERS_MIN:
            raise UsageProblem(f"plan {plan_id!r}: at least {PLAN_ID_CHARACTERS_MIN} characters of its id are needed")
        reader = self._reader()
        ids = plan_ids(reader, self._cluster, plan_id)
        if len(ids) != 1:
            known = ", ".join(identity[:12] for identity in plan_ids(reader, self._cluster)[:PLANS_NAMED]) or "none"
            problem = "is not unique" if ids else "is unknown"
            raise UsageProblem(f"plan {plan_id!r} {problem}; the newest are {known}")
        return kept_plan(reader, self._cluster, ids[0])

    def plan_of(self, execution: Execution) -> KeptPlan | None:
        """The plan that is carried out; None if the table `plan` has no row of it, or one that can't be read as a plan.

        Raises TableUnavailable, also if the table itself is missing: a volume that is not mounted must end nothing.
        """
        reader = self._reader()
        if reader.version(PLAN.name) is None:
            raise TableUnavailable(f"table {PLAN.name} is gone from the tables at {self._root}: are they mounted?")
        return self._readable(reader, execution.plan_id)

    def readable_plan(self, plan_id: str) -> KeptPlan | None:
        """Returns a plan that nobody carries out yet; None if the table `plan` has no row of it, or one that can't be
        read as a plan. Returns None also if the table is missing.
        """
        return self._readable(self._reader(), plan_id)

    def _readable(self, reader: tables.TableReader, plan_id: str) -> KeptPlan | None:
        if not plan_ids(reader, self._cluster, plan_id):
            return None
        try:
            return kept_plan(reader, self._cluster, plan_id)
        except (CoreError, *WRONG_SHAPE) as error:
            log.error("plan_unreadable", plan_id=plan_id[:12], error=f"{type(error).__name__}: {error}")
            return None

    def movements_of(self, execution: Execution) -> Plan | None:
        """The movements of an execution whose plan is gone; None if they are gone too. Raises TableUnavailable."""
        return plan_of_movements(self._reader(), self._cluster, execution.plan_id)

    def approve(self, approved: KeptPlan, by: str, *, now_ms: int, in_windows_only: bool = False) -> Execution:
        """Ask for `approved` to be carried out, by whoever holds the lease, now or later; see `approve_once`."""
        return self.approve_once(approved, by, now_ms=now_ms, in_windows_only=in_windows_only)[0]

    def approve_once(
        self,
        approved: KeptPlan,
        by: str,
        *,
        now_ms: int,
        in_windows_only: bool = False,
        begins_ms: int | None = None,
    ) -> tuple[Execution, bool]:
        """The execution of `approved`, and whether this call has approved it; one that is open stands.

        A second one would take the throttle of the first for somebody else's. So all who approve what they see in the
        same journal draw the same id, and the row of one of them alone is written. An execution starts no earlier than
        `begins_ms`, which the first approval sets. In mode `apply` (`in_windows_only`) no person need approve.
        Raises RefusedForSafety for a person who has approved before, for a time of a plan that has expired, and where
        another time was set; LeaseLost where others keep writing.
        """
        for tries_left in reversed(range(APPROVAL_TRIES_MAX)):
            of_plan = [row for row in self.executions(now_ms=now_ms) if row.plan_id == approved.plan.plan_id]
            still_open = next((row for row in of_plan if not row.ended), None)
            if still_open is not None:
                _check_time(still_open, begins_ms)
                if not still_open.needs_approval:
                    return still_open, False
            record = None if still_open is None else ExecutionRecord(still_open)
            before = of_plan[-1].execution_id if of_plan else ""
            try:
                given = self._give(record, approved, before, by, now_ms, in_windows_only, begins_ms)
            except LeaseLost:  # another process has written in this place meanwhile
                if not tries_left:
                    raise
            else:
                return given, True
        raise AssertionError("the last try raises")

    def _give(
        self,
        pending: ExecutionRecord | None,
        approved: KeptPlan,
        before: str,
        by: str,
        now_ms: int,
        in_windows_only: bool,
        begins_ms: int | None,
    ) -> Execution:
        """One more approval of a `pending` execution, or the first one of the execution that follows `before`."""
        needed = 1 if in_windows_only else self._approvals
        place = 1
        too_old = None if begins_ms is None or pending is not None else expired(approved, now_ms)
        if too_old is not None:
            raise RefusedForSafety(f"{too_old}, which a time to begin does not change: make a new plan")
        if pending is not None:
            if needed > 1 and has_approved(pending.execution, by):
                given = waits_for(pending.execution, now_ms)
                raise RefusedForSafety(f"the plan {given}: another person has to approve it")
            place, begins_ms = len(pending.execution.approvers) + 1, pending.execution.begins_ms
        event = Event.APPROVED if place >= needed else Event.ENDORSED
        detail = approval_detail(approved.plan.plan_id, by, place, needed, begins_ms)
        figures = {"in_windows_only": in_windows_only, "approvals_needed": needed, "approver": person_of(by)}
        if pending is not None:
            self.write_event(pending, event, detail, now_ms=now_ms, **figures)
            return pending.execution
        execution_id = _approval_id(approved, before)
        return self._begin(execution_id, approved, event, detail, now_ms, begins_ms=begins_ms, **figures)

    def refuse(self, approved: KeptPlan, reason: str, *, now_ms: int) -> Execution:
        """Note that a plan is not carried out; in one row, as an approval not yet taken back would be begun."""
        execution_id = f"{approved.plan.plan_id[:12]}-{uuid.uuid4().hex[:8]}"
        return self._begin(execution_id, approved, Event.REFUSED, reason, now_ms)

    def _begin(
        self,
        execution_id: str,
        approved: KeptPlan,
        event: Event,
        detail: str,
        now_ms: int,
        **figures_given: Any,
    ) -> Execution:
        plan = approved.plan
        figures = Figures(
            movements_total=plan.movement_count,
            bytes_total=round(plan.bytes_to_move),
            before=_ratios(plan.skew_before),
            predicted=_ratios(plan.skew_after),
            **figures_given,
        )
        execution = begin(execution_id, plan.plan_id, EventRecord(event, 0, now_ms, detail, figures))
        self._append_event(execution, execution.last)
        return execution

    def changed_ms(self, *, now_ms: int) -> int:
        """When an execution last changed the cluster and ended; 0 where none did in the last 30 days."""
        changed_ms = view.changed_ms(self._reader(), self._cluster, now_ms=now_ms)
        return self._ahead.at_most_now(changed_ms, now_ms)

    def given_up(self, *, now_ms: int) -> GivenUp:
        """Executions of mode `apply` that were given up since one was done, in the last 30 days."""
        given_up = view.given_up(self._reader(), self._cluster, now_ms=now_ms)
        return replace(given_up, last_ms=self._ahead.at_most_now(given_up.last_ms, now_ms))

    def executions(self, *, now_ms: int) -> list[Execution]:
        """Executions with an event in the last 30 days, and older ones that are open or owe, oldest first."""
        return view.read_executions(self._reader(), self._cluster, now_ms=now_ms)

    def automatic_bytes(self, *, since_ms: int, now_ms: int) -> int:
        """Bytes copied by executions that nobody was asked about and that were at work since then; all of each counts.

        One that is open counts with all that it is to copy.
        """
        counted = (row for row in self.executions(now_ms=now_ms) if row.in_windows_only and row.started_ms is not None)
        return sum(
            row.figures.bytes_moved if row.ended else row.figures.bytes_total
            for row in counted
            if row.ended_ms is None or self._ahead.at_most_now(row.ended_ms, now_ms) > since_ms
        )

    def open_executions(self, *, now_ms: int) -> list[Execution]:
        """Returns executions that have not ended, in their turn: started ones, then approvals, the oldest first."""
        return self._open_executions.read(now_ms=now_ms)

    def approvals_missing(self, executions: Iterable[Execution], *, now_ms: int) -> Iterator[tuple[Execution, str]]:
        """Executions that have waited for approvals as long as plans live, each with the reason to give it up."""
        for execution in executions:
            reason = approvals_missing(execution, self._plan_ttl_ms, now_ms)
            if reason is not None:
                yield execution, reason

    def execution(self, execution_id: str) -> Execution:
        """One that was there before, as it is now; raises TableUnavailable where there is nothing of it any more."""
        return view.read_execution(self._reader(), execution_id)

    def kept_execution(self, execution_id: str) -> Execution:
        """The execution that this process carries out, as the tables have it now. Raises LeaseLost where its rows are
        gone, as the table was restored to an earlier version; TableUnavailable if the table is missing, as a volume
        that is not mounted must end nothing.
        """
        if self._reader().version(EXECUTION.name) is not None and not self._sequences(execution_id):
            raise LeaseLost(f"execution {execution_id} is gone from the table execution. {RESTORED}")
        return self.execution(execution_id)

    def outcomes(self, *, now_ms: int) -> list[SkewOutcome]:
        """What executions are judged by, oldest first; those that promised or measured nothing are left out."""
        outcomes = (execution.outcome for execution in self.executions(now_ms=now_ms))
        return [outcome for outcome in outcomes if outcome is not None]

    def write_measured(self, record: ExecutionRecord, measured: Mapping[Resource, float], *, now_ms: int) -> None:
        """The event that holds what a plan brought: max/mean by resource, beside what it promised."""
        predicted = record.execution.figures.predicted
        compared = [
            f"{resource} {measured[resource]:.3f} ({predicted[resource]:.3f})"
            for resource in REPORTED
            if resource in measured and resource in predicted
        ]
        detail = f"max/mean measured (promised): {', '.join(compared)}" if compared else "load unknown"
        self.write_event(record, Event.MEASURED, detail, now_ms=now_ms, measured=measured)

    def write_measured_levels(self, record: ExecutionRecord, levels: str, *, now_ms: int) -> None:
        """Writes the event with the result of a plan within brokers: `levels` are how full log dirs are, in words."""
        self.write_event(record, Event.MEASURED, f"log dirs: {levels}", now_ms=now_ms)

    def request_abort(self, execution: Execution, by: str, *, now_ms: int) -> None:
        """Ask whoever carries out `execution` to stop; a request that was written before stands."""
        request = EventRecord(
            Event.ABORT_REQUESTED, ABORT_SEQUENCE, now_ms, f"{by} asked to stop", execution.figures.carried()
        )
        self._append("execution", [self._row(execution, request)], f"abort:{execution.execution_id}", 0)

    def write_event(self, record: ExecutionRecord, event: Event, detail: str, *, now_ms: int, **figures: Any) -> None:
        """Add one event to the journal; `figures` (see `Figures`) that aren't given stay as in the event before.

        Raises IllegalTransition for an event that can't follow, and LeaseLost where another process wrote one.
        """
        before = record.execution
        changed = replace(before.figures.carried(), **figures)
        after = before.after(EventRecord(event, len(before.events), now_ms, detail, changed))
        self._append_event(after, after.last)
        record.execution = after

    def _append_event(self, execution: Execution, record: EventRecord) -> None:
        """Raises LeaseLost where the events before are gone, and no reader could read what follows them, or where
        another process has written one in this place: then this one is not alone, and must not go on.
        """
        name, last = execution.execution_id, record.sequence - 1
        if last >= 0 and last not in self._sequences(name):
            raise LeaseLost(_gone(name, last))
        if not self._append("execution", [self._row(execution, record)], f"execution:{name}", record.sequence):
            if record.sequence in self._sequences(name):
                raise LeaseLost(f"execution {name} is being carried out by another process")
            raise LeaseLost(_gone(name, record.sequence))

    def _sequences(self, execution_id: str) -> set[int]:
        of_execution = tables.equal("execution_id", execution_id)
        rows = self._reader().rows(EXECUTION.name, columns=("sequence",), where=of_execution)
        return {row["sequence"] for row in rows}

    def _row(self, execution: Execution, record: EventRecord) -> dict[str, Any]:
        return view.row_of(execution, record, kafka_cluster=self._cluster, owner=owner())

    def _reader(self) -> tables.TableReader:
        """A new one for each question: a reader that is kept shows the version that it saw first."""
        return tables.TableReader(self._root)

    def _append(self, name: str, rows: list[dict[str, Any]], transaction_id: str, version: int | tables.AtTime) -> bool:
        return tables.append(self._root, name, rows, transaction_id=transaction_id, transaction_version=version)


def decision_id(cluster: str, window_end_ms: int) -> str:
    """Id of the evaluation of one window of one cluster."""
    return f"{cluster}-{window_end_ms}"


def _gone(execution_id: str, sequence: int) -> str:
    return (
        f"execution {execution_id}: its event {sequence} was written before, and is gone from the table execution. "
        f"{RESTORED}"
    )


def _approval_id(approved: KeptPlan, before: str) -> str:
    """Id of the execution that follows `before`, the newest of this plan ("" if there is none)."""
    plan_id = approved.plan.plan_id
    seed = f"{plan_id}/{approved.created_ms}/{before}"
    return f"{plan_id[:12]}-{hashlib.sha256(seed.encode()).hexdigest()[:8]}"


def _check_time(still_open: Execution, begins_ms: int | None) -> None:
    """Raises RefusedForSafety where the open execution of a plan begins at another time than is wanted now."""
    if begins_ms is None or begins_ms == still_open.begins_ms:
        return
    known = "at once" if still_open.begins_ms is None else f"at {instant_text(still_open.begins_ms)}"
    raise RefusedForSafety(
        f"execution {still_open.execution_id} of this plan begins {known}: to choose another time, abort it first"
    )


def _ratios(skew: Mapping[str, Any]) -> dict[Resource, float]:
    """max/mean by resource of a plan, where it is known."""
    ratios = {resource: skew.get(resource, {}).get("max_over_mean") for resource in REPORTED}
    return {resource: ratio for resource, ratio in ratios.items() if ratio is not None}


def _skew_columns(plan: Plan) -> dict[str, float | None]:
    return {
        **view.ratio_columns(_ratios(plan.skew_before), "before"),
        **view.ratio_columns(_ratios(plan.skew_after), "after"),
        **{f"{resource}_lower_bound": plan.lower_bound.get(resource) for resource in REPORTED},
    }
