"""Movements between brokers: the next step of an execution (see `executor`), and how it is taken.

Nothing is submitted before this process has set the throttle. Only partitions of the plan are ever reassigned, elected
or cancelled.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from assignor_core.execution.accounting import NAMED_MAX, bytes_moved, movements_done, refusals_text
from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.reconcile import Abort, Done, ElectLeaders, Step, Submit, Wait, next_step
from assignor_core.execution.room import RoomLeft
from assignor_core.execution.seen_movements import MADE, SeenSoFar
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, partition_name
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.throttles import tagged
from assignor_core.wording import counted, first_named
from streaming.cluster.ports import ControlledCluster
from streaming.control.absences import Absences, needed_by
from streaming.control.cluster_snapshot import ExecutionSnapshot, ExecutionSnapshots, SnapshotAge, check_same_cluster
from streaming.control.disk_room import DiskAnswers, DiskRoom, copied_bytes
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.obstacles import cancelled_by_others, misfit
from streaming.control.policies import limits
from streaming.control.reports import Reports
from streaming.control.requests import Requests
from streaming.control.throttle import Throttle
from streaming.settings import ControlSettings

log = structlog.get_logger()

ABORT_CONFIRMATIONS = 3
"""A broker's metadata may be a moment behind the controller's: an alarming snapshot must be repeated this often."""
QUESTIONS_MAX = 3
"""How often in one tick control asks about what it is about to submit, while that turns out to be something else."""

REREAD = Wait("re-reads metadata before it submits the next movements")


class ReplicaMoves:
    """Movements of replicas of one execution. `disk_room` judges what fits on disks by `disk_answers`; `control` holds
    the limits. If a larger share of the brokers than `relief_max_away_share` is offline, no lost replica is re-created.
    """

    noun = "movements"

    def __init__(
        self,
        cluster: ControlledCluster,
        journal: Journal,
        throttle: Throttle,
        disk_answers: DiskAnswers,
        disk_room: DiskRoom,
        control: ControlSettings,
        snapshot_age: SnapshotAge,
        absences: Absences,
        *,
        relief_max_away_share: float,
    ) -> None:
        self._snapshots = ExecutionSnapshots(cluster, staged=control.staged_moves)
        self._disk_answers = disk_answers
        self.reports = Reports(journal, self._progress_figures)
        self.rate_bytes_per_sec = tagged(control.throttle_bytes_per_sec)
        self._throttle = throttle
        self._disk_room = disk_room
        self._journal = journal
        self._limits = replace(limits(control), relief_max_away_share=relief_max_away_share)
        self._abort_snapshots = 0
        self._seen = SeenSoFar()
        self._absences = absences
        self._requests = Requests(cluster, snapshot_age)

    def forget(self, kept: KeptPlan | None) -> None:
        self._abort_snapshots = 0
        self._seen = SeenSoFar()
        self._limits = replace(self._limits, drained=self._journal.drained_brokers())
        self._snapshots.forget(kept)
        self._requests.forget()
        self._disk_room.forget()
        self._throttle.forget()

    def misfit(self, approved: KeptPlan, live: LiveCluster) -> str | None:
        return misfit(approved, live)

    def throttled_brokers(self, execution: Execution, plan: Plan, live: LiveCluster) -> tuple[int, ...]:
        return self._throttle.brokers(execution, plan, live)

    def live(self, plan: Plan, *, whole: bool, now_ms: int) -> LiveCluster:
        return self._snapshots.live(plan, whole=whole, now_ms=now_ms)

    @property
    def partitions(self) -> Mapping[PartitionKey, LivePartition]:
        return self._snapshots.partitions

    def snapshot(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> ExecutionSnapshot:
        """What `live` shows of the plan, judged with the snapshots before it."""
        refused = {**self._disk_room.given_up, **self._requests.moves.skipped}
        not_elected = self._requests.elections.skipped
        return self._snapshots.judged(record, plan, live, now_ms, refused=refused, not_elected=not_elected)

    def step(self, snapshot: ExecutionSnapshot, *, closed: str | None, pressure: str | None) -> bool:
        self._stop_overflowing(snapshot)
        obsolete = snapshot.obsolete
        held_back = closed or (f"held back: {pressure}" if pressure else None)
        snapshot, step = self._confirmed_step(snapshot, held_back)
        if isinstance(step, Submit) and not self._disk_room.all_fit(
            snapshot.plan, snapshot.live, step.reassignments, snapshot.progress, snapshot.now_ms
        ):
            room = self._disk_room.read(snapshot.plan, snapshot.live, snapshot.progress, self._limits, snapshot.now_ms)
            step = self._asked_about(self._next_step(snapshot, held_back, room))
            if not isinstance(step, Submit):
                self._disk_room.wait(snapshot.now_ms)
        if isinstance(step, Submit) and obsolete is None:
            step = self._unless_cancelled(snapshot, step)
        if obsolete is not None and not isinstance(step, Abort):
            step = Abort(obsolete, tuple(sorted(snapshot.in_flight)))
        self._abort_snapshots = self._abort_snapshots + 1 if isinstance(step, Abort) else 0
        if closed is not None and isinstance(step, Wait) and not snapshot.in_flight:
            # A throttle would slow replicas that come back meanwhile.
            self._clear_and_write(snapshot, Event.PAUSED, step.reason)
            return False
        # Those must not wait for a throttle that can't be set.
        if (
            not isinstance(step, Abort | Done)
            and self._keep_throttle(snapshot, step, pressure)
            and isinstance(step, Submit | ElectLeaders)
        ):
            snapshot, step = self._reread(snapshot, step, held_back)
        return self._take(self._throttled(step, snapshot), snapshot)

    def _unless_cancelled(self, snapshot: ExecutionSnapshot, step: Submit) -> Step:
        """The step, or to wait where somebody else cancels moves of this execution again and again: each is noted."""
        again = set(self._requests.cancelled_by_others(step.reassignments, snapshot.live.partitions))
        if not again:
            return step
        places = tuple(place for place, row in enumerate(snapshot.plan.movements) if row.key in again)
        named = first_named(sorted(again), NAMED_MAX, partition_name)
        detail = f"somebody else has cancelled the move of {named}"
        log.warning("moves_cancelled_by_others", execution_id=snapshot.execution.execution_id, cancelled=named)
        self.reports.write(snapshot, Event.PROGRESS, detail, movements_cancelled=places)
        reason = cancelled_by_others(snapshot.execution, snapshot.plan)
        return step if reason is None else Wait(reason)

    def _keep_throttle(self, snapshot: ExecutionSnapshot, step: Step, pressure: str | None) -> bool:
        """Set the throttle where this process hasn't yet, for what is submitted next, too (True), and adapt it."""
        brokers = self._throttle.more_brokers(snapshot.execution, snapshot.plan, snapshot.live, now_ms=snapshot.now_ms)
        self.reports.more_throttled(snapshot, brokers)
        is_new = self._throttle.keep(
            snapshot.execution,
            snapshot.plan,
            alive=snapshot.live.broker_racks,
            pressed=pressure is not None,
            now_ms=snapshot.now_ms,
            copying=snapshot.in_flight,
            submitted=sorted(step.reassignments) if isinstance(step, Submit) else (),
            made=frozenset(key for key, state in snapshot.progress.items() if state in MADE),
            without=snapshot.made_again,
        )
        self.reports.throttle(snapshot, self._throttle.new_lowest(), pressure)
        return is_new

    def _throttled(self, step: Step, snapshot: ExecutionSnapshot) -> Step:
        """The step without movements that no list of throttled replicas has room for; another one if none is left."""
        unnamed = frozenset(
            self._throttle.unnamed(snapshot.plan, step.reassignments) if isinstance(step, Submit) else ()
        )
        if not isinstance(step, Submit) or not unnamed:
            return step
        named = {key: target for key, target in step.reassignments.items() if key not in unnamed}
        if named:
            return Submit(named)
        topic, _ = min(unnamed)
        return self._next_step(
            snapshot, f"the lists of throttled replicas of topic {topic} have no room for another move"
        )

    def _reread(
        self, snapshot: ExecutionSnapshot, step: Submit | ElectLeaders, held_back: str | None
    ) -> tuple[ExecutionSnapshot, Step]:
        """What of a request is still right after the throttle was set, which takes a second or more on a large cluster:
        Kafka moves and elects by name, also partitions of a topic that was deleted and made again meanwhile.
        """
        live = self._snapshots.again(snapshot, step.reassignments if isinstance(step, Submit) else step.partitions)
        check_same_cluster(snapshot.live, live)
        snapshot = self.snapshot(snapshot.record, snapshot.plan, live, snapshot.now_ms)
        return snapshot, _still_right(step, self._next_step(snapshot, held_back))

    def _stop_overflowing(self, snapshot: ExecutionSnapshot) -> None:
        """Cancel copies that no longer fit: a log dir that is full goes offline with all that it holds.

        They are begun again when there is room, as all others are; skipped by name where there is none for long.
        """
        shown = [key for key in snapshot.moving if key in snapshot.live.partitions]
        copies = self._disk_room.overflowing(snapshot.live, shown, snapshot.now_ms)
        if not copies:
            return
        refused = self._requests.stop(copies)
        stopped = first_named([key for key in copies if key not in refused], NAMED_MAX, partition_name)
        log.warning("log_dir_fills", stopped=stopped, refused=len(refused))
        if len(refused) < len(copies):
            moves = counted(len(copies) - len(refused), "move", "moves")
            detail = f"{moves} cancelled, as others fill their log dir: {stopped}"
            self.reports.write(snapshot, Event.PROGRESS, detail)

    def _confirmed_step(self, snapshot: ExecutionSnapshot, held_back: str | None) -> tuple[ExecutionSnapshot, Step]:
        """The next step, and the snapshot that it rests on. What is submitted was asked about in this tick, and what
        ends the execution follows from a snapshot of the whole cluster.
        """
        held_back = held_back or self._disk_room.held_back(snapshot.now_ms)
        step = self._next_step(snapshot, held_back)
        for _ in range(QUESTIONS_MAX):
            ends = isinstance(step, Done) or (
                isinstance(step, Abort) and self._abort_snapshots + 1 >= ABORT_CONFIRMATIONS
            )
            live = self._snapshots.closer(snapshot, step.reassignments if isinstance(step, Submit) else (), whole=ends)
            if live is None:
                break
            check_same_cluster(snapshot.live, live)
            snapshot = self.snapshot(snapshot.record, snapshot.plan, live, snapshot.now_ms)
            step = self._next_step(snapshot, held_back)
        return snapshot, self._asked_about(step)

    def _asked_about(self, step: Step) -> Step:
        """Returns the step with only the partitions whose metadata this tick has read: the others follow in the next
        tick.
        """
        if not isinstance(step, Submit):
            return step
        asked = self._snapshots.asked_about(step.reassignments)
        return Submit(asked) if asked else REREAD

    def _next_step(self, snapshot: ExecutionSnapshot, held_back: str | None, room: RoomLeft | None = None) -> Step:
        step = next_step(
            snapshot.plan,
            snapshot.live,
            self._limits,
            progress=snapshot.progress,
            worked_ms=snapshot.execution.worked_ms(snapshot.now_ms),
            held_back=held_back,
            past=snapshot.past,
            refused=snapshot.refused,
            not_elected=snapshot.not_elected,
            room=room,
        )
        copies = [needed_by(snapshot.live.partitions[key]) for key in snapshot.moving]
        vain = (
            self._absences.in_vain(snapshot.live, copies, self._snapshots.replaced) if isinstance(step, Wait) else None
        )
        return step if vain is None else Abort(vain, tuple(sorted(snapshot.moving)))

    def _take(self, step: Step, snapshot: ExecutionSnapshot) -> bool:
        """Carry out one step and write it down; True once the execution has ended."""
        match step:
            case Submit(reassignments):
                self._submit(snapshot, reassignments)
            case ElectLeaders(partitions):
                self._elect(snapshot, partitions)
            case Wait(reason):
                self.reports.waits(snapshot, reason)
            case Abort(reason, _):
                return self._abort_snapshots >= ABORT_CONFIRMATIONS and self.abort(snapshot, reason)
            case Done():
                self._clear_and_write(snapshot, Event.DONE, snapshot.result)
                return True
        return False

    def _submit(self, snapshot: ExecutionSnapshot, reassignments: Mapping[PartitionKey, tuple[int, ...]]) -> None:
        """Ask for reassignments. What Kafka refuses for good is skipped from the next snapshot on."""
        self._disk_room.submitted(snapshot.live, reassignments)
        refused = self._requests.reassign(reassignments)
        taken = {key: target for key, target in reassignments.items() if key not in refused}
        self._snapshots.submitted(taken)
        detail = counted(len(taken), "reassignment", "reassignments")
        if refused:
            detail += f", {len(refused)} refused by Kafka: {refusals_text(refused)}"
            log.warning("reassignments_refused", execution_id=snapshot.execution.execution_id, refused=detail)
        if taken or refused.keys() & self._requests.moves.skipped.keys():
            copying = {*snapshot.moving, *(key for key in taken if snapshot.progress[key] not in MADE)}
            places = tuple(place for place, row in enumerate(snapshot.plan.movements) if row.key in copying)
            self.reports.write(snapshot, Event.SUBMITTED, detail, movements_under_way=places)
        else:
            self.reports.waits(snapshot, detail)

    def _elect(self, snapshot: ExecutionSnapshot, partitions: tuple[PartitionKey, ...]) -> None:
        """Ask for elections. What Kafka refuses for good keeps its leader, and nothing waits for it any more."""
        # A broker may show for long who led before: to ask again is no news.
        if not self._requests.elections_asked.issuperset(partitions):
            count = counted(len(partitions), "partition", "partitions")
            self.reports.write(snapshot, Event.ELECTING, f"preferred leaders of {count}")
        refused = self._requests.elect(partitions)
        if not refused:
            return
        count = counted(len(refused), "partition", "partitions")
        detail = f"Kafka refuses to elect the preferred leaders of {count}: {refusals_text(refused)}"
        log.warning("elections_refused", execution_id=snapshot.execution.execution_id, refused=detail)
        if refused.keys() & self._requests.elections.skipped.keys():
            self.reports.write(snapshot, Event.PROGRESS, f"{detail}; partitions refused for good keep their leader")
        else:
            self.reports.waits(snapshot, detail)

    def abort(self, snapshot: ExecutionSnapshot, reason: str) -> bool:
        """Cancel what is in flight and end; False where the cluster refused, and the next tick tries again.

        What it refuses too often goes on to the replicas of the plan: the last event names it.
        """
        refused = self._requests.cancel(snapshot.in_flight)
        if refused:
            log.warning("cancel_refused", execution_id=snapshot.execution.execution_id, refused=refusals_text(refused))
        if refused and self._requests.may_cancel:
            return False
        detail = (
            f"{reason}; {counted(len(self._requests.cancelled), 'move', 'moves')} in flight cancelled"
            f"{snapshot.unknown_moves}{snapshot.strangers}"
        )
        if refused:
            detail += f", {len(refused)} go on without a throttle, as Kafka refuses to cancel: {refusals_text(refused)}"
        self._clear_and_write(snapshot, Event.ABORTED, detail)
        return True

    def _clear_and_write(self, snapshot: ExecutionSnapshot, event: Event, detail: str) -> None:
        """Remove the throttle, then write the event."""
        self.reports.write_cleared(snapshot, event, detail, self._throttle.clear(snapshot.execution, snapshot.plan))

    def _progress_figures(self, snapshot: ExecutionSnapshot) -> Mapping[str, Any]:
        """How far the snapshot shows it to be; nothing of an execution whose movements nobody knows any more."""
        plan, progress = snapshot.plan, snapshot.progress
        if not plan.movements:
            return {}
        sizes = copied_bytes(self._disk_answers, plan, snapshot.live, progress, now_ms=snapshot.now_ms)
        return {
            "movements_done": movements_done(progress),
            "bytes_moved": bytes_moved(plan, progress, sizes),
            **self._seen.changes(snapshot.execution, (row.key for row in plan.movements), progress),
        }


def _still_right(step: Submit | ElectLeaders, now: Step) -> Step:
    """Returns the part of `step` that the next snapshot requires, too; anything else waits for the next tick."""
    match step, now:
        case Submit(before), Submit(after):
            if same := {key: target for key, target in before.items() if after.get(key) == target}:
                return Submit(same)
        case ElectLeaders(before), ElectLeaders(after):
            wanted = frozenset(after)
            if both := tuple(key for key in before if key in wanted):
                return ElectLeaders(both)
    return REREAD
