"""Keeps the windows of `group_lag` that verdicts rest on, and reads those that have changed, no others.

A verdict is a function of the windows of a fixed time (docs/lag.md): what is kept here is those windows and
nothing else, so one who has just started shows what one shows who has read each window as it came. Older windows are
read of a few partitions alone, whose records wait: they show how long the partitions wait by habit.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
from pyarrow import compute as pc

from assignor_core.group.events import REBALANCING
from assignor_core.lag.history import Flags, Ints
from assignor_core.lag.waits import EarlierWaits
from streaming.contract.records import PARTITION_MAX
from streaming.tables import (
    ALL_ROWS,
    Condition,
    TableReader,
    at_least,
    at_most,
    below,
    of_cluster,
    one_of,
    to_ms,
    unfit_as_unavailable,
    utc,
)
from streaming.views.group_columns import OFFSETS, LagWindow, PartitionKeys, history_of, of_group, windows_of
from streaming.views.group_picture import (
    COLUMNS,
    NO_RULES,
    SHOWN,
    LagPicture,
    LagRules,
    current_since,
    picture_of,
    since,
)

TABLE, TIME = "group_lag", "window_start"
READ_ROWS_MAX = 500_000
"""Rows that are read at a time, if one window has fewer."""
PAST = timedelta(hours=4)
"""Two waits of an hour are seen in it, when a third one has lasted for more than an hour."""
PARTITIONS_MAX = 20_000
"""Partitions of the groups that are read at a time; the others follow at the next time."""
RENEWED_MS = 3_600_000
"""Time after which older windows of a partition are read again, with the commits seen meanwhile."""
STATES = ("group_id", "group_state", "last_event_time_ms")
Waits = tuple[float, float, float]
"""Usual wait, number of commits and start of the current wait, as in `EarlierWaits`."""


def read_picture(
    reader: TableReader,
    kafka_cluster: str,
    *,
    window_ms: int,
    where: Condition = ALL_ROWS,
    verdicts_only: bool = False,
    rules: LagRules = NO_RULES,
) -> LagPicture | None:
    """Partitions with a sample in the newest windows of the cluster that fulfil `where`, with their verdicts; None
    before there are any. Raises TableUnavailable.

    Verdicts are as of the newest sample of any group, which `where` may leave out. With `verdicts_only` the age of a
    lag and of a commit is shown up to the look-back of a verdict, for a third of the time.
    """
    as_of = None if where is ALL_ROWS else _newest_sample(reader, kafka_cluster)
    windows = LagWindows(
        reader, kafka_cluster, window_ms=window_ms, where=where, verdicts_only=verdicts_only, rules=rules
    )
    windows.refresh()
    return windows.picture(as_of=as_of)


def _newest_sample(reader: TableReader, kafka_cluster: str) -> LagWindow | None:
    """The newest window, empty, with the time of its newest sample; None before there is one."""
    newest = reader.newest_of_cluster(TABLE, TIME, kafka_cluster)
    if newest is None:
        return None
    newest_window = of_cluster(kafka_cluster) & at_least(TIME, newest)
    samples = reader.encoded(TABLE, columns=("last_event_time_ms",), where=newest_window)
    return LagWindow.empty(to_ms(newest), pc.max(samples["last_event_time_ms"]).as_py())


class LagWindows:
    """The windows of one cluster, as `reader` shows them. Not for two threads."""

    def __init__(
        self,
        reader: TableReader,
        kafka_cluster: str,
        *,
        window_ms: int,
        where: Condition = ALL_ROWS,
        verdicts_only: bool = False,
        rules: LagRules = NO_RULES,
    ) -> None:
        """`rules` are the settings' rules of groups; `where` and `verdicts_only`: see `read_picture`."""
        self._reader = reader
        self._cluster = kafka_cluster
        self._where = of_cluster(kafka_cluster) & at_most("partition", PARTITION_MAX) & where
        self._window_ms = window_ms
        self._verdicts_only = verdicts_only
        self._rules = rules
        self._pasts = LagPasts(reader, self._where, window_ms)
        self._forget()

    def _forget(self) -> None:
        self._version: int | None = None
        self._files: dict[str, tuple[datetime | None, datetime | None]] = {}
        self.names = PartitionKeys.empty()
        self._windows: dict[int, LagWindow] = {}
        self._shown: dict[int, pa.Table] = {}
        self._pasts.forget()

    @unfit_as_unavailable(TABLE)
    def refresh(self) -> bool:
        """Read what has changed since the last time; True if anything has. Raises TableUnavailable."""
        version = self._reader.version(TABLE)
        if version is None:
            had_any = bool(self._windows)
            self._forget()
            return had_any
        if version == self._version:
            return False
        # What is read in part and fails is read again: windows and files must be of one version.
        before, self._version = self._version, None
        has_changed = self._bring_up_to_date(before)
        self._version = version
        pa.default_memory_pool().release_unused()  # of rows that were read, and are numbers now
        return has_changed

    @unfit_as_unavailable(TABLE)
    def complete(self, groups: Sequence[str] | None = None) -> None:
        """Read, until the next `refresh`, the windows that `verdicts_only` leaves out: of these groups, or of all.

        Raises TableUnavailable.
        """
        if not self._windows or not self._verdicts_only or groups == []:
            return
        newest = utc(max(self._windows))
        begin, end = (since(newest, window_ms=self._window_ms, verdicts_only=known) for known in (False, True))
        self._read_backwards(begin, end, ALL_ROWS if groups is None else one_of("group_id", groups))

    @unfit_as_unavailable(TABLE)
    def picture(self, groups: Sequence[str] | None = None, *, as_of: LagWindow | None = None) -> LagPicture | None:
        """Verdicts as the table was at the last `refresh`, of these groups or of all; None before there are any.

        `as_of`: the newest window of all, empty, where other rows of it are left out. Raises TableUnavailable for rows
        that can't be shown.
        """
        windows = [self._windows[start_ms] for start_ms in sorted(self._windows)]
        if as_of is not None and windows and windows[-1].start_ms == as_of.start_ms:
            windows[-1] = replace(windows[-1], newest_ms=as_of.newest_ms)
        elif as_of is not None:
            windows.append(as_of)
        if not windows:
            return None
        newest = utc(windows[-1].start_ms)
        return picture_of(
            windows, self._shown, self.names, window_ms=self._window_ms, groups=groups,
            earlier_of=lambda keys: self._pasts.waits(keys, self.names, windows),
            rebalancing_since=lambda rebalancing: self._pasts.rebalancing_since(rebalancing, newest),
            rules=self._rules,
        )  # fmt: skip

    def _bring_up_to_date(self, known_version: int | None) -> bool:
        newest = self._reader.newest_of_cluster(TABLE, TIME, self._cluster)
        if known_version is None or newest is None or self._is_to_be_read_anew(newest):
            self._forget()
        if newest is None:
            return True
        oldest = since(newest, window_ms=self._window_ms, verdicts_only=self._verdicts_only)
        changed = self._changed_since(oldest, known_version if self._windows else None)
        self._drop(oldest, newest)
        if changed is not None:
            self._read(changed, newest)
        return changed is not None

    def _is_to_be_read_anew(self, newest: datetime) -> bool:
        """Whether the table was re-created, or most stored names are of groups and topics that no longer exist."""
        if not self._windows:
            return False
        known_ms = max(self._windows)
        return to_ms(newest) < known_ms or self.names.are_mostly_gone(self._windows[known_ms].keys)

    def _changed_since(self, oldest: datetime, known_version: int | None) -> datetime | None:
        """Start of the oldest window from `oldest` on that may have other rows than were read; None without one."""
        files = self._reader.files(TABLE, TIME)
        if files is None:
            return oldest
        before, self._files = self._files, files
        if known_version is None:
            return oldest
        if self._reader.has_same_rows_since(TABLE, known_version):
            return None
        spans = [(before.get(path) or files[path]) for path in before.keys() ^ files.keys()]
        starts = [least or oldest for least, greatest in spans if greatest is None or greatest >= oldest]
        return max(oldest, min(starts)) if starts else None

    def _drop(self, oldest: datetime, newest: datetime) -> None:
        """Removes stored windows that no picture needs any more."""
        current = current_since(newest, window_ms=self._window_ms)
        self._windows = {start: window for start, window in self._windows.items() if start >= to_ms(oldest)}
        self._shown = {start: rows for start, rows in self._shown.items() if start >= to_ms(current)}

    def _read(self, changed: datetime, newest: datetime) -> None:
        """Read all windows from `changed` on, the newest first: it shows how many rows a window has."""
        for start_ms in [start_ms for start_ms in self._windows if start_ms >= to_ms(changed)]:
            del self._windows[start_ms]
            self._shown.pop(start_ms, None)
        self._add(COLUMNS, newest, newest + timedelta(milliseconds=self._window_ms))
        self._read_backwards(changed, newest)
        self._show_partitions_of_older_windows(newest)

    def _show_partitions_of_older_windows(self, newest: datetime) -> None:
        """Read what is shown of partitions that the newest window lacks, as a rule of none: texts cost most."""
        current_ms = to_ms(current_since(newest, window_ms=self._window_ms))
        shown: list[Ints] = []
        for start_ms in sorted((start_ms for start_ms in self._windows if start_ms >= current_ms), reverse=True):
            keys = self._windows[start_ms].keys
            if start_ms not in self._shown and not any(keys is known or _is_part(keys, known) for known in shown):
                self._add(COLUMNS, utc(start_ms), utc(start_ms) + timedelta(milliseconds=self._window_ms))
                keys = self._windows[start_ms].keys
            shown.append(keys)

    def _read_backwards(self, begin: datetime, end: datetime, where: Condition = ALL_ROWS) -> None:
        """Read windows from `begin` on and before `end`, some at a time."""
        rows = max((len(window.keys) for window in self._windows.values()), default=0)
        spans = list(_backwards(begin, end, self._window_ms, rows))
        if not spans:
            return
        # Arrow reads without the interpreter's lock, so one core reads while the other takes in what was read.
        with ThreadPoolExecutor(1, "lag-windows") as pool:
            ahead = pool.submit(self._rows, OFFSETS, *spans[0], where)
            for following in [*spans[1:], None]:
                read = ahead.result()
                if following is not None:
                    ahead = pool.submit(self._rows, OFFSETS, *following, where)
                self._take(OFFSETS, read)

    def _add(self, columns: tuple[str, ...], begin: datetime, end: datetime) -> None:
        """Read windows that start from `begin` on and before `end`."""
        self._take(columns, self._rows(columns, begin, end))

    def _rows(self, columns: tuple[str, ...], begin: datetime, end: datetime, where: Condition = ALL_ROWS) -> pa.Table:
        of_span = self._where & at_least(TIME, begin) & below(TIME, end) & where
        return self._reader.encoded(TABLE, columns=columns, where=of_span)

    def _take(self, columns: tuple[str, ...], rows: pa.Table) -> None:
        """Stores the windows of rows that were read."""
        known = list({id(window.keys): window.keys for window in self._windows.values()}.values())
        shown = _texts_once(rows) if columns is COLUMNS else None
        for window, places in windows_of(rows, self.names, known):
            self._windows[window.start_ms] = window
            if shown is not None:
                self._shown[window.start_ms] = shown.take(pa.array(places))


