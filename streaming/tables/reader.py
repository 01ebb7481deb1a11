"""Reads Delta tables without a JVM: rows as dicts, or as Arrow where there may be millions of them."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import compute as pc

from streaming.contract import TABLES, ColumnType
from streaming.errors import TableUnavailable
from streaming.tables.arrow import ARROW_TYPES, arrow_schema
from streaming.tables.places import local_folder

Row = Mapping[str, Any]


def table_uri(root: str, name: str) -> str:
    """Where table `name` lies below the settings' folder or URI."""
    return f"{root.rstrip('/')}/{name}"


def open_table(root: str, name: str) -> DeltaTable | None:
    """The table as it is now, or None where it isn't there yet; raises TableUnavailable."""
    uri = table_uri(root, name)
    check_folder(root)
    try:
        return DeltaTable(uri)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} at {uri} can't be read: {first_line(error)}") from None


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


def check_folder(root: str) -> None:
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
