"""Upkeep of a table by its one writer: joins small files, deletes rows that have expired, and removes files and log
entries that no reader needs.

Each commit adds a file. Small files of about the same age are joined up to 1 MB, then up to 10 MB, then up to 100 MB
(`TIERS_BYTES`), so each row is written about three more times in its life. A step joins one run of files, the oldest
that are due, and reads at most 100 MB.

Rows must not expire by a clock that is ahead: ahead by years, for an hour, it would delete all history at the next
upkeep, and rows that were written meanwhile carry its times. So a time counts once rows have been written for a while
after it. What is right for longer than that expires at most that much later.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from streaming.contract import TABLES, Table
from streaming.errors import TableUnavailable
from streaming.tables.conditions import ALL_ROWS, Condition, at_most
from streaming.tables.data_files import DataFile, data_files, rewrite
from streaming.tables.opening import first_line, open_table
from streaming.tables.reader import JOINED, TableReader
from streaming.tables.stand_ins import stand_in_of
from streaming.tables.store import current_table
from streaming.tables.times import to_ms

TIERS_BYTES = (100_000_000, 10_000_000, 1_000_000)
"""Sizes up to which files are joined, largest first."""
EXPIRED = "rebalancer.expiredBefore"
"""Key of a commit's own metadata, with the time before which it has deleted all rows."""


def tidy(root: str, name: str) -> None:
    """Join small files and remove old ones, between two writes of the table's one writer; raises TableUnavailable."""
    if stand_in_of(root) is not None:
        return
    try:
        join_small_files(root, TABLES[name])
        delta = open_table(root, name)  # after that: to a table as it was before, joined files are nobody's
        if delta is not None:
            remove_old_files(delta)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TableUnavailable(f"table {name} can't be tidied: {first_line(error)}") from None


def join_small_files(root: str, table: Table) -> None:
    """Join small files until none are due, in a commit for each run of them; raises as `join_next`.

    Readers of older versions keep their files until `remove_old_files` removes them. After a run the table holds at
    most about forty files below half of the largest tier, however many commits it has taken: twenty of the two smaller
    tiers each (tests/tables/test_joining.py).
    """
    while join_next(root, table):
        pass


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


def expire_rows(
    root: str, table: Table, before: datetime, *, now_ms: int, alone: Callable[[], AbstractContextManager[object]]
) -> None:
    """Delete the rows of an earlier time in one commit, if there are any.

    Files that hold younger rows, too, are written anew before `alone` is entered for the commit. If another writer has
    replaced one of them meanwhile, the second try does all of its work within `alone`. Raises as `data_files.rewrite`.
    """
    expired = CommitProperties(custom_metadata={EXPIRED: before.isoformat()})
    for is_alone in (False, True):
        with alone() if is_alone else nullcontext():
            delta = current_table(root, table.name)
            files = [] if delta is None else data_files(delta, table)
            if delta is None or not any(file.begins is not None and file.begins < before for file in files):
                return
            old = [[file] for file in files if file.begins is None or file.begins < before]
            entered = nullcontext() if is_alone else alone()
            # No earlier than the newest commit: by a clock that was set back the removed files would seem old at once.
            removed_ms = max([now_ms, *(commit.get("timestamp", 0) for commit in delta.history(1))])
            if rewrite(delta, table, old, expired, alone=entered, now_ms=removed_ms, since=before) is not None:
                return


def remove_old_files(delta: DeltaTable) -> None:
    """Files and log entries that no version within the table's own retention needs."""
    # By the folder, not by the log: its checkpoints forget replaced files when their time is over, mostly before a run
    # of upkeep would have seen them. What killed writers have left goes too.
    delta.vacuum(dry_run=False, full=True)
    delta.cleanup_metadata()


def proven_ms(
    reader: TableReader, times: Mapping[str, str], *, after_ms: int, now_ms: int, where: Condition = ALL_ROWS
) -> int | None:
    """The latest time, up to `now_ms`, of a row that is `after_ms` older than the newest; None where there is none.

    `times` are time columns by table: they prove it together. Raises TableUnavailable.
    """
    newest = [reader.newest(name, column, where=where) for name, column in times.items()]
    known = [time for time in newest if time is not None]
    if not known:
        return None
    before = max(known) - timedelta(milliseconds=after_ms)
    earlier = [reader.newest(name, column, where=where & at_most(column, before)) for name, column in times.items()]
    proven = [to_ms(time) for time in earlier if time is not None]
    return min(now_ms, max(proven)) if proven else None
