"""Points in time as the tables and delta-rs's SQL write them, and versions of transactions that are times."""

from dataclasses import dataclass
from datetime import UTC, datetime


def utc(time_ms: int) -> datetime:
    """Milliseconds since 1970 as the tables' timestamps."""
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC)


def to_ms(time: datetime) -> int:
    """Milliseconds since 1970 of a timestamp: the reverse of `utc`."""
    return round(time.timestamp() * 1000)


def instant(time: datetime) -> str:
    """A time as delta-rs's SQL: it compares timestamps only with literals of exactly the column's type."""
    return f"""arrow_cast('{time.astimezone(UTC).isoformat()}', 'Timestamp(Microsecond, Some("UTC"))')"""


@dataclass(frozen=True, slots=True)
class AtTime:
    """The version of a transaction that is written again and again: when it is, by a clock that may be set back."""

    now_ms: int

    def after(self, written: int | None) -> int:
        """The version, of which `written` is the last one.

        A later one is of a clock that was ahead. Were its time waited for, nothing would be written until then, so each
        of these writes has the version after the last. The same time again is the same write.

        >>> AtTime(50).after(None), AtTime(50).after(40), AtTime(50).after(50), AtTime(50).after(90)
        (50, 50, 50, 91)
        """
        return self.now_ms if written is None or written <= self.now_ms else written + 1
