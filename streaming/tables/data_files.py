"""Rows of a table's data files as columns, read through pyarrow: less CPU time than a query where rows are many.

Owns which files are opened and which conditions their statistics settle. One who follows a table and knows the rows
before reads the files that the newest commits have added, as each entry of the log names its files: a query opens every
file whose statistics fit, 120 ms of CPU at 60 small files. What this module can't read as Delta means it, it does not
read: its functions then return None, and the caller asks by SQL.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import compute as pc
from pyarrow import fs, parquet

from streaming.tables.conditions import Condition, Sign, Term
from streaming.tables.opening import log_entry

PLAIN_READER_VERSION = 1
"""Tables of this version have neither deletion vectors nor mapped columns."""
STATISTICS_STEP = timedelta(milliseconds=1)
"""Statistics of times are whole ms, cut off."""
ROWS_AT_A_TIME = 500_000
"""Rows of files that are read together before those are left out that have other texts, if one file has fewer."""
TEXTS = pa.dictionary(pa.int32(), pa.string())

Test = Callable[[pa.ChunkedArray, pa.ChunkedArray, pa.Scalar], pa.ChunkedArray]

_MAY_HOLD: Mapping[Sign, Test] = {
    Sign.EQUAL: lambda least, greatest, value: pc.and_(pc.less_equal(least, value), pc.greater_equal(greatest, value)),
    Sign.AT_LEAST: lambda _, greatest, value: pc.greater_equal(greatest, value),
    Sign.ABOVE: lambda _, greatest, value: pc.greater(greatest, value),
    Sign.AT_MOST: lambda least, _, value: pc.less_equal(least, value),
    Sign.BELOW: lambda least, _, value: pc.less(least, value),
}
"""By sign, whether any row of a file may fulfil a comparison, from the least and greatest value of each file."""
_HOLDS_ALWAYS: Mapping[Sign, Test] = {
    Sign.EQUAL: lambda least, greatest, value: pc.and_(pc.equal(least, value), pc.equal(greatest, value)),
    Sign.AT_LEAST: lambda least, _, value: pc.greater_equal(least, value),
    Sign.ABOVE: lambda least, _, value: pc.greater(least, value),
    Sign.AT_MOST: lambda _, greatest, value: pc.less_equal(greatest, value),
    Sign.BELOW: lambda _, greatest, value: pc.less(greatest, value),
}
"""By sign, whether every row of a file without a null fulfils a comparison, from the least and greatest value of each
file.
"""
COMMITS_MAX = 20
"""Number of commits after which a query is cheaper than to read the files."""
ENTRY_BYTES_MAX = 1_000_000
"""An entry as large as this one adds many files."""


def with_texts_once(schema: pa.Schema) -> pa.Schema:
    """The schema with texts as dictionaries."""
    return pa.schema(pa.field(field.name, TEXTS if pa.types.is_string(field.type) else field.type) for field in schema)


def rows_of(
    delta: DeltaTable, files: pa.Table, folder: Path, types: pa.Schema, columns: Sequence[str], where: Condition
) -> pa.Table | None:
    """Rows that fulfil `where`, in any order, texts as dictionaries; None where files alone don't show them.

    `files` are the table's add actions, flattened. `types` are those of all columns that `columns` and `where` may
    name. Raises DeltaError, OSError or ArrowException.
    """
    # Imports pandas: half of the CPU time and 40 MB of a process that reads no rows this way.
    from pyarrow import dataset as ds

    named = dict.fromkeys((*columns, *where.columns))
    in_names_of_folders = delta.metadata().partition_columns
    is_plain = delta.protocol().min_reader_version <= PLAIN_READER_VERSION
    can_be_asked = all(term.expression is not None for term in where.terms)
    if not is_plain or not can_be_asked or not named.keys().isdisjoint(in_names_of_folders):
        return None
    chosen, left = _chosen(files, types, where)
    schema = with_texts_once(pa.schema(types.field(name) for name in named))
    texts = [field.name for field in schema if field.type == TEXTS]
    form = ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(dictionary_columns=texts, coerce_int96_timestamp_unit="us")
    )
    system = fs.LocalFileSystem()
    fragments = [form.make_fragment(str(folder / unquote(path)), system) for path in chosen["path"].to_pylist()]
    of_texts = [term for term in left if term.members is not None and schema.field(term.column).type == TEXTS]
    others = [term.expression for term in left if term not in of_texts]
    needed = list(dict.fromkeys((*columns, *(term.column for term in of_texts))))
    wanted = reduce(and_, others) if others else None
    found = []
    for part in _parts(chosen["num_records"].to_pylist()) if of_texts else [slice(None)]:
        whole = ds.FileSystemDataset(fragments[part], schema, form, system)
        # Threads take more CPU time here: the pieces are small.
        rows = whole.to_table(columns=needed, filter=wanted, use_threads=False)
        found.append(_with_texts(rows.unify_dictionaries().combine_chunks(), of_texts).select(list(columns)))
    return found[0] if len(found) == 1 else pa.concat_tables(found).unify_dictionaries().combine_chunks()


def _parts(records: Sequence[int | None]) -> Iterator[slice]:
    """Files that are read together, by how many rows each has: of rows that texts leave out few are in memory."""
    begin = rows = 0
    for place, count in enumerate(records):
        if place > begin and rows + (count or 0) > ROWS_AT_A_TIME:
            yield slice(begin, place)
            begin, rows = place, 0
        rows += count or 0
    yield slice(begin, len(records))


def _with_texts(rows: pa.Table, terms: Sequence[Term]) -> pa.Table:
    """Rows that fulfil `terms`, which list texts: each text is looked up once, where Arrow would look up each row's."""
    kept = np.ones(rows.num_rows, dtype=bool)
    for term in terms if rows.num_rows else ():
        column = rows[term.column].chunk(0)
        wanted = pc.is_in(column.dictionary, value_set=pa.array(term.members, pa.string())).to_numpy(
            zero_copy_only=False
        )
        kept &= np.append(wanted, False)[pc.fill_null(column.indices, -1).to_numpy()]
    return rows if kept.all() else rows.filter(pa.array(kept)).combine_chunks()


