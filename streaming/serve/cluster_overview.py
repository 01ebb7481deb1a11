"""Several clusters at a glance, the worst first: one row for each cluster, of its newest snapshot."""

from collections.abc import Iterable
from typing import Any

from streaming.serve.snapshot import Snapshot
from streaming.settings.clusters import PAUSED_MODE
from streaming.views.spans import stale_after_ms

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
