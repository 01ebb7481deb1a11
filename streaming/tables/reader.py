"""The one way to ask tables: rows of one version of each, with the columns and the rows that are needed, no more.

A look sees each table in one version, however often it asks. A reader that is kept opens each table once and follows
its log. What the rows mean is for `streaming.views`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Self, cast

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from streaming.contract import TABLES
from streaming.errors import TableUnavailable
from streaming.tables.conditions import ALL_ROWS, Condition, at_least, equal, is_known, of_cluster
from streaming.tables.data_files import rows_of, rows_since, with_texts_once
from streaming.tables.definitions import arrow_schema, check_format
from streaming.tables.opening import file_statistics, first_line, log_entry, newest_in_files, open_table, table_uri
from streaming.tables.places import local_folder
from streaming.tables.stand_ins import stand_in_of

Row = Mapping[str, Any]

STEPS_BACK_FILES = (4, 64)
"""Numbers of the newest files in which the newest row is looked for, before all files are asked."""

OPERATIONS_OF_UPKEEP = frozenset({"OPTIMIZE", "VACUUM START", "VACUUM END"})
"""Commits that change no row, as Delta names them."""


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as its log describes it."""

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
        return all(commit.get("operation") in OPERATIONS_OF_UPKEEP for commit in commits)

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
    """The row with the greatest `column`; None of none."""
    return max(rows, key=lambda row: row[column], default=None)


def schema_of(name: str, columns: Sequence[str]) -> pa.Schema:
    """Types as the product knows them, without NOT NULL and comments: a query's answer has neither."""
    return _schema_of(name, tuple(columns))


@cache
def _schema_of(name: str, columns: tuple[str, ...]) -> pa.Schema:
    known = arrow_schema(TABLES[name])
    return pa.schema([pa.field(column, known.field(column).type) for column in columns])
