"""Rows of `movement` as the movements of a plan, and back: between brokers, or within them."""

from operator import itemgetter
from typing import Any

from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import HASH_PART, Movement, Plan, replicas_hash
from streaming.contract import MOVEMENT
from streaming.tables import Row, TableReader, equal, utc

WITHIN_BROKER = "log_dir"
"""The kind of a movement within one broker."""


def movement_rows(plan: Plan, *, now_ms: int) -> list[dict[str, Any]]:
    """One row for each movement, in the plan's order."""
    rows = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "kind": row.kind,
            "old_replicas": list(row.old_replicas),
            "new_replicas": list(row.new_replicas),
            "bytes_to_move": round(row.bytes_to_move),
            "reason": row.reason,
            "old_log_dir": None,
            "new_log_dir": None,
            "wave": row.wave,
        }
        for row in plan.movements
    ]
    rows += [
        {
            "topic": row.topic,
            "partition": row.partition,
            "kind": WITHIN_BROKER,
            "old_replicas": [row.broker],
            "new_replicas": [row.broker],
            "bytes_to_move": round(row.bytes_to_move),
            "reason": row.reason,
            "old_log_dir": row.old_log_dir,
            "new_log_dir": row.new_log_dir,
            "wave": 0,
        }
        for row in plan.log_dir_movements
    ]
    common = {"plan_id": plan.plan_id, "created_at": utc(now_ms)}
    return [{**common, "sequence": sequence, **row} for sequence, row in enumerate(rows)]


def plan_of_movements(reader: TableReader, kafka_cluster: str, plan_id: str) -> Plan | None:
    """The movements of a plan from the table `movement`, all in one wave; raises TableUnavailable.

    Enough to clear up where the plan's own row is gone. None if the rows are gone too, or if they are not the replica
    lists that `plan_id` ends with the hash of. The plan has another id: what else its id covers is not known.
    """
    rows = sorted(reader.rows(MOVEMENT.name, where=equal("plan_id", plan_id)), key=itemgetter("sequence"))
    between = tuple(_between(row) for row in rows if row["kind"] != WITHIN_BROKER)
    within = tuple(_within(row) for row in rows if row["kind"] == WITHIN_BROKER)
    # a plan file may name no cluster
    plans = (Plan(name, between, log_dir_movements=within) for name in (kafka_cluster, ""))
    return next((plan for plan in plans if replicas_hash(plan)[-HASH_PART:] == plan_id[-HASH_PART:]), None)


def _between(row: Row) -> Movement:
    replicas = (tuple(row["old_replicas"]), tuple(row["new_replicas"]))
    return Movement(row["topic"], row["partition"], *replicas, row["bytes_to_move"])


def _within(row: Row) -> LogDirMovement:
    (broker,) = row["old_replicas"]
    paths = (row["old_log_dir"], row["new_log_dir"])
    return LogDirMovement(broker, row["topic"], row["partition"], *paths, row["bytes_to_move"], row["reason"])
