"""What surrounds one lagging group, read from the tables, and what its lag is put down to."""

from collections.abc import Iterable
from typing import Any

from assignor_core.group.events import SHARE
from assignor_core.lag import LagStatus
from assignor_core.lag.diagnosis import Cause, Finding, GroupReading, Reading, diagnose
from assignor_core.lag.members import MembersAdvice, advise_members
from assignor_core.resources import Resource
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.broker_load import LoadPart, read_leaders, read_load
from streaming.views.group_lag import held_back
from streaming.views.memberships import read_rebalances

REBALANCES_OVER_MS = 3_600_000
NOT_MEMBERS = (Cause.SLOW_MEMBER, Cause.MEMBERS_HANG, Cause.REBALANCING, Cause.OPEN_TRANSACTION)
"""Causes that no number of members helps against."""


def causes_of(
    reader: TableReader,
    settings: Settings,
    group_id: str,
    rows: list[dict[str, Any]],
    *,
    newest_ms: int,
    load: LoadPart | None = None,
) -> tuple[Finding, ...]:
    """Causes of the lag of a group with these partitions of a `LagPicture`; none where it doesn't lag.

    `load` is the newest closed window; it is read where it is not given.
    """
    load = load or read_load(reader, settings)
    topics = sorted({row["topic"] for row in rows})
    skew = load.skew.get(Resource.BYTES_IN)
    rebalances = read_rebalances(reader, settings.kafka.cluster_name, group_id, since_ms=newest_ms - REBALANCES_OVER_MS)
    reading = GroupReading(
        group=group_id,
        partitions=readings_of(rows, read_leaders(reader, settings.kafka.cluster_name, load, topics)),
        broker_load_ratio={broker: 1.0 + lean for broker, lean in skew.deviation.items()} if skew else {},
        rebalances_per_hour=rebalances * 3_600_000 / REBALANCES_OVER_MS,
        rebalancing_seconds=max(row["rebalancing_ms"] or 0.0 for row in rows) / 1000,
        shared_by=next((row["group_members"] for row in rows if row["group_type"] == SHARE), None),
    )
    return diagnose(reading)


def advice_of(rows: list[dict[str, Any]], causes: Iterable[Finding]) -> MembersAdvice | None:
    """How many members these partitions of a group with such causes need; None where that is unknown.

    A member that lags reads as much as it can, so the most that any was seen to read is what a member can. Where one is
    slow, or hangs, or all wait for a rebalance or a transaction, it is not members that are missing.
    """
    behind = any(row["status"] == LagStatus.WARN and row["member_id"] is not None for row in rows)
    if not behind or any(diagnosis.cause in NOT_MEMBERS for diagnosis in causes):
        return None
    read: dict[str, float] = {}
    for row in rows:
        if row["member_id"] is not None:
            read[row["member_id"]] = read.get(row["member_id"], 0.0) + (row["consumed_per_sec"] or 0.0)
    capacity_per_sec = max(read.values(), default=0.0)
    if not capacity_per_sec > 0:
        return None
    rates = {(row["topic"], row["partition"]): row["produced_per_sec"] for row in rows}
    if None in rates.values():
        return None
    owners = {(row["topic"], row["partition"]): row["member_id"] for row in rows if row["member_id"] is not None}
    return advise_members(rates, owners, capacity_per_sec)


def readings_of(rows: list[dict[str, Any]], leaders: dict[tuple[str, int], int]) -> tuple[Reading, ...]:
    """Partitions of a `LagPicture`, with its figures, as a diagnosis looks at them; `leaders` are broker ids."""
    return tuple(
        Reading(
            topic=row["topic"],
            partition=row["partition"],
            status=LagStatus(row["status"]),
            member_id=row["member_id"],
            client_id=row["client_id"],
            broker=leaders.get((row["topic"], row["partition"])),
            consumed_per_sec=row["consumed_per_sec"],
            produced_per_sec=row["produced_per_sec"],
            held_back_records=held_back(row),
        )
        for row in rows
    )
