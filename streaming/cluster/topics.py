"""Topics: creates the two input topics where they are missing, and reads what topics are set to, or hold.

A setting counts whatever set it: the topic itself, or a default of its brokers. Knows nothing of what records mean.
"""

from collections.abc import Collection, Mapping

import structlog
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import NoError, TopicAlreadyExistsError, for_code

from streaming.cluster.answers import brokers_alive, failure, translated
from streaming.errors import ClusterRequestFailed
from streaming.settings import TopicSettings

log = structlog.get_logger()

TIMESTAMP_TYPE, BROKERS_TIME = "message.timestamp.type", "LogAppendTime"
"""Setting of a topic, and the value with which the broker's clock stamps the records, not the producer's."""

CREATOR = "collect"
"""The role that creates the topics."""
MIN_IN_SYNC = "min.insync.replicas"
TOPICS_AT_ONCE = 1_000
"""Topics that one request asks about."""


def topic_setting(admin: KafkaAdminClient, setting: str, topics: Collection[str]) -> dict[str, str]:
    """The value of `setting` by topic that is there and shows one; raises ClusterUnreachable, ClusterRequestFailed if
    refused.
    """
    names, found = sorted(topics), dict[str, str]()
    for first in range(0, len(names), TOPICS_AT_ONCE):
        some = names[first : first + TOPICS_AT_ONCE]
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, {setting: ""}) for name in some]
        with translated(f"read {setting} of topics", role="control"):
            shown = admin.describe_configs(asked, config_filter="all").get("topic", {})
        values = {name: settings.get(setting, {}).get("value") for name, settings in shown.items()}
        found |= {name: str(value) for name, value in values.items() if value is not None}
    return found


def min_in_sync(admin: KafkaAdminClient, topics: Collection[str]) -> dict[str, int]:
    """`min.insync.replicas` by topic. Topics without a value, and errors, are as in `topic_setting`."""
    return {name: int(value) for name, value in topic_setting(admin, MIN_IN_SYNC, topics).items()}


def create_input_topics(admin: KafkaAdminClient, topics: TopicSettings) -> None:
    """Create missing input topics, a replica a broker at most; raises ClusterUnreachable, ClusterRequestFailed."""
    with translated("list brokers and topics", role=CREATOR):
        broker_count = len(brokers_alive(admin))
        existing = set(admin.list_topics())
    for name in (topics.byte_rate, topics.consumer_lag):
        if name not in existing:
            _create(admin, name, topics, replicas_max=broker_count)


def stamped_by_producers(admin: KafkaAdminClient, names: Collection[str]) -> tuple[str, ...]:
    """Topics of `names` whose records bear their producer's time, by name. Raises as `create_input_topics`."""
    stamps = topic_setting(admin, TIMESTAMP_TYPE, names)
    gone = sorted(set(names) - stamps.keys())
    if gone:
        raise ClusterRequestFailed(f"the cluster does not show {TIMESTAMP_TYPE} of topic {gone[0]}")
    return tuple(name for name, value in sorted(stamps.items()) if value != BROKERS_TIME)


def partitions_of(admin: KafkaAdminClient, names: Collection[str]) -> dict[str, list[int]]:
    """Return the partitions of each of the topics that exists. Raises as `create_input_topics`."""
    with translated("describe topics", role="pipeline"):
        described = admin.describe_topics(sorted(names))
    return {
        topic["name"]: sorted(row["partition_index"] for row in topic["partitions"])
        for topic in described
        if not topic["error_code"]
    }


def first_offsets(
    admin: KafkaAdminClient, partitions: Collection[tuple[str, str]], since_ms: int
) -> Mapping[tuple[str, str], int]:
    """Return the first offset whose record has Kafka's timestamp `since_ms` or a later one, by topic and partition.

    Partitions without such a record are left out. Partitions are named by text, as Spark does. Raises as
    `create_input_topics`.
    """
    wanted = {TopicPartition(topic, int(partition)): since_ms for topic, partition in partitions}
    with translated("find offsets by time", role="pipeline"):
        found = admin.list_partition_offsets(wanted) if wanted else {}
    return {(key.topic, str(key.partition)): row.offset for key, row in found.items() if row.offset >= 0}


def _create(admin: KafkaAdminClient, name: str, topics: TopicSettings, *, replicas_max: int) -> None:
    wanted = {
        "num_partitions": topics.partitions,
        "replication_factor": min(topics.replication_factor, replicas_max),
        "configs": {
            "retention.ms": str(topics.retention_ms),
            "cleanup.policy": "delete",
            # The pipeline rejects samples later than this timestamp: a producer whose clock is ahead must not set it.
            TIMESTAMP_TYPE: BROKERS_TIME,
        },
    }
    with translated(f"create topic {name}", role=CREATOR):
        answer = admin.create_topics({name: wanted}, raise_errors=False)["topics"][0]
    error = for_code(answer["error_code"])
    if error is TopicAlreadyExistsError:
        return
    if error is not NoError:
        raise failure(f"create topic {name}", error, answer.get("error_message"), role=CREATOR)
    log.info("topic_created", topic=name)
