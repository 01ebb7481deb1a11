"""Tables of control: decisions, plans, movements, executions, the lease, and what people want of a broker."""

from dataclasses import replace

from assignor_core.resources import MEASURED, REPORTED
from streaming.contract.columns import CLUSTER, Column, Table, flag, integer, integers, long, number, text, timestamp

SHORT_HISTORY = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}
"""Properties of tables that are replaced all the time: their history is of no use and must not grow."""


def _by_resource(**comments: str) -> tuple[Column, ...]:
    """Ratios of every resource whose balance counts: one column for each suffix, with its comment."""
    return tuple(
        number(f"{resource}_{suffix}", f"{resource}: {comment}, ratio")
        for resource in REPORTED
        for suffix, comment in comments.items()
    )


DECISION = Table(
    "decision",
    "One row per evaluation of the trigger, with its reason, why nothing was done included",
    ("decision_id",),
    "decided_at",
    (
        text("decision_id", "Id of the evaluation", nullable=False),
        CLUSTER,
        timestamp("decided_at", "When control decided, UTC", nullable=False),
        timestamp("window_end", "End of the newest closed window, UTC; null where there was none"),
        text("verdict", "plan or hold", nullable=False),
        text("reason", "Reason of the verdict, one word of a fixed list", nullable=False),
        text("detail", "Reason of the verdict, a sentence with figures", nullable=False),
        text("resource", "Resource that decided; null for none"),
        number("max_over_mean", "max/mean of that resource in the newest window, ratio"),
        number("threshold_enter", "Threshold above which skew begins, ratio"),
        number("threshold_exit", "Threshold below which skew ends, ratio"),
        flag("breached", "Whether the cluster counts as skewed after this evaluation", nullable=False),
        timestamp("breach_started_at", "Since when the cluster counts as skewed, UTC; null if it does not"),
        number("completeness_ratio", "Brokers that reported in the newest window / brokers expected, 0 to 1"),
        integer("brokers_expected", "Brokers alive in the cluster's metadata"),
        integer("brokers_reporting", "Brokers with samples in the newest window"),
        timestamp("cooldown_end_at", "Until when the cooldown runs, UTC; null where none runs"),
        text("mode", "observe, propose or apply", nullable=False),
        text("plan_id", "Plan that the decision made; null for none"),
        text("skew_json", "All skew figures of the newest window, JSON object by resource"),
        text("state_json", "State of the trigger after this evaluation, JSON", nullable=False),
        text(
            "trace",
            "Needs, gates that they passed, gate that held, JSON; null in earlier rows",
        ),
    ),
)

PLAN = Table(
    "plan",
    "Plans, each with an id made of its content: control executes this row",
    ("plan_id",),
    "created_at",
    (
        text("plan_id", "Hash of the plan's content", nullable=False),
        CLUSTER,
        timestamp("created_at", "When the plan was made, UTC", nullable=False),
        timestamp("expires_at", "Time after which control refuses the plan, UTC", nullable=False),
        text("decision_id", "Decision that made the plan; null if a person did"),
        text("mode", "observe, propose or apply", nullable=False),
        timestamp("window_start", "Start of the oldest window planned on, UTC"),
        timestamp("window_end", "End of the newest window planned on, UTC"),
        integer("movement_count", "Partitions that change, or replicas that change their log dir", nullable=False),
        integer("leader_movement_count", "Partitions that change only their leader", nullable=False),
        long("bytes_to_move", "Bytes to be copied", nullable=False),
        long("planning_ms", "Time the planner took, ms", nullable=False),
        *_by_resource(
            max_over_mean_before="max/mean over brokers before the plan",
            max_over_mean_after="max/mean that the plan promises",
            lower_bound="no placement has a smaller max/mean; a joint bound of network and disk: not in both",
        ),
        text("plan_json", "The whole plan as the command `plan` prints it", nullable=False),
    ),
)

