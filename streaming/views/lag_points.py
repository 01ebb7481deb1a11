"""Points of partitions from windows of `group_lag`: partition after partition, or point after point of all of them.

Owns which rows of a window are those of given keys; knows no verdict.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from assignor_core.lag import LagHistory
from assignor_core.lag.history import Flags, Floats, Ints
from assignor_core.lag.keeping_up import Point
from streaming.views.lag_columns import LagWindow, Pair


def history_of(windows: Iterable[LagWindow], keys: Ints) -> LagHistory:
    """Points of these keys in these windows, oldest window first; each key is in one of them at least.

    `keys` are sorted, and a part of all.
    """
    known = list(windows)
    # Point after point, which is how windows hold them: turned once, at the end.
    shape = (len(known), 2, len(keys))
    columns = tuple(np.empty(shape) for _ in range(3))
    present = np.ones((len(known), len(keys)), dtype=bool)
    for place, window in enumerate(known):
        wanted, pairs = _rows_of(window, keys)
        if not isinstance(wanted, slice):
            present[place] = wanted
        for column, pair in zip(columns, pairs, strict=True):
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
    for window in windows:
        wanted, columns = _rows_of(window, keys)
        for which in range(2):
            time_ms, committed, log_end = (_spread(pair[which], wanted) for pair in columns)
            yield time_ms, committed, log_end


def _rows_of(window: LagWindow, keys: Ints) -> tuple[slice | Flags, Sequence[Pair]]:
    """Which keys are in the window, and their times, committed offsets and log ends."""
    begin, end = (int(at) for at in np.searchsorted(window.keys, (keys[0], keys[-1] + 1)))
    if np.array_equal(window.keys[begin:end], keys):
        return slice(None), window.points(slice(begin, end))
    there = window.keys[begin:end]
    rows = np.searchsorted(there, keys)
    wanted = np.append(there, -1)[rows] == keys
    return wanted, window.points(begin + rows[wanted])


def _spread(values: Floats, wanted: slice | Flags) -> Floats:
    if isinstance(wanted, slice):
        return values
    spread = np.full(len(wanted), np.nan)
    spread[wanted] = values
    return spread
