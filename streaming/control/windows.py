"""Closed windows of load as control reads them from `broker_load`.

Unknown rates stay unknown: a broker without a known load doesn't count as reporting.
"""

from assignor_core.deciding.windows import ClosedWindow
from assignor_core.resources import MEASURED
from streaming import tables
from streaming.settings import Settings
from streaming.views.broker_windows import COLUMNS, closed, loads

TABLE = "broker_load"
LOOKBACK_WINDOWS_EXTRA = 10
LOOKBACK_MIN_MS = 600_000


class ClosedWindows:
    """`closed_windows` for who asks again and again: rows are read where the table has changed. Not for two threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reader = tables.TableReader(settings.storage.tables)
        self._version: int | None = None
        self._windows: tuple[ClosedWindow, ...] = ()

    def newest(self, *, now_ms: int) -> tuple[ClosedWindow, ...]:
        """The newest closed windows, oldest first; raises TableUnavailable."""
        since_ms = _since_ms(self._settings, now_ms)
        self._reader.look_again()
        version = self._reader.version(TABLE)
        if version is None or version != self._version:
            self._windows = _read(self._reader, self._settings, since_ms)
            self._version = version
        windows = tuple(window for window in self._windows if window.start_ms >= since_ms)
        return windows[-_windows_wanted(self._settings) :]


def closed_windows(settings: Settings, *, now_ms: int) -> tuple[ClosedWindow, ...]:
    """The newest closed windows, oldest first: enough for the trigger and the planner, and no more."""
    return ClosedWindows(settings).newest(now_ms=now_ms)


def recorded_windows(settings: Settings, *, since_ms: int) -> tuple[ClosedWindow, ...]:
    """All closed windows that began at `since_ms` or later, oldest first."""
    return _read(tables.TableReader(settings.storage.tables), settings, since_ms)


def _read(reader: tables.TableReader, settings: Settings, since_ms: int) -> tuple[ClosedWindow, ...]:
    where = tables.of_cluster(settings.kafka.cluster_name) & tables.at_least("window_start", tables.utc(since_ms))
    rows = reader.rows(TABLE, columns=COLUMNS, where=where)
    return tuple(
        ClosedWindow(
            start_ms,
            tables.to_ms(window[0]["window_end"]),
            frozenset(row["broker"] for row in window),
            {resource: loads(window, resource) for resource in MEASURED},
        )
        for start_ms, window in closed(rows, settings).items()
    )


def _windows_wanted(settings: Settings) -> int:
    return max(settings.trigger.windows_considered, settings.planner.windows, settings.control.settle_windows)


def _since_ms(settings: Settings, now_ms: int) -> int:
    """No window that began before is asked for."""
    windows = _windows_wanted(settings) + LOOKBACK_WINDOWS_EXTRA
    lookback_ms = windows * settings.pipeline.window_ms + settings.pipeline.watermark_ms
    return now_ms - max(lookback_ms, LOOKBACK_MIN_MS)
