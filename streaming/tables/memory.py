"""Tables in memory, below roots like `memory:NAME`: for simulations that need thousands of writes a second.

They behave as Delta tables do for one who writes and reads rows: typed columns, appends once per transaction, readers
that keep to one version. `tests/tables/test_stores.py` holds both kinds to the same behaviours. They live as long as
the process.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pyarrow as pa

from streaming.contract import TABLES, ColumnType
from streaming.errors import TableUnavailable
from streaming.settings import MEMORY_ROOT
from streaming.tables.arrow import row_schema
from streaming.tables.conditions import ALL_ROWS, Condition

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
        self.tables.setdefault(name, MemoryTable())

    def write(
        self,
        name: str,
        rows: Sequence[Row],
        replaced: Callable[[Row], bool] | None,
        *,
        transaction_id: str,
        transaction_version: int,
    ) -> bool:
        """Add `rows`, in the place of those for which `replaced` holds; False where this transaction was written
        before. Raises TableUnavailable for rows that don't fit.
        """
        self.before("write", name)
        typed = _typed(name, rows)
        self.ensure(name)
        table = self.tables[name]
        written = table.transactions.get(transaction_id)
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
    checks = _checks(name)
    if all(is_exact(row.get(column)) for row in rows for column, is_exact in checks):
        return [{column: _own(row.get(column)) for column, _ in checks} for row in rows]
    try:
        return pa.Table.from_pylist([dict(row) for row in rows], schema=row_schema(TABLES[name])).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowException as error:
        raise TableUnavailable(f"table {name} can't be written: {error}") from None


@cache
def _checks(name: str) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
    return tuple((column.name, _IS_EXACT[column.type]) for column in TABLES[name].columns)


def _exactly(kind: type) -> Callable[[Any], bool]:
    return lambda value: value is None or type(value) is kind


def _whole(bits: int) -> Callable[[Any], bool]:
    bound = 1 << (bits - 1)
    return lambda value: value is None or (type(value) is int and -bound <= value < bound)


def _own(value: Any) -> Any:
    """A list could be changed by who gave it."""
    return list(value) if type(value) is list else value


def _is_utc(value: Any) -> bool:
    return value is None or (type(value) is datetime and value.tzinfo is UTC)


_IS_EXACT: dict[ColumnType, Callable[[Any], bool]] = {
    ColumnType.STRING: _exactly(str),
    ColumnType.LONG: _whole(64),
    ColumnType.INTEGER: _whole(32),
    ColumnType.DOUBLE: _exactly(float),
    ColumnType.BOOLEAN: _exactly(bool),
    ColumnType.BINARY: _exactly(bytes),
    ColumnType.TIMESTAMP: _is_utc,
    ColumnType.INTEGER_LIST: lambda value: value is None or (type(value) is list and all(map(_whole(32), value))),
}
"""Whether Arrow would give a value back as it is."""

_STORES: dict[str, MemoryStore] = {}


def memory_store(root: str) -> MemoryStore | None:
    """The store of a root like `memory:NAME`, empty at first; None for every other root."""
    return _STORES.setdefault(root, MemoryStore()) if root.startswith(MEMORY_ROOT) else None


def forget(root: str) -> None:
    """Drop a store and all that it holds."""
    _STORES.pop(root, None)


class MemoryReader:
    """Tables of one store, each in one version until `look_again`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._seen: dict[str, MemoryTable] = {}

    def look_again(self) -> None:
        """From now on tables are read in their newest version."""
        self._seen.clear()

    def table(self, name: str) -> MemoryTable | None:
        """The table in the version of this look; None where it isn't there yet."""
        if name not in self._seen and name in self._store.tables:
            self._store.before("read", name)
            self._seen[name] = self._store.tables[name]
        return self._seen.get(name)

    def newest(self, name: str, column: str, where: Condition = ALL_ROWS) -> datetime | None:
        """Greatest value of a column among rows that fulfil `where`."""
        table = self.table(name)
        values = (row[column] for row in (table.rows if table else ()) if where.holds(row))
        return max((value for value in values if value is not None), default=None)

    def rows(self, name: str, columns: Sequence[str] | None, where: Condition) -> list[dict[str, Any]]:
        """Rows that fulfil `where`, in any order."""
        table = self.table(name)
        matching = (row for row in (table.rows if table else ()) if where.holds(row))
        return [dict(row) if columns is None else {column: row[column] for column in columns} for row in matching]
