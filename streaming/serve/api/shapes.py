"""Shapes of members of answers, as JSON Schema has them: what the OpenAPI document is made of besides tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from assignor_core.execution.seen_movements import MovementState
from streaming.contract import EXECUTION, GROUP_EVENT, MOVEMENT, TABLES
from streaming.contract.columns import ColumnType
from streaming.contract.rates import RATES
from streaming.views.movements import OF_EXECUTION
from streaming.views.past_rows import LEFT_OUT

Shape = dict[str, Any]
Members = Mapping[str, Shape]

JSON_TYPES: Mapping[ColumnType, Shape] = {
    ColumnType.STRING: {"type": ["string", "null"]},
    ColumnType.DOUBLE: {"type": ["number", "null"]},
    ColumnType.LONG: {"type": ["integer", "null"]},
    ColumnType.INTEGER: {"type": ["integer", "null"]},
    ColumnType.BOOLEAN: {"type": ["boolean", "null"]},
    ColumnType.INTEGER_LIST: {"type": ["array", "null"], "items": {"type": "integer"}},
}


def text(description: str = "", *, nullable: bool = True) -> Shape:
    """Returns the shape of a text."""
    return _shape("string", description, nullable=nullable)


def integer(description: str = "", *, nullable: bool = True) -> Shape:
    """Returns the shape of a whole number."""
    return _shape("integer", description, nullable=nullable)


def number(description: str = "", *, nullable: bool = True) -> Shape:
    """Returns the shape of a number."""
    return _shape("number", description, nullable=nullable)


def boolean(description: str) -> Shape:
    """Returns the shape of what is true or false, and always known."""
    return _shape("boolean", description, nullable=False)


def integers(description: str) -> Shape:
    """A list of whole numbers."""
    return {"type": "array", "items": {"type": "integer"}, "description": description}


def _shape(kind: str, description: str, *, nullable: bool) -> Shape:
    shape: Shape = {"type": [kind, "null"] if nullable else kind}
    return shape | ({"description": description} if description else {})


def texts(description: str) -> Shape:
    """A list of texts."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


def rows(members: Members, description: str, required: Sequence[str] = ()) -> Shape:
    """A list of objects."""
    return {"type": "array", "items": one(members, required=required), "description": description}


def one(members: Members, description: str = "", required: Sequence[str] = ()) -> Shape:
    """Returns the shape of an object."""
    shape: Shape = {"type": "object", "properties": dict(members)}
    shape |= {"required": list(required)} if required else {}
    return shape | ({"description": description} if description else {})


def of_table(name: str) -> Shape:
    """Members that are columns of a table, with their comments."""
    members: Shape = {}
    for column in TABLES[name].columns:
        if column.name in LEFT_OUT:
            continue
        if column.type is ColumnType.TIMESTAMP:
            named = f"{column.name.removesuffix('_at').removesuffix('_time')}_ms"
            members[named] = integer(f"{column.comment}; ms since 1970")
        else:
            members[column.name] = {**JSON_TYPES[column.type], "description": column.comment}
    return members


