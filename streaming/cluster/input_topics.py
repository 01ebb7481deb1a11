"""Creates the two input topics where they are missing. It knows their settings, and nothing of their records."""

import structlog
from kafka import KafkaAdminClient
from kafka.errors import NoError, TopicAlreadyExistsError, for_code

from streaming.cluster.answers import brokers_alive, failure, translated
from streaming.settings import TopicSettings

log = structlog.get_logger()

ROLE = "collect"
"""Who creates the topics."""


def create_input_topics(admin: KafkaAdminClient, topics: TopicSettings) -> None:
    """Create the input topics where they are missing, with one replica a broker at most.

    Raises ClusterRequestFailed if the cluster refuses, ClusterUnreachable without an answer.
    """
    with translated("list brokers and topics", role=ROLE):
        broker_count = len(brokers_alive(admin))
        existing = set(admin.list_topics())
    for name in (topics.byte_rate, topics.consumer_lag):
        if name not in existing:
            _create(admin, name, topics, replicas_max=broker_count)


def _create(admin: KafkaAdminClient, name: str, topics: TopicSettings, *, replicas_max: int) -> None:
    wanted = {
        "num_partitions": topics.partitions,
        "replication_factor": min(topics.replication_factor, replicas_max),
        "configs": {
            "retention.ms": str(topics.retention_ms),
            "cleanup.policy": "delete",
            # The pipeline rejects samples later than this timestamp: a producer whose clock is ahead must not set it.
            "message.timestamp.type": "LogAppendTime",
        },
    }
    with translated(f"create topic {name}", role=ROLE):
        answer = admin.create_topics({name: wanted}, raise_errors=False)["topics"][0]
    error = for_code(answer["error_code"])
    if error is TopicAlreadyExistsError:
        return
    if error is not NoError:
        raise failure(f"create topic {name}", error, answer.get("error_message"), role=ROLE)
    log.info("topic_created", topic=name)
