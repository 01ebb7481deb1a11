"""What control remembers of brokers' loads, in the tables `load_memory` and `recurring_load`.

Both are written once an hour and read at the start. A start goes on from there with the windows that have closed since.
Without a row of `load_memory` it begins with the windows of a day; without one of `recurring_load` it begins with the
windows of the last days and, for the weeks before, with `broker_load_hourly`.
"""

import json
from collections import defaultdict
from collections.abc import Iterator

import structlog

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.load_history.load_memory import NOTHING_REMEMBERED, Episodes, Levels, LoadMemory
from assignor_core.load_history.recurring import KEPT_DAYS, NO_HISTORY, DayLoad, RecurringLoad
from assignor_core.load_history.windows import ClosedWindow, skew_window
from assignor_core.resources import MEASURED
from streaming import tables
from streaming.contract import BROKER_LOAD_HOURLY, LOAD_MEMORY, RECURRING_LOAD
from streaming.control.windows import WindowTables, recorded_windows
from streaming.settings import DAY_MS, HOUR_MS
from streaming.views.broker_windows import loads

KEPT_EVERY_MS = 3_600_000
LOOKBACK_MS = 86_400_000
"""No window from before is read at a start: a level follows within an hour, the noise within a few."""


class KeptMemory:
    """The memory of one control, which alone writes the rows of its cluster."""

    def __init__(self, window_tables: WindowTables) -> None:
        """Reads the memory from the tables; raises TableUnavailable."""
        self._tables = window_tables
        self.memory = read_memory(tables.TableReader(window_tables.root), window_tables.kafka_cluster)
        self._kept_ms = self.memory.newest_ms
        self._is_caught_up = False

    def after(
        self, windows: tuple[ClosedWindow, ...], policy: DecisionPolicy, counted: frozenset[int], *, changed_ms: int
    ) -> LoadMemory:
        """Returns the memory with the newest closed windows, and at the first call with those that
        closed before them.
        """
        if not self._is_caught_up:
            since_ms = max(self.memory.newest_ms, windows[-1].end_ms - LOOKBACK_MS)
            windows = recorded_windows(self._tables, since_ms=since_ms) or windows
            self._is_caught_up = True
        new = (window for window in windows if window.end_ms > self.memory.newest_ms)
        skews = tuple(skew_window(window, policy.resources, policy.capacities, counted) for window in new)
        self.memory = self.memory.after(skews, policy.trigger.watched, changed_ms=changed_ms)
        if self.memory.newest_ms - self._kept_ms >= KEPT_EVERY_MS:
            self._keep()
        return self.memory

    def _keep(self) -> None:
        self._kept_ms = self.memory.newest_ms
        cluster = self._tables.kafka_cluster
        tables.replace(
            self._tables.root,
            LOAD_MEMORY.name,
            memory_rows(self.memory, cluster),
            kafka_cluster=cluster,
            transaction_id=f"load_memory:{cluster}",
            transaction_version=self.memory.newest_ms,
        )


def read_memory(reader: tables.TableReader, kafka_cluster: str) -> LoadMemory:
    """What was kept last; nothing where there is none, or none that this version can read."""
    rows = reader.rows(LOAD_MEMORY.name, where=tables.of_cluster(kafka_cluster))
    try:
        levels = {row["resource"]: Levels.from_dict(json.loads(row["levels_json"])) for row in rows}
        episodes = {row["resource"]: Episodes.from_dict(json.loads(row["episodes_json"])) for row in rows}
    except (KeyError, TypeError, ValueError) as error:
        log.warning("load_memory_unreadable", error=f"{type(error).__name__}: {error}")
        return NOTHING_REMEMBERED
    if not rows:
        return NOTHING_REMEMBERED
    newest_ms = min(tables.to_ms(row["event_time"]) for row in rows)
    changed_ms = max(tables.to_ms(row["changed_at"]) for row in rows)
    return LoadMemory(newest_ms, changed_ms, levels, episodes)


def memory_rows(memory: LoadMemory, kafka_cluster: str) -> list[tables.Row]:
    """One row for each resource."""
    return [
        {
            "kafka_cluster": kafka_cluster,
            "resource": resource,
            "event_time": tables.utc(memory.newest_ms),
            "changed_at": tables.utc(memory.changed_ms),
            "noise_ratio": levels.typical_mean_noise(1),
            "levels_json": json.dumps(levels.as_dict(), sort_keys=True),
            "episodes_json": json.dumps(memory.episodes[resource].as_dict(), sort_keys=True),
        }
        for resource, levels in sorted(memory.levels.items())
    ]


WINDOW_DAYS_MAX = 14
ROWS_MAX = 500_000
"""Most rows of windows read at a first start, some seconds; a large cluster begins with the windows of fewer days."""


