"""The upkeep of one table by a test's own clock, in the test's own thread."""

from streaming.contract import Table
from streaming.pipeline.rollups import rollups_of
from streaming.pipeline.upkeep import UpkeepThread, jobs_of_table
from streaming.settings import PipelineSettings


class TableUpkeep:
    """The jobs on a table, and on the tables that are made of it."""

    def __init__(self, root: str, table: Table, settings: PipelineSettings) -> None:
        of = (table, *(rollup.target for rollup in rollups_of(table)))
        self._jobs = [job for each in of for job in jobs_of_table(root, each, settings)]
        self._now_ms = 0
        self._thread = UpkeepThread(self._jobs, now_ms=lambda: self._now_ms, patience_s=0)

    def run_if_due(self, *, now_ms: int) -> bool:
        """Run all that is due at this time; False if nothing was."""
        was_due = any(job.is_due(now_ms) for job in self._jobs)
        self._now_ms = now_ms
        self._thread.run_due()
        return was_due
