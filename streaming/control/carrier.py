"""One execution after the other, for whoever holds the lease: control, or a command where no control runs.

What has begun goes on before anything is begun, so that two executions never share a throttle. A wish to stop is heard
whatever its turn.
"""

import structlog

from streaming.control.executor import Executor
from streaming.control.journal import Journal
from streaming.control.records import APPROVED, ExecutionRecord, PlanRecord
from streaming.errors import ClusterRequestFailed, ClusterUnreachable, LeaseExpired, LeaseLost, TableUnavailable

log = structlog.get_logger()

TRIED_AGAIN = (ClusterUnreachable, ClusterRequestFailed, TableUnavailable, LeaseExpired)
"""What a tick may raise and the next one may mend. After LeaseLost the carrier is to be thrown away."""


class Carrier:
    """Carries out what the journal holds open; which execution is under way it finds there again after a restart."""

    def __init__(self, executor: Executor, journal: Journal) -> None:
        self._executor = executor
        self._journal = journal
        self._active: tuple[ExecutionRecord, PlanRecord] | None = None

    def tick(self, *, now_ms: int) -> ExecutionRecord | None:
        """One bounded step of the execution whose turn it is, which is returned; None where none is under way."""
        found = self._journal.open_executions(now_ms=now_ms)
        for record in found:
            if record.abort_requested and record.last_event == APPROVED:
                self._journal.write_event(record, "aborted", "a person asked to stop before it began", now_ms=now_ms)
        turns = [record for record in found if not record.ended]
        if self._active is not None:
            self._heed(self._active[0], turns)
        elif turns:
            self._take_up(turns[0], now_ms)
        if self._active is None:
            return None
        record, plan = self._active
        if self._executor.tick(record, plan.plan, now_ms=now_ms):
            self._active = None
        return record

    def _heed(self, record: ExecutionRecord, found: list[ExecutionRecord]) -> None:
        """What others have written of the execution under way."""
        known = next((row for row in found if row.execution_id == record.execution_id), None)
        known = known or self._journal.execution(record.execution_id)
        if known.ended:
            raise LeaseLost(f"execution {record.execution_id} has been ended by another process")
        record.abort_requested = known.abort_requested

    def _take_up(self, record: ExecutionRecord, now_ms: int) -> None:
        """Go on with what has begun; else begin, where nothing speaks against it."""
        plan = self._journal.plan(record.plan_id)
        if record.last_event != APPROVED:
            log.info("execution_resumed", execution_id=record.execution_id, plan_id=record.plan_id[:12])
            self._executor.resume()
        elif not self._executor.begin(record, plan, now_ms=now_ms):
            return
        self._active = (record, plan)
