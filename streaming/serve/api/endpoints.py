"""What can be read, each path once: for routing and for the OpenAPI document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from assignor_core.execution.seen_movements import MovementState
from streaming.contract import AUDIT, DECISION, MOVEMENT, PLAN
from streaming.serve.api import load, past, shapes
from streaming.serve.api.load import Body, Values
from streaming.serve.api.parameters import (
    BROKER_ID,
    EXECUTION_ID,
    HISTORY,
    INT_MAX,
    NO_CONTROLS,
    OF_NAMES,
    PAGED,
    PAST,
    Parameter,
)
from streaming.serve.api.read_sources import ReadSources
from streaming.serve.api.shapes import of_table
from streaming.views import history
from streaming.views.decisions import OF_EARLIER

PLAN_ID = Parameter(
    "plan_id", "The id of a plan, or a beginning of it that no other plan has", OF_NAMES,
    most=past.PLAN_ID_CHARACTERS, place="path",
)  # fmt: skip
DECISION_ID = Parameter("decision_id", "The whole id of a decision", NO_CONTROLS, most=1_000, is_needed=True)
BROKER = Parameter("broker", "Only this broker", most=INT_MAX)
TOPIC = Parameter("topic", "Only this topic", OF_NAMES, most=249)
PARTITION = Parameter("partition", "Only the partition with this number", most=INT_MAX)
TOPIC_PART = Parameter("topic", "Only topics whose name has this in it, in capitals or not", OF_NAMES, most=249)
SEARCH = Parameter(
    "search", "Only names that have this in them, in capitals or not; without history", NO_CONTROLS, most=1_000
)
LEADER = replace(BROKER, meaning="Only partitions that this broker leads; without history")
BY = Parameter(
    "order", "By name and number, or the highest figure first; without history", choices=tuple(history.ORDERS)
)
MOVED_ON = replace(BROKER, meaning="Only movements before or after which this broker holds a replica")
ORDER = Parameter("order", "As the plan has them, or the largest first", choices=("plan", "bytes"))
STATE = Parameter("state", "Only movements in this state", choices=tuple(str(state) for state in MovementState))
GROUP = Parameter(
    "group", "Only this consumer group; its topics come with it", NO_CONTROLS, most=1_000, may_be_empty=True
)
ONE_GROUP = replace(GROUP, meaning="The consumer group", is_needed=True)
ACCEPT_SINGLE = Parameter(
    "accept_single", "true: partitions without a second replica may be offline meanwhile", choices=("false", "true")
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path that is read by GET. `item` describes members of an item of a list, or of the whole answer."""

    path: str
    answer: Callable[[ReadSources, Values], Body]
    parameters: tuple[Parameter, ...]
    item: Mapping[str, Any]
    is_list: bool = True
    needs_sign_in: bool = False
    """Whether the path always needs a sign-in, whatever `serve.reading` is."""
    is_of_all: bool = False
    """Whether the answer is of all clusters: it then has those on which the reader has a role."""
    head: Mapping[str, Any] = field(default_factory=dict)
    """Members of a list's answer besides `items` and `next_cursor`."""

    @property
    def summary(self) -> str:
        """One sentence: that of the function which answers."""
        return (self.answer.__doc__ or "").strip()


def _decision() -> dict[str, Any]:
    members = of_table(DECISION.name)
    figures = {name: shapes.number() for name in ("max_over_mean", "coefficient_of_variation")}
    figures["deviation"] = shapes.NAMES_AND_NUMBERS
    skew = {
        "type": "object",
        "description": "Skew figures of the newest window by resource",
        "additionalProperties": shapes.one(figures),
    }
    return {name: shape for name, shape in members.items() if name not in ("skew_json", "trace")} | {"skew": skew}


def _seen() -> dict[str, Any]:
    members = _decision()
    figures = {name: shapes.number() for name in ("max_over_mean", "coefficient_of_variation")}
    by_resource = shapes.NAMES_AND_NUMBERS
    broker = {
        "broker": shapes.integer(nullable=False),
        "rack": shapes.text(),
        "load": {**by_resource, "description": "bytes/s or bytes by resource; empty where its row is gone"},
        "relative_load": {**by_resource, "description": "Load per mean by resource, 1 is even"},
        "is_counted": shapes.boolean("Whether it was alive, and not being drained"),
    }
    traced: dict[str, dict[str, Any]] = {
        "need": shapes.text("Reason of the need, or waiting_plan", nullable=False),
        "is_found": shapes.boolean("Whether the cluster had this need"),
        "text": shapes.text("What it was, with its figures", nullable=False),
        "passed": shapes.texts("Gates that let it pass, in order"),
        "held_by": shapes.text("Gate that held it; null where none did"),
        "why": shapes.text("Why it was held, or why there was no such need", nullable=False),
    }
    return members | {
        "skew": {**members["skew"], "additionalProperties": shapes.one(figures)},
        "trace": shapes.rows(
            traced, "Needs that were considered, the most urgent first; empty of earlier versions", tuple(traced)
        ),
        "window_start_ms": shapes.integer("Start of the window; ms since 1970; null where its rows are gone"),
        "is_window_kept": shapes.boolean("Whether the rows of the window are still there"),
        "brokers": shapes.rows(broker, "The highest load per mean of the deciding resource first", tuple(broker)),
        "brokers_left_out": shapes.integer("Brokers with less load that are not shown", nullable=False),
        "plan": {**shapes.one(of_table(PLAN.name), "Plan that came of it"), "type": ["object", "null"]},
        "earlier": shapes.rows({name: members[name] for name in OF_EARLIER}, "What was decided before, newest first"),
    }


