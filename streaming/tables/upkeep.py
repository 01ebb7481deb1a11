"""Upkeep of a table by its one writer: joins small files, removes files and log entries that no reader needs.

Rows must not expire by a clock that is ahead: ahead by years, for an hour, it would delete all history at the next
upkeep, and rows that were written meanwhile carry its times. So a time counts once rows have been written for a while
after it. What is right for longer than that expires at most that much later.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.errors import TableUnavailable
from streaming.tables.conditions import ALL_ROWS, Condition, at_most
from streaming.tables.opening import first_line, open_table
from streaming.tables.reader import TableReader
from streaming.tables.stand_ins import stand_in_of
from streaming.tables.times import to_ms

TIERS_BYTES = (100_000_000, 10_000_000, 1_000_000)
"""Sizes up to which files are joined, largest first."""


def tidy(root: str, name: str) -> None:
    """Join small files and remove old ones, between two writes of the table's one writer; raises TableUnavailable."""
    if stand_in_of(root) is not None:
        return
    delta = open_table(root, name)
    try:
        if delta is not None:
            join_small_files(delta)
            remove_old_files(delta)
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} can't be tidied: {first_line(error)}") from None


def join_small_files(delta: DeltaTable) -> None:
    """Join neighbouring small files of each partition up to the tier that is due; no commit if none can be joined.

    Readers of older versions keep their files until `remove_old_files` removes them. After a run each partition holds
    at most about forty files below half of the largest tier, however many commits it has taken: twenty of the two
    smaller tiers each (tests/tables/test_file_sizes.py).
    """
    actions = pa.table(delta.get_add_actions(flatten=True))
    by_partition: dict[tuple[Any, ...], list[int]] = {}
    columns = [actions["size_bytes"], *(actions[f"partition.{name}"] for name in delta.metadata().partition_columns)]
    for size, *partition in zip(*(column.to_pylist() for column in columns), strict=True):
        by_partition.setdefault(tuple(partition), []).append(size)
    delta.optimize.compact(target_size=max(map(tier_due, by_partition.values()), default=TIERS_BYTES[-1]))


def tier_due(sizes: Sequence[int]) -> int:
    """Return the size in bytes up to which files of these sizes, all of one partition, are to be joined.

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
