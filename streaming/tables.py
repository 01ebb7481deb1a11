"""Delta tables without a JVM: create, append, read, for control, serve and the commands.

Rows are plain dicts by column name; types come from `streaming.schemas`. Appends are repeatable: each carries a
transaction id and version that the table remembers, so the same append given twice is written once. Spark is the
writer of the window tables; this module is the writer of the rest.
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import compute as pc

from streaming.errors import TableUnavailable
from streaming.places import local_folder
from streaming.schemas import TABLES, ColumnType, Table

Row = Mapping[str, Any]

ARROW_TYPES: dict[ColumnType, pa.DataType] = {
    ColumnType.STRING: pa.string(),
    ColumnType.LONG: pa.int64(),
    ColumnType.INTEGER: pa.int32(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.BINARY: pa.binary(),
    ColumnType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    ColumnType.INTEGER_LIST: pa.list_(pa.int32()),
}

CONFIGURATION = {
    # A little longer than replaced files stay: time travel needs both.
    "delta.logRetentionDuration": "interval 50 hours",
    "delta.deletedFileRetentionDuration": "interval 48 hours",
    "delta.checkpointInterval": "50",
    # Upkeep removes old log entries: as a part of each commit it lists the whole log, tens of thousands of files.
    "delta.enableExpiredLogCleanup": "false",
}
TIERS_BYTES = (100_000_000, 10_000_000, 1_000_000)
"""Files are joined up to these sizes, a larger one only once there are enough of the tier below."""
FILES_OF_TIER = 8

PARTITIONED_BY = ("is_final",)
"""Where a table has such a column, rows of each value lie in files of their own. Each batch writes the open windows
anew, and what shares a file with them would be written anew too: all of a day, in the end.
"""


def utc(time_ms: int) -> datetime:
    """Milliseconds since 1970 as the tables' timestamps."""
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC)


def instant(time: datetime) -> str:
    """A time as delta-rs's SQL: it compares timestamps only with literals of exactly the column's type."""
    return f"""arrow_cast('{time.astimezone(UTC).isoformat()}', 'Timestamp(Microsecond, Some("UTC"))')"""


def to_ms(time: datetime) -> int:
    """The reverse of `utc`."""
    return round(time.timestamp() * 1000)


def arrow_schema(table: Table) -> pa.Schema:
    """Arrow schema with the comments as field metadata, where delta-rs stores them as column comments."""
    return pa.schema(
        [
            pa.field(column.name, ARROW_TYPES[column.type], column.nullable, metadata={"comment": column.comment})
            for column in table.columns
        ]
    )


def row_schema(table: Table) -> pa.Schema:
    """The same without comments, for rows that are written: where those of the table are others, of an earlier version,
    delta-rs would refuse the rows.
    """
    return pa.schema(field.remove_metadata() for field in arrow_schema(table))


def table_uri(root: str, name: str) -> str:
    """Where table `name` lies below the settings' folder or URI."""
    return f"{root.rstrip('/')}/{name}"


def open_table(root: str, name: str) -> DeltaTable | None:
    """The table as it is now, or None where it isn't there yet; raises TableUnavailable."""
    uri = table_uri(root, name)
    _check_folder(root)
    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} at {uri} can't be read: {first_line(error)}") from None


def create_table(root: str, name: str) -> DeltaTable:
    """The table, made with its schema and comments where it isn't there yet, and with the columns that are new where an
    earlier version has made it; raises TableUnavailable.
    """
    table = TABLES[name]
    uri = table_uri(root, name)
    _check_folder(root)
    try:
        folder = local_folder(uri)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        delta = DeltaTable.create(
            uri,
            arrow_schema(table),
            mode="ignore",
            partition_by=[name for name in table.column_names() if name in PARTITIONED_BY] or None,
            name=table.name,
            description=table.comment,
            configuration={**CONFIGURATION, **table.configuration},
        )
        _set_properties(delta, {**CONFIGURATION, **table.configuration})
        _add_new_columns(delta, table)
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} at {uri} can't be made: {first_line(error)}") from None
    return delta


def append(root: str, name: str, rows: Sequence[Row], *, transaction_id: str, transaction_version: int) -> bool:
    """Append `rows` once: False where this transaction had been written already. Raises TableUnavailable."""
    return _write(root, name, rows, None, Transaction(transaction_id, transaction_version))


def replace(
    root: str, name: str, rows: Sequence[Row], *, kafka_cluster: str, transaction_id: str, transaction_version: int
) -> bool:
    """Put `rows` in the place of all of one cluster, once, as `append` does."""
    predicate = f"kafka_cluster = '{kafka_cluster.replace(chr(39), chr(39) * 2)}'"
    return _write(root, name, rows, predicate, Transaction(transaction_id, transaction_version))


