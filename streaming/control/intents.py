"""Writes down what people want of brokers, in `broker_intent`: which are being drained, until a person wants otherwise.

A drained broker is alive and empty: without this note the trigger would see skew and the planner would fill it again.
"""

from streaming import tables
from streaming.control.journal import owner
from streaming.settings import Settings
from streaming.views.intents import Intent

TABLE = "broker_intent"


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
