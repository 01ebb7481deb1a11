"""Keeping a table small: rows beyond their retention go, small files are joined, old files and log entries are removed.
Before windows go, hours and days are made of them.

Each table is maintained by its one writer, between two of its writes, so that nothing ever conflicts with it. A step
that fails is logged and left for the next run: the table is slower until then, not wrong. It holds back no other step
but the one that deletes windows: these go once every hour and day is made of them.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial

import pyarrow as pa
import structlog
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc

from assignor_core.intervals import is_due
from streaming.contract import PARTITION_LOAD_HOURLY, PIPELINE_BATCH, Table
from streaming.pipeline.rollups import ROLLUPS, RollingUp, rollups_of
from streaming.settings import DAY_MS, PipelineSettings
from streaming.tables import (
    TableReader,
    file_statistics,
    first_line,
    instant,
    join_small_files,
    opened,
    proven_ms,
    remove_old_files,
    table_uri,
    utc,
)

log = structlog.get_logger()

BUDGET_MS = 20_000
"""No further step is begun after this; those left out come first next time."""

_Step = Callable[[DeltaTable, int], None]
"""Of the table, at this time."""


def retention_ms(table: Table, settings: PipelineSettings) -> int:
    """How long rows of `table` are kept."""
    if table is PARTITION_LOAD_HOURLY:
        return settings.partition_hours_retention_ms
    made_of_windows = any(rollup.target is table for rollup in ROLLUPS)
    return settings.rollup_retention_ms if made_of_windows else settings.retention_ms


def expiry_step_ms(retention_ms: int) -> int:
    """By how much rows go at a time."""
    return min(DAY_MS, retention_ms // 24)


def kept_since_ms(retention_ms: int, now_ms: int) -> int:
    """Rows go by the day, or by a 24th of a shorter retention. Each deletion writes the file anew that holds younger
    rows too, up to 100 MB, and what is replaced stays for the days of time travel: at each run that is 10 GB a day.

    >>> kept_since_ms(90 * DAY_MS, 100 * DAY_MS + 5) / DAY_MS, kept_since_ms(240, 1_025)
    (10.0, 780)
    """
    step_ms = expiry_step_ms(retention_ms)
    return now_ms - retention_ms - (now_ms - retention_ms) % step_ms


class Maintenance:
    """Runs the steps on one table, at most once per `pipeline.maintenance_interval_ms`."""

    def __init__(self, root: str, table: Table, settings: PipelineSettings) -> None:
        self._root, self._uri = root, table_uri(root, table.name)
        self._table = table
        self._retention_ms = retention_ms(table, settings)
        self._interval_ms = settings.maintenance_interval_ms
        self._ran_ms: int | None = None
        self._rollups = [
            RollingUp(root, rollup, watermark_ms=settings.watermark_ms, kept_ms=retention_ms(rollup.target, settings))
            for rollup in rollups_of(table)
        ]
        self._left: dict[str, datetime | None] = {}
        """By table that is made of this one: the first period that is not made yet. Without those that have failed."""
        self._steps: list[tuple[str, _Step]] = [
            *((f"roll_up {rollup.target}", partial(self._roll_up, rollup)) for rollup in self._rollups),
            ("expire", self._expire), ("join_small_files", _join_small_files), ("remove_old_files", _remove_old_files),
        ]  # fmt: skip
        self._of_rollups = [Maintenance(root, rollup.target, settings) for rollup in rollups_of(table)]

    def run_if_due(self, *, now_ms: int) -> bool:
        """True if it was due and has run. To be called by the table's writer, after a write."""
        if not is_due(self._ran_ms, self._interval_ms, now_ms):
            return False
        self._ran_ms = now_ms
        with self._failures_logged("open"):
            self._run(opened(self._uri), now_ms)
        for maintenance in self._of_rollups:
            maintenance.run_if_due(now_ms=now_ms)
        return True

    def _run(self, delta: DeltaTable, now_ms: int) -> None:
        started = time.monotonic()
        for name, step in tuple(self._steps):
            if (time.monotonic() - started) * 1000 > BUDGET_MS:
                break
            self._steps = [*self._steps[1:], (name, step)]
            with self._failures_logged(name):
                step(delta, now_ms)
        elapsed_ms = round((time.monotonic() - started) * 1000)
        log.info("maintained", table=self._table.name, files=len(delta.file_uris()), elapsed_ms=elapsed_ms)

    @contextmanager
    def _failures_logged(self, step: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, OSError, pa.ArrowException) as error:
            log.warning("maintenance_failed", table=self._table.name, step=step, error=first_line(error))

    def _roll_up(self, rollup: RollingUp, delta: DeltaTable, now_ms: int) -> None:
        """Hours or days that are over; what isn't in them yet must stay."""
        self._left.pop(rollup.target, None)
        self._left[rollup.target] = rollup.run(delta, now_ms=now_ms, budget_ms=BUDGET_MS)

    def _expire(self, delta: DeltaTable, now_ms: int) -> None:
        """Delete rows beyond retention, whatever a clock that is ahead shows; no commit where there are none."""
        if len(self._left) < len(self._rollups):  # one has failed, or has not run yet
            return
        times = {table.name: table.time_column for table in (self._table, PIPELINE_BATCH)}
        proven = proven_ms(TableReader(self._root), times, after_ms=expiry_step_ms(self._retention_ms), now_ms=now_ms)
        if proven is None:
            return
        oldest_kept = min([utc(kept_since_ms(self._retention_ms, proven)), *filter(None, self._left.values())])
        column = self._table.time_column
        oldest = pc.min(file_statistics(delta, column)["least"]).as_py()
        if oldest is not None and oldest < oldest_kept:
            delta.delete(f"{column} < {instant(oldest_kept)}")


def _join_small_files(delta: DeltaTable, _now_ms: int) -> None:
    join_small_files(delta)


def _remove_old_files(delta: DeltaTable, _now_ms: int) -> None:
    remove_old_files(delta)
