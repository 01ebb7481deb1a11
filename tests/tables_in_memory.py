"""Tables in memory, below roots like `memory:NAME`: for simulations that need thousands of writes a second.

They behave as Delta tables do for one who writes and reads rows: typed columns, appends once per transaction, readers
that keep to one version. `tests/tables/test_stores.py` holds both kinds to the same behaviours. They live as long as
the process. Whoever imports this module has them: it registers them as stand-in for roots that begin with `memory:`.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from streaming.contract import TABLES, ColumnType
from streaming.errors import TableUnavailable
from streaming.tables import TableReader, TableState
from streaming.tables.conditions import ALL_ROWS, Condition, of_cluster
from streaming.tables.definitions import row_schema
from streaming.tables.reader import schema_of, with_texts_once
from streaming.tables.stand_ins import register
from streaming.tables.times import AtTime

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """One version of a table; a write makes the next one."""

    version: int = 0
    commits: int = 0
    rows: tuple[dict[str, Any], ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    """Greatest version written by transaction id."""


def _nothing(_operation: str, _table: str) -> None:
    """What happens before and after a call unless a simulation wants more."""


@dataclass(slots=True)
class MemoryStore:
    """All tables below one root. A simulation may hang itself before and after every read and write."""

    tables: dict[str, MemoryTable] = field(default_factory=dict)
    before: Callable[[str, str], None] = _nothing
    """Called with the operation (`read`, `write`) and the table before it takes effect; may raise."""
    after: Callable[[str, str], None] = _nothing
    """The same, once it has taken effect."""

    def ensure(self, name: str) -> None:
        """Make the table where it isn't there yet."""
        if name not in self.tables:
            self.tables[name] = MemoryTable()

    def write(
        self,
        name: str,
        rows: Sequence[Row],
        replaced: Callable[[Row], bool] | None,
        *,
        transaction_id: str,
        transaction_version: int | AtTime,
    ) -> bool:
        """Add `rows`, in the place of those for which `replaced` holds; False where this transaction was written
        before. Raises TableUnavailable for rows that don't fit.
        """
        self.before("write", name)
        typed = _typed(name, rows)
        self.ensure(name)
        table = self.tables[name]
        written = table.transactions.get(transaction_id)
        if isinstance(transaction_version, AtTime):
            transaction_version = transaction_version.after(written)
        if written is not None and written >= transaction_version:
            return False
        kept = table.rows if replaced is None else tuple(row for row in table.rows if not replaced(row))
        transactions = {**table.transactions, transaction_id: transaction_version}
        self.tables[name] = MemoryTable(table.version + 1, table.commits + 1, (*kept, *typed), transactions)
        self.after("write", name)
        return True

    def delete(self, name: str, deleted: Callable[[Row], bool]) -> int:
        """Drop the rows for which `deleted` holds; returns how many. Without any there is no new version."""
        self.before("write", name)
        table = self.tables.get(name, MemoryTable())
        kept = tuple(row for row in table.rows if not deleted(row))
        count = len(table.rows) - len(kept)
        if count:
            self.tables[name] = replace(table, version=table.version + 1, commits=table.commits + 1, rows=kept)
        self.after("write", name)
        return count


