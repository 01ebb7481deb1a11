"""Rows of decision, plan, movement and execution: written once each, read back after a restart.

The journal is the only memory of control. Each row has an id of its own and each append a transaction that makes it
repeatable, so a crash between two writes neither loses nor doubles one.
"""

import json
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pyarrow.compute as pc

from assignor_core.deciding.trigger import Evaluation, SkewWindow, TriggerPolicy, TriggerState
from assignor_core.execution.caution import Outcome, judged_by
from assignor_core.plan import plan_from_json
from assignor_core.resources import REPORTED, TRIGGERING
from streaming import tables
from streaming.control.records import ABORT_REQUESTED, APPROVED, ENDED, MEASURED, ExecutionRecord, PlanRecord
from streaming.errors import LeaseLost, TableUnavailable, UsageProblem
from streaming.settings import Settings

TABLES_WRITTEN = ("decision", "plan", "movement", "execution")
WHEN = ("before", "predicted", "measured")
ABORT_SEQUENCE = 1_000_000
CARRIED = (
    "movements_total", "movements_done", "bytes_total", "bytes_moved", "throttle_bytes_per_sec", "throttled_brokers",
    "produce_p99_ms_before", "in_windows_only",
    *(f"{resource}_max_over_mean_{when}" for resource in REPORTED for when in WHEN[:2]),
)  # fmt: skip
"""Figures of an event that stand in the next one too, unless it gives its own."""
PLAN_ID_CHARACTERS_MIN = 6
PLANS_NAMED = 5
SEARCH_MS = 30 * 86_400_000
"""How far back unfinished work is looked for: bounds what a start reads."""


def owner() -> str:
    """This process, as it signs its rows."""
    return f"{socket.gethostname()}/{os.getpid()}"