MOVEMENT = Table(
    "movement",
    "What a plan moves: partitions between brokers, or replicas between log dirs of their broker",
    ("plan_id", "sequence"),
    "created_at",
    (
        text("plan_id", "Plan", nullable=False),
        integer("sequence", "Order within the plan, from 0", nullable=False),
        timestamp("created_at", "When the plan was made, UTC", nullable=False),
        text("topic", "Topic", nullable=False),
        integer("partition", "Partition number", nullable=False),
        text("kind", "leader (order of replicas only), replica, or log_dir (within one broker)", nullable=False),
        integers(
            "old_replicas", "Replicas before, preferred leader first; the broker if kind is log_dir", nullable=False
        ),
        integers(
            "new_replicas", "Replicas after, preferred leader first; the broker if kind is log_dir", nullable=False
        ),
        long("bytes_to_move", "Bytes to be copied", nullable=False),
        text("reason", "Why the movement is in the plan", nullable=False),
        text("old_log_dir", "Path of the log dir that the replica leaves; null unless kind is log_dir"),
        text("new_log_dir", "Path of the log dir that receives the replica; null unless kind is log_dir"),
        integer("wave", "Wave of the movement, from 0; null in rows of earlier versions"),
    ),
)

EXECUTION = Table(
    "execution",
    "Journal of executions, append only: one row per event",
    ("execution_id", "sequence"),
    "event_time",
    (
        text("execution_id", "Execution of a plan", nullable=False),
        integer("sequence", "Order of events within the execution, from 0", nullable=False),
        text("plan_id", "Plan that is carried out", nullable=False),
        CLUSTER,
        timestamp("event_time", "When the event happened, UTC", nullable=False),
        text(
            "event",
            "endorsed, approved, refused, started, submitted, progress, electing, paused, resumed, done, swept, "
            "measured, abort_requested, aborted",
            nullable=False,
        ),
        text("detail", "What happened, in a sentence", nullable=False),
        integer("movements_total", "Partitions that the plan changes", nullable=False),
        integer("movements_done", "Partitions that have reached their new replicas", nullable=False),
        long("bytes_total", "Bytes that the plan copies", nullable=False),
        long("bytes_moved", "Bytes copied so far", nullable=False),
        long("throttle_bytes_per_sec", "Replication throttle that is set, bytes/s; null where none"),
        integers("throttled_brokers", "Brokers with a throttle of control's; null for none"),
        *_by_resource(
            max_over_mean_before="max/mean over brokers before the plan",
            max_over_mean_predicted="max/mean that the plan promises",
            max_over_mean_measured="max/mean measured after the plan, set by the event measured",
        ),
        number("produce_p99_ms_before", "Slowest broker's p99 of produce requests at the start, ms; null if unknown"),
        flag("in_windows_only", "Whether movements run in maintenance windows only, as in mode apply"),
        text("owner", "Process that executes the plan: host and process id", nullable=False),
        text("kafka_cluster_id", "Kafka's own id of the cluster; null before the start"),
        integers(
            "movements_made",
            "Movements made since the previous event, by sequence in the table movement; null where unknown",
        ),
        integers(
            "movements_undone",
            "Movements that others have undone since the previous event, by sequence",
        ),
        integers("movements_under_way", "Movements that copied at the event, by sequence"),
        integers(
            "movements_cancelled", "Movements that somebody else has cancelled since the previous event, by sequence"
        ),
        timestamp("begins_at", "Time before which the execution must not start, UTC; null for at once"),
        integer("approvals_needed", "How many people must approve the execution; null for one"),
        text("approver", "Person who approved at this event; null at other events"),
    ),
)

LEASE = Table(
    "lease",
    "Who may change the cluster: one row per cluster, replaced at each renewal",
    ("kafka_cluster",),
    "renewed_at",
    (
        CLUSTER,
        long("sequence", "Counts renewals and changes of holder; each number is written once", nullable=False),
        text("owner", "Process that holds the lease: host and process id", nullable=False),
        text("owner_namespace", "Boot, process and time namespace of the owner; null where unknown"),
        long("owner_started_ms", "When the owner started, ms since the machine's boot; null where unknown"),
        timestamp("renewed_at", "When the lease was renewed, by the owner's clock, UTC", nullable=False),
        long("ttl_ms", "How long the lease holds without a renewal, ms", nullable=False),
        flag("released", "True once the owner has given the lease back", nullable=False),
        text("kafka_cluster_id", "Kafka's own id of the cluster; null in rows of earlier versions"),
        text("lease_id", "Random id of the lease, drawn with its first row; null in rows of earlier versions"),
        text("holder_id", "Random id of the process that took the lease; null in rows of earlier versions"),
    ),
    SHORT_HISTORY,  # renewed every few seconds
)

