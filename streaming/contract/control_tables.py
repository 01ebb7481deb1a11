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
        timestamp("decided_at", "When it was decided, UTC", nullable=False),
        timestamp("window_end", "End of the newest closed window looked at, UTC; null where there was none"),
        text("verdict", "plan or hold", nullable=False),
        text("reason", "Why, one word of a fixed list", nullable=False),
        text("detail", "The reason in a sentence with its figures", nullable=False),
        text("resource", "Resource that decided; null where none did"),
        number("max_over_mean", "max/mean of that resource in the newest window, ratio"),
        number("threshold_enter", "Threshold above which skew begins, ratio"),
        number("threshold_exit", "Threshold below which skew ends, ratio"),
        flag("breached", "Whether the cluster counts as skewed after this evaluation", nullable=False),
        timestamp("breach_started_at", "Since when it counts as skewed, UTC; null where it does not"),
        number("completeness_ratio", "Brokers that reported in the newest window / brokers expected, 0 to 1"),
        integer("brokers_expected", "Brokers alive in the cluster's metadata"),
        integer("brokers_reporting", "Brokers with samples in the newest window"),
        timestamp("cooldown_end_at", "Until when the cooldown runs, UTC; null where none runs"),
        text("mode", "observe, propose or apply", nullable=False),
        text("plan_id", "Plan that came of it; null where none did"),
        text("skew_json", "All skew figures of the newest window, JSON object by resource"),
        text("state_json", "State of the trigger after this evaluation, JSON", nullable=False),
        text(
            "trace",
            "Needs that were looked at, gates passed, gate that held, JSON; null in earlier rows",
        ),
    ),
)

PLAN = Table(
    "plan",
    "Plans, content-addressed: what is executed is what stands here",
    ("plan_id",),
    "created_at",
    (
        text("plan_id", "Hash of the plan's content", nullable=False),
        CLUSTER,
        timestamp("created_at", "When it was made, UTC", nullable=False),
        timestamp("expires_at", "After this it is refused, UTC", nullable=False),
        text("decision_id", "Evaluation that asked for it; null where a person did"),
        text("mode", "observe, propose or apply", nullable=False),
        timestamp("window_start", "Start of the oldest window planned on, UTC"),
        timestamp("window_end", "End of the newest window planned on, UTC"),
        integer("movement_count", "Partitions that change, or replicas that change their log dir", nullable=False),
        integer("leader_movement_count", "Of those, changes of leader only", nullable=False),
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
        integers("old_replicas", "Replicas before, preferred leader first; of kind log_dir the broker", nullable=False),
        integers("new_replicas", "Replicas after, preferred leader first; of kind log_dir the broker", nullable=False),
        long("bytes_to_move", "Bytes to be copied", nullable=False),
        text("reason", "Why it is in the plan", nullable=False),
        text("old_log_dir", "Of kind log_dir: path of the log dir that the replica leaves; null of others"),
        text("new_log_dir", "Of kind log_dir: path of the log dir that it goes to; null of others"),
        integer("wave", "Wave of the plan that makes it, from 0; null in rows of earlier versions"),
    ),
)

