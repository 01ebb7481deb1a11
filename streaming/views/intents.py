"""Rows of `broker_intent`: which brokers are being drained, until a person wants otherwise. Control writes the rows."""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum

from streaming.contract import BROKER_INTENT
from streaming.tables import Row, TableReader, below, of_cluster, to_ms


class Intent(StrEnum):
    """What a broker is for."""

    DRAIN = "drain"
    USE = "use"


def newest_intents(reader: TableReader, kafka_cluster: str) -> dict[int, Row]:
    """The row that counts (`intent`, `event_time`), by broker; raises TableUnavailable."""
    columns = ("broker", "event_time", "intent")
    rows = reader.rows(BROKER_INTENT.name, columns=columns, where=of_cluster(kafka_cluster))
    return {row["broker"]: row for row in sorted(rows, key=lambda row: row["event_time"])}


def drained_brokers(reader: TableReader, kafka_cluster: str) -> frozenset[int]:
    """Brokers that must end empty and get nothing: the newest row of each counts. Raises TableUnavailable."""
    newest = newest_intents(reader, kafka_cluster)
    return frozenset(broker for broker, row in newest.items() if row["intent"] == Intent.DRAIN)


def drained_at(reader: TableReader, kafka_cluster: str) -> Callable[[int], frozenset[int]]:
    """Which brokers were being drained at a time, ms, as far back as notes are kept. Raises TableUnavailable."""
    columns = ("broker", "event_time", "intent")
    rows = reader.rows(BROKER_INTENT.name, columns=columns, where=of_cluster(kafka_cluster))
    notes = sorted((to_ms(row["event_time"]), row["broker"], row["intent"]) for row in rows)

    def at(time_ms: int) -> frozenset[int]:
        newest = {broker: intent for noted_ms, broker, intent in notes if noted_ms <= time_ms}
        return frozenset(broker for broker, intent in newest.items() if intent == Intent.DRAIN)

    return at


def outdated_notes(reader: TableReader, kafka_cluster: str, before: datetime) -> list[tuple[int, datetime]]:
    """(broker, end): notes on the broker from before `end` are older than `before` and no longer hold.

    The newest note on a broker holds however old it is. Raises TableUnavailable.
    """
    own, columns = of_cluster(kafka_cluster), ("broker", "event_time")
    if not reader.rows(BROKER_INTENT.name, columns=columns, where=own & below("event_time", before)):
        return []
    times: dict[int, list[datetime]] = {}
    for row in reader.rows(BROKER_INTENT.name, columns=columns, where=own):
        times.setdefault(row["broker"], []).append(row["event_time"])
    ends = {broker: min(before, max(known)) for broker, known in sorted(times.items())}
    return [(broker, end) for broker, end in ends.items() if min(times[broker]) < end]
