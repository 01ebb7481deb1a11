"""The upkeep of the pipeline's tables: jobs in one thread beside the streaming queries, never inside a batch.

A job is one function that does a bounded step: it writes the rebalances of consumer groups, makes one hour or day of
windows, deletes rows beyond their retention, joins small files, or removes old files. Three rules keep the jobs right:

1. What a step must do follows from the tables alone, and each step is one commit that tables know to be written. So a
   pipeline that is killed between any two steps does neither twice nor leaves one out after its next start.
2. A step that fails is logged, counted in `failing`, and tried again when the job is next due. No other job waits for
   it, and no query ends. One order is kept: windows are deleted once every hour and day that they belong to is made.
3. Delta refuses a commit that rewrites files while another commit removes files. So a step that rewrites files of a
   window table holds the lock of that table, as each batch does while it writes (`delta_tables.write_lock`), but for
   its commit alone, since it writes the new files before. No other step needs a lock: nobody else writes hours, days
   and events, and appends conflict with nothing.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Self

import structlog

from assignor_core.intervals import is_due
from streaming.contract import (
    BROKER_LOAD,
    GROUP_EVENT,
    GROUP_LAG,
    PARTITION_LOAD,
    PARTITION_LOAD_HOURLY,
    PIPELINE_BATCH,
    REJECTED_RECORD,
    Table,
)
from streaming.pipeline.delta_tables import write_lock
from streaming.pipeline.group_events import GroupEventKeeper
from streaming.pipeline.rollups import ROLLUPS, RollingUp, rollups_of
from streaming.settings import DAY_MS, PipelineSettings
from streaming.tables import (
    TableReader,
    current_table,
    expire_rows,
    first_line,
    join_next,
    proven_ms,
    remove_old_files,
    table_uri,
    utc,
)

log = structlog.get_logger()

FIRST_AFTER_S = 10.0
"""The first batches after a start have the cores for themselves."""
POLL_INTERVAL_S = 1.0
STEPS_MAX = 1_000
"""Steps of one job in a run, as for the hours of six weeks. What is left then is done in the next run."""
LOCK_PATIENCE_S = 600.0
"""How long a step waits for a batch that writes the table. A step that waits in vain has failed; what it has written is
removed.
"""
WINDOW_TABLES = (PARTITION_LOAD, BROKER_LOAD, GROUP_LAG)


@dataclass(slots=True)
class Job:
    """Work on one table that comes back. `step` does a bounded part of it at the time that it is given, in ms, and
    returns True if more of the work is left. Whatever a step raises is a failure of this step alone.
    """

    table: str
    name: str
    interval_ms: int
    step: Callable[[int], bool | None]
    _ran_ms: int | None = None
    failures: int = 0
    """How often it has failed since it last succeeded."""

    def is_due(self, now_ms: int) -> bool:
        """Returns whether the job's interval is over since the job last ended."""
        return is_due(self._ran_ms, self.interval_ms, now_ms)

    def run(self, now_ms: int) -> None:
        """Do one step; the job stays due if more is left."""
        self._ran_ms, ran_before_ms = now_ms, self._ran_ms
        try:
            is_more_left = self.step(now_ms)
        except Exception as error:  # noqa: BLE001 - no fault of an upkeep may end the thread of all others
            self.failures += 1
            log.warning(
                "maintenance_failed", table=self.table, step=self.name, error=first_line(error), times=self.failures
            )
            return
        except BaseException:
            self.failures += 1
            raise
        self.failures = 0
        if is_more_left:
            self._ran_ms = ran_before_ms


class UpkeepThread:
    """Runs jobs in a thread of its own while the context is open, one after the other.

    Leaving the context waits for the step under way, up to `patience_s` from the call of `end_soon`; without that call,
    as after a failure, it waits for nothing.
    """

    def __init__(self, jobs: Sequence[Job], *, now_ms: Callable[[], int], patience_s: float) -> None:
        self._jobs = jobs
        self._now_ms = now_ms
        self._patience_s = patience_s
        self._deadline_s = 0.0
        self._ending = threading.Event()
        # With the context of who starts it: log lines name the cluster there.
        self._thread = threading.Thread(target=copy_context().run, args=(self._loop,), name="upkeep", daemon=True)

    def failing(self) -> tuple[str, ...]:
        """Each job whose newest step failed, as `table: name`; and the thread itself, should it have ended early."""
        names = tuple(f"{job.table}: {job.name}" for job in self._jobs if job.failures)
        has_begun = self._thread.ident is not None
        is_gone = has_begun and not self._thread.is_alive() and not self._ending.is_set()
        return (*names, "upkeep: thread") if is_gone else names

    def run_due(self) -> None:
        """Run each job that is due, in their order, until nothing of it is left or the end is near; of one that never
        ends `STEPS_MAX` steps. The first job also has its turn between the steps of the others, if it is due: days of
        months that are made again take hours.
        """
        first = self._jobs[0]
        for job in self._jobs:
            now_ms = self._now_ms()
            for _ in range(STEPS_MAX):
                if self._ending.is_set() or not job.is_due(now_ms):
                    break
                job.run(now_ms)
                between_ms = self._now_ms()
                if job is not first and first.is_due(between_ms) and not self._ending.is_set():
                    first.run(between_ms)

    def end_soon(self) -> None:
        """Begin no further step."""
        self._deadline_s = monotonic() + self._patience_s
        self._ending.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join(max(0.0, self._deadline_s - monotonic()))
        if self._thread.is_alive():  # its commit is made or not: the tables show it to the next start
            log.warning("maintenance_cut")

    def _loop(self) -> None:
        wait_s = FIRST_AFTER_S
        while not self._ending.wait(wait_s):
            try:
                self.run_due()
            except BaseException:
                log.warning("maintenance_panicked", exc_info=True)
            wait_s = POLL_INTERVAL_S


