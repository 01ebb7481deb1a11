"""Creates the two input topics where they are missing. It knows their settings, and nothing of their records."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from kafka import KafkaAdminClient
from kafka.errors import AuthorizationError, KafkaError, NoError, TopicAlreadyExistsError, for_code

from streaming.cluster.answers import brokers_alive, is_unanswered
from streaming.errors import ClusterRequestFailed, ClusterUnreachable
from streaming.settings import TopicSettings

log = structlog.get_logger()


def create_input_topics(admin: KafkaAdminClient, topics: TopicSettings) -> None:
    """Create the input topics where they are missing, with one replica a broker at most.

    Raises ClusterRequestFailed if the cluster refuses, ClusterUnreachable without an answer.
    """
    with _translated("list brokers and topics"):
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
    with _translated(f"create topic {name}"):
        answer = admin.create_topics({name: wanted}, raise_errors=False)["topics"][0]
    error = for_code(answer["error_code"])
    if error is TopicAlreadyExistsError:
        return
    if error is not NoError:
        raise _refusal(f"create topic {name}", error, answer.get("error_message"))
    log.info("topic_created", topic=name)


@contextmanager
def _translated(request: str) -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:
        if is_unanswered(error):
            raise ClusterUnreachable(f"no answer when asked to {request} ({type(error).__name__})") from None
        raise _refusal(request, type(error), None) from None


def _refusal(request: str, error: type[Exception], message: str | None) -> ClusterRequestFailed:
    detail = " ".join((message or "").split()).rstrip(".")
    hint = (
        "; `rebalancer check --role collect` names the rights it needs" if issubclass(error, AuthorizationError) else ""
    )
    reason = f"{error.__name__}{detail and f' ({detail})'}"
    return ClusterRequestFailed(f"the cluster refused to {request}: {reason}{hint}")
