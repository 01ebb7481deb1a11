"""Carrying out one plan: one bounded step per tick, read off the cluster, recorded in the journal.

Order that makes it safe to kill anywhere: the journal names the throttled brokers before a throttle is set; throttles
are cleared before the journal holds done, or paused. The next start takes up the open execution and goes on, or clears
up. Nothing is submitted before this process has set the throttle. Only partitions of the plan are ever reassigned,
elected or cancelled.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from assignor_core.execution.accounting import bytes_moved, movements_done, remaining
from assignor_core.execution.events import Event
from assignor_core.execution.reconcile import Abort, Done, ElectLeaders, Limits, Step, Submit, Wait, next_step
from assignor_core.execution.refusals import refusals_text
from assignor_core.execution.room import Room
from assignor_core.identity import another_cluster
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from streaming.cluster.ports import ControlledCluster
from streaming.control.absences import Absences
from streaming.control.copied_bytes import CopiedBytes
from streaming.control.disk_room import DiskRoom
from streaming.control.journal import Journal
from streaming.control.latency import LatencyPressure
from streaming.control.look_age import LookAge
from streaming.control.looks import Look, Looks
from streaming.control.obstacles import expired, hours_closed, misfit, reason_to_give_up, replaced_broker_back
from streaming.control.policies import limits
from streaming.control.pressure import LagPressure
from streaming.control.records import ExecutionRecord
from streaming.control.requests import Requests
from streaming.control.throttle import Throttle
from streaming.errors import AnotherCluster
from streaming.settings import ControlSettings

log = structlog.get_logger()

PROGRESS_INTERVAL_MS = 10_000
ABORT_CONFIRMATIONS = 3
"""A broker's metadata may be a moment behind the controller's: an alarming look must be repeated this often."""
QUESTIONS_MAX = 3
"""So often in one tick what was about to be submitted is asked about, and turns out to be something else."""


class Executor:
    """Carries out one execution: `begin` or `resume`, then `tick` until it returns True.

    `lag` and `latency` judge whether clients suffer, `disk_room` what fits on disks; `control` holds the limits and the
    maintenance windows. With a larger share of the brokers away than `relief_max_away_share` no lost replica is made
    anew.
    """

    def __init__(
        self,
        cluster: ControlledCluster,
        journal: Journal,
        throttle: Throttle,
        lag: LagPressure,
        latency: LatencyPressure,
        disk_room: DiskRoom,
        control: ControlSettings,
        look_age: LookAge,
        absences: Absences,
        *,
        relief_max_away_share: float,
    ) -> None:
        self._cluster = cluster
        self._looks = Looks(cluster, staged=control.staged_moves)
        self._copied = CopiedBytes(cluster)
        self._journal = journal
        self._throttle = throttle
        self._lag = lag
        self._latency = latency
        self._disk_room = disk_room
        self._control = control
        self._relief_max_away_share = relief_max_away_share
        self._abort_looks = 0
        self._look_age = look_age
        self._absences = absences
        self._requests = Requests(cluster, look_age)
        self._kafka_cluster_id: str | None = None
        self._replaced: frozenset[int] = frozenset()
        self._give_up: str | None = None
        self._last_progress_ms = 0

    def begin(self, record: ExecutionRecord, approved: KeptPlan, *, now_ms: int) -> bool:
        """Check the approved plan against the live cluster and start it; False where it was refused."""
        plan_id = approved.plan.plan_id[:12]
        too_old = expired(approved, now_ms)
        if too_old is not None:
            return self._refuse(record, too_old, now_ms)
        live = self._cluster.describe()
        problem = misfit(approved, live)
        if problem:
            return self._refuse(record, problem, now_ms)
        self.resume(approved)
        self._kafka_cluster_id = live.cluster_id
        self._journal.write_event(
            record,
            Event.STARTED,
            f"plan {plan_id} with {len(approved.plan.movements)} movements",
            now_ms=now_ms,
            throttle_bytes_per_sec=self._control.throttle_bytes_per_sec,
            throttled_brokers=self._throttle.brokers(record.execution, approved.plan, live),
            produce_p99_ms_before=self._latency.highest_ms(),
            kafka_cluster_id=live.cluster_id,
        )
        return True

    def resume(self, kept: KeptPlan | None = None, *, give_up: str | None = None) -> None:
        """From now on `tick` is for another execution: nothing is known of it, not even whether it is throttled.

        It belongs to the Kafka cluster that its plan was made on; if that is unknown, to the one that answers next.
        With `give_up`, a reason, the next ticks end it.
        """
        self._kafka_cluster_id = None if kept is None else kept.kafka_cluster_id
        observed = None if kept is None else kept.proposed.observed
        self._replaced = frozenset() if observed is None else observed.brokers_missing
        self._give_up = give_up
        self._abort_looks = 0
        self._looks.forget({} if kept is None else kept.topic_ids)
        self._copied.forget()
        self._requests.forget()
        self._disk_room.forget()
        self._throttle.forget()

    def tick(self, record: ExecutionRecord, plan: Plan, *, now_ms: int) -> bool:
        """Take the one next step; True once the execution has ended and nothing of it is left on the cluster."""
        execution = record.execution
        # Before anything is sent: the journal would refuse the event only after the cluster has changed.
        assert execution.in_progress, f"execution {execution.execution_id} is {execution.phase}"
        closed = hours_closed(execution, self._control, now_ms)
        given_up = self._give_up or reason_to_give_up(execution, now_ms)
        if execution.paused and closed is not None and given_up is None:
            return False
        self._look_age.begin()
        try:
            live = self._looks.live(plan, whole=given_up is not None, now_ms=now_ms)
        except AnotherCluster as error:
            return self._hold(record, str(error), given_up, now_ms, owed=execution.throttled_brokers)
        started_on = execution.figures.kafka_cluster_id
        self._kafka_cluster_id = self._kafka_cluster_id or started_on or live.cluster_id
        other = another_cluster(self._kafka_cluster_id, live)
        if other is not None:
            return self._hold(record, other, given_up, now_ms)
        self._absences.note(live, now_ms)
        look = self._judged(record, plan, live, now_ms)
        back = replaced_broker_back(plan, look.live, look.progress, self._replaced)
        given_up = given_up or (back if execution.paused else None)
        if given_up is not None:
            return self._abort(look, given_up)
        if not execution.paused:
            return self._step(look, closed, back)
        self._go_on(look)
        return False

    def _judged(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> Look:
        refused = {**self._disk_room.given_up, **self._requests.moves.skipped}
        not_elected = self._requests.elections.skipped
        return self._looks.judged(record, plan, live, now_ms, refused=refused, not_elected=not_elected)

    def _hold(
        self, record: ExecutionRecord, other: str, given_up: str | None, now_ms: int, *, owed: tuple[int, ...] = ()
    ) -> bool:
        """Touch nothing of another cluster; True once somebody gave the execution up, which ends it as it is.

        Brokers of the right one that are `owed` their throttle's end get it once that cluster answers again.
        """
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

    def _refuse(self, record: ExecutionRecord, problem: str, now_ms: int) -> bool:
        self._journal.write_event(record, Event.REFUSED, problem, now_ms=now_ms)
        log.warning("plan_refused", plan_id=record.execution.plan_id[:12], reason=problem)
        return False

    def _step(self, look: Look, closed: str | None, back: str | None) -> bool:
        """Decide on the next step, keep the throttle, take the step; True once the execution has ended.

        `closed` is why the hour forbids anything new, `back` why the rest of the plan is not to be carried out.
        """
        pressure = self._pressure(look)
        held_back = closed or (f"held back: {pressure}" if pressure else None)
        look, step = self._confirmed_step(look, held_back)
        if isinstance(step, Submit) and not self._disk_room.all_fit(look.plan, look.live, step.reassignments):
            room = self._disk_room.look(look.plan, look.live, look.progress, self._limits, look.now_ms)
            step = self._asked_about(self._next_step(look, held_back, room))
            if not isinstance(step, Submit):
                self._disk_room.wait(look.now_ms)
        if back is not None and not isinstance(step, Abort):
            step = Abort(back, tuple(sorted(look.moving)))
        self._abort_looks = self._abort_looks + 1 if isinstance(step, Abort) else 0
        if closed is not None and isinstance(step, Wait) and not look.moving:
            self._pause(look, step.reason)
            return False
        if not isinstance(step, Abort | Done):  # those must not wait for a throttle that can't be set
            pressed = pressure is not None
            self._throttle.keep(look.execution, look.plan, pressed=pressed, now_ms=look.now_ms, without=look.made_again)
        return self._take(step, look)

    def _confirmed_step(self, look: Look, held_back: str | None) -> tuple[Look, Step]:
        """The next step, and the look that it rests on. What is submitted was asked about in this tick, and what ends
        the execution follows from a look at the whole cluster.
        """
        held_back = held_back or self._disk_room.held_back(look.now_ms)
        step = self._next_step(look, held_back)
        for _ in range(QUESTIONS_MAX):
            ends = isinstance(step, Done) or (isinstance(step, Abort) and self._abort_looks + 1 >= ABORT_CONFIRMATIONS)
            live = self._looks.closer(look, step.reassignments if isinstance(step, Submit) else (), whole=ends)
            if live is None:
                break
            other = another_cluster(self._kafka_cluster_id, live)
            if other is not None:
                raise AnotherCluster(other)
            look = self._judged(look.record, look.plan, live, look.now_ms)
            step = self._next_step(look, held_back)
        return look, self._asked_about(step)

    def _asked_about(self, step: Step) -> Step:
        """Of what would be submitted, that which was asked about in this tick: the rest comes at the next one."""
        if not isinstance(step, Submit):
            return step
        asked = self._looks.asked_about(step.reassignments)
        return Submit(asked) if asked else Wait("looks again at what is to be moved next")

    @property
    def _limits(self) -> Limits:
        return replace(limits(self._control), relief_max_away_share=self._relief_max_away_share)

    def _next_step(self, look: Look, held_back: str | None, room: Room | None = None) -> Step:
        step = next_step(
            look.plan,
            look.live,
            self._limits,
            progress=look.progress,
            worked_ms=look.execution.worked_ms(look.now_ms),
            held_back=held_back,
            looks=look.looks,
            refused=look.refused,
            not_elected=look.not_elected,
            room=room,
        )
        copies = [look.live.partitions[key].adding_replicas for key in look.moving]
        vain = self._absences.in_vain(look.live, copies, self._replaced) if isinstance(step, Wait) else None
        return step if vain is None else Abort(vain, tuple(sorted(look.moving)))

    def _take(self, step: Step, look: Look) -> bool:
        """Carry out one step and write it down; True once the execution has ended."""
        match step:
            case Submit(reassignments):
                self._submit(look, reassignments)
            case ElectLeaders(partitions):
                self._elect(look, partitions)
            case Wait(reason):
                self._report(look, reason)
            case Abort(reason, _):
                return self._abort_looks >= ABORT_CONFIRMATIONS and self._abort(look, reason)
            case Done():
                self._clear_and_write(look, Event.DONE, look.result)
                return True
        return False

    def _submit(self, look: Look, reassignments: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Ask for reassignments. What Kafka refuses for good is skipped from the next look on."""
        refused = self._requests.reassign(reassignments)
        taken = {key: target for key, target in reassignments.items() if key not in refused}
        self._looks.submitted(taken)
        detail = f"{len(taken)} reassignments"
        if refused:
            detail += f", {len(refused)} refused by Kafka: {refusals_text(refused)}"
            log.warning("reassignments_refused", execution_id=look.execution.execution_id, refused=detail)
        if taken or refused.keys() & self._requests.moves.skipped.keys():
            self._write(look, Event.SUBMITTED, detail)
        else:
            self._report(look, detail)

    def _elect(self, look: Look, partitions: tuple[PartitionKey, ...]) -> None:
        """Ask for elections. What Kafka refuses for good keeps its leader, and nothing waits for it any more."""
        if not self._requests.elections.tries.keys() >= set(partitions):  # else it is all asked for again
            self._write(look, Event.ELECTING, f"preferred leaders of {len(partitions)} partitions")
        refused = self._requests.elect(partitions)
        if not refused:
            return
        detail = f"Kafka refuses to elect the preferred leaders of {len(refused)} partitions: {refusals_text(refused)}"
        log.warning("elections_refused", execution_id=look.execution.execution_id, refused=detail)
        if refused.keys() & self._requests.elections.skipped.keys():
            self._write(look, Event.PROGRESS, f"{detail}; those that it refuses for good keep their leader")
        else:
            self._report(look, detail)

    def _report(self, look: Look, reason: str) -> None:
        """What the execution waits for, every few seconds."""
        if look.now_ms - self._last_progress_ms >= PROGRESS_INTERVAL_MS:
            parts = (reason, remaining(look.execution, look.now_ms))
            self._write(look, Event.PROGRESS, "; ".join(part for part in parts if part))

    def _abort(self, look: Look, reason: str) -> bool:
        """Cancel what is in flight and end; False where the cluster refused, and the next tick tries again.

        What it refuses too often goes on to the replicas of the plan: the last event names it.
        """
        refused = self._requests.cancel(look.moving)
        if refused:
            log.warning("cancel_refused", execution_id=look.execution.execution_id, refused=refusals_text(refused))
        if refused and self._requests.may_cancel:
            return False
        detail = (
            f"{reason}; {len(self._requests.cancelled)} moves in flight cancelled{look.unknown_moves}{look.strangers}"
        )
        if refused:
            detail += f", {len(refused)} go on without a throttle, as Kafka refuses to cancel: {refusals_text(refused)}"
        self._clear_and_write(look, Event.ABORTED, detail)
        return True

    def _pause(self, look: Look, reason: str) -> None:
        """Wait without leaving anything on the cluster: a throttle would slow replicas that come back meanwhile."""
        self._clear_and_write(look, Event.PAUSED, reason)

    def _clear_and_write(self, look: Look, event: Event, detail: str) -> None:
        """Remove the throttle, then write the event. It names what Kafka refuses to remove."""
        remains = self._throttle.clear(look.execution, look.plan)
        if remains.refused is not None:
            detail += f"; Kafka refuses to remove the throttle: {remains.refused}"
        self._write(look, event, detail, throttled_brokers=remains.brokers)

    def _go_on(self, look: Look) -> None:
        """The pause is over. The throttle is set at the next tick: the journal has to name its brokers before."""
        brokers = self._throttle.brokers(look.execution, look.plan, look.live)
        p99_ms = self._latency.highest_ms()
        self._write(look, Event.RESUMED, "its time has come", throttled_brokers=brokers, produce_p99_ms_before=p99_ms)

    def _pressure(self, look: Look) -> str | None:
        """Why clients suffer, compared with the start of the execution or its resumption; None if they don't."""
        brokers = look.plan.brokers
        lag = self._lag.reason(brokers, self._looks.partitions, started_ms=look.execution.since_ms, now_ms=look.now_ms)
        return lag or self._latency.reason(look.execution.figures.produce_p99_ms_before, now_ms=look.now_ms)

    def _write(self, look: Look, event: Event, detail: str, **figures: Any) -> None:
        """One event with the progress that this look shows."""
        sizes = self._copied.read(look.plan, look.live, look.progress, now_ms=look.now_ms)
        self._last_progress_ms = look.now_ms
        self._journal.write_event(
            look.record,
            event,
            detail,
            now_ms=look.now_ms,
            **(_figures(look, sizes) if look.plan.movements else {}),
            **figures,
        )
        log.info(
            "execution",
            execution_id=look.execution.execution_id,
            plan_id=look.plan.plan_id[:12],
            event_name=event.value,
            detail=detail,
        )


def _figures(look: Look, sizes: Mapping[tuple[int, PartitionKey], int]) -> dict[str, int]:
    """How far the look shows it to be."""
    return {
        "movements_done": movements_done(look.progress),
        "bytes_moved": bytes_moved(look.plan, look.progress, sizes),
    }
