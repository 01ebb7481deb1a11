"""Creates Delta tables and writes rows, without a JVM, for control and small batches.

Rows are plain dicts by column name; types come from `streaming.contract`. Appends are repeatable: each carries a
transaction id and version that the table remembers, so the same append given twice is written once.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from streaming.contract import TABLES, Table
from streaming.errors import TableUnavailable
from streaming.tables.conditions import Condition, of_cluster
from streaming.tables.definitions import (
    Differences,
    arrow_schema,
    bring_up_to_date,
    check_format,
    configuration,
    differences,
    other_types,
    row_schema,
    with_columns_of,
)
from streaming.tables.object_stores import storage_options
from streaming.tables.opening import first_line, log_entry, open_table, table_uri
from streaming.tables.places import local_folder
from streaming.tables.reader import Row
from streaming.tables.stand_ins import stand_in_of
from streaming.tables.times import AtTime

APPEND_TRIES = 5
KEPT_MAX = 32
"""Most tables that a thread keeps open to write; one root has fewer."""
_of_thread = threading.local()
PARTITIONED_BY = ("is_final",)
"""Columns that a table is partitioned by if it has them: rows of each value lie in files of their own. Each batch
rewrites the open windows, and rewrites every row that shares a file with them: all of a day, in the end.
"""


def create_table(root: str, name: str) -> DeltaTable:
    """The table, made with its schema and comments where it isn't there yet, and with the columns that are new where an
    earlier version has made it; raises TableUnavailable.
    """
    table = TABLES[name]
    uri = table_uri(root, name)
    # Where it is there, delta-rs takes ten times as long to find that out by itself.
    delta = _kept(uri) or open_table(root, name)
    try:
        if delta is None:
            delta = _created(uri, table)
        lacking = differences(delta, uri, table)
        if lacking:
            bring_up_to_date(delta, table, lacking)
        if local_folder(uri) is None:
            _keep(uri, delta)
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} at {uri} can't be made: {first_line(error)}") from None
    return delta


def current_table(root: str, name: str) -> DeltaTable | None:
    """The table as it is now, or None where it isn't there yet, for a thread that comes back to it: the thread keeps it
    open, as it keeps tables that it writes. Raises TableUnavailable.
    """
    uri = table_uri(root, name)
    delta = _kept(uri)
    if delta is None:
        delta = open_table(root, name)
    else:
        check_format(delta, name)
    if delta is not None:
        _keep(uri, delta)
    return delta


def _kept(uri: str) -> DeltaTable | None:
    """The table as this thread last wrote it, brought up to date; None where it must be opened.

    To open it on an object store takes one or two requests for each commit since the last checkpoint of its log: up to
    a hundred for each write; on a disk it takes 25 to 35 ms of CPU. To bring it up to date takes one request, and one
    for each commit of others; on a disk a look at two entries of the log where nobody else has written.
    """
    delta, seen = _tables_kept().pop(uri, (None, None))  # put back once it is sound
    if delta is None:
        return None
    folder = local_folder(uri)
    with suppress(DeltaError, OSError):
        if folder is not None:
            # A table that was made again in the same place has another entry of this version, or none.
            if seen is None or seen != _entry_seen(folder, delta.version()):
                return None
            if not log_entry(folder, delta.version() + 1).exists():
                return delta
        delta.update_incremental()
        return delta
    return None


def _keep(uri: str, delta: DeltaTable) -> None:
    kept, folder = _tables_kept(), local_folder(uri)
    kept[uri] = delta, None if folder is None else _entry_seen(folder, delta.version())
    while len(kept) > KEPT_MAX:
        del kept[next(iter(kept))]


def _entry_seen(folder: Path, version: int) -> tuple[int, int] | None:
    """What tells the log's entry of this version from another file of that name; None where there is none."""
    try:
        entry = log_entry(folder, version).stat()
    except OSError:
        return None
    return entry.st_ino, entry.st_mtime_ns


def _tables_kept() -> dict[str, tuple[DeltaTable, tuple[int, int] | None]]:
    """Tables that this thread keeps open, by URI, oldest first, and what was seen of their newest entry on a disk."""
    if not hasattr(_of_thread, "tables"):
        _of_thread.tables = {}
    kept: dict[str, tuple[DeltaTable, tuple[int, int] | None]] = _of_thread.tables
    return kept


