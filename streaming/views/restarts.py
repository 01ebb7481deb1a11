"""What a restart of a broker would do: as JSON for `restart-check --json` and the API, and as rows of `broker_restart`.

Control writes the rows.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from assignor_core.restart import RestartCheck
from streaming.contract import BROKER_RESTART
from streaming.tables import TableReader, of_cluster, to_ms, utc

LISTED_MAX = 1_000
"""Partitions of each kind that are listed; `count` counts them all."""
SHOWN_MAX_MS = 300_000
"""How old what control saw may be, ms, to be shown as what is."""
EFFECTS = ("offline", "refusing", "at_edge", "behind", "moving")


@dataclass(frozen=True, slots=True)
class BrokerRestart:
    """What a restart of one broker would do, in figures."""

    broker: int
    event_ms: int
    is_safe: bool
    partitions: Mapping[str, int]
    """Partitions by effect."""


def restart_content(check: RestartCheck, stops: Collection[str]) -> dict[str, Any]:
    """The check with at most `LISTED_MAX` partitions of each kind, and how many there are.

    >>> from assignor_core.live import LiveCluster, LivePartition
    >>> from assignor_core.restart import restart_check
    >>> live = LiveCluster("c", {1: None}, {("t", 0): LivePartition((1,), 1, (1,))})
    >>> restart_content(restart_check(1, live, {"t": 1}), ["why"])["offline"]
    {'count': 1, 'partitions': [['t', 0]]}
    """
    content: dict[str, Any] = {"broker": check.broker, "is_safe": not stops, "stops": list(stops)}
    for name, value in asdict(check).items():
        if isinstance(value, tuple):
            content[name] = {"count": len(value), "partitions": [list(key) for key in value[:LISTED_MAX]]}
        else:
            content[name] = value
    return content


def restart_rows(checks: Mapping[int, RestartCheck], kafka_cluster: str, *, now_ms: int) -> list[dict[str, Any]]:
    """One row for each check of which all is known."""
    return [
        {
            "kafka_cluster": kafka_cluster,
            "broker": broker,
            "event_time": utc(now_ms),
            "is_safe": not check.stops(),
            **{effect: len(getattr(check, effect)) for effect in EFFECTS},
        }
        for broker, check in sorted(checks.items())
        if not check.unknown and not check.is_blind
    ]


def read_restarts(reader: TableReader, kafka_cluster: str) -> tuple[BrokerRestart, ...]:
    """What control saw last, by broker. Raises TableUnavailable."""
    rows = reader.rows(BROKER_RESTART.name, where=of_cluster(kafka_cluster))
    found = (
        BrokerRestart(
            row["broker"], to_ms(row["event_time"]), row["is_safe"], {effect: row[effect] for effect in EFFECTS}
        )
        for row in rows
    )
    return tuple(sorted(found, key=lambda row: row.broker))
