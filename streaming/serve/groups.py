"""The group part of a snapshot: lag of each consumer group and topic, worst first.

Reads the newest windows of `group_lag`, closed or not: lag is a state, and its newest sample is the truest.
"""

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
from pyarrow import compute as pc

from streaming.serve.reading import TableReader
from streaming.settings import Settings

CURRENT_WINDOWS = 2
"""A partition without a sample in this many windows before the newest is no longer the group's."""


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """Lag of one group on one topic; None where it is unknown of every partition."""

    group: str
    topic: str
    state: str | None
    partitions: int
    lag_records: int | None
    lag_max_records: int | None
    retention_ratio: float | None
    """Worst share of the retained records that is still to be read: at 1 records are being lost."""


@dataclass(frozen=True, slots=True)
class GroupPart:
    """All groups' topics, most lag first."""

    topics: tuple[GroupTopic, ...] = ()
    newest_event_ms: int | None = None


def read_groups(reader: TableReader, settings: Settings) -> GroupPart:
    """The group part, of the newest windows, however old they are."""
    newest = reader.newest("group_lag", "window_start")
    if newest is None:
        return GroupPart()
    since = newest - timedelta(milliseconds=CURRENT_WINDOWS * settings.pipeline.window_ms)
    where = (pc.field("kafka_cluster") == settings.kafka.cluster_name) & (pc.field("window_start") >= since)
    columns = ("group_id", "topic", "partition", "lag_records", "log_end_offset", "log_start_offset", "group_state",
               "last_event_time_ms")  # fmt: skip
    rows = _newest_samples(reader.arrow("group_lag", columns=columns, where=where))
    if not rows.num_rows:
        return GroupPart()
    return GroupPart(_by_topic(rows), pc.max(rows["last_event_time_ms"]).as_py())


def _newest_samples(rows: pa.Table) -> pa.Table:
    """One row per group and partition: the newest."""
    ordered = rows.sort_by([("last_event_time_ms", "ascending")])
    grouped = ordered.group_by(["group_id", "topic", "partition"], use_threads=False)
    names = [name for name in rows.schema.names if name not in ("group_id", "topic", "partition")]
    last = grouped.aggregate([(name, "last", pc.ScalarAggregateOptions(skip_nulls=False)) for name in names])
    return last.rename_columns([name.removesuffix("_last") for name in last.schema.names])


def _by_topic(rows: pa.Table) -> tuple[GroupTopic, ...]:
    retained = pc.cast(pc.subtract(rows["log_end_offset"], rows["log_start_offset"]), pa.float64())
    ratio = pc.if_else(pc.greater(retained, 0), pc.divide(pc.cast(rows["lag_records"], pa.float64()), retained), None)
    rows = rows.append_column("ratio", ratio)
    found = rows.group_by(["group_id", "topic"], use_threads=False).aggregate(
        [
            ("partition", "count"),
            ("lag_records", "sum"),
            ("lag_records", "max"),
            ("ratio", "max"),
        ]
    )
    states = _states(rows)
    topics = [
        GroupTopic(
            group=row["group_id"],
            topic=row["topic"],
            state=states[row["group_id"]],
            partitions=row["partition_count"],
            lag_records=row["lag_records_sum"],
            lag_max_records=row["lag_records_max"],
            retention_ratio=row["ratio_max"],
        )
        for row in found.to_pylist()
    ]
    return tuple(sorted(topics, key=lambda row: (-(row.lag_records or 0), row.group, row.topic)))


def _states(rows: pa.Table) -> dict[str, str | None]:
    """State of each group at its newest sample."""
    ordered = rows.sort_by([("last_event_time_ms", "ascending")])
    found = ordered.group_by(["group_id"], use_threads=False).aggregate([("group_state", "last")])
    return {row["group_id"]: row["group_state_last"] for row in found.to_pylist()}
