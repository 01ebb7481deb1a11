"""Rows of `plan`: which are kept, one of them, the one that waits for a person, and what a person reads before.

The JSON of a plan, the large column, is read of one plan alone.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from typing import Any

from pyarrow import compute as pc

from assignor_core.errors import CoreError
from assignor_core.execution.life_cycle import Execution
from assignor_core.proposed_plan import KeptPlan, ProposedPlan
from assignor_core.resources import REPORTED
from streaming.contract import PLAN
from streaming.errors import TableUnavailable
from streaming.tables import Row, TableReader, above, below, equal, of_cluster, one_of, starts_with, to_ms, utc
from streaming.views.json_values import WRONG_SHAPE, stored_object

TABLE = PLAN.name
FIGURES = (
    "plan_id", "created_at", "expires_at", "movement_count", "leader_movement_count", "bytes_to_move",
    *(f"{resource}_max_over_mean_{when}" for resource in REPORTED for when in ("before", "after")),
)  # fmt: skip
"""Columns of a plan that are shown. Tables of every version have these columns."""
BROKERS_MAX = 1_000
"""Most brokers of an answer; brokers that copy most come first."""
LINES_MAX = 50
"""Most lines of a diagnosis; the planner writes far fewer."""
LINE_LENGTH_MAX = 1_000
CHEAPER_MAX = 20
Content = Mapping[str, Any]


def plan_ids(reader: TableReader, kafka_cluster: str, beginning: str = "") -> list[str]:
    """Ids of kept plans that begin so, the newest first; raises TableUnavailable."""
    where = of_cluster(kafka_cluster)
    if beginning:
        where &= starts_with("plan_id", beginning)
    rows = reader.rows(TABLE, columns=("plan_id", "created_at"), where=where)
    by_age = sorted(rows, key=lambda row: row["created_at"], reverse=True)
    return list(dict.fromkeys(row["plan_id"] for row in by_age))


def read_plans(reader: TableReader, kafka_cluster: str) -> list[dict[str, Any]]:
    """All plans with all their columns, oldest first: for tables with few. Raises TableUnavailable."""
    return sorted(reader.rows(TABLE, where=of_cluster(kafka_cluster)), key=itemgetter("created_at"))


def kept_plan(reader: TableReader, kafka_cluster: str, plan_id: str) -> KeptPlan:
    """Newest row of the plan with this id; raises TableUnavailable if the plan is no longer stored."""
    row = _newest_row(reader, kafka_cluster, plan_id)
    if row is None:
        raise TableUnavailable(f"table {TABLE}: plan {plan_id} is gone")
    return KeptPlan(
        ProposedPlan.from_json(json.loads(row["plan_json"])), to_ms(row["created_at"]), to_ms(row["expires_at"])
    )


def planned_cluster_id(reader: TableReader, kafka_cluster: str) -> str | None:
    """Kafka's own id of the cluster that the newest plan was made on, if it names one; raises TableUnavailable."""
    row = reader.newest_row(TABLE, "created_at", columns=("created_at", "plan_json"), where=of_cluster(kafka_cluster))
    if row is None:
        return None
    with suppress(CoreError, KeyError, TypeError, ValueError):  # a row that is no plan names no cluster
        observed = ProposedPlan.from_json(json.loads(row["plan_json"])).observed
        return None if observed is None else observed.kafka_cluster_id
    return None


def plan_price(reader: TableReader, kafka_cluster: str, plan_id: str) -> dict[str, Any]:
    """`price_of` the newest row of a plan. Raises TableUnavailable."""
    return price_of(plan_content(reader, kafka_cluster, plan_id))


