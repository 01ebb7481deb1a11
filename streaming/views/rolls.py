"""Rows of `roll` as rolls: the one place that knows both the columns and the events of rolling restarts."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from assignor_core.roll import ENDS, Roll, RollEvent, RollPolicy, folded_roll
from streaming.contract import ROLL
from streaming.tables import Row, TableReader, below, equal, of_cluster, one_of

ABORT_SEQUENCE = 1_000_000
"""Sequence of a request to abort: anybody may write one, so it is outside the numbering of the other events."""


def open_roll(reader: TableReader, kafka_cluster: str) -> Roll | None:
    """The roll that has not ended; None if there is none. Raises TableUnavailable."""
    rows = reader.rows(ROLL.name, columns=("roll_id", "event", "event_time"), where=of_cluster(kafka_cluster))
    ended = {row["roll_id"] for row in rows if RollEvent(row["event"]) in ENDS}
    left = [row for row in rows if row["roll_id"] not in ended]
    if not left:
        return None
    newest: str = max(left, key=lambda row: (row["event_time"], row["roll_id"]))["roll_id"]
    return read_roll(reader, newest)


def read_roll(reader: TableReader, roll_id: str) -> Roll | None:
    """The roll with this id; None if the table has no beginning of it. Raises TableUnavailable, IllegalTransition."""
    return _rolled(roll_id, reader.rows(ROLL.name, where=equal("roll_id", roll_id)))


def roll_content(roll: Roll) -> dict[str, Any]:
    """The roll as JSON for `roll --json` and the API.

    >>> roll_content(Roll("r", (2, 1)).after(RollEvent.DEMOTING))["broker"]
    2
    """
    return {
        "roll_id": roll.roll_id,
        "event": roll.end,
        "brokers": list(roll.brokers),
        "restarted": list(roll.restarted),
        "broker": roll.next_broker,
        "phase": roll.phase,
        "margin": roll.policy.margin,
        "accepts_single": roll.policy.accepts_single,
    }


def last_event(reader: TableReader, roll_id: str) -> tuple[datetime, str]:
    """Time of the newest event of the roll, UTC, and what it says. Raises TableUnavailable."""
    columns = ("event_time", "sequence", "detail")
    rows = reader.rows(ROLL.name, columns=columns, where=equal("roll_id", roll_id))
    row = max(rows, key=lambda row: (row["event_time"], row["sequence"]))
    return row["event_time"], row["detail"]


def row_of_roll(
    roll: Roll, event: RollEvent, *, kafka_cluster: str, event_time: datetime, detail: str, by: str
) -> dict[str, Any]:
    """The row of the next event of the roll; the first event has all brokers of the roll, and its policy."""
    is_request = event is RollEvent.ABORT_REQUESTED
    is_first = event is RollEvent.STARTED
    return {
        "roll_id": roll.roll_id,
        "sequence": ABORT_SEQUENCE if is_request else 0 if is_first else roll.next_sequence,
        "kafka_cluster": kafka_cluster,
        "event_time": event_time,
        "event": event.value,
        "broker": None if is_first or is_request or event in ENDS else roll.next_broker,
        "detail": detail,
        "brokers": list(roll.brokers) if is_first else None,
        "by": by,
        "margin": roll.policy.margin if is_first else None,
        "accepts_single": roll.policy.accepts_single if is_first else None,
    }


def rolls_ended_before(reader: TableReader, kafka_cluster: str, before: datetime) -> list[str]:
    """Ids of rolls that ended before that time. Raises TableUnavailable."""
    ends = one_of("event", sorted(event.value for event in ENDS))
    where = of_cluster(kafka_cluster) & below("event_time", before) & ends
    return sorted({row["roll_id"] for row in reader.rows(ROLL.name, columns=("roll_id",), where=where)})


def _rolled(roll_id: str, rows: Iterable[Row]) -> Roll | None:
    in_order = sorted(rows, key=lambda row: row["sequence"])
    if not in_order or in_order[0]["brokers"] is None:
        return None
    first = in_order[0]
    policy = RollPolicy(first["margin"] or 0, bool(first["accepts_single"]))
    begun = Roll(roll_id, tuple(first["brokers"]), policy)
    return folded_roll(begun, [RollEvent(row["event"]) for row in in_order[1:]])
