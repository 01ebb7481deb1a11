"""Every metric by name, type, labels and meaning: the one list that the exporter, docs/metrics.md and tests share.

The order is the order of importance: when there are more series than allowed, those at the end are cut first.
Names follow Prometheus' rules: base units, `_total` on counters only, times as timestamps, ratios 0 to 1 or 1 = even.
Every series bears `kafka_cluster` besides the labels given here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from assignor_core.resources import Resource
from streaming.contract.rates import (
    MESSAGES_IN,
    RATES,
    REASSIGNMENT_BYTES_IN,
    REASSIGNMENT_BYTES_OUT,
    REPLICATION_BYTES_IN,
    REPLICATION_BYTES_OUT,
    Rate,
)

Kind = Literal["gauge", "counter", "histogram"]

EARLIER_RESOURCE_NAMES: Mapping[str, str] = {
    Resource.BYTES_IN.value: "network_in", Resource.BYTES_OUT.value: "network_out",
}  # fmt: skip
"""Resource -> the value of the labels `resource` and `trigger` in metrics of earlier versions."""


@dataclass(frozen=True, slots=True)
class Family:
    """One metric; counters are named with `_total`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def _gauge(series: str, help_text: str) -> Family:
    return _family("gauge", series, help_text)


def _counter(series: str, help_text: str) -> Family:
    return _family("counter", series, help_text)


def _histogram(series: str, help_text: str) -> Family:
    return _family("histogram", series, help_text)


def _family(kind: Kind, series: str, help_text: str) -> Family:
    """`series` is the name without our prefix, with labels as Prometheus has them: `broker_info{broker,rack}`."""
    name, _, labels = series.removesuffix("}").partition("{")
    return Family(f"rebalancer_{name}", kind, tuple(labels.split(",")) if labels else (), help_text)


def broker_rate_name(rate: Rate) -> str:
    """Name of a broker's rate without our prefix: the direction before the unit, as Prometheus has units last.

    >>> broker_rate_name(RATES[0]), broker_rate_name(RATES[3])
    ('broker_in_bytes_per_second', 'broker_replication_in_bytes_per_second')
    """
    words = rate.stem.split("_")
    if words[-1] in ("in", "out"):
        words[-2:] = reversed(words[-2:])
    return f"broker_{'_'.join(words)}_per_second"


_RATE_HELP = {
    MESSAGES_IN: "Records that clients write to it",
    REPLICATION_BYTES_IN: "Bytes it replicates, reassignments excluded",
    REPLICATION_BYTES_OUT: "Bytes its followers fetch, same",
    REASSIGNMENT_BYTES_IN: "Bytes that reassignments copy to it: never load",
    REASSIGNMENT_BYTES_OUT: "Bytes that reassignments copy from it",
}
"""Help texts of rates that differ from the meaning that the contract gives."""

