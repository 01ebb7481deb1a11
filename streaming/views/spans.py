"""Rows of a span of time or of one window, and from when on rows are counted: for all views that read such.

Rows expire. Were all rows counted, a restart after some had gone would find fewer; a counter that falls, Prometheus
takes for one that began at 0, and adds all of the rest once more. So a total covers a period that is shorter than the
retention, and begins at 0 with the next period.
"""

from datetime import datetime
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from streaming.tables import ALL_ROWS, Condition, at_least, below, equal, of_cluster, to_ms, utc

WEEK_MS = 7 * 86_400_000
STALE_WINDOWS = 5


def stale_after_ms(window_ms: int) -> int:
    """How old the newest window may be: beyond that nobody knows what is so now, as the pipeline may be down."""
    return 60_000 + STALE_WINDOWS * window_ms


def of_span(kafka_cluster: str, time: str, from_ms: int | None, until_ms: int | None = None) -> Condition:
    """Rows of a cluster, `time` of which is from `from_ms` (inclusive) to `until_ms` (exclusive); None is no limit."""
    since = ALL_ROWS if from_ms is None else at_least(time, utc(from_ms))
    return of_cluster(kafka_cluster) & since & (ALL_ROWS if until_ms is None else below(time, utc(until_ms)))


def of_window(kafka_cluster: str, start_ms: int) -> Condition:
    """Rows of a cluster of the window that starts then."""
    return of_cluster(kafka_cluster) & equal("window_start", utc(start_ms))


def times_ms(times: pa.ChunkedArray) -> NDArray[Any]:
    """A column of times in ms since 1970 UTC, without an object for each."""
    ms: NDArray[Any] = times.cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    return ms


def counted_since(newest: datetime, *, retention_ms: int, span_max_ms: int | None = None) -> datetime:
    """Start of the period that holds `newest`, the time of the newest row; periods follow each other from 1970 on.

    A period is half of the retention long, or `span_max_ms` where that is less: no row of it has expired.

    >>> counted_since(datetime.fromisoformat("2026-11-21T14:05:00+00:00"), retention_ms=10**10, span_max_ms=WEEK_MS)
    datetime.datetime(2026, 11, 19, 0, 0, tzinfo=datetime.timezone.utc)
    """
    span_ms = retention_ms // 2 if span_max_ms is None else min(span_max_ms, retention_ms // 2)
    return utc(to_ms(newest) - to_ms(newest) % span_ms)
