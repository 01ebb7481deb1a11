"""Upkeep of a table by its one writer: joins small files, removes files and log entries that no reader needs."""

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.errors import TableUnavailable
from streaming.tables.memory import memory_store
from streaming.tables.opening import first_line, open_table

TIERS_BYTES = (100_000_000, 10_000_000, 1_000_000)
"""Files are joined up to these sizes, a larger one only once there are enough of the tier below."""

FILES_OF_TIER = 8


def tidy(root: str, name: str) -> None:
    """Join small files, remove files and log entries beyond the table's own retention; raises TableUnavailable.

    For the table's one writer, between two writes: it must not conflict with another.
    """
    if memory_store(root) is not None:
        return
    delta = open_table(root, name)
    try:
        if delta is not None:
            join_small_files(delta)
            remove_old_files(delta)
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} can't be tidied: {first_line(error)}") from None


def join_small_files(delta: DeltaTable) -> None:
    """Readers of older versions keep theirs until `remove_old_files` takes them. No commit where nothing is to join."""
    sizes = pa.table(delta.get_add_actions())["size_bytes"].to_pylist()
    delta.optimize.compact(target_size=tier_due(sizes))


def tier_due(sizes: Sequence[int]) -> int:
    """Up to which size, bytes, files of these sizes are to be joined. One target for all would write what it has joined
    anew at each run, up to 100 MB, and what is replaced stays for the days of time travel: 5 GB a day.

    >>> tier_due([2_000_000] * 7 + [50_000] * 100), tier_due([2_000_000] * 8), tier_due([])
    (1000000, 10000000, 1000000)
    """
    for tier in TIERS_BYTES:
        if sum(tier // 10 <= size < tier for size in sizes) >= FILES_OF_TIER:
            return tier
    return TIERS_BYTES[-1]


def remove_old_files(delta: DeltaTable) -> None:
    """Files and log entries that no version within the table's own retention needs."""
    # By the folder, not by the log: its checkpoints forget replaced files when their time is over, mostly before a run
    # of upkeep would have seen them. What killed writers have left goes too.
    delta.vacuum(dry_run=False, full=True)
    delta.cleanup_metadata()
