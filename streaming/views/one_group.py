"""One consumer group: its causes, advice on members, members and partitions, the worst first.

Owns what is shown of a group. Knows neither how groups are judged nor who asks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from assignor_core.lag import BurrowStatus, LagStatus
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.as_json import to_json
from streaming.views.broker_load import LoadPart
from streaming.views.group_lag import LagPicture, figures_of, reason_of
from streaming.views.group_members import GroupFacts, read_group_facts
from streaming.views.groups import lag_unit
from streaming.views.lag_causes import advice_of, causes_of

Row = Mapping[str, Any]
GROUP_FACTS = ("group_type", "group_members", "generation_id", "assignor", "topology_epoch")


def read_one_group(
    reader: TableReader,
    settings: Settings,
    picture: LagPicture,
    group_id: str,
    *,
    burrow_of: Callable[[Row], BurrowStatus] | None = None,
    load: LoadPart | None = None,
) -> dict[str, Any]:
    """The group of the picture, as JSON's types. Raises TableUnavailable.

    `burrow_of` gives Burrow's verdict on a partition, and is given where that is shown. `load` is the newest closed
    window; it is read where it is not given.
    """
    rows: list[dict[str, Any]] = picture.with_figures().to_pylist()
    causes = causes_of(reader, settings, group_id, rows, newest_ms=picture.newest_event_ms, load=load)
    facts = read_group_facts(reader, settings.kafka.cluster_name, group_id, window_ms=settings.pipeline.window_ms)
    return {
        "group": group_id,
        "state": max(rows, key=lambda row: row["last_event_time_ms"])["group_state"],
        **{name: getattr(facts, name) if facts else None for name in GROUP_FACTS},
        "causes": to_json(causes),
        "members": to_json(advice_of(rows, causes)),
        "partitions": _partitions(rows, facts, burrow_of),
    }


def members_of(partitions: Iterable[Row]) -> list[dict[str, Any]]:
    """Members that own some of these partitions of `read_one_group`, most lag first; sums are None where unknown.

    >>> row = {"client_id": "c", "topic": "t", "consumed_per_sec": None, "status": "warn"}
    >>> members_of([{**row, "member_id": "m", "lag_records": lag} for lag in (3, None, 4)])[0]["lag_records"]
    7
    """
    owned: dict[str, list[Row]] = {}
    for row in partitions:
        if row["member_id"] is not None:
            owned.setdefault(row["member_id"], []).append(row)
    members = [
        {
            "member_id": member_id,
            "client_id": rows[0]["client_id"],
            "group_instance_id": rows[0].get("group_instance_id"),
            "rack_id": rows[0].get("rack_id"),
            "client_host": rows[0].get("client_host"),
            "partitions": len(rows),
            "lag_records": _sum(row["lag_records"] for row in rows),
            "consumed_per_sec": _sum(row["consumed_per_sec"] for row in rows),
        }
        for member_id, rows in owned.items()
    ]
    return sorted(members, key=lambda row: (-(row["lag_records"] or 0), row["member_id"]))


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _partitions(
    rows: Sequence[dict[str, Any]], facts: GroupFacts | None, burrow_of: Callable[[Row], BurrowStatus] | None
) -> list[dict[str, Any]]:
    order = sorted(rows, key=lambda row: (-row["status"], -(row["lag_records"] or 0), row["topic"], row["partition"]))
    return [
        {
            "topic": row["topic"],
            "partition": row["partition"],
            "status": (burrow_of(row) if burrow_of else LagStatus(row["status"])).name.lower(),
            "why": "" if burrow_of else reason_of(row),
            "lag_records": row["lag_records"],
            "lag_unit": lag_unit(row),
            "lag_seconds": row["lag_seconds"],
            "committed_offset": row["committed_offset"],
            "log_end_offset": row["log_end_offset"],
            "consumed_per_sec": row["consumed_per_sec"],
            "produced_per_sec": row["produced_per_sec"],
            "catch_up_seconds": figures_of(row).catch_up_seconds,
            "last_commit_ms": None if row["commit_ms"] is None else int(row["commit_ms"]),
            "member_id": row["member_id"],
            "client_id": row["client_id"],
            **(facts.partitions.get((row["topic"], row["partition"]), {}) if facts else {}),
        }
        for row in order
    ]
