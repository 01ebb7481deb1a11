"""Tables of consumer groups: offsets and lag in windows and by the day, and rebalances."""

from streaming.contract.columns import (
    CLUSTER,
    PERIOD,
    PERIOD_AUDIT,
    WINDOW,
    WINDOW_AUDIT,
    Table,
    integer,
    long,
    number,
    text,
    timestamp,
)
from streaming.contract.records import (
    ASSIGNOR,
    CLEANUP_POLICY,
    CLIENT_HOST,
    CLIENT_ID,
    COMMITTED_OFFSET,
    GENERATION_ID,
    GROUP_INSTANCE_ID,
    GROUP_MEMBERS,
    GROUP_STATE,
    GROUP_TYPE,
    LAG_RECORDS,
    LAST_STABLE_OFFSET,
    LOG_END_OFFSET,
    LOG_START_OFFSET,
    MEMBER_ID,
    PARTITION_READ,
    RACK_ID,
    SHARE_START_OFFSET,
    SUBSCRIBED_TOPIC_REGEX,
    TARGET_MEMBER_ID,
    TOPIC_READ,
    TOPOLOGY_EPOCH,
)

PARTITION_OF_GROUP = (
    text("group_id", "Consumer group", nullable=False),
    TOPIC_READ.column("Topic"),
    PARTITION_READ.column("Partition number"),
)
"""What identifies a partition that a group reads."""

GROUP_LAG = Table(
    "group_lag",
    "Offsets and lag of each consumer group and partition in each window",
    ("kafka_cluster", "window_start", "group_id", "topic", "partition"),
    "window_start",
    (
        CLUSTER,
        *WINDOW,
        *PARTITION_OF_GROUP,
        COMMITTED_OFFSET.column(
            "Committed offset at the newest sample, of a share group log end less lag; null where none"
        ),
        LOG_END_OFFSET.column("Log end offset at the newest sample"),
        LOG_START_OFFSET.column("Log start offset at the newest sample"),
        LAG_RECORDS.column("Records behind at the newest sample; null where unknown"),
        LAG_RECORDS.column("Highest lag of the window, records", suffix="_max"),
        COMMITTED_OFFSET.column("Committed offset at the oldest sample of the window", suffix="_first"),
        LOG_END_OFFSET.column("Log end offset at the oldest sample of the window", suffix="_first"),
        MEMBER_ID.column("Member that owned the partition at the newest sample; null where none"),
        CLIENT_ID.column("Client id of the member that owned the partition"),
        GROUP_STATE.column("State of the group at the newest sample, Kafka's name"),
        GENERATION_ID.column("Generation, or group epoch, at the newest sample; null where unknown"),
        GROUP_TYPE.column("Type of the group at the newest sample: classic, consumer, share, streams"),
        GROUP_MEMBERS.column("Members at the newest sample, with those that own nothing; null where unknown"),
        ASSIGNOR.column("Assignor of the group at the newest sample"),
        GROUP_INSTANCE_ID.column("Instance id of the owner of the partition, if static"),
        RACK_ID.column("Rack of the member that owned the partition"),
        TARGET_MEMBER_ID.column("Member that should own the partition at the newest sample; null where unknown"),
        SUBSCRIBED_TOPIC_REGEX.column("Pattern by which the owner subscribes, if brokers resolve it"),
        TOPOLOGY_EPOCH.column("Topology epoch of a streams group at the newest sample"),
        SHARE_START_OFFSET.column("Start offset of a share group at the newest sample"),
        LAST_STABLE_OFFSET.column(
            "Where an open transaction held readers back at the newest sample; null where unknown or at the log end"
        ),
        CLIENT_HOST.column("Host from which the owner of the partition connected"),
        CLEANUP_POLICY.column(
            "Cleanup policy of a compacted topic, whose lag is a number of offsets; null where unknown or not compacted"
        ),
        *WINDOW_AUDIT,
    ),
)

GROUP_LAG_DAILY = Table(
    "group_lag_daily",
    "Offsets and lag of each consumer group and partition by the day (UTC), made of group_lag once the day is over",
    ("kafka_cluster", "period_start", "group_id", "topic", "partition"),
    "period_start",
    (
        CLUSTER,
        *PERIOD,
        *PARTITION_OF_GROUP,
        COMMITTED_OFFSET.column("Committed offset at the beginning; null where none was committed", suffix="_first"),
        COMMITTED_OFFSET.column("Committed offset at the end"),
        LOG_END_OFFSET.column("Log end offset at the beginning", suffix="_first"),
        LOG_END_OFFSET.column("Log end offset at the end"),
        LAG_RECORDS.column("Records behind at the end; null where never known"),
        number("lag_records_mean", "Mean over the windows of the records behind"),
        LAG_RECORDS.column("Highest lag of the day, records", suffix="_max"),
        *PERIOD_AUDIT,
    ),
)

GROUP_EVENT = Table(
    "group_event",
    "Rebalances of consumer groups: a closed window of group_lag compared with the one before",
    ("kafka_cluster", "window_start", "group_id"),
    "window_start",
    (
        CLUSTER,
        timestamp("window_start", "Start of the window that shows the rebalance, UTC", nullable=False),
        text("group_id", "Consumer group", nullable=False),
        long("after_ms", "Newest sample before the rebalance, ms since 1970 UTC", nullable=False),
        long("until_ms", "First sample after the rebalance, ms since 1970 UTC", nullable=False),
        text("cause", "Cause of the rebalance as far as windows show it, one of a fixed list", nullable=False),
        GROUP_STATE.column("State of the group after the rebalance, Kafka's name"),
        GENERATION_ID.column("Generation of the group after the rebalance; null where unknown"),
        integer("rebalances", "Rebalances between the samples, at least", nullable=False),
        integer("members", "Members that own partitions after the rebalance", nullable=False),
        text("members_in_json", "Ids of members that joined, JSON array", nullable=False),
        text("members_out_json", "Ids of members that left, JSON array", nullable=False),
        integer("restarts", "Members that left and joined again as another process", nullable=False),
        integer("partitions_moved", "Partitions that went to another member", nullable=False),
        integer("partitions_unowned", "Partitions without an owner after the rebalance", nullable=False),
        integer("partitions_owned", "Partitions with an owner before the rebalance; an eager group stops them all"),
        text("names_in_json", "Distinct instance or client ids of members that joined, JSON array"),
        text("names_out_json", "Distinct instance or client ids of members that left, JSON array"),
    ),
)
