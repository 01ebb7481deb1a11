"""What windows of `group_lag` before those that verdicts need show of a few partitions: how long they wait by habit.

Most partitions keep up, and nobody asks how often their groups commit. Windows of the last hours are read of groups of
which records wait, once while they do: a wait that goes on ends no other wait.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.group.events import REBALANCING
from assignor_core.lag.history import Flags, Ints
from assignor_core.lag.waits import EarlierWaits
from streaming.tables import Condition, TableReader, at_least, below, one_of, utc
from streaming.views.lag_columns import OFFSETS, LagWindow, PartitionKeys, of_group, windows_of
from streaming.views.lag_points import history_of

TABLE, TIME = "group_lag", "window_start"
PAST = timedelta(hours=4)
"""Two waits of an hour are seen in it, when a third one has lasted for more than an hour."""
PARTITIONS_MAX = 20_000
"""Partitions of the groups that are read at a time; the others follow at the next time."""
READ_ROWS_MAX = 500_000
RENEWED_MS = 3_600_000
"""What was read is read again after so long: commits that were seen meanwhile count, too."""
STATES = ("group_id", "group_state", "last_event_time_ms")

Waits = tuple[float, float, float]
"""Usual wait, commits, since when: as `EarlierWaits`."""


class LagPasts:
    """Reads again and again: only of partitions that were not read lately. Not for two threads."""

    def __init__(self, reader: TableReader, where: Condition, window_ms: int) -> None:
        """`where` chooses the rows of the cluster that the windows have."""
        self._reader = reader
        self._where = where
        self._window_ms = window_ms
        self._known: dict[int, tuple[int, Waits]] = {}
        self._since: dict[str, int] = {}

    def forget(self) -> None:
        """Numbers of names are others from now on."""
        self._known = {}

    def waits(self, keys: Ints, names: PartitionKeys, windows: Sequence[LagWindow]) -> EarlierWaits:
        """What points before those of `windows`, oldest first, show of these keys, which are sorted. Raises
        TableUnavailable."""
        newest_ms = windows[-1].start_ms
        wanted = set(keys.tolist())
        fresh = {key: row for key, row in self._known.items() if key in wanted and row[0] > newest_ms - RENEWED_MS}
        unread = np.array(sorted(wanted - fresh.keys()), dtype=np.int64)
        if len(unread):
            fresh |= self._read(unread, names, windows, newest_ms)
        self._known = fresh
        none = (np.nan, 0.0, np.nan)
        rows = [fresh[key][1] if key in fresh else none for key in keys.tolist()]
        usual, commits, since = np.array(rows, dtype=np.float64).reshape(-1, 3).T
        return EarlierWaits(usual, commits, since)

    def rebalancing_since(self, groups: Sequence[str], newest: datetime) -> Mapping[str, int]:
        """When each of these groups, which are in the middle of a rebalance, was first seen so. Raises
        TableUnavailable."""
        unread = [group for group in groups if group not in self._since]
        if unread:
            where = self._where & at_least(TIME, newest - PAST) & one_of("group_id", unread)
            self._since |= rebalancing_since(self._reader.encoded(TABLE, columns=STATES, where=where))
        self._since = {group: self._since[group] for group in groups if group in self._since}
        return self._since

    def _read(
        self, keys: Ints, names: PartitionKeys, windows: Sequence[LagWindow], newest_ms: int
    ) -> dict[int, tuple[int, Waits]]:
        known = windows[-1].keys if len(windows[-1].keys) else windows[0].keys
        read = _first_groups(keys, known)
        groups = names.group_names(read)
        end = utc(windows[0].start_ms)
        begin = utc(newest_ms) - PAST
        past: list[LagWindow] = []
        shared: list[Ints] = []
        for rows in self._rows(begin, end, groups, len(known)):
            found = [window for window, _ in windows_of(rows, names, shared)]
            shared = list({id(window.keys): window.keys for window in found}.values())[:3]
            past = found + past
        seen = np.unique(np.concatenate([window.keys for window in past])) if past else np.zeros(0, dtype=np.int64)
        waits = dict.fromkeys(read.tolist(), (newest_ms, (np.nan, 0.0, np.nan)))
        of_read = read[np.isin(read, seen)]
        if len(of_read):
            history = history_of(past, of_read)
            found_waits = EarlierWaits.of_history(history, history.lag <= 0)
            columns = (found_waits.usual_ms, found_waits.commits, found_waits.since_ms)
            waits |= {
                key: (newest_ms, (usual, commits, since))
                for key, usual, commits, since in zip(of_read.tolist(), *(one.tolist() for one in columns), strict=True)
            }
        return waits

    def _rows(self, begin: datetime, end: datetime, groups: Sequence[str], partitions: int) -> Iterator[pa.Table]:
        """Windows that start from `begin` on and before `end`, some at a time, the newest first."""
        span = timedelta(milliseconds=self._window_ms * max(1, READ_ROWS_MAX // max(1, partitions)))
        while end > begin:
            start = max(begin, end - span)
            where = self._where & at_least(TIME, start) & below(TIME, end) & one_of("group_id", groups)
            yield self._reader.encoded(TABLE, columns=OFFSETS, where=where)
            end = start


def rebalancing_since(rows: pa.Table) -> dict[str, int]:
    """When each group whose newest row shows it in the middle of a rebalance was first seen so, ms. `rows` have
    `STATES`, in any order.

    >>> states = [("g", "Stable", 1), ("g", "PreparingRebalance", 2), ("g", "CompletingRebalance", 3)]
    >>> rebalancing_since(pa.table(dict(zip(STATES, zip(*states)))))
    {'g': 2}
    """
    texts = rows.select(STATES)
    distinct = texts.set_column(0, "group_id", texts["group_id"].cast(pa.string())).group_by(list(STATES)).aggregate([])
    is_rebalancing = pc.fill_null(pc.is_in(distinct["group_state"].cast(pa.string()), pa.array(REBALANCING)), False)
    since: dict[str, int] = {}
    order = pc.sort_indices(distinct, sort_keys=[("last_event_time_ms", "ascending")])
    columns = (distinct["group_id"], is_rebalancing, distinct["last_event_time_ms"])
    for group, rebalancing, at_ms in zip(*(column.take(order).to_pylist() for column in columns), strict=True):
        if rebalancing:
            since.setdefault(group, at_ms)
        else:
            since.pop(group, None)
    return since


def _first_groups(keys: Ints, known: Ints) -> Ints:
    """Keys of whole groups, so many that their partitions among `known` are not too many."""
    groups, of_known = of_group(keys), of_group(known)
    counts = np.searchsorted(of_known, groups, "right") - np.searchsorted(of_known, groups)
    is_first = np.append(True, np.diff(groups) != 0)
    taken = np.cumsum(np.where(is_first, counts, 0))
    is_taken: Flags = (taken <= PARTITIONS_MAX) | (groups == groups[0])
    return keys[is_taken]