SNAPSHOT = (
    _gauge("build_info{version,spark,delta}", "1; versions of the product, of Spark and of deltalake"),
    _gauge("snapshot_timestamp_seconds", "When the tables were last read"),
    _gauge("snapshot_read_seconds", "How long reading the tables took"),
    _gauge(
        "snapshot_part_up{part}",
        "1 if this part could be read now; at 0 its figures are the last known ones, absent where there are none",
    ),
)
STREAMS = (
    _gauge("stream_active{query}", "1 if the query's newest heartbeat is younger than 3 trigger intervals and 60 s"),
    _gauge("stream_last_progress_timestamp_seconds{query}", "Newest heartbeat of the streaming query"),
    _gauge(
        "stream_last_change_timestamp_seconds{query}",
        "Since when its heartbeats report nothing new; an idle query's do report, a hanging batch's don't",
    ),
    _gauge(
        "stream_first_batch{query}",
        "Number of the micro-batch that the query's process began with: another number is another process",
    ),
    _gauge("stream_trigger_interval_seconds{query}", "Time between micro-batches, from the settings"),
    _gauge("stream_watermark_timestamp_seconds{query}", "Watermark of the query; absent before the first event"),
    _gauge("stream_last_batch_duration_seconds{query}", "Duration of the newest kept micro-batch"),
    _gauge("stream_last_batch_phase_seconds{query,phase}", "Duration of each phase of the newest stored micro-batch"),
    _counter("stream_batches_total{query}", "Micro-batches since the query's process started"),
    _counter("stream_input_rows_total{query}", "Records read since the query's process started"),
    _counter(
        "stream_rows_dropped_by_watermark_total{query}",
        "Records later than the watermark since the query's process started",
    ),
    _gauge("stream_source_lag_records{query}", "Records in the query's topic not yet read; absent when unknown"),
    _gauge("stream_state_rows{query}", "Rows in the query's state store"),
    _gauge("stream_state_memory_bytes{query}", "Memory of the query's state store"),
    _gauge("upkeep_failing_jobs", "Jobs of the pipeline's upkeep whose newest run failed; the log names each"),
    _counter("ingest_records_total{source}", "Records read from an input topic since the process started"),
    _counter("ingest_rejected_records_total{source,reason}", "Records of an input topic that were rejected"),
    _counter("ingest_rejected_records_not_kept_total{source}", "Rejected records that were counted but not stored"),
    _gauge("ingest_last_event_timestamp_seconds{source}", "Event time of the newest accepted record"),
)
WINDOW = (
    _gauge("window_seconds", "Length of the windows"),
    _gauge("window_end_timestamp_seconds", "End of the newest closed window; all load figures are of that window"),
    _gauge(
        "window_completeness_ratio",
        "Share of the expected brokers with a known load in the newest closed window, 0 to 1",
    ),
    _gauge("brokers_expected", "Brokers alive in the cluster's metadata"),
    _gauge("brokers_reporting", "Brokers with a known load in the newest closed window"),
    _gauge(
        "brokers_log_dirs_unknown",
        "Brokers of the newest closed window whose free disk space is unknown: see docs/planner.md",
    ),
    _gauge("sample_interval_seconds", "Longest time that a sample of a broker in the newest closed window covers"),
    _gauge("sample_interval_set_seconds", "collect.sample_interval_ms; a sample that takes longer delays the next one"),
    _gauge(
        "brokers_reported_twice",
        "Brokers of the newest closed window that more than one collector reports: see docs/sizing.md",
    ),
)
SKEW = (
    _gauge("cluster_load_max_per_mean_ratio{resource}", "Highest load of a broker per mean load: 1 is even"),
    _gauge("cluster_load_variation_ratio{resource}", "Standard deviation of the brokers' load per mean load"),
    _gauge("skew_threshold_ratio{resource}", "max/mean above this, in enough windows, is skew"),
    _gauge("skew_exit_threshold_ratio{resource}", "max/mean below this ends the skew"),
    _gauge("skew_breached{resource}", "1 while the trigger counts the cluster as skewed in this resource"),
    _gauge(
        "skew_breach_started_timestamp_seconds{resource}", "When the skew began; absent while the cluster is not skewed"
    ),
)
REBALANCE = (
    _gauge("rebalance_mode_info{mode}", "1; control's mode is in the label: observe, propose or apply"),
    _counter("rebalance_evaluations_total", "Evaluations of the trigger"),
    _counter("rebalance_triggers_total{trigger}", "Evaluations that led to a plan, by skewed resource or other reason"),
    _counter("rebalance_suppressed_total{reason}", "Evaluations of a skewed or unjudgeable cluster without a plan"),
    _counter("rebalance_failures_total", "Executions that were refused or aborted"),
    _gauge(
        "rebalance_throttle_left_brokers",
        "Brokers that report and keep the throttle of an execution that has ended: Kafka refuses to remove it",
    ),
    _gauge("rebalance_in_progress", "1 while an execution is under way"),
    _gauge("rebalance_moves_pending", "Partitions of the execution under way that have not arrived; 0 without one"),
    _gauge("rebalance_moved_bytes", "Bytes that the newest execution has copied"),
    _gauge("rebalance_started_timestamp_seconds", "Start of the newest execution"),
    _gauge("rebalance_last_success_timestamp_seconds", "End of the newest execution that was carried out in full"),
    _gauge(
        "rebalance_cooldown_end_timestamp_seconds",
        "End of the cooldown, before which control makes no plan; absent without a cooldown",
    ),
    _gauge("rebalance_last_decision_timestamp_seconds", "Newest evaluation of the trigger"),
    _gauge("rebalance_plan_created_timestamp_seconds", "When the newest plan was made"),
    _gauge("rebalance_plan_expiry_timestamp_seconds", "When the newest plan expires"),
    _gauge("rebalance_plan_moves{kind}", "Partitions that the newest plan changes, by kind"),
    _gauge("rebalance_plan_move_bytes", "Bytes that the newest plan copies"),
    _gauge("rebalance_plan_max_per_mean_before_ratio{resource}", "max/mean that the newest plan was made for"),
    _gauge("rebalance_plan_predicted_max_per_mean_ratio{resource}", "max/mean that the newest plan promises"),
    _gauge(
        "rebalance_plan_lower_bound_ratio{resource}",
        "Bound: no placement has a smaller max/mean; a joint bound holds for network and disk together",
    ),
    _gauge("rebalance_measured_max_per_mean_ratio{resource}", "max/mean measured after the newest execution"),
    _gauge(
        "rebalance_promise_error_median_ratio{figure}",
        "Median error of the newest measured plans' promises, without sign; absent below 3 plans",
    ),
    _gauge(
        "rebalance_promise_error_max_ratio{figure}",
        "Largest error of the newest measured plans' promises, without sign",
    ),
    _gauge(
        "rebalance_promise_error_plans{figure}",
        "Measured plans from which the errors of promises are computed, at most 12",
    ),
    _histogram("rebalance_plan_duration_seconds", "Time that the planner took, over plans in the tables"),
    _histogram(
        "rebalance_execution_duration_seconds",
        "Duration of executions from start to end, over executions in the tables",
    ),
)
BROKERS = (
    # Bytes first: they are what plans rest on.
    *(
        _gauge(f"{broker_rate_name(rate)}{{broker}}", _RATE_HELP.get(rate, f"Mean of the window: {rate.meaning}"))
        for rate in sorted(RATES, key=lambda rate: rate.unit != "bytes/s")
    ),
    _gauge("broker_in_capacity_bytes_per_second{broker}", "Configured capacity; absent when not set"),
    _gauge("broker_out_capacity_bytes_per_second{broker}", "Configured capacity; absent when not set"),
    _gauge("broker_log_dir_used_bytes{broker}", "Bytes of replica logs on the broker's disks"),
    _gauge("broker_log_dir_usable_bytes{broker}", "Bytes that are free on the broker's disks; absent when unknown"),
    _gauge(
        "broker_remote_log_bytes{broker}",
        "Estimated bytes of the broker's led logs that only remote storage has; absent if none is known to begin there",
    ),
    _gauge(
        "broker_requests_refused{broker}",
        "Requests of the newest sample that the broker refused for a missing right; absent when unknown",
    ),
    _gauge("broker_leaders{broker}", "Partitions that the broker leads"),
    _gauge("broker_replicas{broker}", "Replicas on the broker"),
    _gauge("broker_last_sample_timestamp_seconds{broker}", "Event time of the broker's newest accepted sample"),
    _gauge(
        "broker_load_disagreement_ratio{broker}",
        "Broker's reported bytes in less the sum over the partitions that it leads, per mean load; absent at low load",
    ),
    _gauge(
        "broker_load_deviation_ratio{broker,resource}", "Broker's load less the mean load, per mean load: 0 is even"
    ),
    _gauge("broker_info{broker,rack}", "1; rack of the broker"),
    _gauge(
        "broker_restart_safe{broker}",
        "1 if restart-check would find the broker safe to restart; absent if control does not know it",
    ),
    _gauge(
        "broker_restart_partitions{broker,effect}",
        "Partitions that a restart of the broker would concern: offline, refusing (writes with acks=all), at_edge, "
        "behind or moving; absent if control does not know them",
    ),
)
LOG_DIRS = (
    _gauge("log_dir_online{broker,log_dir}", "1 if the log dir is online; 0 if it and its replicas are offline"),
    _gauge("log_dir_cordoned{broker,log_dir}", "1 if the log dir is cordoned and gets no new replicas (KIP-1066)"),
    _gauge("log_dir_used_ratio{broker,log_dir}", "Used share of the log dir's volume; absent when unknown"),
)
TABLES = (
    _gauge("delta_table_version{table}", "Newest version of the table"),
    _gauge("delta_table_files{table}", "Data files of the newest version"),
    _gauge("delta_table_size_bytes{table}", "Bytes of the data files of the newest version"),
)
WEBHOOKS = (
    _gauge(
        "notification_waiting_since_timestamp_seconds{webhook}",
        "Time of the oldest notification that waits for the webhook; absent if none waits",
    ),
    _gauge(
        "notification_given_up_timestamp_seconds{webhook}",
        "When a notification to the webhook was last given up; absent if none was",
    ),
)
HOT = (
    _gauge(
        "hot_partition_in_bytes_per_second{broker,topic,partition}",
        "Bytes in of the hottest partitions, by their leader",
    ),
)
GROUPS_ALERTED = (
    # What alerts rest on: what is beyond the limit must cost details, not verdicts.
    _gauge("consumergroups_left_out", "Groups not sampled: more than collect.groups_max; absent when unknown"),
    _gauge(
        "consumergroup_partitions_left_out",
        "Partitions that groups name and that are not reported, because they do not exist or members name too many",
    ),
    _gauge(
        "consumergroup_lag_records{consumergroup,topic}", "Lag of the group, summed over all partitions of the topic"
    ),
    _gauge(
        "consumergroup_partitions{consumergroup,topic,status}",
        "Partitions of the group with this verdict; a verdict without partitions has no series: see docs/lag.md",
    ),
    _gauge(
        "consumergroup_lag_retention_ratio{consumergroup,topic}",
        "Worst lag of a partition per retained records: at 1, Kafka deletes unread records; absent without deletions",
    ),
    _gauge(
        "consumergroup_lag_seconds{consumergroup,topic}",
        "How long the worst partition's next record has been waiting; beyond 30 minutes a lower limit",
    ),
    _gauge(
        "consumergroup_beyond_end_records{consumergroup,topic}",
        "How far the worst commit is beyond the log end, where nothing can be read; absent if no commit is",
    ),
    _gauge(
        "consumergroup_abandoned{consumergroup}",
        "1 for a group without members in which for 3 days nobody joined, left or committed; absent for other groups",
    ),
    _counter(
        "consumergroup_rebalances_total{consumergroup}",
        "Rebalances of the group that were seen this week, a lower limit",
    ),
)
GROUPS_DETAILS = (
    _gauge(
        "consumergroup_status{consumergroup,status}",
        "1 for the group's verdict, which is that of its worst partition, 0 for other verdicts: see docs/lag.md",
    ),
    _gauge("consumergroup_lag_max_records{consumergroup,topic}", "Lag of the worst partition"),
    _gauge(
        "consumergroup_last_commit_timestamp_seconds{consumergroup,topic}",
        "Newest commit on the topic in the windows of the last 30 minutes, or their start",
    ),
    _gauge("consumergroup_members{consumergroup}", "Members of the group at the newest sample"),
    _gauge(
        "consumergroup_members_needed{consumergroup}",
        "Fewest members of which none is full: see docs/lag.md; absent where unknown, or where no number is enough",
    ),
    _gauge("consumergroup_members_needed_bound{consumergroup}", "Fewer members can't be enough; absent where unknown"),
    _gauge(
        "consumergroup_heaviest_partition_ratio{consumergroup}",
        "Records written to its heaviest partition per what a member can read: above 0.8 no number of members helps it",
    ),
    _gauge(
        "consumergroup_rebalance_duration_seconds{consumergroup}",
        "Longest time that the newest rebalance can have taken; absent if none was seen",
    ),
)
GROUPS = (*GROUPS_ALERTED, *GROUPS_DETAILS)
EXPORT = (
    _gauge(
        "export_dropped_series{family}",
        "Series that serve does not export because there are more than serve.series_max",
    ),
)

SECTIONS: Mapping[str, tuple[Family, ...]] = {
    "This exporter": SNAPSHOT,
    "Streaming queries and ingest": STREAMS,
    "Window": WINDOW,
    "Skew": SKEW,
    "Rebalancing": REBALANCE,
    "Brokers": BROKERS,
    "Log dirs": LOG_DIRS,
    "Webhooks": WEBHOOKS,
    "Delta tables": TABLES,
    "Hot partitions": HOT,
    "Consumer groups": GROUPS,
    "Cut series": EXPORT,
}
"""Families by the title of their section in docs/metrics.md, most important first."""
FAMILIES = tuple(chain.from_iterable(SECTIONS.values()))
"""All, most important first."""
