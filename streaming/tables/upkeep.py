"""Upkeep of a table by its one writer: joins small files, removes files and log entries that no reader needs.

Rows must not expire by a clock that is ahead: ahead by years, for an hour, it would delete all history at the next
upkeep, and rows that were written meanwhile carry its times. So a time counts once rows have been written for a while
after it. What is right for longer than that expires at most that much later.
"""

from collections.abc import Mapping
from datetime import timedelta

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.contract import TABLES, Table
from streaming.errors import TableUnavailable
from streaming.tables.conditions import ALL_ROWS, Condition, at_most
from streaming.tables.joining import join_next
from streaming.tables.opening import first_line, open_table
from streaming.tables.reader import TableReader
from streaming.tables.stand_ins import stand_in_of
from streaming.tables.times import to_ms


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
    tiers each (tests/tables/test_file_sizes.py).
    """
    while join_next(root, table):
        pass


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
