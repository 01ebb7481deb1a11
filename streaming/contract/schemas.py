"""Records and Delta tables as data: the one place where fields, types, units and comments stand.

Spark (pipeline) and delta-rs (control) build their own schema objects from these; the docs and the tests compare with
them. Table and column names are a contract (a change needs a version and a CHANGELOG line). This module knows neither
Spark nor Delta.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

RECORD_VERSION = 1
"""`v` of every record on the two input topics."""


class ColumnType(StrEnum):
    """The few types used, all readable by every Delta reader (start wide: no type widening later)."""

    STRING = "string"
    LONG = "long"
    INTEGER = "integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    BINARY = "binary"
    TIMESTAMP = "timestamp"
    INTEGER_LIST = "array<integer>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `comment` states meaning and unit and is stored in the table."""

    name: str
    type: ColumnType
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table; `key` names the columns that identify a row, `time_column` what retention goes by."""

    name: str
    comment: str
    key: tuple[str, ...]
    time_column: str
    columns: tuple[Column, ...]
    configuration: Mapping[str, str] = field(default_factory=dict)
    """Delta properties that differ from those of all tables."""

    def column_names(self) -> tuple[str, ...]:
        """All columns, in order."""
        return tuple(column.name for column in self.columns)


def _text(name: str, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType.STRING, comment, nullable)


def _long(name: str, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType.LONG, comment, nullable)


def _integer(name: str, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType.INTEGER, comment, nullable)


def _number(name: str, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType.DOUBLE, comment, nullable)


def _flag(name: str, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType.BOOLEAN, comment, nullable)


def _time(name: str, comment: str, *, nullable: bool = True) -> Column:
    return Column(name, ColumnType.TIMESTAMP, comment, nullable)


_CLUSTER = _text("kafka_cluster", "Name of the Kafka cluster, as in the settings", nullable=False)
_WINDOW = (
    _time("window_start", "Start of the tumbling event-time window, UTC, inclusive", nullable=False),
    _time("window_end", "End of the window, UTC, exclusive", nullable=False),
)
_WINDOW_AUDIT = (
    _long("sample_count", "Samples that fell into the window", nullable=False),
    _long("first_event_time_ms", "Event time of the oldest sample in the window, ms since 1970 UTC", nullable=False),
    _long("last_event_time_ms", "Event time of the newest sample in the window, ms since 1970 UTC", nullable=False),
    _flag("is_final", "True once the watermark has passed the window: the row will not change again", nullable=False),
    _time("updated_at", "When this row was last written, UTC", nullable=False),
    _long("batch_id", "Micro-batch that last wrote this row", nullable=False),
    _text("query_id", "Id of the streaming query (checkpoint) that last wrote this row", nullable=False),
)

PARTITION_LOAD = Table(
    "partition_load",
    "Load of each replica in each window: what clients write and read on a leader, what a follower replicates",
    ("kafka_cluster", "window_start", "broker", "topic", "partition"),
    "window_start",
    (
        _CLUSTER,
        *_WINDOW,
        _integer("broker", "Broker id that hosts the replica", nullable=False),
        _text("topic", "Topic", nullable=False),
        _integer("partition", "Partition number", nullable=False),
        _text("role", "leader or follower, as last seen in the window", nullable=False),
        _number("bytes_in_per_sec", "Time-weighted mean write rate, bytes/s; null where no interval was known"),
        _number("bytes_out_per_sec", "Time-weighted mean consumer read rate, bytes/s; null where unknown"),
        _number("messages_in_per_sec", "Time-weighted mean of records appended, records/s; null where unknown"),
        _long("size_bytes", "Log size of the replica at the newest sample, bytes"),
        _long("covered_ms", "Milliseconds of the window for which the write rate is known", nullable=False),
        *_WINDOW_AUDIT,
    ),
)

BROKER_LOAD = Table(
    "broker_load",
    "Load of each broker in each window, client, replication and reassignment traffic kept apart",
    ("kafka_cluster", "window_start", "broker"),
    "window_start",
    (
        _CLUSTER,
        *_WINDOW,
        _integer("broker", "Broker id", nullable=False),
        _text("rack", "Rack of the broker; null where none is set"),
        _number("bytes_in_per_sec", "Time-weighted mean of bytes that clients write to it, bytes/s"),
        _number("bytes_out_per_sec", "Time-weighted mean of bytes that consumers read from it, bytes/s"),
        _number("messages_in_per_sec", "Time-weighted mean of records that clients write, records/s"),
        _number("replication_bytes_in_per_sec", "Bytes it replicates as a follower, bytes/s, reassignment excluded"),
        _number("replication_bytes_out_per_sec", "Bytes its followers fetch from it, bytes/s, reassignment excluded"),
        _number("reassignment_bytes_in_per_sec", "Bytes copied to it by reassignments, bytes/s; never load"),
        _number("reassignment_bytes_out_per_sec", "Bytes copied from it by reassignments, bytes/s; never load"),
        _number("bytes_in_per_sec_max", "Highest single sample of bytes_in_per_sec in the window, bytes/s"),
        _long("log_dir_used_bytes", "Bytes of replica logs on its disks at the newest sample"),
        _long("log_dir_usable_bytes", "Bytes still free on its disks at the newest sample; null where unknown"),
        _long("covered_ms", "Milliseconds of the window for which the write rate is known", nullable=False),
        *_WINDOW_AUDIT,
    ),
)

GROUP_LAG = Table(
    "group_lag",
    "Offsets and lag of each consumer group and partition in each window",
    ("kafka_cluster", "window_start", "group_id", "topic", "partition"),
    "window_start",
    (
        _CLUSTER,
        *_WINDOW,
        _text("group_id", "Consumer group", nullable=False),
        _text("topic", "Topic", nullable=False),
        _integer("partition", "Partition number", nullable=False),
        _long("committed_offset", "Committed offset at the newest sample; null where none was committed"),
        _long("log_end_offset", "Log end offset at the newest sample"),
        _long("log_start_offset", "Log start offset at the newest sample"),
        _long("lag_records", "Records behind at the newest sample; null where unknown"),
        _long("lag_records_max", "Highest lag of the window, records"),
        _long("committed_offset_first", "Committed offset at the oldest sample of the window"),
        _long("log_end_offset_first", "Log end offset at the oldest sample of the window"),
        _text("member_id", "Member that owned the partition at the newest sample; null where none"),
        _text("client_id", "Client id of that member"),
        _text("group_state", "State of the group at the newest sample, Kafka's name"),
        _integer("generation_id", "Generation of the group at the newest sample; null where unknown"),
        *_WINDOW_AUDIT,
    ),
)

_PERIOD = (
    _time("period_start", "Start of the hour or day, UTC, inclusive", nullable=False),
    _time("period_end", "End of it, UTC, exclusive", nullable=False),
)
_PERIOD_AUDIT = (
    _long("window_count", "Windows that it rests on", nullable=False),
    _time("updated_at", "When this row was written, UTC", nullable=False),
)
_BROKER_PERIOD = (
    _CLUSTER,
    *_PERIOD,
    _integer("broker", "Broker id", nullable=False),
    _text("rack", "Rack of the broker, as last known; null where none is set"),
    _number("bytes_in_per_sec", "Mean over the windows of bytes that clients write to it, bytes/s"),
    _number("bytes_in_per_sec_max", "Highest single sample of it, bytes/s"),
    _number("bytes_out_per_sec", "Mean over the windows of bytes that consumers read from it, bytes/s"),
    _number("bytes_out_per_sec_max", "Highest window of it, bytes/s"),
    _number("messages_in_per_sec", "Mean over the windows of records that clients write, records/s"),
    _number("replication_bytes_in_per_sec", "Mean of bytes it replicates as a follower, bytes/s"),
    _number("replication_bytes_out_per_sec", "Mean of bytes its followers fetch from it, bytes/s"),
    _number("reassignment_bytes_in_per_sec", "Mean of bytes copied to it by reassignments, bytes/s; never load"),
    _number("reassignment_bytes_out_per_sec", "Mean of bytes copied from it by reassignments, bytes/s; never load"),
    _long("log_dir_used_bytes", "Bytes of replica logs on its disks at the end"),
    _long("log_dir_usable_bytes", "Bytes still free on its disks at the end; null where unknown"),
    _long("covered_ms", "Milliseconds for which the write rate is known", nullable=False),
    *_PERIOD_AUDIT,
)

BROKER_LOAD_HOURLY = Table(
    "broker_load_hourly",
    "Load of each broker by the hour, made of broker_load once the hour is over, kept when the windows are gone",
    ("kafka_cluster", "period_start", "broker"),
    "period_start",
    _BROKER_PERIOD,
)

BROKER_LOAD_DAILY = Table(
    "broker_load_daily",
    "Load of each broker by the day (UTC), made of broker_load once the day is over, kept when the windows are gone",
    ("kafka_cluster", "period_start", "broker"),
    "period_start",
    _BROKER_PERIOD,
)

PARTITION_LOAD_DAILY = Table(
    "partition_load_daily",
    "Load of each replica by the day (UTC), made of partition_load once the day is over",
    ("kafka_cluster", "period_start", "broker", "topic", "partition"),
    "period_start",
    (
        _CLUSTER,
        *_PERIOD,
        _integer("broker", "Broker id that hosts the replica", nullable=False),
        _text("topic", "Topic", nullable=False),
        _integer("partition", "Partition number", nullable=False),
        _text("role", "leader or follower, as last seen on that day", nullable=False),
        _number("bytes_in_per_sec", "Mean write rate over the windows, bytes/s; null where never known"),
        _number("bytes_in_per_sec_max", "Highest window of it, bytes/s"),
        _number("bytes_out_per_sec", "Mean consumer read rate over the windows, bytes/s; null where never known"),
        _number("bytes_out_per_sec_max", "Highest window of it, bytes/s"),
        _number("messages_in_per_sec", "Mean of records appended, records/s; null where never known"),
        _long("size_bytes", "Log size of the replica at the end of the day, bytes"),
        _long("covered_ms", "Milliseconds for which the write rate is known", nullable=False),
        *_PERIOD_AUDIT,
    ),
)

GROUP_LAG_DAILY = Table(
    "group_lag_daily",
    "Offsets and lag of each consumer group and partition by the day (UTC), made of group_lag once the day is over",
    ("kafka_cluster", "period_start", "group_id", "topic", "partition"),
    "period_start",
    (
        _CLUSTER,
        *_PERIOD,
        _text("group_id", "Consumer group", nullable=False),
        _text("topic", "Topic", nullable=False),
        _integer("partition", "Partition number", nullable=False),
        _long("committed_offset_first", "Committed offset at the beginning; null where none was committed"),
        _long("committed_offset", "Committed offset at the end"),
        _long("log_end_offset_first", "Log end offset at the beginning"),
        _long("log_end_offset", "Log end offset at the end"),
        _long("lag_records", "Records behind at the end; null where never known"),
        _number("lag_records_mean", "Mean over the windows of the records behind"),
        _long("lag_records_max", "Highest lag of the day, records"),
        *_PERIOD_AUDIT,
    ),
)

GROUP_EVENT = Table(
    "group_event",
    "Rebalances of consumer groups, told from a closed window of group_lag and the one before",
    ("kafka_cluster", "window_start", "group_id"),
    "window_start",
    (
        _CLUSTER,
        _time("window_start", "Window in which it was seen, start, UTC", nullable=False),
        _text("group_id", "Consumer group", nullable=False),
        _long("after_ms", "Sample before it, ms since 1970 UTC: the rebalance began later", nullable=False),
        _long("until_ms", "Sample after it, ms since 1970 UTC: what it led to was seen then", nullable=False),
        _text("cause", "Why, one of a fixed list, as far as it can be told", nullable=False),
        _text("group_state", "State of the group at the sample after it, Kafka's name"),
        _integer("generation_id", "Generation of the group at the sample after it; null where unknown"),
        _integer("rebalances", "Rebalances between the samples, at least", nullable=False),
        _integer("members", "Members that own partitions at the sample after it", nullable=False),
        _text("members_in_json", "Member ids that came, JSON array", nullable=False),
        _text("members_out_json", "Member ids that went, JSON array", nullable=False),
        _integer("restarts", "Members that went and came back as another process", nullable=False),
        _integer("partitions_moved", "Partitions that went to another member", nullable=False),
        _integer("partitions_unowned", "Partitions without an owner at the sample after it", nullable=False),
    ),
)

REJECTED_RECORD = Table(
    "rejected_record",
    "Records of the input topics that did not fit, with the reason and the raw bytes",
    ("source_topic", "source_partition", "source_offset"),
    "rejected_at",
    (
        _text("source_topic", "Topic the record was read from", nullable=False),
        _integer("source_partition", "Partition the record was read from", nullable=False),
        _long("source_offset", "Offset of the record", nullable=False),
        _time("record_time", "Kafka's timestamp of the record, UTC"),
        _text("reason", "Why it was rejected, one word of a fixed list", nullable=False),
        _text("field", "The field at fault; null where the whole record is"),
        Column("key", ColumnType.BINARY, "Record key, raw bytes (cut at 1 MiB)"),
        Column("value", ColumnType.BINARY, "Record value, raw bytes (cut at 1 MiB)"),
        _time("rejected_at", "When it was rejected, UTC", nullable=False),
    ),
)

PIPELINE_BATCH = Table(
    "pipeline_batch",
    "Heartbeat and figures of the streaming queries, one row per micro-batch that is kept",
    ("query_name", "query_id", "batch_id"),
    "finished_at",
    (
        _text("query_name", "Streaming query: byte_rate, consumer_lag or rejects", nullable=False),
        _text("query_id", "Id of the query (checkpoint)", nullable=False),
        _long("batch_id", "Micro-batch", nullable=False),
        _time("finished_at", "When this was told, UTC; again while no batch ends", nullable=False),
        _long("duration_ms", "Duration of the batch, ms", nullable=False),
        _long("input_rows", "Records read in the batch", nullable=False),
        _long("batches_total", "Batches since the query's first start that this process has seen", nullable=False),
        _long("input_rows_total", "Records since this process started", nullable=False),
        _long("rejected_rows_total", "Records rejected since this process started", nullable=False),
        _long("late_rows_total", "Records behind the watermark since this process started", nullable=False),
        _time("watermark", "Watermark of the query, UTC; null before the first event"),
        _long("source_lag_records", "Records in the topic not yet read"),
        _long("state_rows", "Rows in the state store"),
        _long("state_memory_bytes", "Memory of the state store, bytes"),
        _long("trigger_interval_ms", "Trigger interval from the settings, ms", nullable=False),
        _text("phases_json", "Duration of each phase of the batch, JSON object of ms"),
    ),
)


def _by_resource(**comments: str) -> tuple[Column, ...]:
    """Ratios of every resource whose balance counts: one column for each suffix, with its comment."""
    return tuple(
        _number(f"{resource}_{suffix}", f"{resource}: {comment}, ratio")
        for resource in ("bytes_in", "bytes_out", "disk", "leaders", "replicas")
        for suffix, comment in comments.items()
    )


DECISION = Table(
    "decision",
    "One row per evaluation of the trigger, with its reason, why nothing was done included",
    ("decision_id",),
    "decided_at",
    (
        _text("decision_id", "Id of the evaluation", nullable=False),
        _CLUSTER,
        _time("decided_at", "When it was decided, UTC", nullable=False),
        _time("window_end", "End of the newest closed window looked at, UTC; null where there was none"),
        _text("verdict", "plan or hold", nullable=False),
        _text("reason", "Why, one word of a fixed list", nullable=False),
        _text("detail", "The reason in a sentence with its figures", nullable=False),
        _text("resource", "Resource that decided; null where none did"),
        _number("max_over_mean", "max/mean of that resource in the newest window, ratio"),
        _number("threshold_enter", "Threshold above which skew begins, ratio"),
        _number("threshold_exit", "Threshold below which skew ends, ratio"),
        _flag("breached", "Whether the cluster counts as skewed after this evaluation", nullable=False),
        _time("breach_started_at", "Since when it counts as skewed, UTC; null where it does not"),
        _number("completeness_ratio", "Brokers that reported in the newest window / brokers expected, 0 to 1"),
        _integer("brokers_expected", "Brokers alive in the cluster's metadata"),
        _integer("brokers_reporting", "Brokers with samples in the newest window"),
        _time("cooldown_end_at", "Until when the cooldown runs, UTC; null where none runs"),
        _text("mode", "observe, propose or apply", nullable=False),
        _text("plan_id", "Plan that came of it; null where none did"),
        _text("skew_json", "All skew figures of the newest window, JSON object by resource"),
        _text("state_json", "State of the trigger after this evaluation, JSON", nullable=False),
    ),
)

PLAN = Table(
    "plan",
    "Plans, content-addressed: what is executed is what stands here",
    ("plan_id",),
    "created_at",
    (
        _text("plan_id", "Hash of the plan's content", nullable=False),
        _CLUSTER,
        _time("created_at", "When it was made, UTC", nullable=False),
        _time("expires_at", "After this it is refused, UTC", nullable=False),
        _text("decision_id", "Evaluation that asked for it; null where a person did"),
        _text("mode", "observe, propose or apply", nullable=False),
        _time("window_start", "Start of the oldest window planned on, UTC"),
        _time("window_end", "End of the newest window planned on, UTC"),
        _integer("movement_count", "Partitions that change", nullable=False),
        _integer("leader_movement_count", "Of those, changes of leader only", nullable=False),
        _long("bytes_to_move", "Bytes to be copied between brokers", nullable=False),
        _long("planning_ms", "Time the planner took, ms", nullable=False),
        *_by_resource(
            max_over_mean_before="max/mean over brokers before the plan",
            max_over_mean_after="max/mean that the plan promises",
            lower_bound="no placement can have a smaller max/mean",
        ),
        _text("plan_json", "The whole plan as the command `plan` prints it", nullable=False),
    ),
)

MOVEMENT = Table(
    "movement",
    "Partitions that a plan changes",
    ("plan_id", "sequence"),
    "created_at",
    (
        _text("plan_id", "Plan", nullable=False),
        _integer("sequence", "Order within the plan, from 0", nullable=False),
        _time("created_at", "When the plan was made, UTC", nullable=False),
        _text("topic", "Topic", nullable=False),
        _integer("partition", "Partition number", nullable=False),
        _text("kind", "leader (order of replicas only) or replica", nullable=False),
        Column("old_replicas", ColumnType.INTEGER_LIST, "Replicas before, preferred leader first", nullable=False),
        Column("new_replicas", ColumnType.INTEGER_LIST, "Replicas after, preferred leader first", nullable=False),
        _long("bytes_to_move", "Bytes to be copied", nullable=False),
        _text("reason", "Why it is in the plan", nullable=False),
    ),
)

EXECUTION = Table(
    "execution",
    "Journal of executions, append only: one row per event",
    ("execution_id", "sequence"),
    "event_time",
    (
        _text("execution_id", "One carrying out of a plan", nullable=False),
        _integer("sequence", "Order of events within the execution, from 0", nullable=False),
        _text("plan_id", "Plan that is carried out", nullable=False),
        _CLUSTER,
        _time("event_time", "When it happened, UTC", nullable=False),
        _text(
            "event",
            "approved, refused, started, submitted, progress, electing, paused, resumed, done, swept, measured, "
            "abort_requested, aborted",
            nullable=False,
        ),
        _text("detail", "What happened, in a sentence", nullable=False),
        _integer("movements_total", "Partitions that the plan changes", nullable=False),
        _integer("movements_done", "Partitions that have reached their new replicas", nullable=False),
        _long("bytes_total", "Bytes that the plan copies", nullable=False),
        _long("bytes_moved", "Bytes copied so far", nullable=False),
        _long("throttle_bytes_per_sec", "Replication throttle that is set, bytes/s; null where none"),
        Column("throttled_brokers", ColumnType.INTEGER_LIST, "Brokers that bear a throttle of ours; null where none"),
        *_by_resource(
            max_over_mean_before="max/mean over brokers before the plan",
            max_over_mean_predicted="max/mean that the plan promises",
            max_over_mean_measured="max/mean once it has settled, set by the event measured",
        ),
        _number("produce_p99_ms_before", "Slowest broker's p99 of produce requests at the start, ms; null if unknown"),
        _flag("in_windows_only", "True where movements are submitted in maintenance windows only: by mode apply"),
        _text("owner", "Process that carries it out: host and process id", nullable=False),
    ),
)

LEASE = Table(
    "lease",
    "Who may change the cluster: one row per cluster, replaced at each renewal",
    ("kafka_cluster",),
    "renewed_at",
    (
        _CLUSTER,
        _long("sequence", "Counts renewals and changes of holder; each number is written once", nullable=False),
        _text("owner", "Process that holds it: host and process id", nullable=False),
        _text("owner_namespace", "Boot, process and time namespace of the owner; null where it can't be told"),
        _long("owner_started_ms", "When that process started, ms since that boot; null where it can't be told"),
        _time("renewed_at", "When it was renewed, by the owner's clock, UTC", nullable=False),
        _long("ttl_ms", "How long it holds without renewal, ms", nullable=False),
        Column("released", ColumnType.BOOLEAN, "True once its owner has given it back", nullable=False),
    ),
    # Renewed every few seconds: its history is of no use and must not grow.
    {
        "delta.logRetentionDuration": "interval 1 hours",
        "delta.deletedFileRetentionDuration": "interval 1 hours",
    },
)

BROKER_INTENT = Table(
    "broker_intent",
    "What people want of a broker, append only: the newest row of a broker holds",
    ("kafka_cluster", "broker", "event_time"),
    "event_time",
    (
        _CLUSTER,
        _integer("broker", "Broker id", nullable=False),
        _time("event_time", "When it was said, UTC", nullable=False),
        _text("intent", "drain: it must end empty and get nothing; use: it takes its share", nullable=False),
        _text("by", "Who said so: host and process id", nullable=False),
    ),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        PARTITION_LOAD,
        BROKER_LOAD,
        GROUP_LAG,
        BROKER_LOAD_HOURLY,
        BROKER_LOAD_DAILY,
        PARTITION_LOAD_DAILY,
        GROUP_LAG_DAILY,
        GROUP_EVENT,
        REJECTED_RECORD,
        PIPELINE_BATCH,
        DECISION,
        PLAN,
        MOVEMENT,
        EXECUTION,
        LEASE,
        BROKER_INTENT,
    )
}
