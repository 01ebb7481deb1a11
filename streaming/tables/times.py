"""Points in time as the tables and delta-rs's SQL write them."""

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
