"""When each alert must fire, what it must then say, and when it must stay silent: one case a rule, and further ones.

Series are promtool's, times minutes after 0; `100+60x30` is 100, 160, ... one value a minute, `_` is a gap.
"""

from dataclasses import dataclass, field

Series = dict[str, str]


@dataclass(frozen=True, slots=True)
class Case:
    """`fires` must raise exactly `labels`, described as `says`, at minute `at`; `silent` must raise nothing."""

    alert: str
    at: int
    fires: Series
    labels: dict[str, str]
    description: str
    silent: Series = field(default_factory=dict)


MAIN = 'kafka_cluster="main"'
CLUSTER = {"kafka_cluster": "main"}
TARGET_A = 'job="rebalancer",instance="a:9464"'
TARGET_B = 'job="rebalancer",instance="b:9464"'
WINDOW = {f"rebalancer_window_seconds{{{MAIN}}}": "60x600"}
NOW = "0+60x600"
"""The time itself, as a series: what is always fresh."""


def steady(name: str, value: float | str, *labels: str) -> Series:
    return {f"rebalancer_{name}{{{','.join((MAIN, *labels))}}}": f"{value}x600"}


def moving(name: str, values: str, *labels: str) -> Series:
    return {f"rebalancer_{name}{{{','.join((MAIN, *labels))}}}": values}


IN = 'resource="bytes_in"'
BYTE_RATE = 'query="byte_rate"'
LAG = 'source="consumer_lag"'
LAST_EVENT = "ingest_last_event_timestamp_seconds"
BROKER = 'broker="2"'
MEMBERS_OF = 'consumergroup="billing"'
GROUP = (MEMBERS_OF, 'topic="t"')
FRESH = {**moving("window_end_timestamp_seconds", NOW), **WINDOW}
SKEWED = {
    **steady("skew_threshold_ratio", 1.3, IN),
    **steady("window_completeness_ratio", 1),
    **steady("broker_load_deviation_ratio", 0.45, IN, BROKER),
    **steady("broker_load_deviation_ratio", -0.2, IN, 'broker="1"'),
}

PLAN_LIES_READY = {
    **steady("skew_breached", 1, IN),
    **steady("rebalance_mode_info", 1, 'mode="propose"'),
    **steady("rebalance_plan_created_timestamp_seconds", 60),
    **steady("rebalance_plan_expiry_timestamp_seconds", 3_660),
}
HOT = {
    **steady("hot_partition_in_bytes_per_second", 80 * 1024, BROKER, 'topic="t"', 'partition="4"'),
    **steady("hot_partition_in_bytes_per_second", 20 * 1024, BROKER, 'topic="t"', 'partition="5"'),
    **steady("broker_in_bytes_per_second", 150 * 1024, BROKER),
    **steady("broker_in_bytes_per_second", 50 * 1024, 'broker="1"'),
    **steady("skew_threshold_ratio", 1.3, IN),
}

