"""Conditions on rows, as data-reading SQL: what a reader of tables may ask for, and how each value is written.

Every condition lets the log's statistics leave out files: it compares one column with a value, and conditions are only
joined by `and`. Rows in memory are asked the same by `holds`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import eq, ge, gt, le, lt
from typing import Any

from streaming.tables.times import instant

Value = str | int | datetime


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows for which `sql` holds; a null fulfils none.

    >>> str(equal("kafka_cluster", "it's") & at_least("sequence", 3))
    "kafka_cluster = 'it''s' and sequence >= 3"
    """

    sql: str
    holds: Callable[[Mapping[str, Any]], bool] = field(compare=False, repr=False)
    """The same, asked of one row in memory."""

    def __and__(self, other: "Condition") -> "Condition":
        first, second = self.holds, other.holds
        return Condition(f"{self.sql} and {other.sql}", lambda row: first(row) and second(row))

    def __str__(self) -> str:
        return self.sql


ALL_ROWS = Condition("true", lambda _row: True)


def equal(column: str, value: Value) -> Condition:
    """Rows with this value."""
    return _compared(column, "=", eq, value)


def of_cluster(kafka_cluster: str) -> Condition:
    """Rows of one Kafka cluster: tables of several may lie in one folder."""
    return equal("kafka_cluster", kafka_cluster)


def at_least(column: str, value: Value) -> Condition:
    """Rows with this value or a greater one."""
    return _compared(column, ">=", ge, value)


def above(column: str, value: Value) -> Condition:
    """Rows with a greater value."""
    return _compared(column, ">", gt, value)


def at_most(column: str, value: Value) -> Condition:
    """Rows with this value or a smaller one."""
    return _compared(column, "<=", le, value)


def below(column: str, value: Value) -> Condition:
    """Rows with a smaller value."""
    return _compared(column, "<", lt, value)


def one_of(column: str, values: Iterable[Value]) -> Condition:
    """Rows with one of these values, of which there is at least one."""
    members = tuple(values)
    return Condition(f"{column} in ({', '.join(map(_literal, members))})", lambda row: row[column] in members)


def starts_with(column: str, beginning: str) -> Condition:
    """Rows whose text begins so."""
    return Condition(
        f"starts_with({column}, {_literal(beginning)})", lambda row: (row[column] or "").startswith(beginning)
    )


def is_known(column: str) -> Condition:
    """Rows in which the column is not null."""
    return Condition(f"{column} is not null", lambda row: row[column] is not None)


def _compared(column: str, sign: str, operator: Callable[[Any, Any], bool], value: Value) -> Condition:
    return Condition(
        f"{column} {sign} {_literal(value)}", lambda row: row[column] is not None and operator(row[column], value)
    )


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return instant(value)
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
