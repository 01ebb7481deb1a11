"""What a column and a table are, as plain data. Knows no table, and neither Spark nor Delta nor Arrow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ColumnType(StrEnum):
    """The few types used, all readable by every Delta reader (start wide: no type widening later)."""

    STRING = "string"
    LONG = "long"
    INTEGER = "integer"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    BINARY = "binary"
    TIMESTAMP = "timestamp"
    INTEGER_LIST = "array<integer>"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `comment` states meaning and unit and is stored in the table."""

    name: str
    type: ColumnType
    comment: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Table:
    """One Delta table; `key` names the columns that identify a row, `time_column` what retention goes by."""

    name: str
    comment: str
    key: tuple[str, ...]
    time_column: str
    columns: tuple[Column, ...]
    configuration: Mapping[str, str] = field(default_factory=dict)
    """Delta properties that differ from those of all tables."""

    def column_names(self) -> tuple[str, ...]:
        """All columns, in order."""
        return tuple(column.name for column in self.columns)


def text(name: str, comment: str, *, nullable: bool = True) -> Column:
    """A string."""
    return Column(name, ColumnType.STRING, comment, nullable)


def long(name: str, comment: str, *, nullable: bool = True) -> Column:
    """A whole number of 64 bits."""
    return Column(name, ColumnType.LONG, comment, nullable)


def integer(name: str, comment: str, *, nullable: bool = True) -> Column:
    """A whole number of 32 bits."""
    return Column(name, ColumnType.INTEGER, comment, nullable)


def integers(name: str, comment: str, *, nullable: bool = True) -> Column:
    """A list of whole numbers of 32 bits."""
    return Column(name, ColumnType.INTEGER_LIST, comment, nullable)


def number(name: str, comment: str, *, nullable: bool = True) -> Column:
    """A double."""
    return Column(name, ColumnType.DOUBLE, comment, nullable)


def flag(name: str, comment: str, *, nullable: bool = True) -> Column:
    """True or false."""
    return Column(name, ColumnType.BOOLEAN, comment, nullable)


def timestamp(name: str, comment: str, *, nullable: bool = True) -> Column:
    """A moment, UTC, to the microsecond."""
    return Column(name, ColumnType.TIMESTAMP, comment, nullable)


CLUSTER = text("kafka_cluster", "Name of the Kafka cluster, as in the settings", nullable=False)
"""The first column of every table that may hold rows of several clusters."""
