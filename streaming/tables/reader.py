"""The one way to ask tables: rows of one version of each, with the columns and the rows that are needed, no more.

A look sees each table in one version, however often it asks. A reader that is kept opens each table once and follows
its log. What the rows mean is for `streaming.views`.

Rows are read by SQL, or from data files through pyarrow: less CPU time than a query where rows are many. Statistics of
the files settle which files are opened, and which conditions hold for all of their rows. One who follows a table and
knows the rows before reads the files that the newest commits have added, as each entry of the log names its files: a
query opens every file whose statistics fit, 120 ms of CPU at 60 small files. What can't be read from files as Delta
means it is not read: then the rows come by SQL.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, reduce
from operator import and_
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc
from pyarrow import fs, parquet

from streaming.contract import TABLES
from streaming.errors import TableUnavailable
from streaming.tables.conditions import ALL_ROWS, Condition, Sign, Term, at_least, equal, is_known, of_cluster
from streaming.tables.definitions import arrow_schema, check_format
from streaming.tables.opening import file_statistics, first_line, log_entry, newest_in_files, open_table, table_uri
from streaming.tables.places import local_folder
from streaming.tables.stand_ins import stand_in_of

PLAIN_READER_VERSION = 1
"""Tables of this version have neither deletion vectors nor mapped columns: their files hold their rows as they are."""
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
Row = Mapping[str, Any]
STEPS_BACK_FILES = (4, 64)
"""Numbers of newest files that are searched for the newest row, before all files are."""

OPERATIONS_OF_UPKEEP = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Commits that change no row, as Delta names them."""
JOINED = "rebalancer.joinedFiles"
"""Key of a commit's own metadata, with the number of files that it has joined (`streaming.tables.upkeep`). Such a
commit changes no row either; delta-rs names it a write.
"""


def check_plain(delta: DeltaTable, name: str) -> None:
    """Raises TableUnavailable if another program has changed the table so that its files hold other rows than it."""
    if delta.protocol().min_reader_version > PLAIN_READER_VERSION:
        raise TableUnavailable(
            f"table {name} has features that another program has added (deletion vectors, mapped columns): its files "
            "are neither joined nor replaced; remove the features, or restore the table"
        )


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


@dataclass(frozen=True, slots=True)
class TableState:
    """Version, files and bytes of a table, by its log."""

    name: str
    version: int
    files: int
    size_bytes: int