class KeptRecurringLoad:
    """The history of one control, which alone writes the rows of its cluster."""

    def __init__(self, window_tables: WindowTables) -> None:
        """Reads the history from the tables; raises TableUnavailable."""
        self._tables = window_tables
        self.history = read_history(tables.TableReader(window_tables.root), window_tables.kafka_cluster)
        self._kept_ms = self.history.newest_ms
        self._is_caught_up = False

    def after(
        self, windows: tuple[ClosedWindow, ...], policy: DecisionPolicy, counted: frozenset[int], *, changed_ms: int
    ) -> RecurringLoad:
        """Returns the recurring load with the newest closed windows, and at the first call with those that closed
        before them.
        """
        if not policy.trigger.recurring_load:
            return NO_HISTORY
        if not self._is_caught_up:
            windows = (*self._before(windows[-1].end_ms, len(counted)), *windows)
            self._is_caught_up = True
        # A window that counts twice is left out by the history: its end is not newer.
        for window in windows:
            if window.end_ms > self.history.newest_ms:
                skew = skew_window(window, policy.resources, policy.capacities, counted)
                self.history = self.history.after((skew,), policy.trigger.watched, changed_ms=changed_ms)
        if self.history.kept_until_ms() - self._kept_ms >= KEPT_EVERY_MS:
            self._keep()
        return self.history

    def _before(self, newest_ms: int, brokers: int) -> Iterator[ClosedWindow]:
        """Windows of the last days, and before them the hours of the last weeks; all newer than what is known."""
        days = min(WINDOW_DAYS_MAX, max(1, ROWS_MAX * self._tables.window_ms // (DAY_MS * max(1, brokers))))
        windows = recorded_windows(self._tables, since_ms=max(self.history.newest_ms, newest_ms - days * DAY_MS))
        oldest_ms = windows[0].start_ms if windows else newest_ms
        since_ms = max(self.history.newest_ms, newest_ms - KEPT_DAYS * DAY_MS)
        yield from _hours(self._tables, since_ms=since_ms, before_ms=oldest_ms - HOUR_MS + 1)
        yield from windows

    def _keep(self) -> None:
        self._kept_ms = self.history.kept_until_ms()
        cluster = self._tables.kafka_cluster
        tables.replace(
            self._tables.root,
            RECURRING_LOAD.name,
            history_rows(self.history, cluster),
            kafka_cluster=cluster,
            transaction_id=f"recurring_load:{cluster}",
            transaction_version=self._kept_ms,
        )


def read_history(reader: tables.TableReader, kafka_cluster: str) -> RecurringLoad:
    """What was kept last; nothing where there is none, or none that this version can read."""
    rows = reader.rows(RECURRING_LOAD.name, where=tables.of_cluster(kafka_cluster))
    days: dict[str, dict[int, DayLoad]] = defaultdict(dict)
    try:
        for row in rows:
            days[row["resource"]][tables.to_ms(row["day"]) // DAY_MS] = DayLoad.from_dict(json.loads(row["day_json"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log.warning("recurring_load_unreadable", error=f"{type(error).__name__}: {error}")
        return NO_HISTORY
    return RecurringLoad(max((tables.to_ms(row["event_time"]) for row in rows), default=0), dict(days))


def history_rows(history: RecurringLoad, kafka_cluster: str) -> list[tables.Row]:
    """One row for each resource and day."""
    return [
        {
            "kafka_cluster": kafka_cluster,
            "resource": resource,
            "day": tables.utc(day * DAY_MS),
            "event_time": tables.utc(history.kept_until_ms()),
            "day_json": json.dumps(load.as_dict(), separators=(",", ":")),
        }
        for resource, days in sorted(history.days.items())
        for day, load in sorted(days.items())
    ]


def _hours(window_tables: WindowTables, *, since_ms: int, before_ms: int) -> Iterator[ClosedWindow]:
    """Hours that began in between, as windows of an hour, oldest first."""
    where = (
        tables.of_cluster(window_tables.kafka_cluster)
        & tables.at_least("period_start", tables.utc(since_ms))
        & tables.below("period_start", tables.utc(before_ms))
    )
    columns = ("period_start", "broker", *(figure for resource in MEASURED for figure in resource.figures))
    by_hour: dict[int, list[tables.Row]] = defaultdict(list)
    for row in tables.TableReader(window_tables.root).rows(BROKER_LOAD_HOURLY.name, columns=columns, where=where):
        by_hour[tables.to_ms(row["period_start"])].append(row)
    for start_ms, rows in sorted(by_hour.items()):
        known = {resource.value: loads(rows, resource) for resource in MEASURED}
        yield ClosedWindow(start_ms, start_ms + HOUR_MS, frozenset(row["broker"] for row in rows), known)


log = structlog.get_logger()