CASES = (
    Case(
        "RebalancerAbsent", 7,
        # Two clusters, one of them with an exporter that has gone.
        {f'up{{{TARGET_A}}}': "1 0x10", f'up{{{TARGET_B}}}': "1x10",
         f'rebalancer_snapshot_timestamp_seconds{{{MAIN},{TARGET_A}}}': "60 _x10",
         f'rebalancer_snapshot_timestamp_seconds{{kafka_cluster="other",{TARGET_B}}}': "60x10"},
        {**CLUSTER, "job": "rebalancer", "instance": "a:9464"},
        "Prometheus gets no answer from a:9464, which watches cluster main. Until it answers, no other alert of the "
        "rebalancer can fire. Start rebalancer serve, or correct the target of the scrape job.",
        silent={'up{job="rebalancer",instance="a:9464"}': "1x10"},
    ),
    Case(
        "RebalancerStreamStalled", 30,
        {**moving("stream_last_progress_timestamp_seconds", "0+60x10 600x60", BYTE_RATE),
         **steady("stream_trigger_interval_seconds", 5, BYTE_RATE)},
        {**CLUSTER, "query": "byte_rate"},
        "Query byte_rate of cluster main has reported nothing new for 20m 0s. Load and skew are as old as that. If "
        "the pipeline has ended, start it; if a batch hangs, restart it.",
        silent={**moving("stream_last_progress_timestamp_seconds", NOW, BYTE_RATE),
                **steady("stream_trigger_interval_seconds", 5, BYTE_RATE)},
    ),
    Case(
        "RebalancerStreamRestarting", 30,
        # Each life leaves one heartbeat: the counters are the same in all of them.
        {**moving("stream_first_batch", "5x5 6x3 7x3 8x30", BYTE_RATE), **steady("stream_batches_total", 1, BYTE_RATE)},
        {**CLUSTER, "query": "byte_rate"},
        "Query byte_rate of cluster main restarted 3 times in 30 minutes. Windows close late or not at all. "
        "query_failed in the log of the pipeline has the reason.",
        # Two updates; and a process of which nothing could be read for a while.
        silent=moving("stream_first_batch", "5x5 7x3 _x3 7x3 9x30", BYTE_RATE),
    ),
    Case(
        "RebalancerStreamBehind", 60,
        moving("stream_source_lag_records", "9000+1000x60", BYTE_RATE),
        {**CLUSTER, "query": "byte_rate"},
        "Query byte_rate of cluster main has 69k records left to read, and the number grows, so figures are late. "
        "Raise pipeline.trigger_interval_ms or give the pipeline more cores.",
        silent=moving("stream_source_lag_records", "90000-1000x60", BYTE_RATE),
    ),
    Case(
        "RebalancerDataStale", 60,
        {**moving("window_end_timestamp_seconds", "0+60x30 1800x60"), **WINDOW,
         **moving("stream_last_progress_timestamp_seconds", NOW, BYTE_RATE)},
        CLUSTER,
        "The newest closed window of cluster main ended 30m 0s ago. Either the collector sends nothing or the"
        " pipeline writes nothing; the pipeline's last heartbeat was 0s ago. Run `rebalancer check`, which names "
        "what can't be reached, and start the process that has ended.",
        silent=FRESH,
    ),
    Case(
        "RebalancerDataMissing", 45,
        WINDOW,
        CLUSTER,
        "The tables of cluster main hold no closed window, though a window lasts 1m 0s. Either nothing was collected "
        "and processed yet, or serve reads other tables, for instance because a volume is not mounted. Until a "
        "window closes, no load is known. `rebalancer check` names what is missing.",
        # The first window takes a while; an old one is another alert's business.
        silent={**WINDOW, **moving("window_end_timestamp_seconds", "_x25 1200x60")},
    ),
    Case(
        "RebalancerInputSilent", 60,
        {**FRESH, **moving(LAST_EVENT, "0+60x30 1800x60", LAG), **moving(LAST_EVENT, NOW, 'source="byte_rate"')},
        {**CLUSTER, "source": "consumer_lag"},
        "The newest consumer_lag record of cluster main is 30m 0s old. Consumer groups that stop or fall behind go "
        "unseen. Start the collector, or read the reason in its log.",
        silent={**FRESH, **moving(LAST_EVENT, NOW, LAG), **moving(LAST_EVENT, NOW, 'source="byte_rate"')},
    ),
    Case(
        "RebalancerBrokerNotReporting", 30,
        {**FRESH, **steady("brokers_expected", 3), **steady("brokers_reporting", 2),
         **moving("broker_last_sample_timestamp_seconds", "0+60x10 600x60", BROKER),
         **moving("broker_last_sample_timestamp_seconds", NOW, 'broker="1"')},
        {**CLUSTER, "broker": "2"},
        "Broker 2 of cluster main is missing in the newest window; its last sample is of 1970-01-01 00:10:00 +0000 "
        "UTC. Control may make no plan until it reports. Check the broker, its JMX endpoint and its collector.",
        # A broker that was taken away is not expected any more.
        silent={**FRESH, **steady("brokers_expected", 2), **steady("brokers_reporting", 2),
                **moving("broker_last_sample_timestamp_seconds", "0+60x10 600x60", BROKER)},
    ),
    Case(
        "RebalancerWindowIncomplete", 30,
        steady("window_completeness_ratio", 0.5),
        CLUSTER,
        "Only 50% of the brokers of cluster main have a known load in the newest window. Below "
        "trigger.completeness_min control makes no plan for skew. `rebalancer status` names the brokers without "
        "samples.",
        silent=steady("window_completeness_ratio", 1),
    ),
    Case(
        "RebalancerBrokersReportedTwice", 30,
        steady("brokers_reported_twice", 4),
        CLUSTER,
        "More than one collector reports 4 brokers of cluster main. Rates stay right, but each record is written "
        "twice. Give each collector its own collect.shard.",
        # While the number of shards is changed, one window may have records of both.
        silent=moving("brokers_reported_twice", "0x10 4x9 0x600"),
    ),
    Case(
        "RebalancerControlSilent", 60,
        {**FRESH, **moving("rebalance_last_decision_timestamp_seconds", "0x60")},
        CLUSTER,
        "The last evaluation of cluster main was 1h 0m 0s ago although its load is up to date. Nothing reduces skew "
        "or follows an execution. Start control, or read tick_failed in its log.",
        # Without fresh windows there is nothing to decide on: another alert's business.
        silent={**WINDOW, **moving("window_end_timestamp_seconds", "0x60"),
                **moving("rebalance_last_decision_timestamp_seconds", "0x60")},
    ),
    Case(
        "RebalancerRecordsRejected", 60,
        {**moving("ingest_rejected_records_total", "0+6x60", 'source="byte_rate"', 'reason="future"'),
         **moving("ingest_records_total", "0+100x60", 'source="byte_rate"')},
        {**CLUSTER, "source": "byte_rate"},
        "6% of the byte_rate records of cluster main are rejected, most often as future; the table rejected_record "
        "holds examples. Correct or stop the program that writes them.",
        silent={**moving("ingest_rejected_records_total", "0+1x60", 'source="byte_rate"', 'reason="future"'),
                **moving("ingest_records_total", "0+1000x60", 'source="byte_rate"')},
    ),
    Case(
        "RebalancerLateRowsDropped", 60,
        moving("stream_rows_dropped_by_watermark_total", "0+10x60", BYTE_RATE),
        {**CLUSTER, "query": "byte_rate"},
        "300 samples of query byte_rate, cluster main, arrived after the watermark within 30 minutes and were "
        "dropped: their windows rest on fewer samples. Correct the clock of the collector, or raise "
        "pipeline.watermark_ms.",
        silent=moving("stream_rows_dropped_by_watermark_total", "7x60", BYTE_RATE),
    ),
    Case(
        "RebalancerTableUnreadable", 10,
        steady("snapshot_part_up", 0, 'part="load"'),
        {**CLUSTER, "part": "load"},
        "Serve can't read the tables of part load of cluster main and shows their last known figures, or none. "
        "/readyz of serve shows the reason; nothing needs a restart after the repair.",
        silent=steady("snapshot_part_up", 1, 'part="load"'),
    ),
    Case(
        "RebalancerUpkeepFails", 90,
        steady("upkeep_failing_jobs", 2),
        CLUSTER,
        "2 jobs of the upkeep of cluster main have failed in every run of the last hour. The log of the pipeline "
        "names "
        "each job and its error.",
        # A job that fails now and then succeeds at its next run.
        silent=moving("upkeep_failing_jobs", "0x20 1x30 0x100"),
    ),
    Case(
        "RebalancerTableSmallFiles", 480,
        {**steady("delta_table_files", 9000, 'table="decision"'),
         **steady("delta_table_size_bytes", 9_000_000, 'table="decision"')},
        {**CLUSTER, "table": "decision"},
        "Table decision of cluster main has 9k files of less than 1 MiB on average; the upkeep of the pipeline seems "
        "not to run. Search the log of the pipeline for maintained and maintenance_failed.",
        silent={**steady("delta_table_files", 9000, 'table="decision"'),
                **steady("delta_table_size_bytes", 90_000_000_000, 'table="decision"')},
    ),
    Case(
        "RebalancerSeriesDropped", 60,
        steady("export_dropped_series", 12, 'family="rebalancer_consumergroup_lag_records"'),
        {**CLUSTER, "family": "rebalancer_consumergroup_lag_records"},
        "12 series of rebalancer_consumergroup_lag_records of cluster main are above serve.series_max and not "
        "exported; alerts on this metric see only the rest. Exclude groups by collect.groups_exclude, or raise "
        "serve.series_max.",
        silent=steady("export_dropped_series", 0, 'family="rebalancer_consumergroup_lag_records"'),
    ),
    Case(
        "RebalancerGroupsLeftOut", 60,
        steady("consumergroups_left_out", 250),
        CLUSTER,
        "250 consumer groups of cluster main are not sampled: there are more groups than collect.groups_max. Groups "
        "with most lag and groups that commit are always sampled, the others in turns. Exclude groups that nobody "
        "watches by collect.groups_exclude, or raise collect.groups_max.",
        silent=steady("consumergroups_left_out", 0),
    ),
    Case(
        "RebalancerNotificationsFailing", 20,
        steady("notification_waiting_since_timestamp_seconds", 60, 'webhook="ops"'),
        {**CLUSTER, "webhook": "ops"},
        "Webhook ops of cluster main has not accepted a notification for more than 15 minutes, or serve gave one up "
        "in the last 6 hours. The table notification has the answer of the receiver in its columns status and error.",
        silent=steady("notification_waiting_since_timestamp_seconds", 600, 'webhook="ops"'),
    ),
    Case(
        "RebalancerBrokerLoadSkewed", 30,
        {**SKEWED, **steady("cluster_load_max_per_mean_ratio", 1.45, IN),
         **steady("rebalance_mode_info", 1, 'mode="propose"')},
        {**CLUSTER, "resource": "bytes_in"},
        "In cluster main the busiest broker has 1.45 times the mean load in bytes_in: broker 2, 45% above "
        "the mean. Skew counts above 1.30. The rebalancer's mode is propose. `rebalancer status` shows the plan, or "
        "the reason why there is none.",
        silent={**SKEWED, **steady("cluster_load_max_per_mean_ratio", 1.29, IN)},
    ),
    Case(
        "RebalancerSkewNotRemedied", 480,
        {**steady("skew_breach_started_timestamp_seconds", 600, IN),
         **steady("broker_load_deviation_ratio", 0.45, IN, BROKER)},
        {**CLUSTER, "resource": "bytes_in"},
        "Cluster main has been skewed in bytes_in for 7h 50m 0s, now broker 2, 45% above the mean. `rebalancer "
        "status` shows the reason of the last decision, such as the mode, a failed execution, or a load that no "
        "movement can spread.",
        silent=moving("skew_breach_started_timestamp_seconds", "600x100 _x400", IN),
    ),
    Case(
        "RebalancerPlanWaits", 30,
        {**PLAN_LIES_READY, **steady("rebalance_started_timestamp_seconds", 30),
         **steady("rebalance_plan_move_bytes", 5 * 1024**3),
         **steady("rebalance_plan_predicted_max_per_mean_ratio", 1.02, IN)},
        CLUSTER,
        "Cluster main is skewed, mode is propose, and a plan waits for approval that copies 5GiB and promises 1.02 "
        "times the mean for the busiest broker in bytes_in. Read it with `rebalancer status`; carry it out with "
        "`rebalancer apply`.",
        # It is being carried out.
        silent={**PLAN_LIES_READY, **steady("rebalance_started_timestamp_seconds", 90)},
    ),
    Case(
        "RebalancerHotPartition", 60,
        {**HOT, **steady("cluster_load_max_per_mean_ratio", 1.5, IN)},
        {**CLUSTER, "topic": "t", "partition": "4"},
        "Cluster main is skewed, and partition t-4 alone takes 80% of the mean load of a broker, 80kiB a second, "
        "led by broker 2. No movement helps: give the topic more partitions, or its records other keys.",
        # A cluster with few partitions is even all the same.
        silent={**HOT, **steady("cluster_load_max_per_mean_ratio", 1.2, IN)},
    ),
    Case(
        "RebalancerBrokerNearCapacity", 30,
        {**steady("broker_in_bytes_per_second", 60, BROKER),
         **steady("broker_replication_in_bytes_per_second", 30, BROKER),
         **steady("broker_in_capacity_bytes_per_second", 100, BROKER)},
        {**CLUSTER, "broker": "2", "resource": "bytes_in"},
        "Broker 2 of cluster main uses 90% of its bytes_in capacity, clients and replication together. If another "
        "broker fails, this one may be overloaded. Run `rebalancer plan --only-broker 2`; if all brokers are as "
        "full, add a broker.",
        silent={**steady("broker_out_bytes_per_second", 60, BROKER),
                **steady("broker_out_capacity_bytes_per_second", 100, BROKER)},
    ),
    Case(
        "RebalancerBrokerDiskFillingUp", 480,
        {**moving("broker_log_dir_usable_bytes", "200000000-300000x600", BROKER),
         **moving("broker_log_dir_used_bytes", "800000000+300000x600", BROKER)},
        {**CLUSTER, "broker": "2"},
        "At the rate of the last 6 hours broker 2 of cluster main runs out of disk within 24 hours; 53.41MiB are "
        "left. Shorten the retention of its largest topic, or run `rebalancer plan --only-broker 2`.",
        silent={**moving("broker_log_dir_usable_bytes", "200000000-3000x600", BROKER),
                **moving("broker_log_dir_used_bytes", "800000000+3000x600", BROKER)},
    ),
    Case(
        "RebalancerLogDirOffline", 20,
        {**moving("log_dir_online", "1x10 0x60", BROKER, 'log_dir="/d1"'),
         **steady("log_dir_online", 1, BROKER, 'log_dir="/d2"')},
        {**CLUSTER, "broker": "2", "log_dir": "/d1"},
        "Log dir /d1 of broker 2 of cluster main is offline with its replicas; a partition without another replica "
        "in sync has no leader. Repair the volume, then restart the broker.",
        # A cordoned one is online.
        silent={**steady("log_dir_online", 1, BROKER, 'log_dir="/d1"'),
                **steady("log_dir_cordoned", 1, BROKER, 'log_dir="/d1"')},
    ),
    Case(
        "RebalancerRebalanceStuck", 120,
        {**steady("rebalance_in_progress", 1), **steady("rebalance_moves_pending", 4),
         **steady("rebalance_moved_bytes", 1000)},
        CLUSTER,
        "In cluster main an execution has been under way for over an hour without a partition or a byte "
        "arriving; 4 partitions are pending. Throttles stay set until it ends; `rebalancer abort` ends it.",
        # One large partition: none arrives for long, but bytes do.
        silent={**steady("rebalance_in_progress", 1), **steady("rebalance_moves_pending", 1),
                **moving("rebalance_moved_bytes", "0+1000x600")},
    ),
    Case(
        "RebalancerRebalanceFailing", 30,
        moving("rebalance_failures_total", "0x15 1x60"),
        CLUSTER,
        "Executions of cluster main that were refused or aborted within the hour: 1. `rebalancer status` and the "
        "table execution show why.",
        silent=moving("rebalance_failures_total", "3x60"),
    ),
    Case(
        "RebalancerThrottleLeft", 60,
        moving("rebalance_throttle_left_brokers", "0x10 2x60"),
        CLUSTER,
        "In cluster main 2 brokers keep the replication throttle of an execution that has ended. Kafka refuses to "
        "remove it; control retries every ten minutes. `rebalancer status` names the brokers.",
        # Control removes it soon after a broker is back.
        silent=moving("rebalance_throttle_left_brokers", "0x10 2x20 0x40"),
    ),
    Case(
        "RebalancerRebalanceThrashing", 360,
        {**moving("rebalance_triggers_total", "0+1x30 30x600", 'trigger="bytes_in"'),
         **steady("rebalance_mode_info", 1, 'mode="apply"')},
        CLUSTER,
        "Cluster main got 30 plans in 6 hours and carries them out itself. Switch control.mode to propose "
        "until the cause is found.",
        silent={**moving("rebalance_triggers_total", "0+1x30 30x600", 'trigger="bytes_in"'),
                **steady("rebalance_mode_info", 1, 'mode="propose"')},
    ),
    Case(
        "RebalancerConsumerGroupStopped", 60,
        {**moving("consumergroup_last_commit_timestamp_seconds", "0+60x10 600x60", *GROUP),
         **moving("consumergroup_lag_records", "0+500x60", *GROUP),
         **steady("consumergroup_partitions", 2, *GROUP, 'status="stop"'),
         **steady("consumergroup_partitions", 1, *GROUP, 'status="stall"'),
         **steady("consumergroup_partitions", 9, *GROUP, 'status="ok"')},
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing commits nothing on 3 partitions of topic t of cluster main; 30k records of the topic wait, "
        "the newest commit on the topic was 50m 0s ago. `rebalancer lag --group GROUP` shows partitions, members "
        "and the cause.",
        # Three records behind for ever: nobody gets up for that.
        silent={**steady("consumergroup_partitions", 2, *GROUP, 'status="stop"'),
                **steady("consumergroup_lag_records", 3, *GROUP)},
    ),
    Case(
        "RebalancerConsumerGroupRewound", 30,
        steady("consumergroup_partitions", 2, *GROUP, 'status="rewind"'),
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing has committed offsets below earlier ones on 2 partitions of topic t of cluster main, and "
        "reads records a second time. `rebalancer lag --group GROUP` shows the partitions.",
        silent=steady("consumergroup_partitions", 0, *GROUP, 'status="rewind"'),
    ),
    Case(
        "RebalancerConsumerGroupFallingBehind", 90,
        {**moving("consumergroup_lag_seconds", "0+15x90", *GROUP),
         **steady("consumergroup_partitions", 4, *GROUP, 'status="warn"')},
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing is 22m 30s behind on topic t of cluster main and does not catch up, on 4 partitions. "
        "`rebalancer lag --group GROUP` shows the cause, such as a slow member or a hot broker.",
        # Far behind, but catching up.
        silent={**moving("consumergroup_lag_seconds", "3000-15x90", *GROUP),
                **steady("consumergroup_partitions", 0, *GROUP, 'status="warn"')},
    ),
    Case(
        "RebalancerConsumerGroupDataLossRisk", 30,
        {**steady("consumergroup_lag_retention_ratio", 0.9, *GROUP),
         **steady("consumergroup_lag_max_records", 45_000, *GROUP)},
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing is about to lose unread records of topic t of cluster main: its worst partition is 90% of all "
        "retained records behind, 45k records. At 100 % Kafka deletes records that the group has not read. Raise the "
        "retention of the topic now, then start or add consumers.",
        # A topic from which nothing was deleted yet has no ratio, however far behind the group is.
        silent={**moving("consumergroup_lag_retention_ratio", "0.2x40 _x60", *GROUP),
                **steady("consumergroup_lag_records", 1_000_000, *GROUP)},
    ),
    Case(
        "RebalancerConsumerGroupRebalanceStorm", 90,
        {**WINDOW, **moving("consumergroup_rebalances_total", "0+1x600", MEMBERS_OF),
         **steady("consumergroup_members", 5, MEMBERS_OF),
         **steady("consumergroup_rebalance_duration_seconds", 120, MEMBERS_OF)},
        {**CLUSTER, "consumergroup": "billing"},
        "Group billing of cluster main rebalanced 15 times in 15 minutes, with 5 members now; the newest took up to "
        "2m 0s. `rebalancer status --groups` names the members that join and leave.",
        # A new week begins to be counted, then somebody deploys for twelve minutes.
        silent={**WINDOW, **moving("consumergroup_rebalances_total", "90x40 0x30 0+1x12 12x600", MEMBERS_OF)},
    ),
)  # fmt: skip

