"""Conditions on rows, as data-reading SQL: what a reader of tables may ask for, and how each value is written.

Every condition lets the log's statistics leave out files: it compares one column with a value, and conditions are only
joined by `and`. Rows in memory are asked the same by `holds` and `kept`, columns by the expressions of its terms.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from operator import eq, ge, gt, le, lt
from typing import Any, TypeVar

from pyarrow import compute as pc

from streaming.tables.times import instant

Value = str | int | datetime
Row = TypeVar("Row", bound=Mapping[str, Any])


class Sign(StrEnum):
    """How a column is compared with one value."""

    EQUAL = "="
    AT_LEAST = ">="
    ABOVE = ">"
    AT_MOST = "<="
    BELOW = "<"


_OPERATORS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    Sign.EQUAL: eq, Sign.AT_LEAST: ge, Sign.ABOVE: gt, Sign.AT_MOST: le, Sign.BELOW: lt,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison of one column; a null never fulfils it."""

    sql: str
    column: str
    holds: Callable[[Mapping[str, Any]], bool] = field(compare=False, repr=False)
    """Whether a row in memory fulfils the comparison."""
    make_expression: Callable[[], pc.Expression] | None = field(compare=False, repr=False)
    """Makes `expression`, which takes longer than all else of a term and which few readers ask for."""
    compared: tuple[Sign, Value] | None = None
    """What the column is compared with; None where it is not one value."""
    members: tuple[Value, ...] | None = None
    """Values of which it must be one; None where they are not listed."""

    @property
    def expression(self) -> pc.Expression | None:
        """The comparison as an expression over dictionary columns; None if Arrow can't compare them."""
        return None if self.make_expression is None else self.make_expression()

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """The rows for which it holds, in their order."""
        if self.compared is None:
            return [row for row in rows if self.holds(row)]
        column, (sign, value) = self.column, self.compared
        if sign is Sign.EQUAL:
            return [row for row in rows if row[column] == value]
        operator = _OPERATORS[sign]
        return [row for row in rows if (of_row := row[column]) is not None and operator(of_row, value)]


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows for which all terms hold.

    >>> str(equal("kafka_cluster", "it's") & at_least("sequence", 3))
    "kafka_cluster = 'it''s' and sequence >= 3"
    """

    terms: tuple[Term, ...]

    def __and__(self, other: "Condition") -> "Condition":
        return Condition((*self.terms, *other.terms))

    def __str__(self) -> str:
        return " and ".join(term.sql for term in self.terms) or "true"

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Returns whether a row in memory fulfils the condition."""
        return all(term.holds(row) for term in self.terms)

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """The rows in memory for which it holds, in their order: term by term, as a call for each row takes longer."""
        if not self.terms:
            return list(rows)
        first, *others = self.terms
        kept = first.kept(rows)
        for term in others:
            kept = term.kept(kept)
        return kept

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are compared."""
        return tuple(dict.fromkeys(term.column for term in self.terms))


ALL_ROWS = Condition(())


def equal(column: str, value: Value) -> Condition:
    """Rows with this value."""
    return _compared(column, Sign.EQUAL, value)


def of_cluster(kafka_cluster: str) -> Condition:
    """Rows of one Kafka cluster: tables of several may lie in one folder."""
    return equal("kafka_cluster", kafka_cluster)


def at_least(column: str, value: Value) -> Condition:
    """Rows with this value or a greater one."""
    return _compared(column, Sign.AT_LEAST, value)


def above(column: str, value: Value) -> Condition:
    """Rows with a greater value."""
    return _compared(column, Sign.ABOVE, value)


def at_most(column: str, value: Value) -> Condition:
    """Rows with this value or a smaller one."""
    return _compared(column, Sign.AT_MOST, value)


def below(column: str, value: Value) -> Condition:
    """Rows with a smaller value."""
    return _compared(column, Sign.BELOW, value)


def one_of(column: str, values: Iterable[Value]) -> Condition:
    """Rows with one of these values, of which there is at least one."""
    members = tuple(values)
    known = frozenset(members)
    return _term(
        f"{column} in ({', '.join(map(_literal, members))})",
        column,
        lambda row: row[column] in known,
        lambda: pc.field(column).isin(list(members)),
        members=members,
    )


def starts_with(column: str, beginning: str) -> Condition:
    """Rows whose text begins so."""
    return _term(
        f"starts_with({column}, {_literal(beginning)})",
        column,
        lambda row: (row[column] or "").startswith(beginning),
        None,
    )


def is_known(column: str) -> Condition:
    """Rows in which the column is not null."""
    return _term(
        f"{column} is not null", column, lambda row: row[column] is not None, lambda: pc.field(column).is_valid()
    )


def _compared(column: str, sign: Sign, value: Value) -> Condition:
    operator = _OPERATORS[sign]
    return _term(
        f"{column} {sign} {_literal(value)}",
        column,
        lambda row: row[column] is not None and operator(row[column], value),
        lambda: operator(pc.field(column), value),
        (sign, value),
        (value,) if sign is Sign.EQUAL else None,
    )


def _term(
    sql: str,
    column: str,
    holds: Callable[[Mapping[str, Any]], bool],
    make_expression: Callable[[], pc.Expression] | None,
    compared: tuple[Sign, Value] | None = None,
    members: tuple[Value, ...] | None = None,
) -> Condition:
    return Condition((Term(sql, column, holds, make_expression, compared, members),))


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return instant(value)
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
