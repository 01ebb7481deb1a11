"""Bounded reads of Delta tables: opened once, brought up to date by their log, never read whole where it can be helped.

Owns which files are looked at; what the rows mean is for the parts of the snapshot.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from streaming import tables
from streaming.contract import TABLES
from streaming.errors import TableUnavailable
from streaming.tables.places import local_folder


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as its log describes it."""

    name: str
    version: int
    files: int
    size_bytes: int


class TableReader:
    """Tables below one root, each in one version until `look_again`; not for use by two threads."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._open: dict[str, DeltaTable] = {}
        self._looked_at: set[str] = set()
        self._states: dict[str, TableState] = {}

    def check_folder(self) -> None:
        """Raises TableUnavailable where the tables' folder isn't there: a volume that is not mounted must not look like
        tables yet to come."""
        folder = local_folder(self._root)
        if folder is None:
            return
        try:
            folder.stat()
        except OSError as error:
            problem = f"tables folder {self._root}: {error.strerror or error}"
            raise TableUnavailable(f"{problem}; is its volume mounted, is storage.tables right?") from None

    def look_again(self) -> None:
        """From now on tables are read in their newest version."""
        self._looked_at.clear()

    def version(self, name: str) -> int | None:
        """Newest version of the table, None where it isn't there yet; raises TableUnavailable."""
        delta = self._newest(name)
        return None if delta is None else delta.version()

    def state(self, name: str) -> TableState | None:
        """Version, files and bytes of the table, None where it isn't there yet; raises TableUnavailable."""
        delta = self._newest(name)
        if delta is None:
            return None
        known = self._states.get(name)
        if known is None or known.version != delta.version():
            with self._told(name):
                sizes = pa.table(delta.get_add_actions())["size_bytes"]
            known = TableState(name, delta.version(), len(sizes), pc.sum(sizes).as_py() or 0)
            self._states[name] = known
        return known

    def newest(self, name: str, column: str) -> datetime | None:
        """Greatest value of a time column by the files' statistics alone, so however old it is, finding it is cheap."""
        delta = self._newest(name)
        if delta is None:
            return None
        with self._told(name):
            files = tables.file_statistics(delta, column)
        found: datetime | None = pc.max(files["greatest"]).as_py()
        return found

    def arrow(self, name: str, *, columns: Sequence[str], where: str = "true") -> pa.Table:
        """Rows that fulfil `where`, SQL, which is used to leave out files too; no rows where there is no table.

        Files are chosen by their statistics before any is opened: of a table with thousands, the newest rows cost
        milliseconds, where a scan through pyarrow's datasets took seconds.
        """
        schema = _schema(name, columns)
        delta = self._newest(name)
        if delta is None:
            return schema.empty_table()
        query = f"select {', '.join(columns)} from found where {where}"  # noqa: S608 - literals are quoted below
        with self._told(name):
            return pa.table(QueryBuilder().register("found", delta).execute(query)).cast(schema)

    def rows(self, name: str, *, columns: Sequence[str], where: str = "true") -> list[dict[str, Any]]:
        """The same as dicts."""
        found: list[dict[str, Any]] = self.arrow(name, columns=columns, where=where).to_pylist()
        return found

    def _newest(self, name: str) -> DeltaTable | None:
        delta = self._open.get(name)
        if delta is not None and name not in self._looked_at:
            delta = self._brought_up_to_date(name, delta)
        if delta is None:
            delta = tables.open_table(self._root, name)
            if delta is None:
                return None
            self._open[name] = delta
        self._looked_at.add(name)
        return delta

    def _brought_up_to_date(self, name: str, delta: DeltaTable) -> DeltaTable | None:
        """None where it has to be opened anew: the entry of its version has gone, and maybe the table with it.

        delta-rs lists the whole log, 0.05 s of CPU at the 36,000 entries of two days: it is asked only where the next
        entry is there.
        """
        folder = local_folder(tables.table_uri(self._root, name))
        if folder is not None:
            known, following = (
                folder / "_delta_log" / f"{entry:020d}.json" for entry in (delta.version(), delta.version() + 1)
            )
            if not known.exists():
                del self._open[name]
                return None
            if not following.exists():
                return delta
        with self._told(name):
            delta.update_incremental()
        return delta

    @contextmanager
    def _told(self, name: str) -> Iterator[None]:
        """What goes wrong as TableUnavailable; the table is opened anew next time."""
        try:
            yield
        except (DeltaError, OSError, pa.ArrowException) as error:
            self._open.pop(name, None)
            raise TableUnavailable(f"table {name} can't be read: {tables.first_line(error)}") from None


def text(value: str) -> str:
    """A string as SQL.

    >>> text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def _schema(name: str, columns: Sequence[str]) -> pa.Schema:
    """Types as the product knows them, without NOT NULL and comments: a query's answer has neither."""
    known = tables.arrow_schema(TABLES[name])
    return pa.schema([pa.field(column, known.field(column).type) for column in columns])
