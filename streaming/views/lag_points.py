"""Points of partitions from windows of `group_lag`: partition after partition, or point after point of all of them.

Owns which rows of a window are those of given keys; knows no verdict.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from assignor_core.lag import LagHistory
from assignor_core.lag.history import Flags, Floats, Ints
from assignor_core.lag.newest_first import Point
from streaming.views.lag_columns import LagWindow, Pair


def history_of(windows: Iterable[LagWindow], keys: Ints) -> LagHistory:
    """Points of these keys in these windows, oldest window first; each key is in one of them at least.

    `keys` are sorted, and a part of all.
    """
    known = list(windows)
    # Point after point, which is how windows hold them: turned once, at the end.
    shape = (len(known), 2, len(keys))
    columns = tuple(np.empty(shape) for _ in range(4))
    present = np.ones((len(known), len(keys)), dtype=bool)
    for place, (window, wanted, rows) in enumerate(_of_keys(known, keys)):
        if not isinstance(wanted, slice):
            present[place] = wanted
        log_start = window.log_start(rows)
        for column, pair in zip(columns, (*window.points(rows), (log_start, log_start)), strict=True):
            for which in range(2):
                column[place, which, wanted] = pair[which]
    counts = 2 * present.sum(axis=0)
    turned = (column.reshape(-1, len(keys)).T for column in columns)
    if present.all():
        kept = [column.ravel() for column in turned]
    else:
        is_there = np.repeat(present, 2, axis=0).T
        kept = [column[is_there] for column in turned]
    return LagHistory(np.cumsum(counts) - counts, *kept)


def points_of(windows: Iterable[LagWindow], keys: Ints) -> Iterator[Point]:
    """The same point after point, two a window, each of all keys; NaN of those that the window lacks."""
    for window, wanted, rows in _of_keys(windows, keys):
        pairs = window.points(rows)
        for which in range(2):
            yield _point(wanted, pairs, which)


def points_of_newest_first(windows: Sequence[LagWindow], keys: Ints) -> Iterator[Point]:
    """The same points, the newest of the newest window first; `windows` are oldest first here, too."""
    for window, wanted, rows in _of_keys(reversed(windows), keys):
        pairs = window.points(rows)
        for which in reversed(range(2)):
            yield _point(wanted, pairs, which)


def _of_keys(windows: Iterable[LagWindow], keys: Ints) -> Iterator[tuple[LagWindow, slice | Flags, slice | Ints]]:
    """Each window with which of the keys are in it, and their places there."""
    # Windows of the same partitions share one array of keys: it is searched once.
    places: dict[int, tuple[slice | Flags, slice | Ints]] = {}
    for window in windows:
        if id(window.keys) not in places:
            places[id(window.keys)] = _places(window.keys, keys)
        wanted, rows = places[id(window.keys)]
        yield window, wanted, rows


def _places(known: Ints, keys: Ints) -> tuple[slice | Flags, slice | Ints]:
    """Which keys are among the `known` ones, which are sorted, too; and their places there."""
    begin, end = (int(at) for at in np.searchsorted(known, (keys[0], keys[-1] + 1)))
    if np.array_equal(known[begin:end], keys):
        return slice(None), slice(begin, end)
    rows = np.searchsorted(known[begin:end], keys)
    wanted = np.append(known[begin:end], -1)[rows] == keys
    return (slice(None) if wanted.all() else wanted), begin + rows[wanted]


def _point(wanted: slice | Flags, pairs: Sequence[Pair], which: int) -> Point:
    time_ms, committed, log_end = (_spread(pair[which], wanted) for pair in pairs)
    return time_ms, committed, log_end


def _spread(values: Floats, wanted: slice | Flags) -> Floats:
    if isinstance(wanted, slice):
        return values
    spread = np.full(len(wanted), np.nan)
    spread[wanted] = values
    return spread
