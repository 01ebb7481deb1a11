"""What can be read, each path once: for routing and for the OpenAPI document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from streaming.contract import AUDIT, DECISION, MOVEMENT, PLAN, TABLES
from streaming.contract.columns import ColumnType
from streaming.serve.api import load, past
from streaming.serve.api.load import Body, Values
from streaming.serve.api.looks import Looks
from streaming.serve.api.parameters import HISTORY, NO_CONTROLS, OF_NAMES, PAGED, PAST, Parameter
from streaming.views.groups import GroupVerdict
from streaming.views.past_rows import LEFT_OUT

PLAN_ID = Parameter("plan_id", "The whole id of a plan", OF_NAMES, most=64, place="path")
EXECUTION_ID = Parameter("execution_id", "The whole id of an execution", OF_NAMES, most=64, place="path")
BROKER = Parameter("broker", "Only this broker", most=(1 << 31) - 1)
TOPIC = Parameter("topic", "Only this topic", OF_NAMES, most=249)
PARTITION = Parameter("partition", "Only the partition with this number", most=(1 << 31) - 1)
TOPIC_PART = Parameter("topic", "Only topics whose name has this in it, in capitals or not", OF_NAMES, most=249)
ORDER = Parameter("order", "As the plan has them, or the largest first", choices=("plan", "bytes"))
GROUP = Parameter("group", "Only this consumer group; its topics come with it", NO_CONTROLS, most=1_000)

JSON_TYPES = {
    ColumnType.STRING: "string",
    ColumnType.DOUBLE: "number",
    ColumnType.LONG: "integer",
    ColumnType.INTEGER: "integer",
    ColumnType.BOOLEAN: "boolean",
    ColumnType.INTEGER_LIST: "array",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that is read by GET. `item` describes members of an item of a list, or of the whole answer."""

    path: str
    answer: Callable[[Looks, Values], Body]
    parameters: tuple[Parameter, ...]
    item: Mapping[str, Any]
    is_list: bool = True
    needs_sign_in: bool = False
    """Whether it is never open, whatever `serve.reading` is."""

    @property
    def summary(self) -> str:
        """One sentence: that of the function which answers."""
        return (self.answer.__doc__ or "").strip()


def of_table(name: str) -> dict[str, Any]:
    """Members that are columns of a table, with their comments."""
    members: dict[str, Any] = {}
    for column in TABLES[name].columns:
        if column.name in LEFT_OUT:
            continue
        if column.type is ColumnType.TIMESTAMP:
            named = f"{column.name.removesuffix('_at').removesuffix('_time')}_ms"
            members[named] = {"type": ["integer", "null"], "description": f"{column.comment}; ms since 1970"}
        else:
            members[column.name] = {"type": [JSON_TYPES[column.type], "null"], "description": column.comment}
    return members


def _of_fields(kind: type) -> dict[str, Any]:
    return {entry.name: {} for entry in fields(kind)}


def _decision() -> dict[str, Any]:
    members = of_table(DECISION.name)
    skew = {"type": "object", "description": "Skew figures of the newest window by resource"}
    return {name: shape for name, shape in members.items() if name != "skew_json"} | {"skew": skew}


def _act() -> dict[str, Any]:
    ended = {"type": ["integer", "null"], "description": "When it ended; ms since 1970; null if it has not"}
    return of_table(AUDIT.name) | {"ended_ms": ended}


def _plan() -> dict[str, Any]:
    texts = {"type": "array", "items": {"type": "string"}}
    load = {"type": "object", "description": "Load by resource; empty where it is not known"}
    broker = {"broker": {"type": "integer"}, "received_bytes": {"type": "number"}, "sent_bytes": {"type": "number"}}
    return of_table(PLAN.name) | {
        "duration_ms": {"type": ["number", "null"], "description": "At the throttle; null where none was known"},
        "throttle_bytes_per_sec": {"type": ["number", "null"], "description": "Of each broker, as it was planned with"},
        "cheaper": {"type": "array", "description": "Plans that bring part of the gain for fewer bytes"},
        "diagnosis": {**texts, "description": "What moving can't mend"},
        "problems": {**texts, "description": "Hard rules that it can't satisfy"},
        "brokers": {
            "type": "array",
            "items": {"type": "object", "properties": broker | {"before": load, "after": load}},
        },
        "brokers_left_out": {"type": "integer", "description": "Brokers that copy less and are not in the list"},
        "waits": {"type": "boolean", "description": "Whether it may be approved, and nothing has begun since"},
        "execution_id": {"type": ["string", "null"], "description": "The newest execution of it"},
    }


ENDPOINTS = (
    Endpoint("/api/v1/brokers", load.brokers, (BROKER, *HISTORY), {"broker": {"type": "integer"}}),
    Endpoint("/api/v1/topics", load.topics, (TOPIC, *HISTORY), {"topic": {"type": "string"}}),
    Endpoint(
        "/api/v1/partitions",
        load.partitions,
        (TOPIC, PARTITION, *HISTORY),
        {"topic": {"type": "string"}, "partition": {"type": "integer"}},
    ),
    Endpoint("/api/v1/groups", load.groups, (GROUP, TOPIC, *HISTORY), _of_fields(GroupVerdict)),
    Endpoint("/api/v1/plans", past.plans, PAST, of_table(PLAN.name)),
    Endpoint("/api/v1/plans/{plan_id}", past.plan, (PLAN_ID,), _plan(), is_list=False),
    Endpoint(
        "/api/v1/plans/{plan_id}/movements",
        past.movements,
        (PLAN_ID, TOPIC_PART, ORDER, *PAGED),
        of_table(MOVEMENT.name),
    ),
    Endpoint(
        "/api/v1/executions",
        past.executions,
        PAST,
        {"execution_id": {"type": "string"}, "phase": {"type": "string"}, "approved_ms": {"type": "integer"}},
    ),
    Endpoint(
        "/api/v1/executions/{execution_id}",
        past.execution,
        (EXECUTION_ID,),
        {"execution_id": {"type": "string"}, "events": {"type": "array"}},
        is_list=False,
    ),
    Endpoint("/api/v1/decisions", past.decisions, PAST, _decision()),
    Endpoint("/api/v1/audit", past.audit, PAST, _act(), needs_sign_in=True),
)
