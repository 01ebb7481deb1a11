"""The plan that waits for a person, for `rebalancer status`: read from the tables, and told in one line."""

from collections.abc import Mapping, Sequence
from typing import Any

from assignor_core.execution.life_cycle import Execution
from assignor_core.resources import REPORTED, Resource
from streaming import tables
from streaming.commands.options import in_use
from streaming.settings import Settings

_RATIOS = {
    resource.value: {when: f"{resource}_max_over_mean_{when}" for when in ("before", "after")} for resource in REPORTED
}
_COLUMNS = (
    "plan_id", "created_at", "expires_at", "movement_count", "leader_movement_count", "bytes_to_move",
    *(name for columns in _RATIOS.values() for name in columns.values()),
)  # fmt: skip


def waiting_plan(settings: Settings, executions: Sequence[Execution], *, now_ms: int) -> dict[str, Any] | None:
    """The newest plan that has not expired and that no execution has taken, as plain data; None where there is none.

    Once an execution has begun, what was planned before it is no longer about the cluster as it is.
    """
    rows = tables.read(
        settings.storage.tables,
        "plan",
        columns=_COLUMNS,
        where=tables.equal("kafka_cluster", settings.kafka.cluster_name)
        & tables.above("expires_at", tables.utc(now_ms))
        & tables.above("movement_count", 0),
    )
    row = tables.newest(rows, "created_at")
    if row is None or any(_supersedes(execution, row) for execution in executions):
        return None
    return {
        "plan_id": row["plan_id"],
        "created_at": row["created_at"],
        "expires_at": row["expires_at"],
        "expires_in_s": (tables.to_ms(row["expires_at"]) - now_ms) / 1000,
        "movements": row["movement_count"],
        "leader_movements": row["leader_movement_count"],
        "bytes_to_move": row["bytes_to_move"],
        "max_over_mean": {
            resource: {when: row[name] for when, name in columns.items()} for resource, columns in _RATIOS.items()
        },
    }


def told_plan(plan: Mapping[str, Any]) -> str:
    """In one line, with the command that carries it out."""
    short = plan["plan_id"][:12]
    ratios = plan["max_over_mean"][Resource.BYTES_IN]
    known = None not in ratios.values()
    return ", ".join(
        (
            f"plan {short}: {plan['movements']} movements",
            f"{plan['bytes_to_move'] / 1e9:,.2f} GB",
            *([f"bytes in max/mean {ratios['before']:.2f} -> {ratios['after']:.2f}"] if known else ()),
            f"expires in {max(0, round(plan['expires_in_s'] / 60))} min: rebalancer apply {short}{in_use()}",
        )
    )


def _supersedes(execution: Execution, plan: tables.Row) -> bool:
    taken = execution.plan_id == plan["plan_id"]
    started = execution.started_ms is not None
    return (taken or started) and execution.acted_ms >= tables.to_ms(plan["created_at"])
