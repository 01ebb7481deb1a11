"""Joins small data files of a table into larger ones, a bounded step at a time (`data_files.py` writes them).

Each commit adds a file. Small files of about the same age are joined up to 1 MB, then up to 10 MB, then up to 100 MB
(`TIERS_BYTES`), so each row is written about three more times in its life. A step joins one run of files, the oldest
that are due, and reads at most 100 MB.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime

import numpy as np
from deltalake import CommitProperties

from streaming.contract import Table
from streaming.tables.data_files import DataFile, data_files, rewrite
from streaming.tables.reader import JOINED
from streaming.tables.store import current_table

TIERS_BYTES = (100_000_000, 10_000_000, 1_000_000)
"""Sizes up to which files are joined, largest first."""


def join_next(root: str, table: Table, *, alone: AbstractContextManager[object] | None = None) -> bool:
    """Join one run of small files, if any are due; return whether another run is due by what the table held before.
    Files that came meanwhile wait for the next time, or a busy table would never be done.

    `alone` is entered for the commit and keeps other writers of the table out. Raises as `data_files.rewrite` does.
    """
    delta = current_table(root, table.name)
    # Files of open windows are replaced by each batch, so they are not joined.
    files = [] if delta is None else [file for file in data_files(delta, table) if file.is_final is not False]
    files.sort(key=_age)
    sizes = [file.size_bytes for file in files]
    run = next_run(sizes)
    if delta is None or not run:
        return False
    joined = CommitProperties(custom_metadata={JOINED: len(run)})
    added = rewrite(delta, table, [[files[index] for index in run]], joined, alone=alone or nullcontext())
    if added is None:
        return False
    left = [size for index, size in enumerate(sizes) if index not in run]
    return bool(next_run([*(file.size for file in added), *left]))


def _age(file: DataFile) -> tuple[datetime, str]:
    """What orders files by time; files whose time the log does not know come last."""
    return file.begins or datetime.max.replace(tzinfo=UTC), file.path


def tier_due(sizes: Sequence[int]) -> int:
    """Return the size in bytes up to which files of these sizes are to be joined.

    A tier is due once the files below half of it could fill a file of its size together. Half, since a joined file is
    somewhat smaller than its parts: if only files of nearly full size counted, no joined file would ever count for the
    next tier. The smallest tier is always due. One tier for all files would rewrite up to 100 MB in each run, and
    replaced files stay for the days of time travel: 5 GB a day.

    >>> tier_due([900_000] * 11 + [50_000] * 100), tier_due([900_000] * 12), tier_due([])
    (10000000, 10000000, 1000000)
    >>> tier_due([6_000_000] * 8), tier_due([6_000_000] * 17)
    (1000000, 100000000)
    """
    return next(
        (tier for tier in TIERS_BYTES if sum(size for size in sizes if size < tier // 2) >= tier), TIERS_BYTES[-1]
    )


def next_run(sizes: Sequence[int]) -> list[int]:
    """Return the indices of the files that the next step joins, for sizes of files in the order of time: the oldest
    files below half of the tier that is due, up to the tier together. Empty if no two files are due.

    >>> next_run([900_000] * 3), next_run([300_000, 900_000, 300_000]), next_run([2_000_000] * 6)
    ([], [0, 2], [0, 1, 2, 3, 4])
    """
    tier = tier_due(sizes)
    small = [index for index, size in enumerate(sizes) if size < tier // 2]
    totals = np.cumsum([sizes[index] for index in small])
    run = small[: int(np.searchsorted(totals, tier, side="right"))]
    return run if len(run) > 1 else []
