"""What kafka-python's answers and errors mean: brokers that are alive, requests without an answer."""

from kafka import KafkaAdminClient
from kafka.errors import BrokerResponseError, RequestTimedOutError


def brokers_alive(admin: KafkaAdminClient) -> dict[int, str | None]:
    """Rack by broker; raises KafkaError."""
    rows = admin.describe_cluster()["brokers"]
    return {row["broker_id"]: row["rack"] or None for row in rows if not row.get("is_fenced", False)}


def is_unanswered(error: Exception) -> bool:
    """Whether no broker answered. The client raises a broker's error, RequestTimedOut, when its own wait ends too."""
    return not isinstance(error, BrokerResponseError) or isinstance(error, RequestTimedOutError)