def _typed(name: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows with every column of table `name`, converted as Arrow does; raises TableUnavailable for one that can't be.

    Arrow takes some 200 us a row. It is asked only where a value is not of its column's own type.
    """
    columns = _columns(name)
    typed = [_exact_row(row, columns) for row in rows]
    if None not in typed:
        return typed  # type: ignore[return-value]
    try:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=row_schema(TABLES[name])).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowException as error:
        raise TableUnavailable(f"table {name} can't be written: {error}") from None


def _exact_row(row: Row, columns: tuple[tuple[str, type, Callable[[Any], bool] | None], ...]) -> dict[str, Any] | None:
    """The row where Arrow would give back each value as it is; else None."""
    exact: dict[str, Any] = {}
    for column, kind, fits in columns:
        value: Any = row.get(column)
        if value is not None:
            if type(value) is not kind:
                if kind is not str or not isinstance(value, str):
                    return None
                value = str.__str__(value)  # a name of an enumeration
            elif fits is not None and not fits(value):
                return None
            if kind is list:
                value = list(row[column])  # who gave it may change it
        exact[column] = value
    return exact


@cache
def _columns(name: str) -> tuple[tuple[str, type, Callable[[Any], bool] | None], ...]:
    return tuple((column.name, *_EXACT[column.type]) for column in TABLES[name].columns)


def _fits_int32(value: int) -> bool:
    return -(1 << 31) <= value < 1 << 31


def _fits_int64(value: int) -> bool:
    return -(1 << 63) <= value < 1 << 63


def _is_utc(value: datetime) -> bool:
    return value.tzinfo is UTC


def _are_int32(values: list[Any]) -> bool:
    return all(value is None or (type(value) is int and _fits_int32(value)) for value in values)


_EXACT: dict[ColumnType, tuple[type, Callable[[Any], bool] | None]] = {
    ColumnType.STRING: (str, None),
    ColumnType.LONG: (int, _fits_int64),
    ColumnType.INTEGER: (int, _fits_int32),
    ColumnType.DOUBLE: (float, None),
    ColumnType.BOOLEAN: (bool, None),
    ColumnType.BINARY: (bytes, None),
    ColumnType.TIMESTAMP: (datetime, _is_utc),
    ColumnType.INTEGER_LIST: (list, _are_int32),
}
"""Values that Arrow gives back as they are: their type, and what must hold besides."""

_STORES: dict[str, MemoryStore] = {}


def in_memory(name: str | None = None) -> str:
    """The root of tables in memory of this name; without one it is a root of its own."""
    return f"memory:{name or uuid.uuid4().hex}"


def memory_store(root: str) -> MemoryStore:
    """The store of a root like `memory:NAME`, empty at first."""
    return _STORES.setdefault(root, MemoryStore())


def roots() -> list[str]:
    """The roots of all stores, in the order in which they were made."""
    return [*_STORES]


def forget(root: str) -> None:
    """Drop a store and all that it holds."""
    _STORES.pop(root, None)


def given_to_commands(patch: pytest.MonkeyPatch, root: str) -> None:
    """Lets commands that run in this process take tables in memory, which settings of users may not name."""
    patch.setattr("streaming.config._check_tables_last", lambda _effective: None)
    patch.setenv("REBALANCER_STORAGE__TABLES", root)


class MemoryReader(TableReader):
    """Tables of one store, each in one version until `look_again`."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._store = memory_store(root)
        self._seen: dict[str, MemoryTable] = {}

    def check_folder(self) -> None:
        """There is none that could be missing."""

    def look_again(self) -> None:
        """From now on tables are read in their newest version."""
        self._seen.clear()

    def version(self, name: str) -> int | None:
        """Version of the table, None where it isn't there yet."""
        table = self._table(name)
        return None if table is None else table.version

    def transaction_version(self, name: str, transaction_id: str) -> int | None:
        """Greatest version of this transaction that was written, None where there is none."""
        table = self._table(name)
        return None if table is None else table.transactions.get(transaction_id)

    def state(self, name: str) -> TableState | None:
        """Version and commits of the table, None where it isn't there yet."""
        table = self._table(name)
        return None if table is None else TableState(name, table.version, table.commits, 0)

    def files(self, name: str, column: str) -> None:
        """No files."""

    def has_same_rows_since(self, name: str, version: int) -> bool:  # noqa: ARG002
        """Unknown."""
        return False

    def newest(self, name: str, column: str, *, where: Condition = ALL_ROWS) -> datetime | None:
        """Greatest value of a column among rows that fulfil `where`."""
        table = self._table(name)
        values = (row[column] for row in where.kept(table.rows if table else ()))
        return max((value for value in values if value is not None), default=None)

    def newest_of_cluster(self, name: str, column: str, kafka_cluster: str) -> datetime | None:
        """Greatest value of a column among rows of one Kafka cluster."""
        return self.newest(name, column, where=of_cluster(kafka_cluster))

    def arrow(self, name: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS) -> pa.Table:
        """Rows that fulfil `where`, in any order."""
        names = columns or TABLES[name].column_names()
        rows, schema = self.rows(name, columns=names, where=where), schema_of(name, names)
        return pa.Table.from_pylist(rows, schema=schema) if rows else schema.empty_table()

    def encoded(self, name: str, *, columns: Sequence[str], where: Condition = ALL_ROWS) -> pa.Table:
        """Rows that fulfil `where` as columns, with texts as dictionaries."""
        rows = self.arrow(name, columns=columns, where=where)
        return rows.cast(with_texts_once(rows.schema)).unify_dictionaries().combine_chunks()

    def rows(
        self, name: str, *, columns: Sequence[str] | None = None, where: Condition = ALL_ROWS
    ) -> list[dict[str, Any]]:
        """Rows that fulfil `where` as dicts, in any order."""
        table = self._table(name)
        matching = where.kept(table.rows if table else ())
        return [dict(row) if columns is None else {column: row[column] for column in columns} for row in matching]

    def rows_since(self, name: str, version: int, *, where: Condition = ALL_ROWS) -> list[dict[str, Any]]:  # noqa: ARG002
        """All rows that fulfil `where`."""
        return self.rows(name, where=where)

    def _table(self, name: str) -> MemoryTable | None:
        if name not in self._seen and name in self._store.tables:
            self._store.before("read", name)
            self._seen[name] = self._store.tables[name]
        return self._seen.get(name)


def holding(condition: Condition) -> Callable[[Row], bool]:
    """Returns whether a row fulfils the condition."""
    return lambda row: bool(condition.kept([row]))


class TablesInMemory:
    """The stand-in for Delta below roots like `memory:NAME`."""

    reader = MemoryReader

    def ensure(self, root: str, name: str) -> None:
        """Make the table where it isn't there yet."""
        memory_store(root).ensure(name)

    def exists(self, root: str, name: str) -> bool:
        """Whether the table is there."""
        return name in memory_store(root).tables

    def write(
        self,
        root: str,
        name: str,
        rows: Sequence[Row],
        replaced: Condition | None,
        *,
        transaction_id: str,
        transaction_version: int | AtTime,
    ) -> bool:
        """Write rows into the store of this root (see `MemoryStore.write`)."""
        holds = None if replaced is None else holding(replaced)
        store = memory_store(root)
        return store.write(name, rows, holds, transaction_id=transaction_id, transaction_version=transaction_version)

    def delete(self, root: str, name: str, where: Condition) -> int:
        """Delete rows from the store of this root (see `MemoryStore.delete`)."""
        return memory_store(root).delete(name, holding(where))


register("memory", TablesInMemory())
