"""One consumer group: its causes, advice on members, members and partitions, the worst first; and how many members
groups need, for whoever scales them.

What a member can read shows while its group is behind. It is remembered for a day, so the need of a group that keeps up
is known, too: whoever added members learns when fewer are enough. The memory is that of one process. Knows neither how
groups are judged nor who asks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from assignor_core.group.events import SHARE
from assignor_core.intervals import is_due
from assignor_core.lag import BurrowStatus, LagStatus
from assignor_core.lag.diagnosis import GroupReading, LagCause, LagFinding, Reading, diagnose
from assignor_core.lag.members import OPTIONS_MAX, MembersAdvice, advise_members
from assignor_core.resources import Resource
from streaming.settings import Settings
from streaming.tables import TableReader, at_least, equal, of_cluster
from streaming.views.broker_load import LoadPart, read_leaders, read_load
from streaming.views.group_columns import Runs, rows_listed
from streaming.views.group_memberships import known_members, read_rebalances
from streaming.views.group_picture import LagPicture, current_since, figures_of, held_back, reason_of
from streaming.views.group_ranking import GroupVerdict, lag_unit
from streaming.views.json_values import to_json

REBALANCES_OVER_MS = 3_600_000
NOT_MEMBERS = (LagCause.SLOW_MEMBER, LagCause.MEMBERS_HANG, LagCause.REBALANCING, LagCause.OPEN_TRANSACTION)
"""Causes that no number of members helps against."""
GROUP_FACTS = ("group_type", "group_members", "generation_id", "assignor", "topology_epoch")
_OF_PARTITION = (
    "group_instance_id", "rack_id", "target_member_id", "subscribed_topic_regex", "share_start_offset", "client_host",
)  # fmt: skip
_COLUMNS = ("topic", "partition", "member_id", "last_event_time_ms", "group_state", *GROUP_FACTS, *_OF_PARTITION)
Row = Mapping[str, Any]

GROUPS_MAX = 200
"""Most groups of which the need is worked out at a time; the worst come first."""
PARTITIONS_MAX = 5_000
"""Most partitions of these groups, together: to pack so many takes about a second."""
PACKED_MAX = 500
"""If a group has more partitions, only the bound is known: to pack so many takes seconds."""
READ_INTERVAL_MS = 60_000
"""Needs are worked out again after this, by the times of samples, ms: rates are those of half an hour."""
REMEMBERED_MS = 86_400_000
"""How long it is remembered what a member of a group can read, ms."""
BEHIND = frozenset({"warn", "stop", "stall"})
"""Verdicts of groups some of whose members may be behind."""


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
    facts, owners = _read_facts(reader, settings.kafka.cluster_name, group_id, window_ms=settings.pipeline.window_ms)
    return {
        "group": group_id,
        "state": max(rows, key=lambda row: row["last_event_time_ms"])["group_state"],
        **facts,
        "causes": to_json(causes),
        "members": to_json(advice_of(rows, causes)),
        "partitions": _partitions(rows, owners, burrow_of),
    }


def _partitions(
    rows: Sequence[Row], owners: Mapping[tuple[str, int], Row], burrow_of: Callable[[Row], BurrowStatus] | None
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
            **owners.get((row["topic"], row["partition"]), {}),
        }
        for row in order
    ]


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


def causes_of(
    reader: TableReader,
    settings: Settings,
    group_id: str,
    rows: list[dict[str, Any]],
    *,
    newest_ms: int,
    load: LoadPart | None,
) -> tuple[LagFinding, ...]:
    """Causes of the lag of a group with these partitions of a `LagPicture`; none where it doesn't lag. `load` as in
    `read_one_group`."""
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


def advice_of(rows: list[dict[str, Any]], causes: Iterable[LagFinding]) -> MembersAdvice | None:
    """How many members these partitions of a group with such causes need; None where that is unknown."""
    capacity_per_sec = capacity_of(rows, causes)
    return None if capacity_per_sec is None else advice_for(rows, capacity_per_sec)


def capacity_of(rows: Sequence[Row], causes: Iterable[LagFinding]) -> float | None:
    """Records that a member of a group with these partitions and causes can read per second; None where unknown.

    A member that lags reads as much as it can, so the most that any was seen to read is what a member can. Where one is
    slow, or hangs, or all wait for a rebalance or a transaction, it is not members that are missing.
    """
    behind = any(row["status"] == LagStatus.WARN and row["member_id"] is not None for row in rows)
    if not behind or any(diagnosis.cause in NOT_MEMBERS for diagnosis in causes):
        return None
    return most_read(rows) or None


def most_read(rows: Sequence[Row]) -> float:
    """Records per second that one member of these partitions reads at most."""
    read: dict[str, float] = {}
    for row in rows:
        if row["member_id"] is not None:
            read[row["member_id"]] = read.get(row["member_id"], 0.0) + (row["consumed_per_sec"] or 0.0)
    return max(read.values(), default=0.0)


def advice_for(rows: Sequence[Row], capacity_per_sec: float, *, options_max: int = OPTIONS_MAX) -> MembersAdvice | None:
    """How many members of this capacity these partitions of a group need; None if a write rate is unknown."""
    rates = {(row["topic"], row["partition"]): row["produced_per_sec"] for row in rows}
    if None in rates.values():
        return None
    owners = {(row["topic"], row["partition"]): row["member_id"] for row in rows if row["member_id"] is not None}
    return advise_members(rates, owners, capacity_per_sec, options_max=options_max)


def readings_of(rows: Sequence[Row], leaders: dict[tuple[str, int], int]) -> tuple[Reading, ...]:
    """Partitions of a `LagPicture`, with its figures, as a diagnosis reads them; `leaders` are broker ids."""
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


def _read_facts(
    reader: TableReader, kafka_cluster: str, group_id: str, *, window_ms: int
) -> tuple[dict[str, Any], Mapping[tuple[str, int], Mapping[str, Any]]]:
    """`GROUP_FACTS` of a group at its newest sample, and `_OF_PARTITION` of each partition's owner; None where unknown.

    These columns are read of one group alone: verdicts do not need them. Raises TableUnavailable.
    """
    newest = reader.newest_of_cluster("group_lag", "window_start", kafka_cluster)
    if newest is None:
        return dict.fromkeys(GROUP_FACTS), {}
    since = current_since(newest, window_ms=window_ms)
    where = of_cluster(kafka_cluster) & equal("group_id", group_id) & at_least("window_start", since)
    rows = sorted(reader.rows("group_lag", columns=_COLUMNS, where=where), key=lambda row: row["last_event_time_ms"])
    if not rows:
        return dict.fromkeys(GROUP_FACTS), {}
    last = rows[-1]
    owners = {row["member_id"] for row in rows if row["last_event_time_ms"] == last["last_event_time_ms"]} - {None}
    members = known_members(last["group_state"], last["group_members"], len(owners))
    partitions = {(row["topic"], row["partition"]): {name: row[name] for name in _OF_PARTITION} for row in rows}
    return {name: last[name] for name in GROUP_FACTS} | {"group_members": members}, partitions


class MembersNeeded:
    """Works out needs, and remembers what members can read. Not for two threads."""

    def __init__(self) -> None:
        self._capacities: dict[str, tuple[float, int]] = {}
        """Records per second that one member can read, and when a group that was behind showed it, ms."""
        self._needs: Mapping[str, MembersAdvice] = {}
        self._read_ms: int | None = None

    def of(self, picture: LagPicture, groups: Sequence[GroupVerdict]) -> Mapping[str, MembersAdvice]:
        """The needs of the picture's groups, as far as they are known; `groups` come worst first."""
        now_ms, names = picture.newest_event_ms, {row.group for row in groups}
        self._capacities = {
            name: (capacity, at_ms)
            for name, (capacity, at_ms) in self._capacities.items()
            if name in names and now_ms - at_ms <= REMEMBERED_MS
        }
        if self._read_ms is None or is_due(self._read_ms, READ_INTERVAL_MS, now_ms):
            self._read_ms = now_ms
            partitions = _partitions_of(picture, self._chosen(groups))
            needs = ((name, self._need(name, rows, now_ms)) for name, rows in partitions)
            self._needs = {name: need for name, need in needs if need is not None}
        return {name: need for name, need in self._needs.items() if name in names}

    def _chosen(self, groups: Sequence[GroupVerdict]) -> Iterator[GroupVerdict]:
        """Groups of which a need may be known, within the bounds."""
        partitions = 0
        known = (row for row in groups if row.status in BEHIND or row.group in self._capacities)
        for group in islice(known, GROUPS_MAX):
            if partitions + group.partitions <= PARTITIONS_MAX:
                partitions += group.partitions
                yield group

    def _need(self, group: str, rows: Sequence[Row], now_ms: int) -> MembersAdvice | None:
        """The need of a group with these partitions; None where no number of members helps, or nothing is known."""
        rebalancing_seconds = max(row["rebalancing_ms"] or 0.0 for row in rows) / 1000
        reading = GroupReading(group, readings_of(rows, {}), rebalancing_seconds=rebalancing_seconds)
        capacity_per_sec = capacity_of(rows, diagnose(reading))
        if capacity_per_sec is not None:
            self._capacities[group] = (capacity_per_sec, now_ms)
        elif reading.lagging or group not in self._capacities:
            return None
        known_per_sec, at_ms = self._capacities[group]
        capacity_per_sec = max(known_per_sec, most_read(rows))
        self._capacities[group] = (capacity_per_sec, at_ms)
        return advice_for(rows, capacity_per_sec, options_max=1 if len(rows) <= PACKED_MAX else 0)


def _partitions_of(picture: LagPicture, groups: Iterable[GroupVerdict]) -> Iterable[tuple[str, Sequence[Row]]]:
    """These groups of the picture, each with its partitions and their figures."""
    runs = Runs.of(picture.partitions, "group_id")
    names = runs.first(picture.partitions["group_id"])
    spans = {
        name: (start, count)
        for name, start, count in zip(names, runs.starts.tolist(), runs.counts.tolist(), strict=True)
    }
    for group in groups:
        start, count = spans[group.group]
        yield group.group, rows_listed(picture.with_figures(np.arange(start, start + count)))