def tidy(root: str, name: str) -> None:
    """Join small files, remove files and log entries beyond the table's own retention; raises TableUnavailable.

    For the table's one writer, between two writes: it must not conflict with another.
    """
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


def _write(root: str, name: str, rows: Sequence[Row], replaced: str | None, transaction: Transaction) -> bool:
    """Write `rows` in the place of those for which the SQL predicate `replaced` holds; None appends."""
    delta = create_table(root, name)
    try:
        # A retention shorter than the table's life would let an old duplicate in again, so none is set.
        written = delta.transaction_version(transaction.app_id)
        if written is not None and written >= transaction.version:
            return False
        data = pa.Table.from_pylist([dict(row) for row in rows], schema=row_schema(TABLES[name]))
        properties = CommitProperties(app_transactions=[transaction])
        if replaced is None:
            write_deltalake(delta, data, mode="append", commit_properties=properties)
        else:
            write_deltalake(delta, data, mode="overwrite", predicate=replaced, commit_properties=properties)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TableUnavailable(f"table {name} can't be written: {first_line(error)}") from None
    return True


def read(
    root: str,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> list[dict[str, Any]]:
    """Rows that fulfil `where` (a pyarrow expression, used to skip files too); none where there is no table."""
    rows: list[dict[str, Any]] = read_arrow(root, name, columns=columns, where=where).to_pylist()
    return rows


def read_arrow(
    root: str,
    name: str,
    *,
    columns: Sequence[str] | None = None,
    where: pc.Expression | None = None,
) -> pa.Table:
    """The same as columns, for millions of rows: as dicts each costs some kB."""
    delta = open_table(root, name)
    if delta is None:
        schema = arrow_schema(TABLES[name])
        return pa.schema([schema.field(column) for column in columns or schema.names]).empty_table()
    try:
        return delta.to_pyarrow_dataset().to_table(columns=list(columns) if columns else None, filter=where)
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise TableUnavailable(f"table {name} can't be read: {first_line(error)}") from None


def file_statistics(delta: DeltaTable, column: str) -> pa.Table:
    """What the log tells of each data file: `num_records`, and `least` and `greatest` of a time column, null where they
    are not told. Reads no file. Raises DeltaError or OSError.
    """
    files = pa.table(delta.get_add_actions(flatten=True))
    time = ARROW_TYPES[ColumnType.TIMESTAMP]
    untold = pa.nulls(files.num_rows, time)

    def told(name: str) -> pa.Array | pa.ChunkedArray:
        # They may come without their zone, which is UTC.
        return files[name].cast(time) if name in files.column_names else untold

    columns = [told(f"min.{column}"), told(f"max.{column}"), files["num_records"]]
    return pa.table(columns, ["least", "greatest", "num_records"])


def newest(rows: Iterable[Row], column: str) -> Row | None:
    """The row with the greatest `column`; None of none."""
    return max(rows, key=lambda row: row[column], default=None)


def _set_properties(delta: DeltaTable, wanted: Mapping[str, str]) -> None:
    """An earlier version may have made the table with others."""
    present = delta.metadata().configuration
    other = {name: value for name, value in wanted.items() if present.get(name) != value}
    if other:
        delta.alter.set_table_properties(other)


def _add_new_columns(delta: DeltaTable, table: Table) -> None:
    """Comments that have changed stay as they were."""
    present = {field.name for field in delta.schema().fields}
    missing = [field for field in Schema.from_arrow(arrow_schema(table)).fields if field.name not in present]
    if missing:
        delta.alter.add_columns(missing)


def _check_folder(root: str) -> None:
    """A file in the place of the folder, or one that can't be reached or entered, must not pass for tables to come.

    Nothing at all in its place may be a first start, or a disk that isn't mounted: which of the two can't be told here.
    """
    folder = local_folder(root)
    if folder is None:
        return
    try:
        is_folder = stat.S_ISDIR(folder.stat().st_mode)
    except FileNotFoundError:
        return
    except OSError as error:
        raise TableUnavailable(f"tables folder {root} can't be reached: {error.strerror or error}") from None
    if not is_folder or not os.access(folder, os.R_OK | os.X_OK):
        raise TableUnavailable(f"tables folder {root} is not a folder that can be read: is storage.tables right?")


def first_line(error: Exception) -> str:
    """What the error says, or else its kind."""
    return (str(error).splitlines() or [type(error).__name__])[0]