FURTHER = (
    Case(
        "RebalancerConsumerGroupStopped", 60,
        # Committed beyond the log end: nothing is lag, and nothing is read.
        {**steady("consumergroup_lag_records", 0, *GROUP),
         **steady("consumergroup_beyond_end_records", 5_000, *GROUP),
         **steady("consumergroup_partitions", 1, *GROUP, 'status="stall"')},
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing commits nothing on 1 partitions of topic t of cluster main; 0 records of the topic wait. "
        "`rebalancer lag --group GROUP` shows partitions, members and the cause.",
        # Abandoned for days: nobody gets up for that, however much waits.
        silent={**steady("consumergroup_lag_records", 5_000, *GROUP),
                **steady("consumergroup_abandoned", 1, MEMBERS_OF),
                **steady("consumergroup_partitions", 2, *GROUP, 'status="stop"')},
    ),
    Case(
        "RebalancerNotificationsFailing", 20,
        steady("notification_given_up_timestamp_seconds", 60, 'webhook="ops"'),
        {**CLUSTER, "webhook": "ops"},
        "Webhook ops of cluster main has not accepted a notification for more than 15 minutes, or serve gave one up "
        "in the last 6 hours. The table notification has the answer of the receiver in its columns status and error.",
        silent=steady("notification_given_up_timestamp_seconds", -21600, 'webhook="ops"'),
    ),
    Case(
        "RebalancerAbsent", 20,
        # The cluster was renamed within a day, then the exporter went: one target, two clusters.
        {f'up{{{TARGET_A}}}': "1x10 0x20",
         f'rebalancer_snapshot_timestamp_seconds{{kafka_cluster="before",{TARGET_A}}}': "0+60x5 _x30",
         f'rebalancer_snapshot_timestamp_seconds{{{MAIN},{TARGET_A}}}': "_x6 360+60x4 _x30"},
        {**CLUSTER, "job": "rebalancer", "instance": "a:9464"},
        "Prometheus gets no answer from a:9464, which watches cluster main. Until it answers, no other alert of the "
        "rebalancer can fire. Start rebalancer serve, or correct the target of the scrape job.",
        silent={f'up{{{TARGET_A}}}': "1x30",
                f'rebalancer_snapshot_timestamp_seconds{{kafka_cluster="before",{TARGET_A}}}': "0+60x5 _x30",
                f'rebalancer_snapshot_timestamp_seconds{{{MAIN},{TARGET_A}}}': "_x6 360+60x30"},
    ),
    Case(
        "RebalancerAbsent", 30,
        # One of two serve processes has gone: what the other one shows of the cluster is as true as before.
        {f'up{{{TARGET_A}}}': "1x40", f'up{{{TARGET_B}}}': "1x10 0x30",
         f'rebalancer_snapshot_timestamp_seconds{{{MAIN},{TARGET_A}}}': "0+60x40",
         f'rebalancer_snapshot_timestamp_seconds{{{MAIN},{TARGET_B}}}': "0+60x10 _x30"},
        {"job": "rebalancer", "instance": "b:9464"},
        "Prometheus gets no answer from b:9464. Unless another serve process shows the same cluster, no other alert "
        "of that cluster can fire until it answers. Start rebalancer serve, or correct the target of the scrape job.",
        silent={f'up{{{TARGET_A}}}': "1x40", f'up{{{TARGET_B}}}': "1x40"},
    ),
    Case(
        "RebalancerStreamStalled", 90,
        # Heartbeats come, but tell the same again and again.
        {**moving("stream_last_progress_timestamp_seconds", NOW, BYTE_RATE), **steady("stream_active", 1, BYTE_RATE),
         **moving("stream_last_change_timestamp_seconds", "0+60x10 600x90", BYTE_RATE),
         **steady("stream_trigger_interval_seconds", 5, BYTE_RATE)},
        {**CLUSTER, "query": "byte_rate"},
        "Query byte_rate of cluster main has reported nothing new for 1h 20m 0s, though its process lives, so a "
        "batch hangs. Load and skew are as old as that. If the pipeline has ended, start it; if a batch hangs, "
        "restart it.",
        # One long batch.
        silent={**moving("stream_last_progress_timestamp_seconds", NOW, BYTE_RATE),
                **moving("stream_last_change_timestamp_seconds", "0+60x40 2400x45 5160+60x60", BYTE_RATE),
                **steady("stream_trigger_interval_seconds", 5, BYTE_RATE)},
    ),
    Case(
        "RebalancerRebalanceFailing", 30,
        moving("rebalance_failures_total", "0x15 1x60"),
        CLUSTER,
        "Executions of cluster main that were refused or aborted within the hour: 1. `rebalancer status` and the "
        "table execution show why.",
        # Tables that come to be seen, with all that they have counted.
        silent=moving("rebalance_failures_total", "_x15 40x60"),
    ),
    Case(
        "RebalancerConsumerGroupDataLossRisk", 60,
        # Unread records are being deleted. Once all are, none waits: it ends.
        {**moving("consumergroup_lag_retention_ratio", "0.9x20 1x60", *GROUP),
         **steady("consumergroup_lag_max_records", 45_000, *GROUP)},
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing is about to lose unread records of topic t of cluster main: its worst partition is 100% of "
        "all retained records behind, 45k records. At 100 % Kafka deletes records that the group has not read. Raise "
        "the retention of the topic now, then start or add consumers.",
        silent={**moving("consumergroup_lag_retention_ratio", "0.9x5 0x80", *GROUP)},
    ),
    Case(
        "RebalancerConsumerGroupFallingBehind", 90,
        {**moving("consumergroup_lag_seconds", "0+15x90", *GROUP),
         **steady("consumergroup_partitions", 4, *GROUP, 'status="warn"')},
        {**CLUSTER, "consumergroup": "billing", "topic": "t"},
        "Group billing is 22m 30s behind on topic t of cluster main and does not catch up, on 4 partitions. "
        "`rebalancer lag --group GROUP` shows the cause, such as a slow member or a hot broker.",
        # Verdicts that none has are left out.
        silent={**moving("consumergroup_lag_seconds", "3000-15x90", *GROUP),
                **moving("consumergroup_partitions", "4x20 _x80", *GROUP, 'status="warn"')},
    ),
)  # fmt: skip
"""Cases that were once missed, or told falsely."""
