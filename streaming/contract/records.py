"""The records of both input topics: each field once, with its type, its unit, its meaning and its range.

Producers of their own write these; the pipeline checks them by the same fields, and the tables' columns are made of
them. A field that is not `required` may be null or absent: an unknown figure is null, never 0.
"""

from dataclasses import dataclass

from streaming.contract.columns import Column, ColumnType
from streaming.contract.rates import RATES

RECORD_VERSION = 1
"""`v` of every record on the two input topics."""
RATE_MAX = 1e15
"""A petabyte a second. Sums over a window must never become infinite or overflow: the query would die of them, at each
start again.
"""
COUNTER_MAX = 1e21
"""A petabyte a second for ten days. A counter's growth is multiplied before it is divided by its time."""
INTERVAL_MAX_MS = 30 * 86_400_000
OFFSET_MAX = 10**18
"""Offsets and lags: one is added to the other, and daily means add up a day of them."""
PARTITION_MAX = 999_999
"""Partitions of a topic are numbered from 0 on. What is kept by topic has a place for each number up to the highest."""
EVENT_TIME_MIN_MS = 1_000_000_000_000
"""September 2001: what is older was not meant in milliseconds."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `unit` is empty where it is no quantity."""

    name: str
    type: ColumnType
    unit: str
    meaning: str
    required: bool = False
    not_negative: bool = False
    most: float | None = None
    """The record is rejected where the value is greater; None: no limit of its own."""

    def column(self, comment: str, *, suffix: str = "", required: bool | None = None) -> Column:
        """A table's column of the same type; `required` where the table differs from the record."""
        must_be_there = self.required if required is None else required
        return Column(f"{self.name}{suffix}", self.type, comment, nullable=not must_be_there)


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Fields of one topic's records.

    Of `together` all must be there or none: a replica without its partition is no row of any table.
    """

    fields: tuple[Field, ...]
    together: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """Fields that must be there."""
        return tuple(field.name for field in self.fields if field.required)

    @property
    def not_negative(self) -> tuple[str, ...]:
        """Fields that must not be below zero."""
        return tuple(field.name for field in self.fields if field.not_negative)

    @property
    def greatest(self) -> tuple[tuple[str, float], ...]:
        """(field, most that it may be)."""
        return tuple((field.name, field.most) for field in self.fields if field.most is not None)


_STRING, _LONG, _INTEGER, _DOUBLE = ColumnType.STRING, ColumnType.LONG, ColumnType.INTEGER, ColumnType.DOUBLE

VERSION = Field("v", _INTEGER, "", f"Version of the record: {RECORD_VERSION}", required=True)
KAFKA_CLUSTER = Field("kafka_cluster", _STRING, "", "Name of the Kafka cluster", required=True)
EVENT_TIME_MS = Field(
    "event_time_ms", _LONG, "ms since 1970 UTC", "When it was measured", required=True, not_negative=True
)
INTERVAL_MS = Field(
    "interval_ms", _LONG, "ms", "Time before it that the rates are of", required=True, not_negative=True,
    most=INTERVAL_MAX_MS,
)  # fmt: skip
BROKER = Field("broker", _INTEGER, "", "Broker id", required=True, not_negative=True)
TOPIC = Field("topic", _STRING, "", "Topic; of byte rates null for a broker's totals")
PARTITION = Field(
    "partition", _INTEGER, "", "Partition number; null with the topic", not_negative=True, most=PARTITION_MAX
)
ROLE = Field("role", _STRING, "", "`leader` or `follower`; null with the topic")
RACK = Field("rack", _STRING, "", "Rack of the broker")
SIZE_BYTES = Field("size_bytes", _LONG, "bytes", "Log size of the replica on its broker's disk", not_negative=True)
REMOTE_RECORDS = Field(
    "remote_records", _LONG, "records", "Of a leader's log, what remote storage alone holds; null where nothing",
    not_negative=True, most=OFFSET_MAX,
)  # fmt: skip
REMOTE_SIZE_BYTES = Field(
    "remote_size_bytes", _LONG, "bytes", "About how many bytes that is; null where unknown", not_negative=True
)
LOG_DIR_USED_BYTES = Field(
    "log_dir_used_bytes", _LONG, "bytes", "Replica logs on the broker's disks", not_negative=True
)
LOG_DIR_USABLE_BYTES = Field("log_dir_usable_bytes", _LONG, "bytes", "Free on the broker's disks", not_negative=True)
GROUPS_LEFT_OUT = Field(
    "groups_left_out", _LONG, "groups", "Consumer groups of this coordinator that were not sampled",
    not_negative=True,
)  # fmt: skip

REQUESTS_REFUSED = Field(
    "requests_refused", _LONG, "requests", "Requests of the newest look that it refused for want of a right",
    not_negative=True,
)  # fmt: skip

GROUP_PARTITIONS_LEFT_OUT = Field(
    "group_partitions_left_out", _LONG, "partitions",
    "Partitions that groups name and that are not reported: they do not exist, or members name too many",
    not_negative=True,
)  # fmt: skip

OUT_OF_SYNC_REPLICAS = Field(
    "out_of_sync_replicas", _INTEGER, "replicas",
    "Replicas of the partition that are not in sync, in the leader's record; in each where it has no leader",
    not_negative=True,
)  # fmt: skip
ADDRESS = Field("address", _STRING, "", "Address of the broker for the collector, host:port")

REPLICA_STATES = (ROLE, SIZE_BYTES, REMOTE_RECORDS, REMOTE_SIZE_BYTES, OUT_OF_SYNC_REPLICAS)
BROKER_STATES = (
    RACK,
    LOG_DIR_USED_BYTES,
    LOG_DIR_USABLE_BYTES,
    GROUPS_LEFT_OUT,
    REQUESTS_REFUSED,
    GROUP_PARTITIONS_LEFT_OUT,
    ADDRESS,
)
"""What is no rate: a window has it as its newest sample has it. The order is part of the checkpoints."""

RATE_FIELDS = tuple(
    Field(rate.name, _DOUBLE, rate.unit, rate.meaning, not_negative=True, most=RATE_MAX) for rate in RATES
)
COUNTER_FIELDS = tuple(
    Field(rate.counter, _DOUBLE, rate.counter_unit, f"Since the broker's start, {rate.meaning}", not_negative=True,
          most=COUNTER_MAX)
    for rate in RATES
)  # fmt: skip
"""Fields of counters, in the order of the rates that the windows make of them."""

BYTE_RATE = RecordShape(
    fields=(
        VERSION, KAFKA_CLUSTER, BROKER, TOPIC, PARTITION, ROLE, EVENT_TIME_MS, INTERVAL_MS, RACK, *RATE_FIELDS,
        SIZE_BYTES, LOG_DIR_USED_BYTES, LOG_DIR_USABLE_BYTES, GROUPS_LEFT_OUT, REMOTE_RECORDS, REMOTE_SIZE_BYTES,
        REQUESTS_REFUSED, GROUP_PARTITIONS_LEFT_OUT, OUT_OF_SYNC_REPLICAS, ADDRESS,
    ),
    together=(TOPIC.name, PARTITION.name, ROLE.name),
)  # fmt: skip
"""One replica, or where the topic is null one broker, over the `interval_ms` before `event_time_ms`."""

FOREIGN_BYTE_RATE = RecordShape((*BYTE_RATE.fields, *COUNTER_FIELDS), BYTE_RATE.together)
"""What the adapters make of other tools' samples."""