def _created(uri: str, table: Table) -> DeltaTable:
    folder = local_folder(uri)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    return DeltaTable.create(
        uri,
        arrow_schema(table),
        mode="ignore",
        storage_options=storage_options(uri),
        partition_by=[name for name in table.column_names() if name in PARTITIONED_BY] or None,
        name=table.name,
        description=table.comment,
        configuration=configuration(uri, table),
        raise_if_key_not_exists=False,  # the format is a key of ours
    )


def ensure_table(root: str, name: str) -> None:
    """Make the table as `create_table` does, on any root; raises TableUnavailable."""
    stand_in = stand_in_of(root)
    if stand_in is None:
        create_table(root, name)
    else:
        stand_in.ensure(root, name)


def table_exists(root: str, name: str) -> bool:
    """Whether the table exists now; raises TableUnavailable."""
    stand_in = stand_in_of(root)
    return open_table(root, name) is not None if stand_in is None else stand_in.exists(root, name)


def append(
    root: str, name: str, rows: Sequence[Row], *, transaction_id: str, transaction_version: int | AtTime
) -> bool:
    """Append `rows` once: False where this transaction had been written already. Raises TableUnavailable."""
    return _write(root, name, rows, None, transaction_id, transaction_version)


def replace(
    root: str,
    name: str,
    rows: Sequence[Row],
    *,
    kafka_cluster: str,
    transaction_id: str,
    transaction_version: int | AtTime,
) -> bool:
    """Put `rows` in the place of all of one cluster, once, as `append` does."""
    return _write(root, name, rows, of_cluster(kafka_cluster), transaction_id, transaction_version)


def delete(root: str, name: str, where: Condition) -> int:
    """Delete rows that fulfil `where` in one commit, if there are any; returns how many. Raises TableUnavailable."""
    stand_in = stand_in_of(root)
    if stand_in is not None:
        return stand_in.delete(root, name, where)
    delta = open_table(root, name)
    if delta is None:
        return 0
    try:
        return int(delta.delete(str(where))["num_deleted_rows"])
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"rows of table {name} can't be deleted: {first_line(error)}") from None


def _write(
    root: str, name: str, rows: Sequence[Row], replaced: Condition | None, transaction_id: str, version: int | AtTime
) -> bool:
    """Write `rows` in the place of those that fulfil `replaced`; None appends.

    An append is tried again where somebody has deleted rows meanwhile; its transaction keeps it from being written
    twice. What replaces rows is not: who has replaced them meanwhile wins.
    """
    stand_in = stand_in_of(root)
    if stand_in is not None:
        return stand_in.write(root, name, rows, replaced, transaction_id=transaction_id, transaction_version=version)
    uri = table_uri(root, name)
    for tries_left in reversed(range(APPEND_TRIES if replaced is None else 1)):
        try:
            delta = create_table(root, name)
            if isinstance(version, AtTime):  # once: all tries are of one version
                version = version.after(delta.transaction_version(transaction_id))
            return _commit(root, delta, name, rows, replaced, Transaction(transaction_id, version))
        except CommitFailedError as error:
            _tables_kept().pop(uri, None)
            if not tries_left:
                raise _not_written(name, error) from None
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise _not_written(name, error) from None
    raise AssertionError("the last try returns or raises")


def _commit(
    root: str, delta: DeltaTable, name: str, rows: Sequence[Row], replaced: Condition | None, transaction: Transaction
) -> bool:
    # A retention shorter than the table's life would let an old duplicate in again, so none is set.
    written = delta.transaction_version(transaction.app_id)
    if written is not None and written >= transaction.version:
        return False
    data = with_columns_of(delta, pa.Table.from_pylist([dict(row) for row in rows], schema=row_schema(TABLES[name])))
    properties = CommitProperties(app_transactions=[transaction])
    if replaced is None:
        write_deltalake(delta, data, mode="append", commit_properties=properties)
    else:
        write_deltalake(delta, data, mode="overwrite", predicate=str(replaced), commit_properties=properties)
    _keep(table_uri(root, name), delta)  # in the version that it has now
    return True


def _not_written(name: str, error: Exception) -> TableUnavailable:
    return TableUnavailable(f"table {name} can't be written: {first_line(error)}")


def lacking(root: str, name: str) -> Differences | None:
    """What the table lacks, None without a table; raises TableUnavailable also if nothing can bring it up to date."""
    delta = open_table(root, name)
    if delta is None:
        return None
    try:
        found = differences(delta, table_uri(root, name), TABLES[name])
        others = other_types(delta, TABLES[name])
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} can't be read: {first_line(error)}") from None
    if others:
        raise TableUnavailable(f"table {name}: columns of another type than this release's: {', '.join(others)}")
    return found
