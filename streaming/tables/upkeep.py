"""Upkeep of a table by its one writer: joins small files, deletes rows that have expired, and removes files and log
entries that no reader needs.

Rows must not expire by a clock that is ahead: ahead by years, for an hour, it would delete all history at the next
upkeep, and rows that were written meanwhile carry its times. So a time counts once rows have been written for a while
after it. What is right for longer than that expires at most that much later.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import DeltaError

from streaming.contract import TABLES, Table
from streaming.errors import TableUnavailable
from streaming.tables.conditions import ALL_ROWS, Condition, at_most
from streaming.tables.data_files import data_files, rewrite
from streaming.tables.joining import join_next
from streaming.tables.opening import first_line, open_table
from streaming.tables.reader import TableReader
from streaming.tables.stand_ins import stand_in_of
from streaming.tables.store import current_table
from streaming.tables.times import to_ms

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