def price_of(content: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a plan costs. `least_bytes` are what any plan as good copies, None where that was not worked out.
    `duration_ms` is None where no throttle was known. `cheaper` are plans that bring most of it for fewer bytes.
    Of what is no plan nothing is known.
    """
    if content is None:
        return {"least_bytes": None, "duration_ms": None, "cheaper": []}
    listed = content.get("cheaper")
    cheaper = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
    return {"least_bytes": _least_bytes(content), "duration_ms": _duration_ms(content), "cheaper": cheaper}


def plan_content(reader: TableReader, kafka_cluster: str, plan_id: str) -> dict[str, Any] | None:
    """The JSON of a plan, as its newest row has it; None where there is none. Raises TableUnavailable."""
    row = _newest_row(reader, kafka_cluster, plan_id)
    return None if row is None else stored_object(row["plan_json"])


def _newest_row(reader: TableReader, kafka_cluster: str, plan_id: str) -> Row | None:
    where = of_cluster(kafka_cluster) & equal("plan_id", plan_id)
    return reader.newest_row(TABLE, "created_at", columns=("created_at", "expires_at", "plan_json"), where=where)


def plan_durations_ms(reader: TableReader, kafka_cluster: str, plan_ids: Collection[str]) -> dict[str, float | None]:
    """How long each of these plans was to take; None where no throttle was known. Raises TableUnavailable."""
    if not plan_ids:
        return {}
    where = of_cluster(kafka_cluster) & one_of("plan_id", sorted(plan_ids))
    rows = reader.rows(TABLE, columns=("plan_id", "plan_json"), where=where)
    return {row["plan_id"]: price_of(stored_object(row["plan_json"]))["duration_ms"] for row in rows}


def _least_bytes(content: Mapping[str, Any]) -> float | None:
    try:
        least = content.get("least_bytes")
        return None if least is None else float(least)
    except WRONG_SHAPE:
        return None


def _duration_ms(content: Mapping[str, Any]) -> float | None:
    try:
        durations = [wave["duration_ms"] for wave in content["waves"]]
        total: float = sum(durations)
        return total if durations else None
    except WRONG_SHAPE:  # also where the duration of a wave is null
        return None


def plans_made_before(reader: TableReader, kafka_cluster: str, before: datetime, *, now_ms: int) -> list[str]:
    """Ids of plans made before then, and not again since, that have expired; the oldest first.

    Raises TableUnavailable.
    """
    old = of_cluster(kafka_cluster) & below("created_at", before)
    if reader.newest(TABLE, "created_at", where=old) is None:
        return []
    rows = reader.arrow(TABLE, columns=("plan_id", "created_at", "expires_at"), where=of_cluster(kafka_cluster))
    newest = rows.group_by("plan_id").aggregate([("created_at", "max"), ("expires_at", "max")])
    is_old = (pc.field("created_at_max") < before) & (pc.field("expires_at_max") <= utc(now_ms))
    ids: list[str] = newest.filter(is_old).sort_by("created_at_max")["plan_id"].to_pylist()
    return ids


def waiting_plan(
    reader: TableReader, kafka_cluster: str, executions: Iterable[Execution], *, now_ms: int
) -> Row | None:
    """`FIGURES` of the newest plan that has not expired and that no execution has taken; None where there is none.

    Once an execution has begun, what was planned before it is no longer about the cluster as it is.
    """
    lives = above("expires_at", utc(now_ms)) & above("movement_count", 0)
    row = reader.newest_row(TABLE, "created_at", columns=FIGURES, where=of_cluster(kafka_cluster) & lives)
    return None if row is None or is_superseded(row, executions) else row


def is_superseded(plan: Row, executions: Iterable[Execution]) -> bool:
    """Whether an execution has taken the plan of this row, or has begun since it was made."""
    return any(_supersedes(execution, plan) for execution in executions)


def _supersedes(execution: Execution, plan: Row) -> bool:
    taken = execution.plan_id == plan["plan_id"] and not execution.needs_approval
    started = execution.started_ms is not None
    return (taken or started) and execution.acted_ms >= to_ms(plan["created_at"])


def plan_details(content: Content | None) -> dict[str, Any]:
    """Members beside those of the row. What is unknown is null or empty, as in plans of an earlier version.

    `brokers` has for each broker `received_bytes`, `sent_bytes`, and its load `before` and `after` by resource.
    `is_readable` is false where the row holds no plan: somebody else has written it, or it was cut.
    """
    try:
        if content is not None:
            return {"is_readable": True, **_details(content)}
    except WRONG_SHAPE:
        pass
    return {"is_readable": False, **_details({})}


def _details(content: Content) -> dict[str, Any]:
    price, brokers = price_of(content), _brokers(content)
    return {
        "least_bytes": price["least_bytes"],
        "duration_ms": price["duration_ms"],
        "throttle_bytes_per_sec": _throttle(content),
        "cheaper": price["cheaper"][:CHEAPER_MAX],
        "diagnosis": _lines(content.get("diagnosis", ())),
        "problems": _lines(content.get("problems", ())),
        "brokers": sorted(brokers[:BROKERS_MAX], key=lambda row: int(row["broker"])),
        "brokers_left_out": max(0, len(brokers) - BROKERS_MAX),
    }


def _lines(texts: Iterable[str]) -> list[str]:
    return [text[:LINE_LENGTH_MAX] for text in list(texts)[:LINES_MAX]]


def _brokers(content: Content) -> list[dict[str, Any]]:
    """What each broker copies, with its load before and after; brokers that copy most come first."""
    received: defaultdict[int, float] = defaultdict(float)
    sent: defaultdict[int, float] = defaultdict(float)
    for row in (row for wave in content.get("schedule", ()) for row in wave["brokers"]):
        received[int(row["broker"])] += row["received_bytes"]
        sent[int(row["broker"])] += row["sent_bytes"]
    before, after = (_by_broker(content.get(name, {})) for name in ("loads_before", "loads_after"))
    rows = [
        {
            "broker": broker,
            "received_bytes": received[broker],
            "sent_bytes": sent[broker],
            "before": before.get(broker, {}),
            "after": after.get(broker, {}),
        }
        for broker in before.keys() | after.keys() | received.keys()
    ]
    return sorted(rows, key=lambda row: (-max(row["received_bytes"], row["sent_bytes"]), row["broker"]))


def _by_broker(loads: Mapping[str, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    turned: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for resource, row in loads.items():
        for broker, load in row.items():
            turned[int(broker)][resource] = float(load)
    return dict(turned)


def _throttle(content: Content) -> float | None:
    """Returns the throttle of each broker, bytes/s, None if no wave copies. A wave takes as long as the broker that
    receives or sends most.
    """
    for wave in content.get("schedule", ()):
        most: float = max((max(row["received_bytes"], row["sent_bytes"]) for row in wave["brokers"]), default=0.0)
        if wave["duration_ms"] and most:
            return float(f"{most / wave['duration_ms'] * 1000:.6g}")
    return None