ROLL = Table(
    "roll",
    "Rolling restarts, append only: one row per event",
    ("roll_id", "sequence"),
    "event_time",
    (
        text("roll_id", "One rolling restart", nullable=False),
        integer("sequence", "Order of events within the roll, from 0", nullable=False),
        CLUSTER,
        timestamp("event_time", "When the event happened, UTC", nullable=False),
        text(
            "event",
            "started, demoting, restarting, away, undemoting, restarted, abort_requested, done, aborted",
            nullable=False,
        ),
        integer("broker", "Broker whose turn it is; null between two turns"),
        text("detail", "What happened, in a sentence", nullable=False),
        integers("brokers", "All brokers in the order of their turns; null unless the event is started"),
        text("by", "Person who started the roll, or process that carries it out", nullable=False),
        integer(
            "margin",
            "Replicas in sync that each partition keeps above min.insync.replicas, null for 0; of the event started",
        ),
        flag(
            "accepts_single",
            "Whether partitions without a second replica may be offline, null for no; of the event started",
        ),
    ),
)

ROLL_LEASE = replace(
    LEASE, name="roll_lease", comment="Who carries out the roll: one row per cluster, replaced at each renewal"
)

BROKER_INTENT = Table(
    "broker_intent",
    "What people want of a broker, append only: the newest row of a broker holds",
    ("kafka_cluster", "broker", "event_time"),
    "event_time",
    (
        CLUSTER,
        integer("broker", "Broker id", nullable=False),
        timestamp("event_time", "When a person wrote the row, UTC", nullable=False),
        text(
            "intent",
            "drain: the broker must end empty; demote: it must lead nothing; use: it takes its share",
            nullable=False,
        ),
        text("by", "Person who wrote the row; in earlier releases host and process id of the command", nullable=False),
        text(
            "cordons_json",
            "Log dirs that drain cordons and use uncordons, as nobody else had cordoned them, JSON list; null for none",
        ),
        text("demotions_json", "Ids of the plans that demoted the broker, JSON list, oldest first; null unless demote"),
    ),
)

LOAD_MEMORY = Table(
    "load_memory",
    "What control remembers of brokers' loads: their noise, and how long skews last; replaced once an hour",
    ("kafka_cluster", "resource"),
    "event_time",
    (
        CLUSTER,
        text("resource", "Resource whose skew may make a plan", nullable=False),
        timestamp("event_time", "End of the newest window in the memory, UTC", nullable=False),
        timestamp("changed_at", "When replicas or leaders were last moved, UTC", nullable=False),
        number("noise_ratio", "Noise of the middle broker's share of the load in one window, ratio; null at first"),
        text("levels_json", "Level and noise of each broker, JSON object of lists", nullable=False),
        text("episodes_json", "Present skews, and how many windows earlier skews lasted, JSON", nullable=False),
    ),
    SHORT_HISTORY,
)

RECURRING_LOAD = Table(
    "recurring_load",
    "What control remembers of the hours of past days: loads in slots of ten minutes; replaced once an hour",
    ("kafka_cluster", "resource", "day"),
    "event_time",
    (
        CLUSTER,
        text("resource", "Resource whose skew may make a plan", nullable=False),
        timestamp("day", "Start of the day, UTC", nullable=False),
        timestamp("event_time", "End of the newest slot of all rows, UTC", nullable=False),
        text(
            "day_json",
            "By slot of the day, 0 to 143: mean load of a broker; share of brokers far above it. JSON",
            nullable=False,
        ),
    ),
    SHORT_HISTORY,
)

LOG_DIR = Table(
    "log_dir",
    "Log dirs of brokers as they were at the newest evaluation: one row each, replaced at each evaluation",
    ("kafka_cluster", "broker", "path"),
    "event_time",
    (
        CLUSTER,
        integer("broker", "Broker id", nullable=False),
        text("path", "Path of the log dir on the broker", nullable=False),
        timestamp("event_time", "When the broker showed the log dir, UTC", nullable=False),
        text("state", "online, cordoned (gets no new replicas) or offline", nullable=False),
        long("total_bytes", "Size of the log dir's volume, bytes; null where the broker does not show it"),
        long("usable_bytes", "Free bytes on the log dir's volume; null where the broker does not show them"),
    ),
    SHORT_HISTORY,  # replaced every minute
)

