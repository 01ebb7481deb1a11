"""From when on rows are counted, so that a total is the same whoever reads it when.

Rows expire. Were all rows counted, a restart after some had gone would find fewer; a counter that falls, Prometheus
takes for one that began at 0, and adds all of the rest once more. So a total covers a period that is shorter than the
retention, and begins at 0 with the next period.
"""

from datetime import datetime

from streaming.tables import to_ms, utc

WEEK_MS = 7 * 86_400_000


def counted_since(newest: datetime, *, retention_ms: int, span_max_ms: int | None = None) -> datetime:
    """Start of the period that holds `newest`, the time of the newest row; periods follow each other from 1970 on.

    A period is half of the retention long, or `span_max_ms` where that is less: no row of it has expired.

    >>> counted_since(datetime.fromisoformat("2026-11-21T14:05:00+00:00"), retention_ms=10**10, span_max_ms=WEEK_MS)
    datetime.datetime(2026, 11, 19, 0, 0, tzinfo=datetime.timezone.utc)
    """
    span_ms = retention_ms // 2 if span_max_ms is None else min(span_max_ms, retention_ms // 2)
    return utc(to_ms(newest) - to_ms(newest) % span_ms)
