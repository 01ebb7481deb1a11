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
WINDOW = (
    timestamp("window_start", "Start of the tumbling event-time window, UTC, inclusive", nullable=False),
    timestamp("window_end", "End of the window, UTC, exclusive", nullable=False),
)
"""Columns that all window tables share; `WINDOW_AUDIT` has the last of them."""
WINDOW_AUDIT = (
    long("sample_count", "Samples that fell into the window", nullable=False),
    long("first_event_time_ms", "Event time of the oldest sample in the window, ms since 1970 UTC", nullable=False),
    long("last_event_time_ms", "Event time of the newest sample in the window, ms since 1970 UTC", nullable=False),
    flag("is_final", "True once the watermark has passed the window: the row will not change again", nullable=False),
    timestamp("updated_at", "When this row was last written, UTC", nullable=False),
    long("batch_id", "Micro-batch that last wrote this row", nullable=False),
    text("query_id", "Id of the streaming query (checkpoint) that last wrote this row", nullable=False),
)
PERIOD = (
    timestamp("period_start", "Start of the hour or day, UTC, inclusive", nullable=False),
    timestamp("period_end", "End of the hour or day, UTC, exclusive", nullable=False),
)
"""Columns that all tables by the hour and by the day share; `PERIOD_AUDIT` has the last of them."""
PERIOD_AUDIT = (
    long("window_count", "Windows that the row rests on", nullable=False),
    timestamp("updated_at", "When this row was written, UTC", nullable=False),
)
