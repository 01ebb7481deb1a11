"""Conditions on rows, as data-reading SQL: what a reader of tables may ask for, and how each value is written.

Every condition lets the log's statistics leave out files: it compares one column with a value, and conditions are only
joined by `and`. Rows in memory are chosen by `kept`, columns by the expressions of its terms.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from operator import eq, ge, gt, le, lt
from typing import Any, TypeVar

from pyarrow import compute as pc

from streaming.tables.times import instant

Value = str | int | datetime
Row = TypeVar("Row", bound=Mapping[str, Any])


class Sign(StrEnum):
    """How a column is compared."""

    EQUAL = "="
    AT_LEAST = ">="
    ABOVE = ">"
    AT_MOST = "<="
    BELOW = "<"
    ONE_OF = "in"
    STARTS_WITH = "starts with"
    KNOWN = "is not null"


_OPERATORS: Mapping[Sign, Callable[[Any, Any], Any]] = {
    Sign.EQUAL: eq, Sign.AT_LEAST: ge, Sign.ABOVE: gt, Sign.AT_MOST: le, Sign.BELOW: lt,
}  # fmt: skip
"""Signs that compare with one value."""


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison of one column with values, of which most signs have one; a null never fulfils it."""

    column: str
    sign: Sign
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        literals = ", ".join(map(_literal, self.values))
        if self.sign is Sign.STARTS_WITH:
            return f"starts_with({self.column}, {literals})"
        return f"{self.column} {self.sign} {f'({literals})' if self.sign is Sign.ONE_OF else literals}".rstrip()

    @property
    def compared(self) -> tuple[Sign, Value] | None:
        """What the column is compared with; None where it is not one value, or only the beginning of one."""
        return (self.sign, self.values[0]) if self.sign in _OPERATORS else None

    @property
    def members(self) -> tuple[Value, ...] | None:
        """Values of which it must be one; None where they are not listed."""
        return self.values if self.sign in (Sign.EQUAL, Sign.ONE_OF) else None

    @property
    def expression(self) -> pc.Expression | None:
        """The comparison as an expression over dictionary columns; None if Arrow can't compare them."""
        column = pc.field(self.column)
        if self.sign in _OPERATORS:
            return _OPERATORS[self.sign](column, self.values[0])
        if self.sign is Sign.ONE_OF:
            return column.isin(list(self.values))
        return column.is_valid() if self.sign is Sign.KNOWN else None

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """The rows for which it holds, in their order."""
        column, values = self.column, self.values
        if self.sign is Sign.EQUAL:
            value = values[0]
            return [row for row in rows if row[column] == value]
        if self.sign is Sign.ONE_OF:
            known = frozenset(values)
            return [row for row in rows if row[column] in known]
        if self.sign is Sign.STARTS_WITH:
            return [row for row in rows if (row[column] or "").startswith(str(values[0]))]
        if self.sign is Sign.KNOWN:
            return [row for row in rows if row[column] is not None]
        operator, value = _OPERATORS[self.sign], values[0]
        return [row for row in rows if (of_row := row[column]) is not None and operator(of_row, value)]


@dataclass(frozen=True, slots=True)
class Condition:
    """Rows for which all terms hold.

    >>> str(equal("kafka_cluster", "it's") & at_least("sequence", 3))
    "kafka_cluster = 'it''s' and sequence >= 3"
    >>> str(one_of("topic", ["a", "b"]) & starts_with("group_id", "pay") & is_known("rack"))
    "topic in ('a', 'b') and starts_with(group_id, 'pay') and rack is not null"
    """

    terms: tuple[Term, ...]

    def __and__(self, other: "Condition") -> "Condition":
        return Condition((*self.terms, *other.terms))

    def __str__(self) -> str:
        return " and ".join(map(str, self.terms)) or "true"

    def kept(self, rows: Iterable[Row]) -> list[Row]:
        """The rows in memory for which it holds, in their order: term by term, as a call for each row takes longer."""
        kept = list(rows)
        for term in self.terms:
            kept = term.kept(kept)
        return kept

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are compared."""
        return tuple(dict.fromkeys(term.column for term in self.terms))


ALL_ROWS = Condition(())


def equal(column: str, value: Value) -> Condition:
    """Rows with this value."""
    return Condition((Term(column, Sign.EQUAL, (value,)),))


def of_cluster(kafka_cluster: str) -> Condition:
    """Rows of one Kafka cluster: tables of several may lie in one folder."""
    return equal("kafka_cluster", kafka_cluster)


def at_least(column: str, value: Value) -> Condition:
    """Rows with this value or a greater one."""
    return Condition((Term(column, Sign.AT_LEAST, (value,)),))


def above(column: str, value: Value) -> Condition:
    """Rows with a greater value."""
    return Condition((Term(column, Sign.ABOVE, (value,)),))


def at_most(column: str, value: Value) -> Condition:
    """Rows with this value or a smaller one."""
    return Condition((Term(column, Sign.AT_MOST, (value,)),))


def below(column: str, value: Value) -> Condition:
    """Rows with a smaller value."""
    return Condition((Term(column, Sign.BELOW, (value,)),))


def one_of(column: str, values: Iterable[Value]) -> Condition:
    """Rows with one of these values, of which there is at least one."""
    return Condition((Term(column, Sign.ONE_OF, tuple(values)),))


def starts_with(column: str, beginning: str) -> Condition:
    """Rows whose text begins so."""
    return Condition((Term(column, Sign.STARTS_WITH, (beginning,)),))


def is_known(column: str) -> Condition:
    """Rows in which the column is not null."""
    return Condition((Term(column, Sign.KNOWN),))


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return instant(value)
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