class TableReader:
    """Tables below one root, each in one version until `look_again`; not for use by two threads."""

    def __new__(cls, root: str) -> Self:
        """A reader of the kind that the root is of: what stands in for Delta there has a subclass of its own."""
        stand_in = stand_in_of(root)
        return super().__new__(cls if stand_in is None else cast("type[Self]", stand_in.reader))

    def __init__(self, root: str) -> None:
        self.root = root
        self._open: dict[str, DeltaTable] = {}
        self._looked_at: set[str] = set()
        self._states: dict[str, TableState] = {}
        self._files: dict[str, tuple[int, pa.Table]] = {}
        """Version and add actions of tables that this look has read from their files."""

    def check_folder(self) -> None:
        """Raises TableUnavailable if the folder isn't there: an unmounted volume must not look like tables to come."""
        folder = local_folder(self.root)
        if folder is None:
            return
        try:
            folder.stat()
        except OSError as error:
            problem = f"tables folder {self.root}: {error.strerror or error}"
            raise TableUnavailable(f"{problem}; is its volume mounted, is storage.tables right?") from None

    def look_again(self) -> None:
        """Reads tables in their newest version from now on."""
        self._looked_at.clear()
        self._files.clear()

    def version(self, name: str) -> int | None:
        """Newest version of the table, None where it isn't there yet; raises TableUnavailable."""
        delta = self._newest(name)
        return None if delta is None else delta.version()

    def transaction_version(self, name: str, transaction_id: str) -> int | None:
        """Greatest version of this transaction that was ever written, None without one; raises TableUnavailable."""
        delta = self._newest(name)
        if delta is None:
            return None
        with self._as_unavailable(name):
            return delta.transaction_version(transaction_id)

    def state(self, name: str) -> TableState | None:
        """Version, files and bytes of the table, None where it isn't there yet; raises TableUnavailable."""
        delta = self._newest(name)
        if delta is None:
            return None
        known = self._states.get(name)
        if known is None or known.version != delta.version():
            with self._as_unavailable(name):
                sizes = pa.table(delta.get_add_actions())["size_bytes"]
            known = TableState(name, delta.version(), len(sizes), pc.sum(sizes).as_py() or 0)
            self._states[name] = known
        return known

    def files(self, name: str, column: str) -> dict[str, tuple[datetime | None, datetime | None]] | None:
        """Least and greatest value of a time column by data file, from the log; None without a table."""
        delta = self._newest(name)
        if delta is None:
            return None
        with self._as_unavailable(name):
            files = file_statistics(delta, column)
        spans = zip(files["least"].to_pylist(), files["greatest"].to_pylist(), strict=True)
        return dict(zip(files["path"].to_pylist(), spans, strict=True))

    def has_same_rows_since(self, name: str, version: int) -> bool:
        """Whether all commits after `version` are upkeep, which joins and removes files; False if unknown."""
        delta = self._newest(name)
        if delta is None:
            return False
        with self._as_unavailable(name):
            commits = delta.history(max(0, delta.version() - version))
        return all(JOINED in commit or commit.get("operation") in OPERATIONS_OF_UPKEEP for commit in commits)

    def newest(self, name: str, column: str, *, where: Condition = ALL_ROWS) -> datetime | None:
        """Greatest value of a time column among rows that fulfil `where`; None where there are none.

        Of all rows the files' statistics alone say it. Otherwise the newest files are asked first, for what the
        condition and the column need: so however old it is, finding it is cheap.
        """
        delta = self._newest(name)
        if delta is None:
            return None
        with self._as_unavailable(name):
            files = file_statistics(delta, column)
        if where == ALL_ROWS:
            greatest: datetime | None = pc.max(files["greatest"]).as_py()
            return greatest
        starts = sorted(files["least"].drop_null().to_pylist(), reverse=True)
        steps = [at_least(column, starts[count - 1]) for count in STEPS_BACK_FILES if count < len(starts)]
        for lately in (*steps, ALL_ROWS):
            greatest = pc.max(self.arrow(name, columns=(column,), where=where & lately)[column]).as_py()
            if greatest is not None:
                return greatest
        return None

    def newest_of_cluster(self, name: str, column: str, kafka_cluster: str) -> datetime | None:
        """`newest` of one Kafka cluster. Where each file holds rows of one cluster, the statistics alone say it."""
        own = of_cluster(kafka_cluster)
        delta = self._newest(name)
        if delta is None:
            return self.newest(name, column, where=own)
        with self._as_unavailable(name):
            newest, may_be_newer = newest_in_files(delta, column, kafka_cluster)
        if not may_be_newer:
            return newest
        return self.newest(name, column, where=own if newest is None else own & at_least(column, newest))

    def newest_row(
        self, name: str, by: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS
    ) -> dict[str, Any] | None:
        """The row with the greatest `by`, a time column, that fulfils `where`; `columns` are read of that row alone."""
        time = self.newest(name, by, where=where & is_known(by))
        return None if time is None else self.rows(name, columns=columns, where=where & equal(by, time))[0]

    def arrow(self, name: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS) -> pa.Table:
        """Rows that fulfil `where`, in any order; no rows where there is no table. `columns` None: all that it has.

        A column that an earlier version did not write, and no writer has added yet, is null.

        Files are chosen by their statistics before any is opened: of a table with thousands, the newest rows cost
        milliseconds, where a scan through pyarrow's datasets took seconds.
        """
        delta = self._newest(name)
        if delta is None:
            return schema_of(name, columns or TABLES[name].column_names()).empty_table()
        with self._as_unavailable(name):
            there = {field.name for field in delta.schema().fields}
            names = columns or [column for column in TABLES[name].column_names() if column in there]
            selected = ", ".join(column if column in there else f"null as {column}" for column in names)
            query = f"select {selected} from rows_of_table where {where}"  # noqa: S608 - literals are quoted
            answer = pa.table(QueryBuilder().register("rows_of_table", delta).execute(query))
            return answer.cast(schema_of(name, names))

    def encoded(self, name: str, *, columns: Sequence[str], where: Condition = ALL_ROWS) -> pa.Table:
        """Rows that fulfil `where`, up to hundreds of thousands: texts as dictionaries, each column in one piece."""
        delta = self._newest(name)
        folder = local_folder(table_uri(self.root, name))
        if delta is not None and folder is not None:
            with self._as_unavailable(name):
                rows = rows_of(delta, self._files_of(name, delta), folder, arrow_schema(TABLES[name]), columns, where)
            if rows is not None:
                return rows
        rows = self.arrow(name, columns=columns, where=where)
        return rows.cast(with_texts_once(rows.schema)).unify_dictionaries().combine_chunks()

    def rows(
        self, name: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS
    ) -> list[dict[str, Any]]:
        """Returns rows that fulfil `where` as dicts, for some thousands of rows: each row costs some kB."""
        rows: list[dict[str, Any]] = self.arrow(name, columns=columns, where=where).to_pylist()
        return rows

    def rows_since(self, name: str, version: int, *, where: Condition = ALL_ROWS) -> list[dict[str, Any]]:
        """Rows that fulfil `where`, all that commits after `version` have added among them: files of before are not
        opened where the log shows which those are. For one who has the rows of before.
        """
        delta = self._newest(name)
        folder = local_folder(table_uri(self.root, name))
        if delta is not None and folder is not None:
            with self._as_unavailable(name):
                rows = rows_since(delta, folder, version, schema_of(name, TABLES[name].column_names()))
            if rows is not None:
                return where.kept(rows)
        return self.rows(name, where=where)

    def _files_of(self, name: str, delta: DeltaTable) -> pa.Table:
        known = self._files.get(name)
        if known is None or known[0] != delta.version():
            known = self._files[name] = (delta.version(), pa.table(delta.get_add_actions(flatten=True)))
        return known[1]

    def _newest(self, name: str) -> DeltaTable | None:
        delta = self._open.get(name)
        if delta is not None and name not in self._looked_at:
            delta = self._brought_up_to_date(name, delta)
        if delta is None:
            delta = open_table(self.root, name)
            if delta is None:
                return None
            self._open[name] = delta
        self._looked_at.add(name)
        return delta

    def _brought_up_to_date(self, name: str, delta: DeltaTable) -> DeltaTable | None:
        """Returns the table in its newest version. None if it must be opened again: the entry of its version has gone,
        and maybe the table with it.

        delta-rs lists the whole log, 0.05 s of CPU at the 36,000 entries of two days: it is asked only where the next
        entry is there.
        """
        folder = local_folder(table_uri(self.root, name))
        if folder is not None:
            if not log_entry(folder, delta.version()).exists():
                del self._open[name]
                return None
            if not log_entry(folder, delta.version() + 1).exists():
                return delta
        with self._as_unavailable(name):
            delta.update_incremental()
        del self._open[name]  # so that a newer release's is refused again and again
        check_format(delta, name)
        self._open[name] = delta
        return delta

    @contextmanager
    def _as_unavailable(self, name: str) -> Iterator[None]:
        """What goes wrong as TableUnavailable; the table is opened anew next time."""
        try:
            yield
        except (DeltaError, OSError, pa.ArrowException) as error:
            self._open.pop(name, None)
            raise TableUnavailable(f"table {name} can't be read: {first_line(error)}") from None


def read(
    root: str, name: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS
) -> list[dict[str, Any]]:
    """Rows of the table as it is now that fulfil `where`, for who asks once; raises TableUnavailable."""
    return TableReader(root).rows(name, columns=columns, where=where)


def read_arrow(root: str, name: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS) -> pa.Table:
    """Rows of the table as it is now that fulfil `where`, as columns, for millions; raises TableUnavailable."""
    return TableReader(root).arrow(name, columns=columns, where=where)


def newest(rows: Iterable[Row], column: str) -> Row | None:
    """Row with the greatest `column`; None if there are no rows."""
    return max(rows, key=lambda row: row[column], default=None)


def schema_of(name: str, columns: Sequence[str]) -> pa.Schema:
    """Types as the product knows them, without NOT NULL and comments: a query's answer has neither."""
    return _schema_of(name, tuple(columns))


@cache
def _schema_of(name: str, columns: tuple[str, ...]) -> pa.Schema:
    known = arrow_schema(TABLES[name])
    return pa.schema([pa.field(column, known.field(column).type) for column in columns])