def _chosen(files: pa.Table, types: pa.Schema, where: Condition) -> tuple[pa.Table, list[Term]]:
    """Files that may hold such rows, and what of the condition does not hold for all of their rows."""
    for term in where.terms:
        files = files.filter(pc.fill_null(_tested(files, types, term, _MAY_HOLD), True))
    left = []
    for term in where.terms:
        settled = pc.fill_null(_tested(files, types, term, _HOLDS_ALWAYS), False)
        if not pc.all(settled, min_count=0).as_py() or not _has_no_null(files, term.column):
            left.append(term)
    return files, left


def _tested(files: pa.Table, types: pa.Schema, term: Term, tests: Mapping[Sign, Test]) -> pa.ChunkedArray:
    """One flag a file; null where the log lacks its statistics, or the term is no comparison."""
    names = [f"{bound}.{term.column}" for bound in ("min", "max")]
    if term.compared is None or not set(names) <= set(files.column_names):
        return pa.chunked_array([pa.nulls(files.num_rows, pa.bool_())])
    sign, value = term.compared
    kind = types.field(term.column).type
    least, greatest = (files[name].cast(kind) for name in names)
    if pa.types.is_timestamp(kind):
        greatest = pc.add(greatest, pa.scalar(STATISTICS_STEP, pa.duration(kind.unit)))
    return tests[sign](least, greatest, pa.scalar(value, kind))


def _has_no_null(files: pa.Table, column: str) -> bool:
    name = f"null_count.{column}"
    if name not in files.column_names:
        return False
    nulls = files[name]
    return nulls.null_count == 0 and not pc.any(pc.greater(nulls, 0), min_count=0).as_py()


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
        lines = map(json.loads, entry.read_text(encoding="utf-8").splitlines())
        for kind, action in (item for line in lines for item in line.items()):
            if kind == "add" and action.get("dataChange", True):
                paths[action["path"]] = None
            elif kind == "remove" and action["path"] in paths:
                raise ValueError  # its rows are in a file that other rows share, or gone
    return paths


def _rows(path: Path, types: pa.Schema) -> list[dict[str, Any]]:
    """Rows of one file; a column that it lacks is null in each."""
    there = parquet.ParquetFile(path).read()
    columns = [
        there[field.name].cast(field.type) if field.name in there.column_names else pa.nulls(len(there), field.type)
        for field in types
    ]
    rows: list[dict[str, Any]] = pa.table(columns, schema=types).to_pylist()
    return rows
