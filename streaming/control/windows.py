"""Closed windows of load as control reads them from `broker_load`.

Unknown rates stay unknown: a broker without a known load doesn't count as reporting.
"""

from assignor_core.deciding.windows import ClosedWindow
from assignor_core.resources import MEASURED
from streaming import tables
from streaming.settings import Settings
from streaming.views.broker_windows import COLUMNS, closed, loads

LOOKBACK_WINDOWS_EXTRA = 10
LOOKBACK_MIN_MS = 600_000


def closed_windows(settings: Settings, *, now_ms: int) -> tuple[ClosedWindow, ...]:
    """The newest closed windows, oldest first: enough for the trigger and the planner, and no more."""
    wanted = max(settings.trigger.windows_considered, settings.planner.windows, settings.control.settle_windows)
    lookback_ms = (wanted + LOOKBACK_WINDOWS_EXTRA) * settings.pipeline.window_ms + settings.pipeline.watermark_ms
    return recorded_windows(settings, since_ms=now_ms - max(lookback_ms, LOOKBACK_MIN_MS))[-wanted:]


def recorded_windows(settings: Settings, *, since_ms: int) -> tuple[ClosedWindow, ...]:
    """All closed windows that began at `since_ms` or later, oldest first."""
    where = tables.of_cluster(settings.kafka.cluster_name) & tables.at_least("window_start", tables.utc(since_ms))
    rows = tables.read(settings.storage.tables, "broker_load", columns=COLUMNS, where=where)
    return tuple(
        ClosedWindow(
            start_ms,
            tables.to_ms(window[0]["window_end"]),
            frozenset(row["broker"] for row in window),
            {resource: loads(window, resource) for resource in MEASURED},
        )
        for start_ms, window in closed(rows, settings).items()
    )
