"""Rows of `plan`: which plans are kept, and one of them. Its JSON, the large column, is read of that one alone."""

import json

from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from streaming.contract import PLAN
from streaming.errors import TableUnavailable
from streaming.tables import TableReader, equal, starts_with, to_ms

TABLE = PLAN.name


def plan_ids(reader: TableReader, kafka_cluster: str, beginning: str = "") -> list[str]:
    """Ids of kept plans that begin so, the newest first; raises TableUnavailable."""
    where = equal("kafka_cluster", kafka_cluster)
    if beginning:
        where &= starts_with("plan_id", beginning)
    rows = reader.rows(TABLE, columns=("plan_id", "created_at"), where=where)
    by_age = sorted(rows, key=lambda row: row["created_at"], reverse=True)
    return list(dict.fromkeys(row["plan_id"] for row in by_age))


def kept_plan(reader: TableReader, kafka_cluster: str, plan_id: str) -> KeptPlan:
    """The plan with this id, in its newest row: made again it lives anew. Raises TableUnavailable where it is gone."""
    row = reader.newest_row(
        TABLE,
        "created_at",
        columns=("created_at", "expires_at", "plan_json"),
        where=equal("kafka_cluster", kafka_cluster) & equal("plan_id", plan_id),
    )
    if row is None:
        raise TableUnavailable(f"table {TABLE}: plan {plan_id} is gone")
    return KeptPlan(
        ProposedPlan.from_json(json.loads(row["plan_json"])), to_ms(row["created_at"]), to_ms(row["expires_at"])
    )
