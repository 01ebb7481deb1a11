"""Closed windows of load as control reads them from `broker_load`.

Unknown rates stay unknown: a broker without a known load doesn't count as reporting.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assignor_core.errors import NothingToPlanOn
from assignor_core.lag.reasons import duration
from assignor_core.load_history.windows import ClosedWindow
from assignor_core.resources import MEASURED
from streaming import tables
from streaming.contract.rates import BYTES_IN
from streaming.views.broker_windows import COLUMNS, closed, loads, reads_unknown
from streaming.views.group_picture import NO_RULES, LagRules
from streaming.views.spans import stale_after_ms

TABLE = "broker_load"
LOOKBACK_WINDOWS_EXTRA = 10
LOOKBACK_MIN_MS = 600_000


@dataclass(frozen=True, slots=True)
class WindowTables:
    """Tables below `root` with the windows of load and lag of one Kafka cluster, in windows of `window_ms`.

    Trigger, planner and measurement read no more than `windows_max` windows.
    """

    root: str
    kafka_cluster: str
    window_ms: int
    watermark_ms: int
    windows_max: int
    rules: LagRules = NO_RULES
    """What the settings allow groups to lag."""
    readers_max: int | None = None
    """Value of `trigger.readers_without_commits_max`."""


class ClosedWindows:
    """`closed_windows` for who asks again and again: rows are read where the table has changed. Not for two threads."""

    def __init__(self, window_tables: WindowTables) -> None:
        self._tables = window_tables
        self._reader = tables.TableReader(window_tables.root)
        self._version: int | None = None
        self._windows: tuple[ClosedWindow, ...] = ()

    def newest(self, *, now_ms: int) -> tuple[ClosedWindow, ...]:
        """The newest closed windows, oldest first; raises TableUnavailable."""
        since_ms = _since_ms(self._tables, now_ms)
        self._reader.look_again()
        version = self._reader.version(TABLE)
        if version is None or version != self._version:
            self._windows = _read(self._reader, self._tables, since_ms)
            self._version = version
        windows = tuple(window for window in self._windows if window.start_ms >= since_ms)
        return windows[-self._tables.windows_max :]


def windows_to_plan_on(window_tables: WindowTables, *, now_ms: int, forced: bool = False) -> tuple[ClosedWindow, ...]:
    """The newest closed windows, oldest first; raises NothingToPlanOn where there are none.

    Windows that are older than the trigger accepts show how the cluster was: they are refused unless `forced`.
    """
    windows = closed_windows(window_tables, now_ms=now_ms)
    age_max_ms = stale_after_ms(window_tables.window_ms)
    if windows and now_ms - windows[-1].end_ms <= age_max_ms:
        return windows
    reader = tables.TableReader(window_tables.root)
    newest = reader.newest_of_cluster(TABLE, "window_start", window_tables.kafka_cluster)
    if newest is None:
        raise NothingToPlanOn("no closed window in the tables yet: is the pipeline running?")
    end_ms = windows[-1].end_ms if windows else tables.to_ms(newest) + window_tables.window_ms
    if forced:
        return closed_windows(window_tables, now_ms=end_ms)
    age_ms = now_ms - end_ms
    if age_ms <= age_max_ms:
        raise NothingToPlanOn("no window has closed yet: wait until the first one ends")
    raise NothingToPlanOn(
        f"the newest window ended {duration(age_ms / 1000)} ago, and a plan rests on none older than "
        f"{duration(age_max_ms / 1000)}: do collector and pipeline run? --force plans on it all the same"
    )


def within(window_tables: WindowTables, windows: Sequence[ClosedWindow]) -> tables.Condition:
    """Rows of the cluster in these windows, the oldest first."""
    return (
        tables.of_cluster(window_tables.kafka_cluster)
        & tables.at_least("window_start", tables.utc(windows[0].start_ms))
        & tables.at_most("window_start", tables.utc(windows[-1].start_ms))
    )


def closed_windows(window_tables: WindowTables, *, now_ms: int) -> tuple[ClosedWindow, ...]:
    """The newest closed windows, oldest first: enough for the trigger and the planner, and no more."""
    return ClosedWindows(window_tables).newest(now_ms=now_ms)


def recorded_windows(window_tables: WindowTables, *, since_ms: int) -> tuple[ClosedWindow, ...]:
    """All closed windows that began at `since_ms` or later, oldest first."""
    return _read(tables.TableReader(window_tables.root), window_tables, since_ms)


def _read(reader: tables.TableReader, window_tables: WindowTables, since_ms: int) -> tuple[ClosedWindow, ...]:
    where = tables.of_cluster(window_tables.kafka_cluster) & tables.at_least("window_start", tables.utc(since_ms))
    rows = reader.rows(TABLE, columns=COLUMNS, where=where)
    return tuple(
        ClosedWindow(
            start_ms,
            tables.to_ms(window[0]["window_end"]),
            frozenset(row["broker"] for row in window),
            {resource: loads(window, resource) for resource in MEASURED},
            {row["broker"]: row[BYTES_IN.name] for row in window if row[BYTES_IN.name] is not None},
            reads_unknown=reads_unknown(window),
        )
        for start_ms, window in closed(rows, watermark_ms=window_tables.watermark_ms).items()
    )


def _since_ms(window_tables: WindowTables, now_ms: int) -> int:
    """No window that began before is asked for."""
    windows = window_tables.windows_max + LOOKBACK_WINDOWS_EXTRA
    lookback_ms = windows * window_tables.window_ms + window_tables.watermark_ms
    return now_ms - max(lookback_ms, LOOKBACK_MIN_MS)
