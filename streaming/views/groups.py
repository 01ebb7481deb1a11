"""The group part of a snapshot: verdict and lag of each consumer group, worst first, and its lag by topic.

Reads the newest windows of `group_lag`, closed or not: lag is a state, and its newest sample is the truest.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.lag import LagStatus
from streaming.settings import Settings
from streaming.tables import TableReader
from streaming.views.group_lag import LagPicture, reason_of
from streaming.views.lag_windows import read_picture


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """Lag of one group on one topic; None where it is unknown of every partition."""

    group: str
    topic: str
    state: str | None
    partitions: int
    statuses: Mapping[str, int]
    """Verdict: partitions that have it; those that none has are left out."""
    lag_records: int | None
    lag_max_records: int | None
    lag_seconds: float | None
    """Age of the oldest unread record's write, worst partition; at least that where the look-back is too short."""
    retention_ratio: float | None
    """Worst share of the retained records that is still to be read: at 1 records are being lost, or all were. None
    where nothing was ever deleted: all that was written is retained."""
    last_commit_ms: int | None
    """Newest commit of any partition; at the latest then, where none was seen in the look-back."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """One group, as its worst partition is."""

    group: str
    status: str
    why: str
    """The worst partition and what is wrong with it."""
    state: str | None
    partitions: int
    statuses: Mapping[str, int]
    lag_records: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class GroupPart:
    """All groups, worst first, and their topics, most lag first."""

    groups: tuple[GroupVerdict, ...] = ()
    topics: tuple[GroupTopic, ...] = ()
    newest_event_ms: int | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    """Verdict: groups that have it, all verdicts, worst first."""


def read_groups(reader: TableReader, settings: Settings) -> GroupPart:
    """The group part, of the newest windows, however old they are."""
    picture = read_picture(reader, settings.kafka.cluster_name, window_ms=settings.pipeline.window_ms)
    if picture is None:
        return GroupPart()
    groups = verdicts_by_group(picture)
    counts = Counter(row.status for row in groups)
    statuses = {status.label: counts[status.label] for status in sorted(LagStatus, reverse=True)}
    return GroupPart(groups, _by_topic(picture.partitions), picture.newest_event_ms, statuses)


def verdicts_by_group(picture: LagPicture) -> tuple[GroupVerdict, ...]:
    """One verdict a group, worst first, then most lag first."""
    rows = picture.partitions
    states, counts = states_by_group(rows), _statuses(rows, "group_id")
    figures = [("partition", "count"), ("lag_records", "sum"), ("lag_seconds", "max"), ("status", "max")]
    worst = _worst_partitions(rows)
    verdicts = [
        GroupVerdict(
            group=row["group_id"],
            status=LagStatus(row["status_max"]).label,
            why=_why(worst[row["group_id"]], counts[(row["group_id"],)]),
            state=states[row["group_id"]],
            partitions=row["partition_count"],
            statuses=counts[(row["group_id"],)],
            lag_records=row["lag_records_sum"],
            lag_seconds=row["lag_seconds_max"],
        )
        for row in rows.group_by(["group_id"], use_threads=False).aggregate(figures).to_pylist()
    ]
    return tuple(sorted(verdicts, key=lambda row: (-LagStatus[row.status.upper()], -(row.lag_records or 0), row.group)))


def states_by_group(partitions: pa.Table) -> dict[str, str | None]:
    """State of each group at its newest sample."""
    ordered = partitions.sort_by([("last_event_time_ms", "ascending")])
    states = ordered.group_by(["group_id"], use_threads=False).aggregate([("group_state", "last")])
    return {row["group_id"]: row["group_state_last"] for row in states.to_pylist()}


def _worst_partitions(rows: pa.Table) -> dict[str, dict[str, Any]]:
    """The partition that is worst, and of those the one with most lag, of each group."""
    order = [("group_id", "ascending"), ("status", "descending"), ("lag_records", "descending")]
    ordered = rows.sort_by([*order, ("topic", "ascending"), ("partition", "ascending")])
    first = ordered.append_column("place", pa.array(range(rows.num_rows))).group_by("group_id", use_threads=False)
    places = first.aggregate([("place", "min")])["place_min"]
    return {row["group_id"]: row for row in ordered.take(places).to_pylist()}


def _why(worst: Mapping[str, Any], statuses: Mapping[str, int]) -> str:
    status = LagStatus(worst["status"])
    worst_shown = f"{worst['topic']}-{worst['partition']}: {reason_of(worst)}"
    if status is LagStatus.OK:
        return worst_shown if worst["lag_records"] else reason_of(worst)
    return f"{statuses[status.label]} of {sum(statuses.values())} partitions; {worst_shown}"


def _by_topic(rows: pa.Table) -> tuple[GroupTopic, ...]:
    ratio = _retention_ratio(rows)
    figures = (("partition", "count"), ("lag_records", "sum"), ("lag_records", "max"), ("lag_seconds", "max"),
               ("ratio", "max"), ("commit_ms", "max"))  # fmt: skip
    grouped = rows.append_column("ratio", ratio).group_by(["group_id", "topic"], use_threads=False)
    states, counts = states_by_group(rows), _statuses(rows, "group_id", "topic")
    topics = [
        GroupTopic(
            group=row["group_id"],
            topic=row["topic"],
            state=states[row["group_id"]],
            partitions=row["partition_count"],
            statuses=counts[(row["group_id"], row["topic"])],
            lag_records=row["lag_records_sum"],
            lag_max_records=row["lag_records_max"],
            lag_seconds=row["lag_seconds_max"],
            retention_ratio=row["ratio_max"],
            last_commit_ms=None if row["commit_ms_max"] is None else math.floor(row["commit_ms_max"]),
        )
        for row in grouped.aggregate(list(figures)).to_pylist()
    ]
    return tuple(sorted(topics, key=lambda row: (-(row.lag_records or 0), row.group, row.topic)))


def _retention_ratio(rows: pa.Table) -> pa.ChunkedArray:
    """Lag per records retained, 1 where all that was still to be read is deleted; null where nothing was deleted yet:
    a group that has read nothing of a young topic has all of it before it and loses none."""
    lag = pc.cast(rows["lag_records"], pa.float64())
    retained = pc.cast(pc.subtract(rows["log_end_offset"], rows["log_start_offset"]), pa.float64())
    of_nothing = pc.cast(pc.greater(lag, 0), pa.float64())
    ratio = pc.if_else(pc.greater(retained, 0), pc.divide(lag, retained), of_nothing)
    return pc.if_else(pc.greater(rows["log_start_offset"], 0), ratio, None)


def _statuses(rows: pa.Table, *key: str) -> dict[tuple[str, ...], dict[str, int]]:
    """Partitions by verdict, worst first, of each key."""
    counted = rows.group_by([*key, "status"], use_threads=False).aggregate([("partition", "count")])
    counts: dict[tuple[str, ...], dict[str, int]] = {}
    for row in counted.sort_by([("status", "descending")]).to_pylist():
        statuses = counts.setdefault(tuple(row[name] for name in key), {})
        statuses[LagStatus(row["status"]).label] = row["partition_count"]
    return counts