def _offset(name: str, meaning: str) -> Field:
    return Field(name, _LONG, "records", meaning, not_negative=True, most=OFFSET_MAX)


GROUP = Field("group", _STRING, "", "Consumer group", required=True)
TOPIC_READ = Field("topic", _STRING, "", "Topic that the group reads", required=True)
PARTITION_READ = Field(
    "partition", _INTEGER, "", "Partition number", required=True, not_negative=True, most=PARTITION_MAX
)
COMMITTED_OFFSET = _offset("committed_offset", "Committed offset; of a share group log end less lag; null where none")
LOG_END_OFFSET = _offset("log_end_offset", "Log end offset")
LOG_START_OFFSET = _offset("log_start_offset", "Log start offset")
LAG_RECORDS = _offset("lag_records", "Records behind; null where unknown")
MEMBER_ID = Field("member_id", _STRING, "", "Member that owns the partition; null where none")
CLIENT_ID = Field("client_id", _STRING, "", "Client id of the member that owns the partition")
GROUP_STATE = Field("group_state", _STRING, "", "State of the group, Kafka's name")
GENERATION_ID = Field("generation_id", _INTEGER, "", "Generation of the group; null where unknown")
GROUP_TYPE = Field("group_type", _STRING, "", "Type of the group: `classic`, `consumer`, `share`, `streams`")
GROUP_MEMBERS = Field(
    "group_members", _INTEGER, "members", "All members of the group; null where unknown", not_negative=True
)
ASSIGNOR = Field("assignor", _STRING, "", "Assignor that the group uses")
GROUP_INSTANCE_ID = Field("group_instance_id", _STRING, "", "Instance id of that member, if it is a static one")
RACK_ID = Field("rack_id", _STRING, "", "Rack (`client.rack`) of the member that owns the partition")
TARGET_MEMBER_ID = Field("target_member_id", _STRING, "", "Member that shall own the partition; null where unknown")
SUBSCRIBED_TOPIC_REGEX = Field(
    "subscribed_topic_regex", _STRING, "", "Pattern by which the owner subscribes, if brokers resolve it"
)
SHARE_START_OFFSET = _offset("share_start_offset", "Start offset of a share group; null where none or unknown")
TOPOLOGY_EPOCH = Field("topology_epoch", _INTEGER, "", "Topology epoch of a streams group")
LAST_STABLE_OFFSET = _offset(
    "last_stable_offset", "Where an open transaction holds readers back; null where unknown or equal to the log end"
)
CLIENT_HOST = Field("client_host", _STRING, "", "Host that the member which owns the partition connects from")
CLEANUP_POLICY = Field(
    "cleanup_policy", _STRING, "",
    "Cleanup policy of a topic that is compacted: its lag is a number of offsets; null where unknown or not compacted",
)  # fmt: skip

GROUP_STATES = (
    COMMITTED_OFFSET, LOG_END_OFFSET, LOG_START_OFFSET, LAG_RECORDS, MEMBER_ID, CLIENT_ID, GROUP_STATE, GENERATION_ID,
    GROUP_TYPE, GROUP_MEMBERS, ASSIGNOR, GROUP_INSTANCE_ID, RACK_ID, TARGET_MEMBER_ID, SUBSCRIBED_TOPIC_REGEX,
    TOPOLOGY_EPOCH, SHARE_START_OFFSET, LAST_STABLE_OFFSET, CLIENT_HOST, CLEANUP_POLICY,
)  # fmt: skip
"""A window has them as its newest sample has them. The order is part of the checkpoints."""

CONSUMER_LAG = RecordShape(
    fields=(VERSION, KAFKA_CLUSTER, GROUP, TOPIC_READ, PARTITION_READ, EVENT_TIME_MS, *GROUP_STATES)
)
"""One group and partition at one moment."""