BROKER_RESTART = Table(
    "broker_restart",
    "What a restart of each broker would do, as control saw it last: one row each, replaced every minute or two",
    ("kafka_cluster", "broker"),
    "event_time",
    (
        CLUSTER,
        integer("broker", "Broker id; no row if settings or partitions of the broker are hidden", nullable=False),
        timestamp("event_time", "When control looked, UTC", nullable=False),
        flag("is_safe", "Whether restart-check would find the broker safe to restart", nullable=False),
        integer("offline", "Partitions that would have no leader, or have none already", nullable=False),
        integer("refusing", "Partitions that would refuse writes with acks=all, or do so already", nullable=False),
        integer("at_edge", "Partitions that would have just as many replicas in sync as they need", nullable=False),
        integer("behind", "Partitions whose replica on the broker is not in sync", nullable=False),
        integer("moving", "Partitions that are being reassigned, in a way that a restart would hinder", nullable=False),
    ),
    SHORT_HISTORY,
)

AUDIT = Table(
    "audit",
    "Acts that people and programs asked for, by HTTP or at a command line, append only: a row when each begins "
    "and one when it has ended",
    ("act_id", "stage"),
    "event_time",
    (
        text("act_id", "One act", nullable=False),
        text("stage", "begun, written before anything is done, or ended", nullable=False),
        CLUSTER,
        timestamp("event_time", "When the row was written, UTC", nullable=False),
        text("action", "plan, approve, abort, drain, undrain, add, demote, undemote or roll", nullable=False),
        text("target", "Plan, execution, broker, or broker and log dir; null where the act has none"),
        text("actor", "Name of the token or user, or user of the operating system", nullable=False),
        text(
            "signed_in_by",
            "token or session and its id, oidc and the subject, or command line",
            nullable=False,
        ),
        text("role", "viewer, operator or admin; operator at a command line", nullable=False),
        text(
            "remote_address",
            "Address of the client, behind trusted proxies that of their client; at a command line the host",
            nullable=False,
        ),
        text("idempotency_key", "Key of the request: the same request with it acts once", nullable=False),
        text("request_hash", "SHA-256 of path and body", nullable=False),
        integer("status", "HTTP status of the answer; null of begun"),
        text("state", "Result of the act, one word; null of begun"),
        text("detail", "Result of the act, in a sentence; null of begun"),
        text("answer_json", "The whole answer, JSON; null of begun"),
    ),
)

NOTIFICATION = Table(
    "notification",
    "Notifications that serve sends to webhooks, append only: a row before each try and one after it",
    ("webhook", "occurrence_id", "attempt", "stage"),
    "event_time",
    (
        text("webhook", "Name of the webhook in the settings", nullable=False),
        text("occurrence_id", "Id of what happened, equal in every process", nullable=False),
        integer("attempt", "Try, from 0", nullable=False),
        text("stage", "begun, then sent, failed or given_up", nullable=False),
        CLUSTER,
        timestamp("event_time", "When the row was written, UTC", nullable=False),
        text("kind", "Kind of the occurrence, as in the settings", nullable=False),
        text("subject", "Plan, execution or group", nullable=False),
        timestamp("occurred_at", "When the event happened, UTC", nullable=False),
        text("title", "What happened, a line", nullable=False),
        text("detail", "What happened, in a sentence with its figures", nullable=False),
        text("facts_json", "Figures, JSON object", nullable=False),
        integer("status", "HTTP status of the answer; null where there was none"),
        text("error", "Error of the try; null where it was sent"),
    ),
)

PREDICTION = Table(
    "prediction",
    "Predictions that `rebalancer what-if --keep` stored, append only",
    ("prediction_id",),
    "predicted_at",
    (
        text("prediction_id", "One prediction", nullable=False),
        CLUSTER,
        timestamp("predicted_at", "When the plan was made, UTC", nullable=False),
        text("changes_json", "Changes that the prediction assumes, JSON object", nullable=False),
        text("settings_json", "Settings of trigger, planner and control, JSON object", nullable=False),
        timestamp("hours_start", "Start of the first recorded hour, UTC", nullable=False),
        timestamp("hours_end", "End of the last recorded hour, UTC", nullable=False),
        integer("hours", "Recorded hours that the prediction rests on", nullable=False),
        integer("brokers", "Brokers that are alive under the changes", nullable=False),
        integer("plans", "Plans that would be made", nullable=False),
        number("bytes_copied", "Bytes that the plans would copy", nullable=False),
        number("duration_ms", "How long the plans would take one after the other, ms; null if one had not ended"),
        *(
            number(f"{resource}_max_over_mean", f"{resource}: max/mean over brokers in the last hour, ratio")
            for resource in MEASURED
        ),
        *(
            number(
                f"{resource}_headroom_left_ratio",
                f"{resource}: least share of capacity that a broker has left in the worst hour of the last day; "
                "null where no capacity is known",
            )
            for resource in MEASURED
        ),
    ),
)