def _act() -> dict[str, Any]:
    return of_table(AUDIT.name) | {"ended_ms": shapes.integer("When it ended; ms since 1970; null if it has not")}


def _plan() -> dict[str, Any]:
    load = {"type": "object", "description": "Load by resource; empty where it is not known"}
    broker = {"broker": {"type": "integer"}, "received_bytes": {"type": "number"}, "sent_bytes": {"type": "number"}}
    return of_table(PLAN.name) | {
        "least_bytes": shapes.number("Any plan as good copies so much; null if not known"),
        "duration_ms": shapes.number("At the throttle; null if none was known"),
        "throttle_bytes_per_sec": shapes.number(
            "Of each broker, as it was planned with; null if none was known, or nothing is copied"
        ),
        "cheaper": shapes.rows(shapes.CHEAPER, "Plans that bring part of the gain for fewer bytes"),
        "diagnosis": shapes.texts("What moving can't help"),
        "problems": shapes.texts("Hard rules that it can't satisfy"),
        "brokers": {
            "type": "array",
            "items": {"type": "object", "properties": broker | {"before": load, "after": load}},
        },
        "brokers_left_out": shapes.integer("Brokers that copy less and are not in the list", nullable=False),
        "is_readable": shapes.boolean("Whether its row holds a plan; else it can't be approved"),
        "waits": shapes.boolean("Whether it may be approved, and nothing has begun since"),
        "waits_for": shapes.text("What keeps its approved execution from beginning: approvals, or its time; else null"),
        "execution_id": shapes.text("The newest execution of it"),
    }


CLUSTERS = Endpoint("/api/v1/clusters", load.clusters, (), shapes.CLUSTER, is_of_all=True)
ENDPOINTS = (
    CLUSTERS,
    Endpoint("/api/v1/brokers", load.brokers, (BROKER, *HISTORY), shapes.BROKER),
    Endpoint("/api/v1/topics", load.topics, (TOPIC, SEARCH, BY, *HISTORY), shapes.TOPIC),
    Endpoint("/api/v1/partitions", load.partitions, (TOPIC, PARTITION, LEADER, BY, *HISTORY), shapes.PARTITION),
    Endpoint(
        "/api/v1/groups", load.groups, (GROUP, TOPIC, PARTITION, SEARCH, *HISTORY), shapes.HISTORY_OF_LAG | shapes.GROUP
    ),
    Endpoint(
        "/api/v1/groups/partitions",
        load.group_partitions,
        (ONE_GROUP, *PAGED),
        shapes.GROUP_PARTITION,
        head=shapes.GROUP_HEAD,
    ),
    Endpoint("/api/v1/groups/rebalances", load.group_rebalances, (ONE_GROUP, *PAST), shapes.REBALANCE),
    Endpoint("/api/v1/plans", past.plans, PAST, of_table(PLAN.name)),
    Endpoint("/api/v1/plans/{plan_id}", past.plan, (PLAN_ID,), _plan(), is_list=False),
    Endpoint(
        "/api/v1/plans/{plan_id}/movements",
        past.movements,
        (PLAN_ID, TOPIC_PART, ORDER, *PAGED),
        of_table(MOVEMENT.name),
    ),
    Endpoint("/api/v1/executions", past.executions, PAST, shapes.EXECUTION_NOW),
    Endpoint(
        "/api/v1/executions/{execution_id}",
        past.execution,
        (EXECUTION_ID,),
        shapes.EXECUTION_NOW
        | shapes.PROGRESS
        | {"events": shapes.rows(shapes.EVENT, "Its newest events, the newest first")},
        is_list=False,
    ),
    Endpoint(
        "/api/v1/executions/{execution_id}/movements",
        past.execution_movements,
        (EXECUTION_ID, TOPIC_PART, STATE, *PAGED),
        shapes.EXECUTION_MOVEMENT,
    ),
    Endpoint("/api/v1/movements", past.past_moves, (TOPIC, PARTITION, MOVED_ON, *PAST), shapes.PAST_MOVE),
    Endpoint("/api/v1/decisions", past.decisions, PAST, _decision()),
    Endpoint("/api/v1/decisions/seen", past.seen, (DECISION_ID,), _seen(), is_list=False),
    Endpoint(
        "/api/v1/brokers/{broker}/restart-check",
        load.restart_check,
        (BROKER_ID, ACCEPT_SINGLE),
        shapes.RESTART_CHECK,
        is_list=False,
        needs_sign_in=True,
    ),
    Endpoint("/api/v1/roll", past.roll, (), {"roll": shapes.ROLL}, is_list=False),
    Endpoint("/api/v1/audit", past.audit, PAST, _act(), needs_sign_in=True),
)
