"""What control remembers of brokers' loads, in the table `load_memory`: kept once an hour, read at the start.

A start goes on from there with the windows that have closed since; without a row it begins with those of a day.
"""

import json

import structlog

from assignor_core.deciding.policy import DecisionPolicy
from assignor_core.load_history.load_memory import NOTHING_REMEMBERED, Episodes, Levels, LoadMemory
from assignor_core.load_history.windows import ClosedWindow, skew_window
from streaming import tables
from streaming.contract import LOAD_MEMORY
from streaming.control.windows import WindowTables, recorded_windows

log = structlog.get_logger()

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