def jobs_of_pipeline(root: str, kafka_cluster: str, settings: PipelineSettings) -> list[Job]:
    """Every job on the tables below `root`, in the order in which those that are due are run: what is shown first."""
    keeper = GroupEventKeeper(root, kafka_cluster, settings)
    written = (*WINDOW_TABLES, REJECTED_RECORD, PIPELINE_BATCH, GROUP_EVENT)
    made = [rollup.target for table in WINDOW_TABLES for rollup in rollups_of(table)]

    def keep_events(_now_ms: int) -> None:
        keeper.keep()

    return [
        Job(GROUP_EVENT.name, "keep", settings.window_ms, keep_events),
        *(job for table in (*written, *made) for job in jobs_of_table(root, table, settings)),
    ]


def jobs_of_table(root: str, table: Table, settings: PipelineSettings) -> list[Job]:
    """The jobs on one table; first those that make hours and days of it."""
    tidying = _Tidying(root, table, settings)
    interval_ms = settings.maintenance_interval_ms
    of_rollups = [(f"roll_up {rollup.target}", rollup.make_next) for rollup in tidying.rollups]
    own = [("expire", tidying.expire), ("join_small_files", tidying.join), ("remove_old_files", tidying.remove)]
    return [Job(table.name, name, interval_ms, step) for name, step in (*of_rollups, *own)]


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


class _Tidying:
    """Steps that keep one table small. Each opens the table as it is then; a table that isn't there yet has none."""

    def __init__(self, root: str, table: Table, settings: PipelineSettings) -> None:
        self._root, self._table = root, table
        self._reader = TableReader(root)
        self._retention_ms = retention_ms(table, settings)
        self.rollups = [
            RollingUp(root, rollup, watermark_ms=settings.watermark_ms, kept_ms=retention_ms(rollup.target, settings))
            for rollup in rollups_of(table)
        ]

    def expire(self, now_ms: int) -> None:
        """Delete rows beyond retention, whatever a clock that is ahead shows; no commit where there are none. Windows
        of which an hour or a day is still to be made stay.
        """
        delta = current_table(self._root, self._table.name)
        if delta is None:
            return
        times = {table.name: table.time_column for table in (self._table, PIPELINE_BATCH)}
        after_ms = expiry_step_ms(self._retention_ms)
        self._reader.look_again()
        proven = proven_ms(self._reader, times, after_ms=after_ms, now_ms=now_ms)
        if proven is None:
            return
        kept_since = utc(kept_since_ms(self._retention_ms, proven))
        oldest_kept = min([kept_since, *(rollup.needed_since(delta) for rollup in self.rollups)])
        expire_rows(self._root, self._table, oldest_kept, now_ms=now_ms, alone=self._lock)

    def join(self, _now_ms: int) -> bool:
        """Join one run of small files."""
        began = monotonic()
        is_more_left = join_next(self._root, self._table, alone=self._lock())
        elapsed_ms = round((monotonic() - began) * 1000)
        self._reader.look_again()
        state = None if is_more_left else self._reader.state(self._table.name)
        if state is not None:
            log.info("maintained", table=self._table.name, files=state.files, elapsed_ms=elapsed_ms)
        return is_more_left

    def remove(self, _now_ms: int) -> None:
        """Remove files and log entries that no reader needs. It commits no rows, so nothing conflicts with it."""
        delta = current_table(self._root, self._table.name)
        if delta is not None:
            remove_old_files(delta)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """The table as it stays while its files are replaced: no batch writes. Raises TimeoutError."""
        lock = write_lock(table_uri(self._root, self._table.name)) if self._table in WINDOW_TABLES else None
        if lock is not None and not lock.acquire(timeout=LOCK_PATIENCE_S):
            raise TimeoutError(f"table {self._table.name} is being written for {LOCK_PATIENCE_S:.0f} s")
        try:
            yield
        finally:
            if lock is not None:
                lock.release()