NAMES_AND_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
CLUSTER: Shape = {
    "kafka_cluster": text(nullable=False),
    "mode": text("observe, propose, apply or paused", nullable=False),
    "window_end_ms": integer("End of the newest closed window; ms since 1970"),
    "is_stale": boolean("Whether there is no window, or it is too old to plan on"),
    "failures": texts("Parts of the snapshot that can't be read now; `snapshot` if serve makes no new one"),
    "brokers": integer("Brokers that were seen lately", nullable=False),
    "brokers_unreported": integer("Those without a sample in the window", nullable=False),
    "max_over_mean": {**NAMES_AND_NUMBERS, "description": "Resource: its skew in the window"},
    "threshold_enter": number("Skew above which control makes a plan", nullable=False),
    "trigger_resources": texts("Resources whose skew makes control plan"),
    "verdict": text("Of the last decision: plan or hold"),
    "reason": text("Why, one word"),
    "detail": text("Why, a sentence"),
    "decided_ms": integer("ms since 1970"),
    "waiting_plan_id": text("A plan that may be approved"),
    "execution_id": text("The execution that is under way"),
    "execution_event": text("Its newest event"),
    "groups": {**NAMES_AND_NUMBERS, "description": "Verdict: consumer groups that have it"},
    "worst_groups": rows(
        {"group": text(nullable=False), "status": text(nullable=False), "why": text(nullable=False)},
        "Groups with the worst verdicts",
        ("group", "status", "why"),
    ),
}
STATUSES = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "description": "Verdict: partitions that have it",
}
LAG: Shape = {
    "state": text("State of the group, Kafka's name"),
    "partitions": integer("Partitions that it reads", nullable=False),
    "statuses": STATUSES,
    "lag_records": integer("Records behind, of all partitions where it is known"),
    "lag_unit": text("What the lag is a number of: records, or offsets of a compacted topic", nullable=False),
    "lag_seconds": number("Age of the oldest record that waits, worst partition, s"),
}
GROUP_TOPIC: Shape = {
    "group": text(nullable=False),
    "topic": text(nullable=False),
    **LAG,
    "lag_max_records": integer("Records behind, worst partition"),
    "retention_ratio": number("Lag of the worst partition per record retained; at 1 records are lost"),
    "last_commit_ms": integer("Newest commit of any partition; ms since 1970"),
}
GROUP: Shape = {
    "group": text(nullable=False),
    "status": text("Verdict on its worst partition", nullable=False),
    "why": text("The worst partition, and what is wrong with it", nullable=False),
    **LAG,
    "group_type": text("classic, consumer, share or streams"),
    "topics": rows(GROUP_TOPIC, "Where one group is asked for: its topics, most lag first"),
}
HISTORY_OF_LAG: Shape = {
    "start_ms": integer("With history: start of the step; ms since 1970"),
    "group_id": text("With history: the group"),
    "topic": text("With history: the topic"),
    "partition": integer("With history of a topic: the partition"),
    "committed_offset": integer("With history of a topic: at the end of the step"),
    "log_end_offset": integer("With history of a topic: at the end of the step"),
    "lag_records_max": number("With history: highest lag of the step"),
}
ROLL: Shape = {
    "type": ["object", "null"],
    "properties": {
        "roll_id": text(nullable=False),
        "event": text("How it ended; null, as it has not"),
        "brokers": integers("All its brokers, in the order of their turns"),
        "restarted": integers("Brokers whose turn is over"),
        "broker": integer("Broker whose turn it is or comes next"),
        "phase": text("demoting, restarting, away or undemoting; null between two turns"),
        "margin": integer("Replicas in sync that each partition keeps above min.insync.replicas", nullable=False),
        "accepts_single": boolean("Whether partitions without a second replica may be offline"),
        "event_ms": integer("Time of its newest event; ms since 1970", nullable=False),
        "detail": text("What the newest event says", nullable=False),
    },
    "required": ["roll_id", "brokers", "restarted", "margin", "accepts_single", "event_ms", "detail"],
}
_PARTITIONS: Shape = {
    "count": integer("Partitions of this kind", nullable=False),
    "partitions": {
        "type": "array",
        "items": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 2, "maxItems": 2},
        "description": "Topic and partition number of the first 1,000",
    },
}
RESTART_CHECK: Shape = {
    "broker": integer(nullable=False),
    "is_safe": boolean("Whether the broker may be restarted now"),
    "stops": texts("Why not, a line each"),
    "is_alive": boolean("Whether the cluster shows the broker"),
    "offline": one(_PARTITIONS, "They would have no leader, or have none already"),
    "single": one(_PARTITIONS, "Those of `offline` that have no other replica at all"),
    "refusing": one(_PARTITIONS, "They would refuse writes with acks=all, or do so already"),
    "at_edge": one(_PARTITIONS, "They would have just as many replicas in sync as they need"),
    "behind": one(_PARTITIONS, "Their replica on the broker is not in sync"),
    "moving": one(_PARTITIONS, "They are being reassigned"),
    "unknown": one(_PARTITIONS, "min.insync.replicas of their topic is hidden from serve's login"),
    "is_blind": boolean("Whether reassignments or topics are hidden from serve's login"),
    "replicas": integer("Replicas on the broker", nullable=False),
    "leaders": integer("Leaders that would move", nullable=False),
    "group_coordinators": integer("Partitions of __consumer_offsets that it leads", nullable=False),
    "transaction_coordinators": integer("Partitions of __transaction_state that it leads", nullable=False),
}
_LOAD: Shape = {
    **{rate.name: number("Mean per second") for rate in RATES},
    "start_ms": integer("With history: start of the step; ms since 1970"),
}
_LOG_DIR: Shape = {
    "broker": integer(nullable=False),
    "path": text(nullable=False),
    "event_ms": integer("When it was seen; ms since 1970", nullable=False),
    "state": text("online, cordoned or offline", nullable=False),
    "total_bytes": integer("Of its volume"),
    "usable_bytes": integer("Still free on its volume"),
    "used_share": number("How full its volume is, 0 to 1"),
}
BROKER: Shape = {
    "broker": integer(nullable=False),
    **_LOAD,
    "rack": text(),
    "address": text("Host and port, for clients of the collector's listener; without history"),
    "bytes_in_per_sec_max": number("With history: highest of the step"),
    "log_dir_used_bytes": integer("At the end of the step, of all log dirs"),
    "log_dir_usable_bytes": integer("At the end of the step, of all log dirs"),
    "leaders": integer("Partitions that it leads"),
    "replicas": integer("Replicas that it holds"),
    "last_sample_ms": integer("Its newest sample; ms since 1970"),
    "bytes_out_at_least_per_sec": number("Without history: least that consumers read; null where all of it is known"),
    "bytes_out_at_most_per_sec": number("Without history: most that consumers read; null where it has no bound"),
    "drained_ms": integer("Without history: since when it is noted for drain, ms since 1970; null where it is not"),
    "demoted_ms": integer("Without history: since when it is noted for demote, ms since 1970; null where it is not"),
    "log_dirs": rows(_LOG_DIR, "Without history: its log dirs, as control saw them"),
}
_OF_REPLICAS: Shape = {
    **{rate.name: number("Mean per second") for rate in RATES if rate.of_replica},
    "start_ms": integer("With history: start of the step; ms since 1970"),
    "size_bytes": integer("Size of the log at the end of the step"),
}
TOPIC: Shape = {
    **{name: number("With history: sum over its partitions") for name in _OF_REPLICAS},
    "topic": text(nullable=False),
    "partitions": integer("Without history: how many"),
    "replicas": integer("Without history: how many brokers reported, of all its partitions"),
    "replication_factor": integer("Without history: replicas of the partition that has most"),
    "partitions_with_fewer": integer("Without history: partitions of which fewer replicas than that were reported"),
    "partitions_under_replicated": integer(
        "Without history: partitions with a replica that is not in sync; null where unknown"
    ),
    "bytes_in_per_sec": number("Mean per second, sum over its partitions"),
    "bytes_out_per_sec": number("Mean per second, sum over its partitions"),
    "size_bytes": integer("Sum over its partitions, of the leaders' logs alone"),
    "start_ms": integer("With history: start of the step; ms since 1970"),
}
PARTITION: Shape = {
    "topic": text(nullable=False),
    "partition": integer(nullable=False),
    "broker": integer("Without history: its leader"),
    "replicas": integers("Without history: brokers that reported a replica of it, the leader first"),
    "out_of_sync_replicas": integer("Without history: replicas that are not in sync; null where unknown"),
    **_OF_REPLICAS,
}
GROUP_PARTITION: Shape = {
    "topic": text(nullable=False),
    "partition": integer(nullable=False),
    "status": text("Verdict", nullable=False),
    "why": text("Why it has this verdict", nullable=False),
    "lag_records": integer("Records behind"),
    "lag_unit": text("What the lag is a number of: records, or offsets of a compacted topic", nullable=False),
    "lag_seconds": number("Age of the oldest record that waits, s"),
    "committed_offset": integer(),
    "log_end_offset": integer(),
    "consumed_per_sec": number("Records read per second"),
    "produced_per_sec": number("Records written per second"),
    "catch_up_seconds": number("Until it has caught up, if nothing changes; null where it never does"),
    "last_commit_ms": integer("ms since 1970"),
    "member_id": text("Member that owns it"),
    "client_id": text("Client id of that member"),
    "group_instance_id": text("Instance id of that member, if it is a static one"),
    "rack_id": text("Rack of that member"),
    "target_member_id": text("Member that should own it"),
    "subscribed_topic_regex": text("Pattern by which that member subscribes, if brokers resolve it"),
    "share_start_offset": integer("Of a share group"),
}
_OPTION: Shape = {
    "members": integer(nullable=False),
    "heaviest_ratio": number("What the fullest member gets per what it can read", nullable=False),
    "r_score": number("Rate of partitions that change their member, per what one member can read", nullable=False),
}
_ADVICE = {
    "type": ["object", "null"],
    "description": "How many members it needs; null where that is unknown",
    "properties": {
        "needed": integer("The fewest that are enough; null if no number is"),
        "bound": integer("Fewer can't be enough", nullable=False),
        "heaviest_partition_ratio": number("The heaviest partition per what a member can read", nullable=False),
        "options": rows(_OPTION, "Numbers of members from `needed` on", tuple(_OPTION)),
    },
}
_MEMBER: Shape = {
    "member_id": text(nullable=False),
    "client_id": text(),
    "group_instance_id": text("Of a static member"),
    "rack_id": text(),
    "partitions": integer("Partitions that it owns", nullable=False),
    "lag_records": integer("Records behind, of these"),
    "consumed_per_sec": number("Records that it reads per second"),
}
_CAUSE: Shape = {
    "cause": text("One of a fixed list", nullable=False),
    "subject": text("What it is about", nullable=False),
    "figure": text("The figure that shows it", nullable=False),
    "helps": text("What to do", nullable=False),
}
GROUP_HEAD: Shape = {
    "group": text(nullable=False),
    "state": text("State at the newest sample, Kafka's name"),
    "group_type": text("classic, consumer, share or streams"),
    "group_members": integer("All members, or those that own some partition"),
    "generation_id": integer("Generation, or group epoch"),
    "assignor": text(),
    "topology_epoch": integer("Of a streams group"),
    "newest_event_ms": integer("Newest sample; ms since 1970", nullable=False),
    "causes": rows(_CAUSE, "What its lag is put down to, in the order in which to look", tuple(_CAUSE)),
    "advice": _ADVICE,
    "hints": texts("What its rebalances show of how it is set up"),
    "members": rows(_MEMBER, "Members that own partitions, most lag first", tuple(_MEMBER)),
    "members_left_out": integer("Members that are not shown", nullable=False),
    "total": integer("Partitions that it reads", nullable=False),
}
REBALANCE: Shape = {
    **{name: shape for name, shape in of_table(GROUP_EVENT.name).items() if not name.endswith("_json")},
    "members_in": texts("Member ids that came"),
    "members_out": texts("Member ids that went"),
}
_OF_WRITERS = ("kafka_cluster", "owner")
EVENT: Shape = {name: shape for name, shape in of_table(EXECUTION.name).items() if name not in _OF_WRITERS}
EXECUTION_NOW: Shape = {
    **EVENT,
    "execution_id": text(nullable=False),
    "phase": text("Where it stands", nullable=False),
    "approved_ms": integer("When it was approved; ms since 1970", nullable=False),
    "started_ms": integer("When it began; ms since 1970"),
    "ended_ms": integer("When it ended; ms since 1970; null if it has not"),
    "is_abort_requested": boolean("Whether somebody has asked it to stop"),
}
_OF_GROUP: Shape = {
    "movements": integer("How many", nullable=False),
    "made": integer("Of them, those that are made", nullable=False),
    "under_way": integer("Of them, those that copy now", nullable=False),
    "bytes_to_move": integer("Bytes that they copy", nullable=False),
    "bytes_made": integer("Bytes of those that are made", nullable=False),
}
PROGRESS: Shape = {
    "states": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "description": "State: movements that are in it; empty where they have expired",
    },
    "waves": rows(
        {"wave": integer("From 0", nullable=False), **_OF_GROUP},
        "Waves of the plan; empty if an earlier version made it",
    ),
    "waves_left_out": integer("Waves that are not in the list", nullable=False),
    "receivers": rows({"broker": integer(nullable=False), **_OF_GROUP}, "Brokers that receive replicas"),
    "receivers_left_out": integer("Brokers that receive less and are not in the list", nullable=False),
}
OF_STATE: Shape = {
    "state": {"type": "string", "enum": [str(state) for state in MovementState], "description": "Where it stands"},
    "made_ms": integer("When it was first seen made; ms since 1970; null where it is not, or nobody knows when"),
}
EXECUTION_MOVEMENT: Shape = {**of_table(MOVEMENT.name), **OF_STATE}
PAST_MOVE: Shape = {
    **{name: shape for name, shape in of_table(MOVEMENT.name).items() if name != "created_ms"},
    **{name: EXECUTION_NOW[name] for name in OF_EXECUTION},
    "approval": text("How the execution was asked for", nullable=False),
    "cause": text("Why control made the plan; null where a person asked for it, or where that is no longer known"),
    **OF_STATE,
}
CHEAPER: Shape = {
    "gain_share": number("Part of the gain that it brings, 0 to 1"),
    "movements": integer("Movements that it has"),
    "bytes_to_move": integer("Bytes to be copied"),
}
