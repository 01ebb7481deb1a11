"""Opens Delta tables without a JVM, and reads from their logs what each data file holds. Reads no row.

Rows that can't be shown fail their table alone: whoever shows several tables continues with the others. The contract
says what is expected of rows; `unfit_as_unavailable` is for what it forgot, and for tables that others have written.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import compute as pc

from streaming.contract import ColumnType
from streaming.errors import TableUnavailable
from streaming.tables.definitions import ARROW_TYPES, check_format
from streaming.tables.object_stores import REQUEST, refusal, storage_options
from streaming.tables.places import local_folder


def table_uri(root: str, name: str) -> str:
    """Returns the place of table `name` below the settings' folder or URI."""
    return f"{root.rstrip('/')}/{name}"


def open_table(root: str, name: str) -> DeltaTable | None:
    """The table as it is now, or None where it isn't there yet; raises TableUnavailable."""
    uri = table_uri(root, name)
    check_folder(root)
    try:
        delta = opened(uri)
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise TableUnavailable(f"table {name} at {uri} can't be read: {first_line(error)}") from None
    check_format(delta, name)
    return delta


def opened(uri: str) -> DeltaTable:
    """The table as it is now; raises TableNotFoundError, DeltaError or OSError."""
    return DeltaTable(uri, storage_options=storage_options(uri))


def log_entry(folder: Path, version: int) -> Path:
    """The entry of this version in the log of the table in `folder`."""
    return folder / "_delta_log" / f"{version:020d}.json"


def file_statistics(delta: DeltaTable, column: str) -> pa.Table:
    """Statistics of each data file, from the log: `path`, `num_records`, and `least` and `greatest` of a time column,
    null where the log lacks them. Raises DeltaError or OSError.
    """
    files = pa.table(delta.get_add_actions(flatten=True))
    time = ARROW_TYPES[ColumnType.TIMESTAMP]
    unknown = pa.nulls(files.num_rows, time)

    def statistic(name: str) -> pa.Array | pa.ChunkedArray:
        # They may come without their zone, which is UTC.
        return files[name].cast(time) if name in files.column_names else unknown

    columns = [files["path"], statistic(f"min.{column}"), statistic(f"max.{column}"), files["num_records"]]
    return pa.table(columns, ["path", "least", "greatest", "num_records"])


def newest_in_files(delta: DeltaTable, column: str, kafka_cluster: str) -> tuple[datetime | None, bool]:
    """Greatest value of a time column in files that hold rows of this cluster alone, and whether another file may hold
    a greater one of it: both by the log's statistics. Raises DeltaError or OSError.
    """
    files = pa.table(delta.get_add_actions(flatten=True))
    needed = (f"max.{column}", "min.kafka_cluster", "max.kafka_cluster")
    if not set(needed) <= set(files.column_names):
        return None, files.num_rows > 0
    greatest = files[needed[0]].cast(ARROW_TYPES[ColumnType.TIMESTAMP])
    own = pc.and_(pc.equal(files[needed[1]], kafka_cluster), pc.equal(files[needed[2]], kafka_cluster))
    own = pc.fill_null(own, False)
    newest: datetime | None = pc.max(greatest.filter(own)).as_py()
    others = greatest.filter(pc.invert(own))
    greatest_of_others = pc.max(others).as_py()
    unknown = others.null_count > 0
    return newest, unknown or (greatest_of_others is not None and (newest is None or greatest_of_others > newest))


def check_folder(root: str) -> None:
    """A file in the place of the folder, or one that can't be reached or entered, must not pass for tables to come.

    Nothing at all in its place may be a first start, or a disk that isn't mounted: which of the two is unknown here.
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
    """The text of the error, or else its kind. Of an object store's error the first line alone says nothing."""
    if "↳" in str(error) or REQUEST in str(error):
        return refusal(error)
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def unfit_as_unavailable(*names: str) -> Iterator[None]:
    """What rows of these tables make go wrong, as TableUnavailable."""
    try:
        yield
    except (pa.ArrowException, ValueError, IndexError) as error:
        tables = f"table{'s' if len(names) > 1 else ''} {', '.join(names)}"
        problem = f"{type(error).__name__}: {first_line(error)}"
        raise TableUnavailable(f"{tables}: rows can't be shown: {problem}") from error
