"""Rows of `broker_intent`: which brokers are being drained, until a person wants otherwise. Control writes the rows."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from assignor_core.live import PartitionKey, partition_name
from streaming.contract import BROKER_INTENT, BROKER_LOAD, PARTITION_LOAD
from streaming.tables import Row, TableReader, below, equal, of_cluster, to_ms
from streaming.views.spans import of_window


class Intent(StrEnum):
    """What people want of a broker."""

    DRAIN = "drain"
    DEMOTE = "demote"
    USE = "use"


def newest_intents(reader: TableReader, kafka_cluster: str) -> dict[int, Row]:
    """Newest row of each broker; raises TableUnavailable."""
    columns = ("broker", "event_time", "intent", "by", "cordons_json", "demotions_json")
    rows = reader.rows(BROKER_INTENT.name, columns=columns, where=of_cluster(kafka_cluster))
    return {row["broker"]: row for row in sorted(rows, key=lambda row: row["event_time"])}


def cordons_of(row: Row | None) -> frozenset[str]:
    """Log dirs whose cordon is ours by this row; none where a person or an earlier version has left them alone.

    >>> sorted(cordons_of({"cordons_json": '["/disk-1", "/disk-2"]'})), cordons_of({"cordons_json": None})
    (['/disk-1', '/disk-2'], frozenset())
    """
    return frozenset(json.loads((row and row["cordons_json"]) or "[]"))


def demotions_of(row: Row | None) -> tuple[str, ...]:
    """Ids of the plans that have demoted the broker of this row, oldest first; none where it is not demoted."""
    return tuple(json.loads((row and row["demotions_json"]) or "[]"))


def drained_brokers(reader: TableReader, kafka_cluster: str) -> frozenset[int]:
    """Brokers that must end empty and get nothing: the newest row of each counts. Raises TableUnavailable."""
    return brokers_by_intent(reader, kafka_cluster)[Intent.DRAIN]


def brokers_by_intent(reader: TableReader, kafka_cluster: str) -> dict[Intent, frozenset[int]]:
    """Brokers by what their newest row wants of them. Raises TableUnavailable."""
    newest = newest_intents(reader, kafka_cluster)
    return {intent: frozenset(broker for broker, row in newest.items() if row["intent"] == intent) for intent in Intent}


def drained_at(reader: TableReader, kafka_cluster: str) -> Callable[[int], frozenset[int]]:
    """Which brokers were being drained at a time, ms, as far back as notes are kept. Raises TableUnavailable."""
    columns = ("broker", "event_time", "intent")
    rows = reader.rows(BROKER_INTENT.name, columns=columns, where=of_cluster(kafka_cluster))
    notes = sorted((to_ms(row["event_time"]), row["broker"], row["intent"]) for row in rows)

    def at(time_ms: int) -> frozenset[int]:
        newest = {broker: intent for noted_ms, broker, intent in notes if noted_ms <= time_ms}
        return frozenset(broker for broker, intent in newest.items() if intent == Intent.DRAIN)

    return at


@dataclass(frozen=True, slots=True)
class DrainedBroker:
    """What a drained broker holds in one window, and what of that it did not hold before the drain."""

    broker: int
    held: int
    arrived: tuple[str, ...] | None
    """Names of partitions; None where it is not known what the broker held before."""


def read_drained(
    reader: TableReader, kafka_cluster: str, start_ms: int, *, window_ms: int
) -> tuple[DrainedBroker, ...]:
    """Brokers that are drained and shown by the window that starts then. Raises TableUnavailable."""
    rows = newest_intents(reader, kafka_cluster)
    since = {broker: to_ms(row["event_time"]) for broker, row in rows.items() if row["intent"] == Intent.DRAIN}

    def held(broker: int, window_start_ms: int) -> frozenset[PartitionKey] | None:
        where = of_window(kafka_cluster, window_start_ms) & equal("broker", broker)
        if not reader.rows(BROKER_LOAD.name, columns=("broker",), where=where):
            return None
        found = reader.rows(PARTITION_LOAD.name, columns=("topic", "partition"), where=where)
        return frozenset((row["topic"], row["partition"]) for row in found)

    drained = []
    for broker, since_ms in sorted(since.items()):
        now, before = held(broker, start_ms), held(broker, since_ms - since_ms % window_ms - window_ms)
        if now is not None:
            arrived = None if before is None else tuple(map(partition_name, sorted(now - before)))
            drained.append(DrainedBroker(broker, len(now), arrived))
    return tuple(drained)


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
