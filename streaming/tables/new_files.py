"""Rows of the data files that the newest commits have added, for one who follows a table and knows the rows before.

A query opens every file whose statistics match: 120 ms of CPU for 60 small files. Each entry of the log names the files
that it adds. What this module can't read as Delta means it, it does not read: then it gives None, and the caller asks
by SQL.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from streaming.tables.data_files import PLAIN_READER_VERSION
from streaming.tables.opening import log_entry

COMMITS_MAX = 20
"""Number of commits after which a query is cheaper than to read the files."""
ENTRY_BYTES_MAX = 1_000_000
"""Size of a log entry from which the entry adds many files."""


def rows_since(delta: DeltaTable, folder: Path, version: int, types: pa.Schema) -> list[dict[str, Any]] | None:
    """Rows of all files added after `version`, with every column of `types`; None where log and files don't show them.

    Files that upkeep has joined hold no new rows and are left out.
    """
    newest = delta.version()
    is_plain = delta.protocol().min_reader_version <= PLAIN_READER_VERSION
    if not is_plain or delta.metadata().partition_columns or not version <= newest <= version + COMMITS_MAX:
        return None
    entries = [log_entry(folder, number) for number in range(version + 1, newest + 1)]
    try:
        if any(entry.stat().st_size > ENTRY_BYTES_MAX for entry in entries):
            return None
        return [row for path in _added(entries) for row in _rows(folder / unquote(path), types)]
    except (OSError, ValueError, KeyError, pa.ArrowException):  # a query shows what is wrong, or that nothing is
        return None


def _added(entries: Iterable[Path]) -> dict[str, None]:
    """Paths of the files with new rows, in the order of the commits; raises ValueError where one has been replaced."""
    paths: dict[str, None] = {}
    for entry in entries:
        for kind, action in _actions(entry):
            if kind == "add" and action.get("dataChange", True):
                paths[action["path"]] = None
            elif kind == "remove" and action["path"] in paths:
                raise ValueError  # its rows are in a file that other rows share, or gone
    return paths


def _actions(entry: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in entry.read_text(encoding="utf-8").splitlines():
        yield from json.loads(line).items()


def _rows(path: Path, types: pa.Schema) -> list[dict[str, Any]]:
    """Rows of one file; a column that it lacks is null in each."""
    there = parquet.ParquetFile(path).read()
    columns = [
        there[field.name].cast(field.type) if field.name in there.column_names else pa.nulls(len(there), field.type)
        for field in types
    ]
    rows: list[dict[str, Any]] = pa.table(columns, schema=types).to_pylist()
    return rows
