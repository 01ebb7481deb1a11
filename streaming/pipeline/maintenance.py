"""Keeping a table small: rows beyond their retention go, small files are joined, old files and log entries are removed.
Before windows go, hours and days are made of them.

Each table is maintained by its one writer, between two of its writes, so that nothing ever conflicts with it. A step
that fails is logged and left for the next run: the table is slower until then, not wrong.
"""

import time
from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from streaming.contract import PARTITION_LOAD_HOURLY, Table
from streaming.pipeline.rollups import ROLLUPS, RollingUp, rollups_of
from streaming.settings import PipelineSettings
from streaming.tables import (
    file_statistics,
    first_line,
    instant,
    join_small_files,
    opened,
    remove_old_files,
    table_uri,
    utc,
)

log = structlog.get_logger()

BUDGET_MS = 20_000
"""No further step is begun after this; those left out come first next time."""


def retention_ms(table: Table, settings: PipelineSettings) -> int:
    """How long rows of `table` are kept."""
    if table is PARTITION_LOAD_HOURLY:
        return settings.partition_hours_retention_ms
    made_of_windows = any(rollup.target is table for rollup in ROLLUPS)
    return settings.rollup_retention_ms if made_of_windows else settings.retention_ms


class Maintenance:
    """Runs the steps on one table, at most once per `pipeline.maintenance_interval_ms`."""

    def __init__(self, root: str, table: Table, settings: PipelineSettings) -> None:
        self._uri = table_uri(root, table.name)
        self._table = table
        self._retention_ms = retention_ms(table, settings)
        self._interval_ms = settings.maintenance_interval_ms
        self._due_ms = 0
        self._rollups = [
            RollingUp(root, rollup, watermark_ms=settings.watermark_ms, kept_ms=retention_ms(rollup.target, settings))
            for rollup in rollups_of(table)
        ]
        self._kept_since: datetime | None = None
        self._steps: list[Callable[[DeltaTable, int], None]] = [
            self._roll_up, self._expire, _join_small_files, _remove_old_files,
        ]  # fmt: skip
        self._of_rollups = [Maintenance(root, rollup.target, settings) for rollup in rollups_of(table)]

    def run_if_due(self, *, now_ms: int) -> bool:
        """True if it was due and has run. To be called by the table's writer, after a write."""
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._interval_ms
        started = time.monotonic()
        try:
            delta = opened(self._uri)
            for step in tuple(self._steps):
                if (time.monotonic() - started) * 1000 > BUDGET_MS:
                    break
                step(delta, now_ms)
                self._steps = [*self._steps[1:], step]
        except (DeltaError, OSError, pa.ArrowException) as error:
            log.warning("maintenance_failed", table=self._table.name, error=first_line(error))
            return True
        elapsed_ms = round((time.monotonic() - started) * 1000)
        log.info("maintained", table=self._table.name, files=len(delta.file_uris()), elapsed_ms=elapsed_ms)
        for maintenance in self._of_rollups:
            maintenance.run_if_due(now_ms=now_ms)
        return True

    def _roll_up(self, delta: DeltaTable, now_ms: int) -> None:
        """Hours and days that are over; what isn't in them yet must stay."""
        left = [rollup.run(delta, now_ms=now_ms, budget_ms=BUDGET_MS) for rollup in self._rollups]
        self._kept_since = min((start for start in left if start is not None), default=None)

    def _expire(self, delta: DeltaTable, now_ms: int) -> None:
        """Delete rows beyond retention; no commit where there are none."""
        oldest_kept = utc(now_ms - self._retention_ms)
        if self._kept_since is not None:
            oldest_kept = min(oldest_kept, self._kept_since)
        column = self._table.time_column
        oldest = pc.min(file_statistics(delta, column)["least"]).as_py()
        if oldest is not None and oldest < oldest_kept:
            delta.delete(f"{column} < {instant(oldest_kept)}")


def _join_small_files(delta: DeltaTable, _now_ms: int) -> None:
    join_small_files(delta)


def _remove_old_files(delta: DeltaTable, _now_ms: int) -> None:
    remove_old_files(delta)
