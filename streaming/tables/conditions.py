"""Conditions on rows, as data-reading SQL: what a reader of tables may ask for, and how each value is written.

Every condition lets the log's statistics leave out files: it compares one column with a value, and conditions are only
joined by `and`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from streaming.tables.times import instant

Value = str | int | datetime


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows for which `sql` holds; a null fulfils none.

    >>> str(equal("kafka_cluster", "it's") & at_least("sequence", 3))
    "kafka_cluster = 'it''s' and sequence >= 3"
    """

    sql: str

    def __and__(self, other: "Condition") -> "Condition":
        return Condition(f"{self.sql} and {other.sql}")

    def __str__(self) -> str:
        return self.sql


ALL_ROWS = Condition("true")


def equal(column: str, value: Value) -> Condition:
    """Rows with this value."""
    return Condition(f"{column} = {_literal(value)}")


def at_least(column: str, value: Value) -> Condition:
    """Rows with this value or a greater one."""
    return Condition(f"{column} >= {_literal(value)}")


def above(column: str, value: Value) -> Condition:
    """Rows with a greater value."""
    return Condition(f"{column} > {_literal(value)}")


def at_most(column: str, value: Value) -> Condition:
    """Rows with this value or a smaller one."""
    return Condition(f"{column} <= {_literal(value)}")


def one_of(column: str, values: Iterable[Value]) -> Condition:
    """Rows with one of these values, of which there is at least one."""
    return Condition(f"{column} in ({', '.join(map(_literal, values))})")


def starts_with(column: str, beginning: str) -> Condition:
    """Rows whose text begins so."""
    return Condition(f"starts_with({column}, {_literal(beginning)})")


def is_known(column: str) -> Condition:
    """Rows in which the column is not null."""
    return Condition(f"{column} is not null")


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return instant(value)
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
