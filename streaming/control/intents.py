"""What people want of brokers, kept in `broker_intent`: which are being drained, until somebody says otherwise.

A drained broker is alive and empty: without this note the trigger would see skew and the planner would fill it again.
"""

from enum import StrEnum

from streaming import tables
from streaming.control.journal import owner
from streaming.settings import Settings

TABLE = "broker_intent"


class Intent(StrEnum):
    """What a broker is for."""

    DRAIN = "drain"
    USE = "use"


def drained_brokers(settings: Settings) -> frozenset[int]:
    """Brokers that must end empty and get nothing."""
    rows = tables.read(settings.storage.tables, TABLE, where=tables.equal("kafka_cluster", settings.kafka.cluster_name))
    newest = {row["broker"]: row["intent"] for row in sorted(rows, key=lambda row: row["event_time"])}
    return frozenset(broker for broker, intent in newest.items() if intent == Intent.DRAIN)


def say(settings: Settings, broker: int, intent: Intent, *, now_ms: int) -> None:
    """Note what `broker` is for from now on."""
    cluster = settings.kafka.cluster_name
    row = {
        "kafka_cluster": cluster,
        "broker": broker,
        "event_time": tables.utc(now_ms),
        "intent": intent.value,
        "by": owner(),
    }
    transaction_id = f"intent:{cluster}:{broker}"
    tables.append(settings.storage.tables, TABLE, [row], transaction_id=transaction_id, transaction_version=now_ms)
