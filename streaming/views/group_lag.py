"""Windows of `group_lag` as verdicts: which columns are read, one row per partition out. For serve and the commands.

Owns what is judged, and with which figures; knows neither how a table is read nor how a verdict is shown.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc

from assignor_core.group.events import CLASSIC_REBALANCING, EPOCH_REBALANCING, SHARE
from assignor_core.group.states import GroupState
from assignor_core.lag import (
    BurrowStatus,
    BurrowWindow,
    Commit,
    LagHistory,
    LagPolicy,
    LagStatus,
    Standing,
    burrow_status,
    measure,
)
from assignor_core.lag.history import Flags, Floats, Ints
from assignor_core.lag.reasons import PartitionFigures, reason
from streaming.tables import as_floats, as_whole
from streaming.views.lag_columns import KEY, OFFSETS, LagWindow, PartitionKeys, of_group, of_topic, starts_of
from streaming.views.lag_points import history_of
from streaming.views.lag_verdicts import CURRENT_WINDOWS, VERDICT_WINDOWS, judged, looked_at

HISTORY_MS = 1_800_000
HISTORY_WINDOWS_MAX = 200
POPULATED = (GroupState.STABLE.value, *CLASSIC_REBALANCING, *EPOCH_REBALANCING)
"""States of a group that has members."""
BURROW_INTERVALS = 10
"""Length of Burrow's rings, its default."""

SHOWN = (
    "lag_records", "log_start_offset", "group_state", "group_type", "group_members", "member_id", "client_id",
)  # fmt: skip
"""What is needed of the newest samples besides."""
COLUMNS = (*OFFSETS, *SHOWN)

FIGURES = ("completeness", "stuck_ms", "rewound_records", "consumed_per_sec", "produced_per_sec")
"""Those of `LagFigures` that a reason rests on."""
WHOLE = ("committed_offset", "log_end_offset", "last_event_time_ms")
"""Figures that are whole numbers."""


@dataclass(frozen=True, slots=True)
class LagPicture:
    """One row per group and partition, sorted by both, with figures and verdict; and the windows it rests on.

    Columns: `KEY`, `SHOWN`, committed_offset, log_end_offset and last_event_time_ms of the newest sample, status and
    at_once (`LagStatus`), lag_seconds, lag_seconds_is_final, commit_ms, left_over; null where unknown. Texts are
    dictionaries.
    """

    partitions: pa.Table
    newest_event_ms: int
    keys: Ints
    """Sorted; the column `row` numbers them."""
    _windows: tuple[LagWindow, ...]
    _policy: LagPolicy

    def with_figures(self, rows: Ints | None = None) -> pa.Table:
        """These rows of `partitions`, or all, with `FIGURES`, which take more time than a verdict does as a rule."""
        shown = self.partitions if rows is None else self.partitions.take(pa.array(rows))
        places, of_row = np.unique(shown["row"].to_numpy(), return_inverse=True)
        recent = looked_at(self._windows, self._policy)
        figures = measure(history_of(recent, self.keys[places]), self._policy, until_ms=self.newest_event_ms)
        for name in FIGURES:
            shown = shown.append_column(name, pa.array(getattr(figures, name)[of_row], from_pandas=True))
        return shown

    def history(self) -> LagHistory:
        """Points of all partitions, in the order of `keys`."""
        return history_of(self._windows, self.keys)


def since(newest_start: datetime, *, window_ms: int, verdicts_only: bool = False) -> datetime:
    """Start of the oldest window that a picture at `newest_start` rests on."""
    windows_ms = HISTORY_WINDOWS_MAX * window_ms
    verdicts_ms = VERDICT_WINDOWS * window_ms
    return newest_start - timedelta(milliseconds=min(HISTORY_MS, verdicts_ms if verdicts_only else windows_ms))


def current_since(newest_start: datetime, *, window_ms: int) -> datetime:
    """Start of the oldest window whose samples count as a partition's newest."""
    return newest_start - timedelta(milliseconds=CURRENT_WINDOWS * window_ms)


def reason_of(row: Mapping[str, Any]) -> str:
    """Why a partition of a picture, with its figures, has its verdict, in one line."""
    return reason(LagStatus(row["status"]), LagStatus(row["at_once"]), figures_of(row))


