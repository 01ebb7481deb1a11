"""Carrying out one plan of movements within brokers: one bounded step per tick, read off the brokers' log dirs.

The same life cycle as for movements between brokers (see `executor`), and the same order that makes it safe to kill
anywhere: the journal names the throttled brokers before a rate is set, and rates are removed before it holds done,
aborted or paused. Only replicas of the plan are ever asked to move.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from assignor_core.disks import LogDirs
from assignor_core.execution.accounting import remaining
from assignor_core.execution.events import Event
from assignor_core.execution.progress import Progress
from assignor_core.execution.reconcile import Abort, Done, Limits, Wait
from assignor_core.execution.refusals import NAMED_MAX
from assignor_core.execution.within_brokers import (
    Missed,
    MoveWithin,
    RoomWithin,
    Standing,
    StepWithin,
    bytes_within,
    cancellations,
    differences_within,
    lacking_within,
    made_within,
    next_step_within,
    standing_of,
)
from assignor_core.identity import another_cluster, topics_made_again
from assignor_core.live import LiveCluster, ReplicaKey, replica_name
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.wording import first_named
from streaming.cluster.ports import ControlledCluster
from streaming.control.absences import Absences
from streaming.control.cluster_view import ClusterView
from streaming.control.disk_room import LOOK_INTERVAL_MS
from streaming.control.executor import PROGRESS_INTERVAL_MS
from streaming.control.journal import Journal
from streaming.control.latency import LatencyPressure
from streaming.control.log_dir_requests import LogDirRequests
from streaming.control.log_dir_throttle import LogDirThrottle
from streaming.control.look_age import LookAge
from streaming.control.obstacles import expired, hours_closed, reason_to_give_up
from streaming.control.policies import limits
from streaming.control.pressure import LagPressure
from streaming.control.records import ExecutionRecord
from streaming.errors import AnotherCluster
from streaming.settings import ControlSettings

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LookWithin:
    """One execution and the brokers of its plan as one tick sees them."""

    record: ExecutionRecord
    plan: Plan
    live: LiveCluster
    log_dirs: LogDirs
    """Of the plan's brokers that answer, with the plan's replicas."""
    now_ms: int
    standing: Standing
    skipped: Mapping[ReplicaKey, str]

    @property
    def result(self) -> str:
        """What was made of the plan, in words."""
        return made_within(self.standing, self.skipped)


class LogDirExecutor:
    """Carries out one execution: `begin` or `resume`, then `tick` until it returns True.

    `disk_reserve` is the share of each volume that stays free.
    """

    def __init__(
        self,
        cluster: ControlledCluster,
        journal: Journal,
        throttle: LogDirThrottle,
        lag: LagPressure,
        latency: LatencyPressure,
        control: ControlSettings,
        look_age: LookAge,
        absences: Absences,
        *,
        disk_reserve: float,
    ) -> None:
        self._cluster = cluster
        self._view = ClusterView(cluster)
        self._journal = journal
        self._throttle = throttle
        self._lag = lag
        self._latency = latency
        self._control = control
        self._look_age = look_age
        self._absences = absences
        self._requests = LogDirRequests(cluster, look_age)
        self._disk_reserve = disk_reserve
        self._kafka_cluster_id: str | None = None
        self.resume()

    def begin(self, record: ExecutionRecord, approved: KeptPlan, *, now_ms: int) -> bool:
        """Check the approved plan against the brokers' log dirs and start it; False where it was refused."""
        plan = approved.plan
        live = self._cluster.describe()
        misfits = approved.misfits(live) or differences_within(plan, live, self._log_dirs_of(plan))
        changed = f"the cluster has changed since the plan was made: {'; '.join(misfits[:NAMED_MAX])}"
        problem = expired(approved, now_ms) or (changed if misfits else None)
        if problem is not None:
            self._journal.write_event(record, Event.REFUSED, problem, now_ms=now_ms)
            log.warning("plan_refused", plan_id=plan.plan_id[:12], reason=problem)
            return False
        self.resume(approved)
        self._kafka_cluster_id = live.cluster_id
        self._journal.write_event(
            record,
            Event.STARTED,
            f"plan {plan.plan_id[:12]} with {plan.movement_count} movements within brokers",
            now_ms=now_ms,
            throttle_bytes_per_sec=self._control.log_dir_throttle_bytes_per_sec,
            throttled_brokers=self._throttle.brokers(record.execution, plan, live),
            produce_p99_ms_before=self._latency.highest_ms(),
            kafka_cluster_id=live.cluster_id,
        )
        return True

    def resume(self, kept: KeptPlan | None = None, *, give_up: str | None = None) -> None:
        """From now on `tick` is for another execution, of which nothing is known; with `give_up` the next ticks end it.

        It belongs to the Kafka cluster that its plan was made on; if that is unknown, to the one that answers next.
        """
        self._kafka_cluster_id = None if kept is None else kept.kafka_cluster_id
        self._topic_ids = {} if kept is None else kept.topic_ids
        self._give_up = give_up
        self._missed = Missed()
        self._in_play: frozenset[str] | None = None
        """Topics of what is not finished; None before the first look."""
        self._next_try_ms = 0
        self._last_progress_ms = 0
        self._waits_for: str | None = None
        self._view.forget()
        self._requests.forget()
        self._throttle.forget()

    def tick(self, record: ExecutionRecord, plan: Plan, *, now_ms: int) -> bool:
        """Take the one next step; True once the execution has ended and nothing of it is left on the cluster."""
        execution = record.execution
        assert execution.in_progress, f"execution {execution.execution_id} is {execution.phase}"
        closed = hours_closed(execution, self._control, now_ms)
        given_up = self._give_up or reason_to_give_up(execution, now_ms)
        if execution.paused and closed is not None and given_up is None:
            return False
        self._look_age.begin()
        try:
            self._view.look(plan.topics if self._in_play is None else self._in_play, now_ms=now_ms)
        except AnotherCluster as error:
            return self._hold(record, str(error), given_up, now_ms, owed=execution.throttled_brokers)
        live = self._view.of(row.key for row in plan.log_dir_movements)
        self._kafka_cluster_id = self._kafka_cluster_id or execution.figures.kafka_cluster_id or live.cluster_id
        other = another_cluster(self._kafka_cluster_id, live)
        if other is not None:
            return self._hold(record, other, given_up, now_ms)
        self._absences.note(live, now_ms)
        look = self._look(record, plan, live, now_ms)
        if given_up is not None:
            return self._abort(look, given_up)
        if not execution.paused:
            return self._step(look, closed)
        brokers = self._throttle.brokers(execution, plan, live)
        p99_ms = self._latency.highest_ms()
        self._write(look, Event.RESUMED, "its time has come", throttled_brokers=brokers, produce_p99_ms_before=p99_ms)
        return False

    def _log_dirs_of(self, plan: Plan) -> LogDirs:
        return self._cluster.log_dirs(plan.brokers, [row.key for row in plan.log_dir_movements])

    def _look(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> LookWithin:
        log_dirs = self._log_dirs_of(plan)
        self._missed = self._missed.after(plan, log_dirs)
        skipped = self._requests.given_up
        standing = dict(standing_of(plan, log_dirs, self._missed, skipped))
        # Replicas of a topic that only bears the approved one's name are not the plan's.
        strangers = topics_made_again(self._topic_ids, live)
        standing |= {row.replica: Progress.GONE for row in plan.log_dir_movements if row.topic in strangers}
        left = (Progress.PENDING, Progress.MOVING, Progress.MISSING)
        self._in_play = frozenset(topic for (_, (topic, _)), state in standing.items() if state in left)
        return LookWithin(record, plan, live, log_dirs, now_ms, standing, skipped)

    def _hold(
        self, record: ExecutionRecord, other: str, given_up: str | None, now_ms: int, *, owed: tuple[int, ...] = ()
    ) -> bool:
        """Touch nothing of another cluster; True once somebody gave the execution up, which ends it as it is."""
        execution = record.execution
        log.warning("execution_held", execution_id=execution.execution_id, reason=other)
        if given_up is not None:
            detail = f"{given_up}; {other}: what is in flight or throttled on that one stays"
            self._journal.write_event(record, Event.ABORTED, detail, now_ms=now_ms, throttled_brokers=owed)
            return True
        if not execution.paused and now_ms - self._last_progress_ms >= PROGRESS_INTERVAL_MS:
            self._last_progress_ms = now_ms
            self._journal.write_event(record, Event.PROGRESS, f"held: {other}", now_ms=now_ms)
        return False

    def _step(self, look: LookWithin, closed: str | None) -> bool:
        """Decide on the next step, keep the throttle, take the step; True once the execution has ended."""
        execution, pressure = look.record.execution, self._pressure(look)
        held_back = closed or (f"held back: {pressure}" if pressure else None)
        if held_back is None and look.now_ms < self._next_try_ms:
            held_back = self._waits_for
        step = self._next_step(look, held_back)
        if isinstance(step, MoveWithin):
            step = self._with_room(look, step)
        if closed is not None and isinstance(step, Wait) and not _moving(look):
            self._clear_and_write(look, Event.PAUSED, step.reason)
            return False
        if isinstance(step, Done):
            self._clear_and_write(look, Event.DONE, look.result)
            return True
        if isinstance(step, Abort):
            return self._abort(look, step.reason)
        self._throttle.keep(execution, pressed=pressure is not None, now_ms=look.now_ms)
        if isinstance(step, MoveWithin):
            self._move(look, step.targets)
        else:
            self._report(look, step.reason)
        return False

    def _next_step(self, look: LookWithin, held_back: str | None, room: RoomWithin | None = None) -> StepWithin:
        worked_ms, skipped = look.record.execution.worked_ms(look.now_ms), look.skipped
        step = next_step_within(
            look.plan, look.standing, self._limits, worked_ms=worked_ms, held_back=held_back, skipped=skipped, room=room
        )
        copies = [(broker,) for broker, _ in _moving(look)]
        vain = self._absences.in_vain(look.live, copies) if isinstance(step, Wait) else None
        return step if vain is None else Abort(vain, ())

    @property
    def _limits(self) -> Limits:
        return limits(self._control)

    def _with_room(self, look: LookWithin, wanted: MoveWithin) -> StepWithin:
        """What of the rest has room, by a look at all that lies on the brokers which would copy."""
        pending = [row for row in look.plan.log_dir_movements if look.standing[row.replica] is Progress.PENDING]
        brokers = {row.broker for row in pending}
        room = RoomWithin.of(look.live, self._cluster.log_dirs(brokers), brokers, reserve=self._disk_reserve)
        step = self._next_step(look, None, room)
        lacking = lacking_within(pending, room)
        self._requests.hinder({row.replica for row in pending}, lacking, look.now_ms)
        if not isinstance(step, MoveWithin):
            self._next_try_ms = look.now_ms + LOOK_INTERVAL_MS
            self._waits_for = step.reason if isinstance(step, Wait) else None
            log.info("movements_within_brokers_wait", wanted=len(wanted.targets), reason=self._waits_for)
        return step

    def _move(self, look: LookWithin, targets: Mapping[ReplicaKey, str]) -> None:
        """Ask for movements. What a broker refuses is tried again some seconds later, for some minutes."""
        refused = self._requests.move(targets, look.now_ms)
        accepted = len(targets) - len(refused)
        detail = f"{accepted} movements within brokers"
        if refused:
            self._next_try_ms = look.now_ms + LOOK_INTERVAL_MS
            self._waits_for = f"{len(refused)} refused by brokers: {_refusals_text(refused)}"
            detail += f", {self._waits_for}"
        if accepted:
            self._write(look, Event.SUBMITTED, detail)
        else:
            self._report(look, detail)

    def _abort(self, look: LookWithin, reason: str) -> bool:
        """Let brokers give up what is in flight and end; False where one doesn't, and the next tick tries again."""
        hidden = [replica for replica, state in look.standing.items() if state is Progress.MISSING]
        places = cancellations(look.plan, look.standing, look.log_dirs)
        left = self._requests.cancel(places, hidden)
        if left and self._requests.may_cancel:
            return False
        detail = f"{reason}; {len(self._requests.cancelled)} movements in flight given up"
        if left:
            detail += f", {len(left)} may go on without a throttle: {_refusals_text(left)}"
        self._clear_and_write(look, Event.ABORTED, detail)
        return True

    def _clear_and_write(self, look: LookWithin, event: Event, detail: str) -> None:
        """Remove the throttle, then write the event. It names what Kafka refuses to remove."""
        remains = self._throttle.clear(look.record.execution)
        if remains.refused is not None:
            detail += f"; Kafka refuses to remove the throttle: {remains.refused}"
        self._write(look, event, detail, throttled_brokers=remains.brokers)

    def _pressure(self, look: LookWithin) -> str | None:
        """Why clients suffer, compared with the start of the execution or its resumption; None if they don't."""
        execution, brokers = look.record.execution, look.plan.brokers
        partitions = self._view.partitions
        lag = self._lag.reason(brokers, partitions, started_ms=execution.since_ms, now_ms=look.now_ms)
        return lag or self._latency.reason(execution.figures.produce_p99_ms_before, now_ms=look.now_ms)

    def _report(self, look: LookWithin, reason: str) -> None:
        """What the execution waits for, every few seconds."""
        if look.now_ms - self._last_progress_ms >= PROGRESS_INTERVAL_MS:
            parts = (reason, remaining(look.record.execution, look.now_ms))
            self._write(look, Event.PROGRESS, "; ".join(part for part in parts if part))

    def _write(self, look: LookWithin, event: Event, detail: str, **figures: Any) -> None:
        """One event with the progress that this look shows."""
        self._last_progress_ms = look.now_ms
        done = sum(state is Progress.DONE for state in look.standing.values())
        copied = bytes_within(look.plan, look.standing, look.log_dirs)
        self._journal.write_event(
            look.record, event, detail, now_ms=look.now_ms, movements_done=done, bytes_moved=copied, **figures
        )
        log.info(
            "execution",
            execution_id=look.record.execution.execution_id,
            plan_id=look.plan.plan_id[:12],
            event_name=event.value,
            detail=detail,
        )


def _moving(look: LookWithin) -> list[ReplicaKey]:
    """What may be copying."""
    return [replica for replica, state in look.standing.items() if state in (Progress.MOVING, Progress.MISSING)]


def _refusals_text(refused: Mapping[ReplicaKey, str]) -> str:
    return first_named(sorted(refused), NAMED_MAX, lambda replica: f"{replica_name(replica)} ({refused[replica]})")
