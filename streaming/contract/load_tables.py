"""Tables of load: windows by replica and by broker, and the hours and days made of them."""

from streaming.contract.columns import CLUSTER, PERIOD, PERIOD_AUDIT, WINDOW, WINDOW_AUDIT, Column, Table, long, number
from streaming.contract.rates import RATES, Rate
from streaming.contract.records import (
    ADDRESS,
    BROKER,
    GROUP_PARTITIONS_LEFT_OUT,
    GROUPS_LEFT_OUT,
    LOG_DIR_USABLE_BYTES,
    LOG_DIR_USED_BYTES,
    OUT_OF_SYNC_REPLICAS,
    PARTITION,
    RACK,
    REMOTE_RECORDS,
    REMOTE_SIZE_BYTES,
    REQUESTS_REFUSED,
    ROLE,
    SIZE_BYTES,
    TOPIC,
)


def _period_columns(rate: Rate, comment: str, comment_of_maximum: str) -> tuple[Column, ...]:
    """Mean of a rate over an hour or a day, and its highest where that is kept."""
    maximum = (number(rate.maximum, comment_of_maximum),) if rate.has_period_max else ()
    return number(rate.name, comment), *maximum


def _broker_maximum_comment(rate: Rate) -> str:
    what = "single sample" if rate.has_sample_max else "window"
    return f"Highest {what} of this rate, {rate.unit}"


REPLICA = (
    BROKER.column("Broker id that hosts the replica"),
    TOPIC.column("Topic", required=True),
    PARTITION.column("Partition number", required=True),
)
"""What identifies a replica."""

REMOTE = (
    REMOTE_RECORDS.column("Records of a leader's log that only remote storage holds; null where none are known"),
    REMOTE_SIZE_BYTES.column("Estimated bytes of remote records; null where unknown"),
)
"""What tiered storage has taken off the leader's disk (KIP-405)."""

PARTITION_LOAD = Table(
    "partition_load",
    "Load of each replica in each window: what clients write and read on a leader, what a follower replicates",
    ("kafka_cluster", "window_start", "broker", "topic", "partition"),
    "window_start",
    (
        CLUSTER,
        *WINDOW,
        *REPLICA,
        ROLE.column("leader or follower, as last seen in the window", required=True),
        *(number(rate.name, rate.of_replica.window) for rate in RATES if rate.of_replica),
        SIZE_BYTES.column("Log size of the replica at the newest sample, bytes"),
        *REMOTE,
        OUT_OF_SYNC_REPLICAS.column(
            "Replicas of the partition not in sync at the newest sample, in the leader's row and, where it has none, "
            "in each; null where unknown"
        ),
        long("covered_ms", "Milliseconds of the window for which the write rate is known", nullable=False),
        *WINDOW_AUDIT,
    ),
)

BROKER_LOAD = Table(
    "broker_load",
    "Load of each broker in each window, client, replication and reassignment traffic kept apart",
    ("kafka_cluster", "window_start", "broker"),
    "window_start",
    (
        CLUSTER,
        *WINDOW,
        BROKER.column("Broker id"),
        RACK.column("Rack of the broker; null where none is set"),
        *(number(rate.name, rate.window_comment) for rate in RATES),
        *(
            number(rate.maximum, f"Highest single sample of {rate.name} in the window, {rate.unit}")
            for rate in RATES
            if rate.has_sample_max
        ),
        LOG_DIR_USED_BYTES.column("Bytes of replica logs on the broker's disks at the newest sample"),
        LOG_DIR_USABLE_BYTES.column("Bytes free on the broker's disks at the newest sample; null where unknown"),
        GROUPS_LEFT_OUT.column("Consumer groups of this coordinator that were not sampled; null where unknown"),
        REQUESTS_REFUSED.column(
            "Requests that the broker refused for want of a right at the newest sample; null where unknown"
        ),
        GROUP_PARTITIONS_LEFT_OUT.column(
            "Unreported partitions that groups of this coordinator name; null where unknown"
        ),
        ADDRESS.column("Address of the broker for the collector, host:port; null where unknown"),
        long("covered_ms", "Milliseconds of the window for which the write rate is known", nullable=False),
        *WINDOW_AUDIT,
    ),
)

_BROKER_PERIOD = (
    CLUSTER,
    *PERIOD,
    BROKER.column("Broker id"),
    RACK.column("Rack of the broker, as last known; null where none is set"),
    *(column for rate in RATES for column in _period_columns(rate, rate.period_comment, _broker_maximum_comment(rate))),
    LOG_DIR_USED_BYTES.column("Bytes of replica logs on the broker's disks at the end"),
    LOG_DIR_USABLE_BYTES.column("Bytes free on the broker's disks at the end; null where unknown"),
    GROUPS_LEFT_OUT.column("Consumer groups of this coordinator that were not sampled at the end"),
    REQUESTS_REFUSED.column("Requests that the broker refused for want of a right at the end"),
    GROUP_PARTITIONS_LEFT_OUT.column("Unreported partitions that groups of this coordinator name, at the end"),
    ADDRESS.column("Address of the broker for the collector, host:port, as last known"),
    long("covered_ms", "Milliseconds for which the write rate is known", nullable=False),
    *PERIOD_AUDIT,
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

PARTITION_LOAD_HOURLY = Table(
    "partition_load_hourly",
    "Load of each partition by the hour, as its leaders reported it, made of partition_load once the hour is over",
    ("kafka_cluster", "period_start", "topic", "partition"),
    "period_start",
    (
        CLUSTER,
        *PERIOD,
        TOPIC.column("Topic", required=True),
        PARTITION.column("Partition number", required=True),
        *(number(rate.name, rate.of_replica.day) for rate in RATES if rate.of_replica),
        long("covered_ms", "Milliseconds for which the write rate is known", nullable=False),
        *PERIOD_AUDIT,
    ),
)

PARTITION_LOAD_DAILY = Table(
    "partition_load_daily",
    "Load of each replica by the day (UTC), made of partition_load once the day is over",
    ("kafka_cluster", "period_start", "broker", "topic", "partition"),
    "period_start",
    (
        CLUSTER,
        *PERIOD,
        *REPLICA,
        ROLE.column("leader or follower, as last seen on that day", required=True),
        *(
            column
            for rate in RATES
            if rate.of_replica
            for column in _period_columns(rate, rate.of_replica.day, f"Highest window of this rate, {rate.unit}")
        ),
        SIZE_BYTES.column("Log size of the replica at the end of the day, bytes"),
        *REMOTE,
        OUT_OF_SYNC_REPLICAS.column("Replicas of the partition that were not in sync, as last known of this replica"),
        long("covered_ms", "Milliseconds for which the write rate is known", nullable=False),
        *PERIOD_AUDIT,
    ),
)