def figures_of(row: Mapping[str, Any]) -> PartitionFigures:
    """Figures of one partition of a picture, which has them."""
    return PartitionFigures(
        lag_records=row["lag_records"],
        lag_seconds=row["lag_seconds"],
        stuck_seconds=(row["stuck_ms"] or 0.0) / 1000,
        rewound_records=round(row["rewound_records"] or 0.0),
        consumed_per_sec=row["consumed_per_sec"],
        produced_per_sec=row["produced_per_sec"],
        client_id=row["client_id"],
        shared_by=row["group_members"] if row["group_type"] == SHARE else None,
        is_shared=row["group_type"] == SHARE,
        left_over=row["left_over"],
        completeness=row["completeness"] or 0.0,
    )


def burrow_status_of(history: LagHistory, row: Mapping[str, Any], *, now_ms: int) -> BurrowStatus:
    """Burrow's verdict on one partition of a picture with this history."""
    return burrow_status(burrow_window(history, row["row"]), now_ms=now_ms)


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


def picture_of(
    windows: Sequence[LagWindow],
    shown: Mapping[int, pa.Table],
    names: PartitionKeys,
    *,
    window_ms: int,
    groups: Sequence[str] | None = None,
) -> LagPicture | None:
    """The picture of `windows`, oldest first, with `SHOWN` of each row of the current ones by their start, ms.

    Of `groups` alone, if they are given. None where no window is current, or none of these groups is in it. Windows
    whose partitions are in newer ones too need not be in `shown`.
    """
    if not shown:
        return None
    current = [window for window in windows if window.start_ms in shown]
    keys = _union(window.keys for window in current)
    samples = _newest_samples(current, shown, keys)
    if groups is not None:
        wanted = names.are_of(keys, groups)
        keys, samples = keys[wanted], samples.filter(pa.array(wanted))
    if not len(keys):
        return None
    standing = _standing(samples, keys)
    newest_ms = max(window.newest_ms for window in windows)
    policy = LagPolicy(window_ms=window_ms)
    of_keys = judged(windows, keys, standing, policy, now_ms=newest_ms)
    figures: dict[str, NDArray[Any]] = {field.name: getattr(of_keys, field.name) for field in fields(of_keys)}
    figures |= {"left_over": standing.left_over, "row": np.arange(len(keys))}
    order = names.by_name(keys)
    columns = dict(zip(KEY, names.texts(keys[order]), strict=True))
    columns |= {name: samples[name].take(pa.array(order)) for name in SHOWN}
    for name, values in figures.items():
        column = pa.array(values[order], from_pandas=True)
        columns[name] = as_whole(column) if name in WHOLE else column
    return LagPicture(pa.table(columns), newest_ms, keys, tuple(windows), policy)


def _union(keys: Iterable[Ints]) -> Ints:
    """All of them once, sorted; windows of the same partitions share one array."""
    apart = list({id(one): one for one in keys}.values())
    return apart[0] if len(apart) == 1 else np.unique(np.concatenate(apart))


def _newest_samples(current: Sequence[LagWindow], shown: Mapping[int, pa.Table], keys: Ints) -> pa.Table:
    """Rows of `shown` in the order of `keys`, of each the newest window's."""
    newest = current[-1]
    if newest.keys is keys:
        return shown[newest.start_ms]
    row = np.full(len(keys), -1, dtype=np.int64)
    begin = 0
    for window in current:
        row[np.searchsorted(keys, window.keys)] = begin + np.arange(len(window.keys))
        begin += len(window.keys)
    return pa.concat_tables([shown[window.start_ms] for window in current]).unify_dictionaries().take(pa.array(row))


def _standing(samples: pa.Table, keys: Ints) -> Standing:
    owned = _flags(pc.is_valid(samples["member_id"]))
    populated = _flags(pc.fill_null(pc.is_in(samples["group_state"], pa.array(POPULATED)), False))
    group_owns, topic_owned = (_any(owned, starts_of(numbers)) for numbers in (of_group(keys), of_topic(keys)))
    log_start: Floats = as_floats(samples["log_start_offset"]).to_numpy()
    return Standing(owned, populated, populated & group_owns & ~topic_owned, log_start)


def _any(flags: Flags, starts: Ints) -> Flags:
    """Whether one of each run is true, for all of the run."""
    return np.repeat(np.logical_or.reduceat(flags, starts), np.diff(np.append(starts, len(flags))))


def _flags(values: pa.ChunkedArray) -> Flags:
    flags: Flags = values.to_numpy()
    return flags
