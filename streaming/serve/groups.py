"""The group part of a snapshot: lag of each consumer group and topic, worst first.

Reads the newest windows of `group_lag`, closed or not: lag is a state, and its newest sample is the truest.
"""

import math
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.lag.history import Floats, LagHistory, lag_seconds, last_commit_ms
from streaming.serve.reading import TableReader, instant, text
from streaming.settings import Settings

CURRENT_WINDOWS = 2
"""A partition without a sample in this many windows before the newest is no longer the group's."""
HISTORY_MS = 1_800_000
HISTORY_WINDOWS_MAX = 200

_KEY = ("group_id", "topic", "partition")
_OFFSETS = ("committed_offset", "committed_offset_first", "log_end_offset", "log_end_offset_first")
_COLUMNS = (
    *_KEY, *_OFFSETS, "lag_records", "log_start_offset", "group_state", "window_start", "first_event_time_ms",
    "last_event_time_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupTopic:
    """Lag of one group on one topic; None where it is unknown of every partition."""

    group: str
    topic: str
    state: str | None
    partitions: int
    lag_records: int | None
    lag_max_records: int | None
    lag_seconds: float | None
    """Age of the oldest unread record's write, worst partition; at least that where the look-back is too short."""
    retention_ratio: float | None
    """Worst share of the retained records that is still to be read: at 1 records are being lost."""
    last_commit_ms: int | None
    """Newest commit of any partition; at the latest then, where none was seen in the look-back."""


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
    window_ms = settings.pipeline.window_ms
    since = newest - timedelta(milliseconds=min(HISTORY_MS, HISTORY_WINDOWS_MAX * window_ms))
    where = f"kafka_cluster = {text(settings.kafka.cluster_name)} and window_start >= {instant(since)}"
    rows = reader.arrow("group_lag", columns=_COLUMNS, where=where)
    if not rows.num_rows:
        return GroupPart()
    current = newest - timedelta(milliseconds=CURRENT_WINDOWS * window_ms)
    samples = _newest_samples(rows.sort_by([(name, "ascending") for name in (*_KEY, "window_start")]))
    samples = samples.filter(pc.greater_equal(samples["window_start"], pa.scalar(current)))
    return GroupPart(_by_topic(samples), pc.max(rows["last_event_time_ms"]).as_py())


def _newest_samples(rows: pa.Table) -> pa.Table:
    """One row per group and partition, the newest, with what its history tells; `rows` are sorted by key and window."""
    starts = _starts(rows)
    history = LagHistory.of_windows(
        starts,
        (_floats(rows, "first_event_time_ms"), _floats(rows, "last_event_time_ms")),
        (_floats(rows, "committed_offset_first"), _floats(rows, "committed_offset")),
        (_floats(rows, "log_end_offset_first"), _floats(rows, "log_end_offset")),
    )
    newest = np.append(starts[1:], rows.num_rows) - 1
    samples = rows.take(pa.array(newest))
    samples = samples.append_column("age", pa.array(lag_seconds(history), from_pandas=True))
    return samples.append_column("commit_ms", pa.array(last_commit_ms(history), from_pandas=True))


def _starts(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Index of the first row of each partition."""
    fresh = np.zeros(rows.num_rows, dtype=bool)
    fresh[0] = True
    for name in _KEY:
        column = rows[name].combine_chunks()
        codes = column if name == "partition" else column.dictionary_encode().indices
        values = codes.to_numpy(zero_copy_only=False)
        fresh[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(fresh)


def _floats(rows: pa.Table, name: str) -> Floats:
    values: Floats = pc.cast(rows[name], pa.float64()).to_numpy()
    return values


def _by_topic(rows: pa.Table) -> tuple[GroupTopic, ...]:
    retained = pc.cast(pc.subtract(rows["log_end_offset"], rows["log_start_offset"]), pa.float64())
    ratio = pc.if_else(pc.greater(retained, 0), pc.divide(pc.cast(rows["lag_records"], pa.float64()), retained), None)
    figures = (("partition", "count"), ("lag_records", "sum"), ("lag_records", "max"), ("age", "max"),
               ("ratio", "max"), ("commit_ms", "max"))  # fmt: skip
    grouped = rows.append_column("ratio", ratio).group_by(["group_id", "topic"], use_threads=False)
    states = _states(rows)
    topics = [
        GroupTopic(
            group=row["group_id"],
            topic=row["topic"],
            state=states[row["group_id"]],
            partitions=row["partition_count"],
            lag_records=row["lag_records_sum"],
            lag_max_records=row["lag_records_max"],
            lag_seconds=row["age_max"],
            retention_ratio=row["ratio_max"],
            last_commit_ms=None if row["commit_ms_max"] is None else math.floor(row["commit_ms_max"]),
        )
        for row in grouped.aggregate(list(figures)).to_pylist()
    ]
    return tuple(sorted(topics, key=lambda row: (-(row.lag_records or 0), row.group, row.topic)))


def _states(rows: pa.Table) -> dict[str, str | None]:
    """State of each group at its newest sample."""
    ordered = rows.sort_by([("last_event_time_ms", "ascending")])
    found = ordered.group_by(["group_id"], use_threads=False).aggregate([("group_state", "last")])
    return {row["group_id"]: row["group_state_last"] for row in found.to_pylist()}
