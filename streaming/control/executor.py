"""Carrying out one plan: one bounded step per tick, read off the cluster, recorded in the journal.

The life cycle is the same for movements between brokers (`replica_moves`) and within them (`log_dir_moves`). Order that
makes it safe to kill anywhere: the journal names the throttled brokers before a throttle is set; throttles are cleared
before the journal holds done, aborted or paused. The next start takes up the open execution and goes on, or clears up.
"""

from typing import Any, Generic, Protocol

import structlog

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.identity import another_cluster
from assignor_core.live import LiveCluster
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from streaming.cluster.ports import ClusterReader
from streaming.control.absences import Absences
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.obstacles import cancelled_by_others, expired, hours_closed, reason_to_give_up
from streaming.control.pressure import LagPressure, LatencyPressure, Partitions
from streaming.control.reports import Reports, SnapshotT
from streaming.errors import AnotherCluster
from streaming.settings import ControlSettings

log = structlog.get_logger()


class Moves(Protocol[SnapshotT]):
    """What the kind of movements decides: what a tick reads of them, and which step it takes."""

    noun: str
    """What the plan has so many of."""
    rate_bytes_per_sec: int
    """Rate of the throttle at the start, bytes/s."""
    reports: Reports[SnapshotT]

    def forget(self, kept: KeptPlan | None) -> None:
        """Forgets the execution so far: from now on all is about another execution, of the plan `kept` if that is
        known.
        """

    def misfit(self, approved: KeptPlan, live: LiveCluster) -> str | None:
        """What of the cluster speaks against carrying out this plan; None if nothing does."""

    def throttled_brokers(self, execution: Execution, plan: Plan, live: LiveCluster) -> tuple[int, ...]:
        """Brokers to throttle, to be recorded before the next step throttles them."""

    def live(self, plan: Plan, *, whole: bool, now_ms: int) -> LiveCluster:
        """A new tick asks: what decides on the next step, or (with `whole`) everything; raises what `describe` does."""

    @property
    def partitions(self) -> Partitions:
        """All partitions of the cluster, as they were when the cluster was last asked about them."""

    def snapshot(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> SnapshotT:
        """What `live` shows of the plan."""

    def step(self, snapshot: SnapshotT, *, closed: str | None, pressure: str | None) -> bool:
        """Decide on the next step, keep the throttle, take the step; True once the execution has ended.

        `closed` is why nothing new is to be begun, `pressure` why clients suffer.
        """

    def abort(self, snapshot: SnapshotT, reason: str) -> bool:
        """Cancel what is in flight and end; False where the cluster refused, and the next tick tries again."""


class Executor(Generic[SnapshotT]):
    """Carries out one execution: `begin` or `resume`, then `tick` until it returns True.

    `lag` and `latency` judge whether clients suffer; `control` holds the maintenance windows.
    """

    def __init__(
        self,
        cluster: ClusterReader,
        moves: Moves[SnapshotT],
        journal: Journal,
        lag: LagPressure,
        latency: LatencyPressure,
        control: ControlSettings,
        snapshot_age: SnapshotAge,
        absences: Absences,
    ) -> None:
        self._cluster = cluster
        self._moves = moves
        self._journal = journal
        self._lag = lag
        self._latency = latency
        self._control = control
        self._snapshot_age = snapshot_age
        self._absences = absences
        self._kafka_cluster_id: str | None = None
        self._give_up: str | None = None
        self._brokers: tuple[Plan, frozenset[int]] | None = None
        """The plan under way and its brokers, worked out once."""

    def begin(self, record: ExecutionRecord, approved: KeptPlan, *, now_ms: int) -> bool:
        """Check the approved plan against the live cluster and start it; False where it was refused."""
        plan = approved.plan
        too_old = expired(approved, now_ms, record.execution.begins_ms)
        if too_old is not None:
            return self._refuse(record, too_old, now_ms)
        live = self._cluster.describe()
        problem = self._moves.misfit(approved, live)
        if problem is not None:
            return self._refuse(record, problem, now_ms)
        self.resume(approved)
        self._kafka_cluster_id = live.cluster_id
        self._journal.write_event(
            record,
            Event.STARTED,
            f"plan {plan.plan_id[:12]} with {plan.movement_count} {self._moves.noun}",
            now_ms=now_ms,
            throttle_bytes_per_sec=self._moves.rate_bytes_per_sec,
            throttled_brokers=self._moves.throttled_brokers(record.execution, plan, live),
            produce_p99_ms_before=self._latency.highest_ms(),
            kafka_cluster_id=live.cluster_id,
        )
        return True

    def resume(self, kept: KeptPlan | None = None, *, give_up: str | None = None) -> None:
        """Prepares for another execution, which `tick` then carries out: nothing is known of it, not even whether it is
        throttled.

        The execution belongs to the Kafka cluster that its plan was made on; if that is unknown, to the one that
        answers next. With `give_up`, a reason, the next ticks end it.
        """
        self._kafka_cluster_id = None if kept is None else kept.kafka_cluster_id
        self._give_up = give_up
        self._moves.reports.forget()
        self._moves.forget(kept)

    def tick(self, record: ExecutionRecord, plan: Plan, *, now_ms: int) -> bool:
        """Take the one next step; True once the execution has ended and nothing of it is left on the cluster."""
        execution = record.execution
        # Before anything is sent: the journal would refuse the event only after the cluster has changed.
        assert execution.in_progress, f"execution {execution.execution_id} is {execution.phase}"
        closed = hours_closed(execution, self._control, now_ms) or cancelled_by_others(execution, plan)
        given_up = self._give_up or reason_to_give_up(execution, now_ms)
        if execution.paused and closed is not None and given_up is None:
            return False
        self._snapshot_age.begin()
        try:
            live = self._moves.live(plan, whole=given_up is not None, now_ms=now_ms)
        except AnotherCluster as error:
            return self._hold(record, str(error), given_up, now_ms, owed=execution.throttled_brokers)
        started_on = execution.figures.kafka_cluster_id
        self._kafka_cluster_id = self._kafka_cluster_id or started_on or live.cluster_id
        other = another_cluster(self._kafka_cluster_id, live)
        if other is not None:
            return self._hold(record, other, given_up, now_ms)
        self._absences.note(live, now_ms)
        snapshot = self._moves.snapshot(record, plan, live, now_ms)
        given_up = given_up or (snapshot.obsolete if execution.paused else None)
        if given_up is not None:
            return self._moves.abort(snapshot, given_up)
        if execution.paused:
            self._go_on(snapshot)
            return False
        return self._moves.step(snapshot, closed=closed, pressure=self._pressure(snapshot))

    def _refuse(self, record: ExecutionRecord, problem: str, now_ms: int) -> bool:
        self._journal.write_event(record, Event.REFUSED, problem, now_ms=now_ms)
        log.warning("plan_refused", plan_id=record.execution.plan_id[:12], reason=problem)
        return False

    def _hold(
        self, record: ExecutionRecord, other: str, given_up: str | None, now_ms: int, *, owed: tuple[int, ...] = ()
    ) -> bool:
        """Touch nothing of another cluster; True once somebody gave the execution up, which ends it as it is.

        Brokers of the right one that are `owed` their throttle's end get it once that cluster answers again.
        """
        log.warning("execution_held", execution_id=record.execution.execution_id, reason=other)
        if given_up is None:
            self._moves.reports.held(record, other, now_ms=now_ms)
            return False
        detail = f"{given_up}; {other}: what is in flight or throttled on the cluster of the execution stays"
        self._journal.write_event(record, Event.ABORTED, detail, now_ms=now_ms, throttled_brokers=owed)
        return True

    def _go_on(self, snapshot: SnapshotT) -> None:
        """The pause is over. The throttle is set at the next tick: the journal has to name its brokers before."""
        brokers = self._moves.throttled_brokers(snapshot.execution, snapshot.plan, snapshot.live)
        p99_ms = self._latency.highest_ms()
        self._moves.reports.write(
            snapshot,
            Event.RESUMED,
            "a maintenance window has opened",
            throttled_brokers=brokers,
            produce_p99_ms_before=p99_ms,
        )

    def _pressure(self, snapshot: SnapshotT) -> str | None:
        """Why clients suffer, compared with the start of the execution or its resumption; None if they don't."""
        started_ms, p99_ms_before = snapshot.execution.since_ms, snapshot.execution.figures.produce_p99_ms_before
        if self._brokers is None or self._brokers[0] is not snapshot.plan:
            self._brokers = snapshot.plan, snapshot.plan.brokers
        lag = self._lag.reason(self._brokers[1], self._moves.partitions, started_ms=started_ms, now_ms=snapshot.now_ms)
        return lag or self._latency.reason(p99_ms_before, now_ms=snapshot.now_ms)


class Executors:
    """The executor of each kind of plan, as one; `unknown` is for an execution whose movements nobody knows."""

    def __init__(self, between: Executor[Any], within: Executor[Any], unknown: Executor[Any]) -> None:
        self._between = between
        self._within = within
        self._unknown = unknown

    def begin(self, record: ExecutionRecord, approved: KeptPlan, *, now_ms: int) -> bool:
        return self._of(approved.plan).begin(record, approved, now_ms=now_ms)

    def resume(self, kept: KeptPlan | None = None, *, give_up: str | None = None) -> None:
        for one in (self._between, self._within, self._unknown):  # without its plan its kind is not known yet
            one.resume(kept, give_up=give_up)

    def tick(self, record: ExecutionRecord, plan: Plan, *, now_ms: int) -> bool:
        return self._of(plan).tick(record, plan, now_ms=now_ms)

    def _of(self, plan: Plan) -> Executor[Any]:
        if plan.within_brokers:
            return self._within
        return self._between if plan.movements else self._unknown
