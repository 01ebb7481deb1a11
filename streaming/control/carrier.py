"""One execution after the other, for whoever holds the lease: control, or a command where no control runs.

What has started goes on before anything else starts, so that two executions never share a throttle. A request to abort
is carried out whatever the turn of its execution. An execution has no turn before enough people have approved it,
and none before the time that they set.
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.intervals import is_due
from assignor_core.plan import Plan
from streaming.control.cluster_marker import ClusterMarker
from streaming.control.executor import Executor, Executors
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.reports import PROGRESS_INTERVAL_MS
from streaming.errors import (
    AnotherCluster,
    AnotherControl,
    ClusterRequestFailed,
    ClusterUnreachable,
    LeaseExpired,
    LeaseLost,
    SnapshotTooOld,
    TableUnavailable,
    UsageProblem,
)

log = structlog.get_logger()

RETRIED_ERRORS = (
    ClusterUnreachable,
    ClusterRequestFailed,
    AnotherCluster,
    AnotherControl,
    TableUnavailable,
    LeaseExpired,
    SnapshotTooOld,
)
"""What a tick may raise and the next one may overcome. After LeaseLost the carrier is to be thrown away."""
PLAN_GONE = "the plan of the execution is gone from the tables"


class Carrier:
    """Carries out what the journal holds open; after a restart the journal shows which execution is under way."""

    def __init__(
        self,
        executor: Executors | Executor[Any],
        journal: Journal,
        marker: ClusterMarker | None = None,
        check_rights: Callable[[], None] | None = None,
    ) -> None:
        """With a `marker` control begins and continues nothing while other tables' control changes the cluster. A plan
        is refused where `check_rights` raises UsageProblem, before anything is asked of the cluster.
        """
        self._check_rights = check_rights
        self._executor = executor
        self._journal = journal
        self._marker = marker
        self._active: tuple[ExecutionRecord, Plan] | None = None

    def tick(self, *, now_ms: int) -> ExecutionRecord | None:
        """One bounded step of the execution whose turn it is, which is returned; None where none is under way."""
        open_executions = self._journal.open_executions(now_ms=now_ms)
        for execution in (row for row in open_executions if row.waiting and row.abort_requested):
            detail = "a person asked to stop before the execution began"
            self._journal.write_event(ExecutionRecord(execution), Event.ABORTED, detail, now_ms=now_ms)
        for execution, problem in self._journal.approvals_missing(open_executions, now_ms=now_ms):
            self._journal.write_event(ExecutionRecord(execution), Event.REFUSED, problem, now_ms=now_ms)
            log.warning("plan_refused", plan_id=execution.plan_id[:12], reason=problem)
        turns = [row for row in open_executions if row.has_turn(now_ms)]
        if self._active is not None:
            self._adopt_request(self._active[0], turns)
        if self._active is None and turns and turns[0].waiting and self._refused_for_rights(turns[0], now_ms):
            return None
        if turns and not self._may_act():
            return self._active[0] if self._active else ExecutionRecord(turns[0])
        if self._active is None and turns:
            self._take_up(ExecutionRecord(turns[0]), now_ms)
        active = self._active
        if active is not None and self._tick(*active, now_ms):
            self._active = None
        if self._active is None and self._marker is not None:
            self._marker.release()
        return None if active is None else active[0]

    def _refused_for_rights(self, execution: Execution, now_ms: int) -> bool:
        """Whether control lacks a right without which no plan is carried out: its end is written then, with the reason.

        Else Kafka would refuse each request, tick after tick.
        """
        try:
            if self._check_rights is not None:
                self._check_rights()
        except UsageProblem as error:
            self._journal.write_event(ExecutionRecord(execution), Event.REFUSED, str(error), now_ms=now_ms)
            log.warning("plan_refused", plan_id=execution.plan_id[:12], reason=str(error))
            return True
        return False

    def _may_act(self) -> bool:
        """Whether the marker on the cluster stands; raises AnotherControl, AnotherCluster."""
        try:
            return self._marker is None or self._marker.hold()
        except AnotherCluster:
            if self._active is None:
                raise
            return True  # the executor sees it, too: it holds, or ends what was given up

    def _tick(self, record: ExecutionRecord, plan: Plan, now_ms: int) -> bool:
        """One step; True once the execution has ended."""
        try:
            return self._executor.tick(record, plan, now_ms=now_ms)
        except ClusterRequestFailed as error:
            self._note_refusal(record, error, now_ms)
            raise

    def _note_refusal(self, record: ExecutionRecord, error: ClusterRequestFailed, now_ms: int) -> None:
        """Every few seconds write down what Kafka refuses, such as a throttle: else only the log would show it."""
        execution = record.execution
        if execution.paused or not is_due(execution.last.at_ms, PROGRESS_INTERVAL_MS, now_ms):
            return
        self._journal.write_event(record, Event.PROGRESS, f"a step failed and is tried again: {error}", now_ms=now_ms)

    def _adopt_request(self, record: ExecutionRecord, open_executions: Sequence[Execution]) -> None:
        """Take over a request to abort that somebody wrote; raises LeaseLost where another process has ended it, or the
        tables no longer know it.
        """
        ours = record.execution
        known = next((row for row in open_executions if row.execution_id == ours.execution_id), None)
        known = known or self._journal.kept_execution(ours.execution_id)
        if known.ended:
            raise LeaseLost(f"execution {ours.execution_id} has been ended by another process")
        if known.abort_request is not None:
            record.execution = ours.after(known.abort_request)

    def _take_up(self, record: ExecutionRecord, now_ms: int) -> None:
        """Go on with what has started; else start it, where nothing speaks against it."""
        execution = record.execution
        plan = self._journal.plan_of(execution)
        if plan is None:
            self._end_without_plan(record, now_ms)
            return
        if not execution.waiting:
            log.info("execution_resumed", execution_id=execution.execution_id, plan_id=execution.plan_id[:12])
            self._executor.resume(plan)
        elif not self._executor.begin(record, plan, now_ms=now_ms):
            return
        self._active = (record, plan.plan)

    def _end_without_plan(self, record: ExecutionRecord, now_ms: int) -> None:
        """Gives up an execution whose plan is gone, as nobody can carry out an unknown plan: executions that wait then
        have their turn.
        """
        execution = record.execution
        log.error("plan_gone", execution_id=execution.execution_id, plan_id=execution.plan_id[:12])
        if execution.waiting:
            self._journal.write_event(record, Event.REFUSED, PLAN_GONE, now_ms=now_ms)
            return
        self._executor.resume(give_up=PLAN_GONE)
        plan = self._journal.movements_of(execution)
        self._active = (record, plan or Plan("", ()))