class Journal:
    """Control's tables below one root, for one Kafka cluster."""

    def __init__(self, settings: Settings) -> None:
        self._root = settings.storage.tables
        self._cluster = settings.kafka.cluster_name
        self._settings = settings

    def make_tables(self) -> None:
        """Create the tables that control writes, so that analysts and serve find them from the start."""
        for name in TABLES_WRITTEN:
            tables.create_table(self._root, name)

    def tidy(self) -> None:
        """Join the small files that one row at a time leaves; rows are kept. Raises TableUnavailable."""
        for name in TABLES_WRITTEN:
            tables.tidy(self._root, name)

    def trigger_state(self) -> TriggerState:
        """State after the newest evaluation; a fresh one where there was none."""
        row = self.last_decision()
        return TriggerState(**json.loads(row["state_json"])) if row else TriggerState()

    def last_decision(self) -> tables.Row | None:
        """The newest evaluation; reads the whole table, so control asks once, when it starts."""
        rows = tables.read(self._root, "decision", where=pc.field("kafka_cluster") == self._cluster)
        return tables.newest(rows, "decided_at")

    def write_decision(
        self,
        evaluation: Evaluation,
        state: TriggerState,
        policy: TriggerPolicy,
        window: SkewWindow | None,
        skew: Mapping[str, Any],
        *,
        plan_id: str | None,
        now_ms: int,
    ) -> None:
        """One row per evaluation; evaluating the same window again writes nothing."""
        window_end_ms = window.window_end_ms if window else 0
        row = {
            "decision_id": decision_id(self._cluster, window_end_ms or now_ms),
            "kafka_cluster": self._cluster,
            "decided_at": tables.utc(now_ms),
            "window_end": tables.utc(window_end_ms) if window else None,
            "verdict": evaluation.verdict.value,
            "reason": evaluation.reason.value,
            "detail": evaluation.detail,
            "resource": evaluation.resource,
            "max_over_mean": evaluation.max_over_mean,
            "threshold_enter": policy.enter_ratio,
            "threshold_exit": policy.exit_ratio,
            "breached": state.breached_since_ms is not None,
            "breach_started_at": tables.utc(state.breached_since_ms) if state.breached_since_ms is not None else None,
            "completeness_ratio": window.completeness if window else None,
            "brokers_expected": window.brokers_expected if window else None,
            "brokers_reporting": window.brokers_reporting if window else None,
            "cooldown_end_at": tables.utc(state.cooldown_end_ms) if state.cooldown_end_ms > now_ms else None,
            "mode": self._settings.control.mode,
            "plan_id": plan_id,
            "skew_json": json.dumps(skew, sort_keys=True),
            "state_json": json.dumps(asdict(state), sort_keys=True),
        }
        self._append("decision", [row], f"decision:{self._cluster}", window_end_ms or now_ms)

    def write_plan(
        self, plan: Mapping[str, Any], *, decision: str | None, window: tuple[int, int] | None, now_ms: int
    ) -> None:
        """The plan and its movements; the same plan made again is not written again."""
        plan_id = plan["plan_id"]
        movements = [_movement_row(plan_id, index, row, now_ms) for index, row in enumerate(plan["movements"])]
        self._append("movement", movements, f"movement:{plan_id}", 0)
        row = {
            "plan_id": plan_id,
            "kafka_cluster": self._cluster,
            "created_at": tables.utc(now_ms),
            "expires_at": tables.utc(now_ms + self._settings.planner.plan_ttl_ms),
            "decision_id": decision,
            "mode": self._settings.control.mode,
            "window_start": tables.utc(window[0]) if window else None,
            "window_end": tables.utc(window[1]) if window else None,
            "movement_count": len(movements),
            "leader_movement_count": sum(movement["kind"] == "leader" for movement in movements),
            "bytes_to_move": round(plan["bytes_to_move"]),
            "planning_ms": round(plan["elapsed_ms"]),
            **_skew_columns(plan),
            "plan_json": json.dumps(plan, sort_keys=True),
        }
        # A plan that is made again later lives anew: its new row carries the new time of expiry.
        self._append("plan", [row], f"plan:{plan_id}", now_ms)

    def plan(self, plan_id: str) -> PlanRecord:
        """The plan with this id (or a beginning of it that is unique); raises UsageProblem."""
        if len(plan_id) < PLAN_ID_CHARACTERS_MIN:
            raise UsageProblem(f"plan {plan_id!r}: at least {PLAN_ID_CHARACTERS_MIN} characters of its id are needed")
        rows = tables.read(self._root, "plan", where=pc.field("kafka_cluster") == self._cluster)
        found = [row for row in rows if row["plan_id"].startswith(plan_id)]
        ids = sorted({row["plan_id"] for row in found})
        if len(ids) != 1:
            by_age = sorted(rows, key=lambda row: row["created_at"], reverse=True)
            known = ", ".join(list(dict.fromkeys(row["plan_id"][:12] for row in by_age))[:PLANS_NAMED]) or "none"
            problem = "is not unique" if ids else "is unknown"
            raise UsageProblem(f"plan {plan_id!r} {problem}; the newest are {known}")
        row = tables.newest(found, "created_at")
        assert row is not None
        content = json.loads(row["plan_json"])
        return PlanRecord(
            plan_from_json(content), content, tables.to_ms(row["created_at"]), tables.to_ms(row["expires_at"])
        )

    def approve(self, approved: PlanRecord, by: str, *, now_ms: int, in_windows_only: bool = False) -> ExecutionRecord:
        """Ask for `approved` to be carried out, by whoever holds the lease, now or after a restart."""
        detail = f"plan {approved.plan.plan_id[:12]} approved by {by}"
        return self._first_event(approved, APPROVED, detail, now_ms, in_windows_only=in_windows_only)

    def refuse(self, approved: PlanRecord, reason: str, *, now_ms: int) -> ExecutionRecord:
        """Note that a plan is not carried out; in one row, as an approval not yet taken back would be begun."""
        return self._first_event(approved, "refused", reason, now_ms)

    def _first_event(
        self, approved: PlanRecord, event: str, detail: str, now_ms: int, **columns: Any
    ) -> ExecutionRecord:
        plan = approved.plan
        record = ExecutionRecord(f"{plan.plan_id[:12]}-{uuid.uuid4().hex[:8]}", plan.plan_id)
        figures = {
            **columns,
            "movements_total": len(plan.movements),
            "movements_done": 0,
            "bytes_total": round(approved.json["bytes_to_move"]),
            "bytes_moved": 0,
            **_ratio_columns(approved.json["skew_before"], "before"),
            **_ratio_columns(approved.json["skew_after"], "predicted"),
        }
        self.write_event(record, event, detail, now_ms=now_ms, **figures)
        return record

    def executions(self, *, now_ms: int) -> list[ExecutionRecord]:
        """Executions with an event in the last 30 days, oldest first, with the events in that time."""
        return self._records(self._recent(now_ms))

    def open_executions(self, *, now_ms: int) -> list[ExecutionRecord]:
        """Those that have not ended, in their turn: what has begun, then approvals, the oldest first.

        Asked at every tick: of what has ended, which may be 10,000s of events, it reads two columns.
        """
        rows = tables.read(self._root, "execution", columns=["execution_id", "event"], where=self._recent(now_ms))
        ended = {row["execution_id"] for row in rows if row["event"] in ENDED}
        open_ids = sorted({row["execution_id"] for row in rows} - ended)
        found = self._records(pc.field("execution_id").isin(open_ids)) if open_ids else []
        return sorted((row for row in found if not row.ended), key=lambda record: record.last_event == APPROVED)

    def execution(self, execution_id: str) -> ExecutionRecord:
        """One that was there before, as it is now; raises TableUnavailable where there is nothing of it any more."""
        found = self._records(pc.field("execution_id") == execution_id)
        if not found:
            raise TableUnavailable(
                f"execution {execution_id} is gone from the tables at {self._root}: are they mounted?"
            )
        return found[0]

    def _recent(self, now_ms: int) -> pc.Expression:
        return (pc.field("kafka_cluster") == self._cluster) & (
            pc.field("event_time") >= tables.utc(max(0, now_ms - SEARCH_MS))
        )

    def _records(self, where: pc.Expression) -> list[ExecutionRecord]:
        rows = tables.read(self._root, "execution", where=where)
        rows.sort(key=lambda row: (row["event_time"], row["sequence"]))
        found: dict[str, ExecutionRecord] = {}
        for row in rows:
            record = found.setdefault(row["execution_id"], ExecutionRecord(row["execution_id"], row["plan_id"]))
            if row["event"] == ABORT_REQUESTED:
                record.abort_requested = True
            else:
                record.events.append(row)
        for record in found.values():
            record.events.sort(key=lambda row: int(row["sequence"]))
        return [record for record in found.values() if record.events]

    def outcomes(self, *, now_ms: int) -> list[Outcome]:
        """What executions are judged by, oldest first; those that promised or measured nothing are left out."""
        events = [event for record in self.executions(now_ms=now_ms) for event in record.events]
        judged = [judged_by(_outcomes(event)) for event in events if event["event"] == MEASURED]
        return [outcome for outcome in judged if outcome is not None]

    def write_measured(self, record: ExecutionRecord, measured: Mapping[str, float], *, now_ms: int) -> None:
        """The event that holds what a plan brought: max/mean by resource, beside what it promised."""
        columns = {f"{resource}_max_over_mean_measured": ratio for resource, ratio in measured.items()}
        last = record.events[-1]
        told = [
            f"{resource} {measured[resource]:.3f} ({last[f'{resource}_max_over_mean_predicted']:.3f})"
            for resource in REPORTED
            if resource in measured and last.get(f"{resource}_max_over_mean_predicted") is not None
        ]
        detail = f"max/mean measured (promised): {', '.join(told)}" if told else "load unknown"
        self.write_event(record, MEASURED, detail, now_ms=now_ms, **columns)

    def request_abort(self, record: ExecutionRecord, *, now_ms: int) -> None:
        """Leave a note for whoever carries out `record`; its place is outside the numbering of the events."""
        row = {
            **{name: record.events[-1].get(name) for name in CARRIED},
            "execution_id": record.execution_id,
            "sequence": ABORT_SEQUENCE,
            "plan_id": record.plan_id,
            "kafka_cluster": self._cluster,
            "event_time": tables.utc(now_ms),
            "event": ABORT_REQUESTED,
            "detail": "a person asked to stop",
            "owner": owner(),
        }
        self._append("execution", [row], f"abort:{record.execution_id}", 0)

    def write_event(self, record: ExecutionRecord, event: str, detail: str, *, now_ms: int, **columns: Any) -> None:
        """Add one event to the journal; figures that aren't given stay as in the event before."""
        last = record.events[-1] if record.events else {}
        row = {
            **{name: last[name] for name in CARRIED if name in last},
            "execution_id": record.execution_id,
            "sequence": len(record.events),
            "plan_id": record.plan_id,
            "kafka_cluster": self._cluster,
            "event_time": tables.utc(now_ms),
            "event": event,
            "detail": detail,
            "owner": owner(),
            **columns,
        }
        if not self._append("execution", [row], f"execution:{record.execution_id}", row["sequence"]):
            # Somebody else has written this place in the journal: we are not alone, and must not go on.
            raise LeaseLost(f"execution {record.execution_id} is being carried out by another process")
        record.events.append(row)

    def _append(self, name: str, rows: list[dict[str, Any]], transaction_id: str, version: int) -> bool:
        return tables.append(self._root, name, rows, transaction_id=transaction_id, transaction_version=version)