EXECUTION = Table(
    "execution",
    "Journal of executions, append only: one row per event",
    ("execution_id", "sequence"),
    "event_time",
    (
        text("execution_id", "One carrying out of a plan", nullable=False),
        integer("sequence", "Order of events within the execution, from 0", nullable=False),
        text("plan_id", "Plan that is carried out", nullable=False),
        CLUSTER,
        timestamp("event_time", "When it happened, UTC", nullable=False),
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
        integers("throttled_brokers", "Brokers that bear a throttle of ours; null where none"),
        *_by_resource(
            max_over_mean_before="max/mean over brokers before the plan",
            max_over_mean_predicted="max/mean that the plan promises",
            max_over_mean_measured="max/mean once it has settled, set by the event measured",
        ),
        number("produce_p99_ms_before", "Slowest broker's p99 of produce requests at the start, ms; null if unknown"),
        flag("in_windows_only", "True where movements are submitted in maintenance windows only: by mode apply"),
        text("owner", "Process that carries it out: host and process id", nullable=False),
        text("kafka_cluster_id", "Kafka's own id of the cluster that it was started on; null before the start"),
        integers(
            "movements_made",
            "Movements made since the event before, by their sequence in the table movement; null where unknown",
        ),
        integers(
            "movements_undone",
            "The same of movements that were made before and no longer are, as others have changed them",
        ),
        integers("movements_under_way", "Movements that copied at that moment, by their sequence"),
        integers("movements_cancelled", "Movements that somebody else has cancelled since the event before"),
        timestamp("begins_at", "Time before which the execution must not start, UTC; null for at once"),
        integer("approvals_needed", "How many people have to approve before it starts; null for one"),
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
        text("owner", "Process that holds it: host and process id", nullable=False),
        text("owner_namespace", "Boot, process and time namespace of the owner; null where it is unknown"),
        long("owner_started_ms", "When that process started, ms since that boot; null where it is unknown"),
        timestamp("renewed_at", "When it was renewed, by the owner's clock, UTC", nullable=False),
        long("ttl_ms", "How long it holds without renewal, ms", nullable=False),
        flag("released", "True once its owner has given it back", nullable=False),
        text("kafka_cluster_id", "Kafka's own id of the cluster; null in rows of earlier versions"),
        text("lease_id", "Drawn at random for the first row of a lease and kept; null in rows of earlier versions"),
        text("holder_id", "Drawn at random by each process that takes the lease; null in rows of earlier versions"),
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
        timestamp("event_time", "When it happened, UTC", nullable=False),
        text(
            "event",
            "started, demoting, restarting, away, undemoting, restarted, abort_requested, done, aborted",
            nullable=False,
        ),
        integer("broker", "Broker whose turn it is; null between two turns"),
        text("detail", "What happened, in a sentence", nullable=False),
        integers("brokers", "Of the event started: all brokers, in the order of their turns; null of others"),
        text("by", "Who asked for it, or the process that carries it out", nullable=False),
        integer(
            "margin",
            "Of the event started: replicas in sync that each partition keeps above min.insync.replicas; null for 0",
        ),
        flag(
            "accepts_single",
            "Of the event started: whether partitions without a second replica may be offline; null for no",
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
        timestamp("event_time", "When a person wrote it, UTC", nullable=False),
        text(
            "intent",
            "drain: it must end empty and get nothing; demote: it must lead nothing; use: it takes its share",
            nullable=False,
        ),
        text("by", "Who wants it; of earlier releases the host and process id of the command", nullable=False),
        text(
            "cordons_json",
            "Log dirs that nobody had cordoned, JSON list: drain cordons them, use uncordons them; null for none",
        ),
        text("demotions_json", "Ids of the plans that have demoted it, JSON list, oldest first; null unless demote"),
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
        timestamp("event_time", "End of the newest window that it holds, UTC", nullable=False),
        timestamp("changed_at", "When replicas or leaders were last moved before that, UTC", nullable=False),
        number("noise_ratio", "Noise of the middle broker's share of the load in one window, ratio; null at first"),
        text("levels_json", "Level and noise of each broker, JSON object of lists", nullable=False),
        text("episodes_json", "Skews that go on, and for how many windows earlier ones lasted, JSON", nullable=False),
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
        timestamp("day", "Start of the day (UTC) that the row is about", nullable=False),
        timestamp("event_time", "End of the newest slot that all rows hold, UTC", nullable=False),
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
        timestamp("event_time", "When control asked the broker, UTC", nullable=False),
        text("state", "online, cordoned (gets no new replicas) or offline", nullable=False),
        long("total_bytes", "Size of its volume, bytes; null where the broker does not show it"),
        long("usable_bytes", "What is free on its volume, bytes; null where the broker does not show it"),
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
        text("stage", "begun, which is written before anything is done, or ended", nullable=False),
        CLUSTER,
        timestamp("event_time", "When it was written, UTC", nullable=False),
        text("action", "plan, approve, abort, drain, undrain, add, demote, undemote or roll", nullable=False),
        text("target", "Plan, execution, broker, or broker and log dir; null where the act has none"),
        text("actor", "Who asked: the name of the token or user, or the user of the operating system", nullable=False),
        text("signed_in_by", "How: token or session and its id, oidc and the subject, or command line", nullable=False),
        text("role", "viewer, operator or admin; operator at a command line", nullable=False),
        text(
            "remote_address",
            "Address that asked, behind trusted proxies that of their client; at a command line the host",
            nullable=False,
        ),
        text("idempotency_key", "Key of the request: the same request with it acts once", nullable=False),
        text("request_hash", "SHA-256 of path and body", nullable=False),
        integer("status", "HTTP status of the answer; null of begun"),
        text("state", "What came of it, one word; null of begun"),
        text("detail", "What came of it, in a sentence; null of begun"),
        text("answer_json", "The whole answer, JSON; null of begun"),
    ),
)

NOTIFICATION = Table(
    "notification",
    "Notifications that serve sends to webhooks, append only: a row before each try and one after it",
    ("webhook", "occurrence_id", "attempt", "stage"),
    "event_time",
    (
        text("webhook", "Name in the settings", nullable=False),
        text("occurrence_id", "What happened: the same id in every process", nullable=False),
        integer("attempt", "Try, from 0", nullable=False),
        text("stage", "begun, then sent, failed or given_up", nullable=False),
        CLUSTER,
        timestamp("event_time", "When it was written, UTC", nullable=False),
        text("kind", "Kind of what happened, as in the settings", nullable=False),
        text("subject", "Plan, execution or group", nullable=False),
        timestamp("occurred_at", "When it happened, UTC", nullable=False),
        text("title", "What happened, a line", nullable=False),
        text("detail", "What happened, in a sentence with its figures", nullable=False),
        text("facts_json", "Figures, JSON object", nullable=False),
        integer("status", "HTTP status of the answer; null where there was none"),
        text("error", "What went wrong; null where nothing did"),
    ),
)

PREDICTION = Table(
    "prediction",
    "Predictions that `rebalancer what-if --keep` has kept, append only: what it assumed, rests on and predicted",
    ("prediction_id",),
    "predicted_at",
    (
        text("prediction_id", "One prediction", nullable=False),
        CLUSTER,
        timestamp("predicted_at", "When it was made, UTC", nullable=False),
        text("changes_json", "What it assumes to change, JSON object", nullable=False),
        text("settings_json", "Settings of trigger, planner and control that it rests on, JSON object", nullable=False),
        timestamp("hours_start", "Start of the first recorded hour that it rests on, UTC", nullable=False),
        timestamp("hours_end", "End of the last recorded hour that it rests on, UTC", nullable=False),
        integer("hours", "Recorded hours that it rests on", nullable=False),
        integer("brokers", "Brokers that are alive under the changes", nullable=False),
        integer("plans", "Plans that would be made", nullable=False),
        number("bytes_copied", "Bytes that they would copy", nullable=False),
        number("duration_ms", "How long they would take, one after the other, ms; null where one had not ended"),
        *(
            number(f"{resource}_max_over_mean", f"{resource}: max/mean over brokers in the last hour, ratio")
            for resource in MEASURED
        ),
        *(
            number(
                f"{resource}_headroom_left_ratio",
                f"{resource}: least share of its capacity that a broker has left in the worst hour of the last day; "
                "null where no capacity is known",
            )
            for resource in MEASURED
        ),
    ),
)
