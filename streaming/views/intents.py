"""Rows of `broker_intent`: which brokers are being drained, until a person wants otherwise. Control writes the rows."""

from enum import StrEnum

from streaming.contract import BROKER_INTENT
from streaming.settings import Settings
from streaming.tables import of_cluster, read


class Intent(StrEnum):
    """What a broker is for."""

    DRAIN = "drain"
    USE = "use"


def drained_brokers(settings: Settings) -> frozenset[int]:
    """Brokers that must end empty and get nothing: the newest row of each says so. Raises TableUnavailable."""
    rows = read(
        settings.storage.tables,
        BROKER_INTENT.name,
        columns=("broker", "event_time", "intent"),
        where=of_cluster(settings.kafka.cluster_name),
    )
    newest = {row["broker"]: row["intent"] for row in sorted(rows, key=lambda row: row["event_time"])}
    return frozenset(broker for broker, intent in newest.items() if intent == Intent.DRAIN)