def decision_id(cluster: str, window_end_ms: int) -> str:
    """Id of the evaluation of one window of one cluster."""
    return f"{cluster}-{window_end_ms}"


def _movement_row(plan_id: str, sequence: int, movement: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    moves = set(movement["old_replicas"]) != set(movement["new_replicas"])
    return {
        "plan_id": plan_id,
        "sequence": sequence,
        "created_at": tables.utc(now_ms),
        "topic": movement["topic"],
        "partition": movement["partition"],
        "kind": "replica" if moves else "leader",
        "old_replicas": list(movement["old_replicas"]),
        "new_replicas": list(movement["new_replicas"]),
        "bytes_to_move": round(movement["bytes_to_move"]),
        "reason": movement["reason"],
    }


def _outcomes(event: tables.Row) -> dict[str, Outcome]:
    """What was promised and measured of each load, where all of it is known."""
    found: dict[str, Outcome] = {}
    for resource in TRIGGERING:
        before, predicted, measured = (event.get(f"{resource}_max_over_mean_{when}") for when in WHEN)
        if before is not None and predicted is not None and measured is not None:
            found[resource] = Outcome(before, predicted, measured)
    return found


def _ratio_columns(skew: Mapping[str, Any], suffix: str) -> dict[str, float | None]:
    return {f"{name}_max_over_mean_{suffix}": skew.get(name, {}).get("max_over_mean") for name in REPORTED}


def _skew_columns(plan: Mapping[str, Any]) -> dict[str, float | None]:
    bounds = {f"{resource}_lower_bound": plan["lower_bound"].get(resource) for resource in REPORTED}
    return {**_ratio_columns(plan["skew_before"], "before"), **_ratio_columns(plan["skew_after"], "after"), **bounds}