def _backwards(begin: datetime, end: datetime, window_ms: int, rows: int) -> Iterator[tuple[datetime, datetime]]:
    """Begin and end of spans that cover the time between, the newest first. A window has so many `rows`; of a span
    `READ_ROWS_MAX` are read at most, or one window."""
    span = timedelta(milliseconds=window_ms * max(1, READ_ROWS_MAX // max(1, rows)))
    while end > begin:
        yield max(begin, end - span), end
        end -= span


def _is_part(keys: Ints, known: Ints) -> bool:
    """Whether all of the sorted keys are among the sorted `known`."""
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.array_equal(known[places], keys)


def _texts_once(rows: pa.Table) -> pa.Table:
    """What is shown of newest samples; texts that recur are kept once."""
    columns = {name: rows[name].combine_chunks() for name in SHOWN}
    return pa.table({
        name: column.dictionary_encode() if pa.types.is_string(column.type) else column
        for name, column in columns.items()
    })  # fmt: skip


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
        """Forgets all waits: names have other numbers from now on."""
        self._known = {}

    def waits(self, keys: Ints, names: PartitionKeys, windows: Sequence[LagWindow]) -> EarlierWaits:
        """What points before those of `windows`, oldest first, show of these sorted keys. Raises TableUnavailable."""
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
        for start, stop in _backwards(begin, end, self._window_ms, len(known)):
            where = self._where & at_least(TIME, start) & below(TIME, stop) & one_of("group_id", groups)
            rows = self._reader.encoded(TABLE, columns=OFFSETS, where=where)
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
