"""Windows of `group_lag` as verdicts: which columns are read, one row per partition out. For serve and the commands.

Owns the way from the table's columns to the core's; knows neither how a table is read nor how a verdict is shown.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.lag import (
    BurrowStatus,
    BurrowWindow,
    Commit,
    Evaluated,
    LagHistory,
    LagPolicy,
    LagStatus,
    Standing,
    burrow_status,
    evaluate,
    lag_seconds,
    last_commit_ms,
)
from assignor_core.lag.history import Floats, Ints
from assignor_core.lag.reasons import PartitionFigures, reason

CURRENT_WINDOWS = 2
"""A partition without a sample in this many windows before the newest is no longer the group's."""
HISTORY_MS = 1_800_000
HISTORY_WINDOWS_MAX = 200
POPULATED = ("Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
"""States of a group that has members; the last two are those of the newer protocol (KIP-848)."""
BURROW_INTERVALS = 10
"""Length of Burrow's rings, its default."""

KEY = ("group_id", "topic", "partition")
COLUMNS = (
    *KEY, "committed_offset", "committed_offset_first", "log_end_offset", "log_end_offset_first", "lag_records",
    "log_start_offset", "group_state", "member_id", "client_id", "window_start", "first_event_time_ms",
    "last_event_time_ms",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LagPicture:
    """One row per group and partition, sorted by both, with figures and verdict; and the windows it rests on.

    Columns besides the table's: status and at_once (`LagStatus`), lag_seconds, commit_ms, left_over, and those of
    `LagFigures`; null where unknown. `row` numbers the partition in `history`.
    """

    partitions: pa.Table
    history: LagHistory
    newest_event_ms: int


def since(newest_start: datetime, *, window_ms: int) -> datetime:
    """Start of the oldest window that a picture at `newest_start` rests on."""
    return newest_start - timedelta(milliseconds=min(HISTORY_MS, HISTORY_WINDOWS_MAX * window_ms))


def judge(rows: pa.Table, *, window_ms: int, newest_start: datetime | None = None) -> LagPicture | None:
    """Verdicts on `rows`, windows of `group_lag` of this length with `COLUMNS` in any order; None of no rows.

    `newest_start` is when the newest window begins, if these are not all rows of a cluster.
    """
    if not rows.num_rows:
        return None
    order, starts = _by_partition(rows)
    history = LagHistory.of_windows(
        starts,
        (_floats(rows, "first_event_time_ms")[order], _floats(rows, "last_event_time_ms")[order]),
        (_floats(rows, "committed_offset_first")[order], _floats(rows, "committed_offset")[order]),
        (_floats(rows, "log_end_offset_first")[order], _floats(rows, "log_end_offset")[order]),
    )
    samples = rows.take(pa.array(order[np.append(starts[1:], rows.num_rows) - 1]))
    standing = _standing(samples)
    now_ms = int(history.time_ms.max())
    evaluated = evaluate(history, standing, LagPolicy(window_ms=window_ms), now_ms=now_ms)
    partitions = _with_verdicts(samples, history, standing, evaluated)
    newest_start = newest_start or pc.max(rows["window_start"]).as_py()
    current = newest_start - timedelta(milliseconds=CURRENT_WINDOWS * window_ms)
    return LagPicture(partitions.filter(pc.greater_equal(partitions["window_start"], current)), history, now_ms)


def reason_of(row: Mapping[str, Any]) -> str:
    """Why a partition of a picture has its verdict, in one line."""
    return reason(LagStatus(row["status"]), LagStatus(row["at_once"]), figures_of(row))


def figures_of(row: Mapping[str, Any]) -> PartitionFigures:
    """Figures of one partition of a picture."""
    return PartitionFigures(
        lag_records=row["lag_records"],
        lag_seconds=row["lag_seconds"],
        stuck_seconds=(row["stuck_ms"] or 0.0) / 1000,
        rewound_records=round(row["rewound_records"] or 0.0),
        consumed_per_sec=row["consumed_per_sec"],
        produced_per_sec=row["produced_per_sec"],
        client_id=row["client_id"],
        left_over=row["left_over"],
        completeness=row["completeness"] or 0.0,
    )


def burrow_status_of(picture: LagPicture, row: Mapping[str, Any]) -> BurrowStatus:
    """Burrow's verdict on one partition of a picture."""
    return burrow_status(burrow_window(picture.history, row["row"]), now_ms=picture.newest_event_ms)


def burrow_window(history: LagHistory, row: int) -> BurrowWindow:
    """A partition as Burrow would have stored it, as far as samples show: a commit wherever the offset was another.

    A commit of the same offset leaves no trace in samples: a consumer that repeats itself shows as one that is silent.
    """
    start, count = int(history.starts[row]), int(history.counts[row])
    commits: list[Commit] = []
    for index in range(start, start + count):
        offset = history.committed[index]
        if math.isnan(offset) or (commits and commits[-1].offset == offset):
            continue
        end = history.log_end[index]
        lag = None if math.isnan(end) else max(0, int(end - offset))
        commits.append(Commit(int(offset), int(history.time_ms[index]), lag))
    ends = [int(end) for end in history.log_end[start : start + count] if not math.isnan(end)]
    return BurrowWindow(commits[-BURROW_INTERVALS:], ends[-BURROW_INTERVALS:])


def _with_verdicts(samples: pa.Table, history: LagHistory, standing: Standing, evaluated: Evaluated) -> pa.Table:
    figures = evaluated.figures
    columns: dict[str, Any] = {
        "row": np.arange(samples.num_rows),
        "status": evaluated.status,
        "at_once": evaluated.at_once,
        "left_over": standing.left_over,
        "lag_seconds": lag_seconds(history),
        "commit_ms": last_commit_ms(history),
        "completeness": figures.completeness,
        "stuck_ms": figures.stuck_ms,
        "rewound_records": figures.rewound_records,
        "consumed_per_sec": figures.consumed_per_sec,
        "produced_per_sec": figures.produced_per_sec,
    }
    for name, values in columns.items():
        samples = samples.append_column(name, pa.array(values, from_pandas=True))
    return samples


def _standing(samples: pa.Table) -> Standing:
    owned = _flags(pc.is_valid(samples["member_id"]))
    populated = _flags(pc.fill_null(pc.is_in(samples["group_state"], pa.array(POPULATED)), False))
    by_group, by_topic = _starts(_numbers(samples, KEY[:1])), _starts(_numbers(samples, KEY[:2]))
    group_owns, topic_owned = _any(owned, by_group), _any(owned, by_topic)
    return Standing(owned, populated, populated & group_owns & ~topic_owned, _floats(samples, "log_start_offset"))


def _any(flags: np.ndarray[tuple[int], np.dtype[np.bool_]], starts: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Whether one of each run is true, for all of the run."""
    return np.repeat(np.logical_or.reduceat(flags, starts), np.diff(np.append(starts, len(flags))))


def _by_partition(rows: pa.Table) -> tuple[Ints, Ints]:
    """Places of the rows by partition and time, and where in that order each partition begins.

    Sorted as numbers: to sort and to move millions of rows with their texts takes longer than all that is made of them.
    """
    partitions = _numbers(rows, KEY)
    windows = _codes(rows["window_start"])
    order = np.argsort(partitions * (windows.max() + 1) + windows, kind="stable")
    return order, _starts(partitions[order])


def _starts(numbers: Ints) -> Ints:
    """Index of the first of each run of equal numbers."""
    return np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))


def _numbers(rows: pa.Table, names: tuple[str, ...]) -> Ints:
    """One number a row, in the order of these columns: equal where all of them are."""
    numbers = np.zeros(rows.num_rows, dtype=np.int64)
    for name in names:
        codes = _codes(rows[name])
        numbers = numbers * (codes.max() + 1) + codes
    return numbers


def _codes(values: pa.ChunkedArray) -> Ints:
    """Ranks of the values among those that occur, from 0 on."""
    encoded = values.combine_chunks().dictionary_encode()
    order = pc.array_sort_indices(encoded.dictionary).to_numpy()
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    codes: Ints = ranks[encoded.indices.to_numpy()]
    return codes


def _flags(values: pa.ChunkedArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    flags: np.ndarray[tuple[int], np.dtype[np.bool_]] = values.to_numpy()
    return flags


def _floats(rows: pa.Table, name: str) -> Floats:
    values: Floats = pc.cast(rows[name], pa.float64()).to_numpy()
    return values
