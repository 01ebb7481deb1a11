"""Movements within brokers: the next step of an execution (see `executor`), read off the brokers' log dirs.

Only replicas of the plan are ever asked to move.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import structlog

from assignor_core.disks import LogDirs
from assignor_core.execution.accounting import NAMED_MAX
from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import Progress
from assignor_core.execution.reconcile import Abort, Done, Wait
from assignor_core.execution.seen_movements import SeenSoFar
from assignor_core.execution.within_brokers import (
    Missed,
    MoveWithin,
    RoomWithin,
    Standing,
    StepWithin,
    bytes_within,
    cancellations,
    differences_within,
    going_back,
    lacking_within,
    made_within,
    may_go_on,
    may_go_on_text,
    moving_within,
    next_step_within,
    overflowing,
    standing_of,
)
from assignor_core.identity import without_made_again
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, LivePartition, PartitionKey, ReplicaKey, replica_name
from assignor_core.log_dir_movement import LogDirMovement
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.throttles import tagged
from assignor_core.wording import counted, first_named
from streaming.cluster.ports import ControlledCluster
from streaming.control.absences import Absences
from streaming.control.cluster_snapshot import ClusterSnapshot, SnapshotAge, check_same_cluster
from streaming.control.disk_room import READ_INTERVAL_MS, LogDirAnswers
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.obstacles import changed_since_text
from streaming.control.policies import limits
from streaming.control.reports import Reports
from streaming.control.requests import LogDirRequests
from streaming.control.throttle import LogDirThrottle
from streaming.settings import ControlSettings

log = structlog.get_logger()

REREAD = Wait("re-reads metadata before it submits the next movements")
NOTHING_LEFT: Mapping[ReplicaKey, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LogDirSnapshot:
    """One execution and the brokers of its plan as one tick sees them."""

    record: ExecutionRecord
    plan: Plan
    live: LiveCluster
    log_dirs: LogDirs
    """Log dirs of the plan's brokers that answer, with the plan's replicas."""
    now_ms: int
    standing: Standing
    skipped: Mapping[ReplicaKey, str]

    @property
    def execution(self) -> Execution:
        return self.record.execution

    @property
    def obsolete(self) -> None:
        """None: a plan within brokers replaces no broker that could come back."""
        return None

    @property
    def result(self) -> str:
        """What was made of the plan, in words."""
        return made_within(self.standing, self.skipped)


class LogDirMoves:
    """Movements within brokers of one execution. `disk_reserve` is the share of each volume that stays free."""

    noun = "movements within brokers"

    def __init__(
        self,
        cluster: ControlledCluster,
        journal: Journal,
        throttle: LogDirThrottle,
        control: ControlSettings,
        snapshot_age: SnapshotAge,
        absences: Absences,
        *,
        disk_reserve: float,
    ) -> None:
        self._cluster = cluster
        self._snapshot = ClusterSnapshot(cluster)
        self._answers = LogDirAnswers(cluster)
        self.reports = Reports(journal, self._progress_figures)
        self.rate_bytes_per_sec = tagged(control.log_dir_throttle_bytes_per_sec)
        self._throttle = throttle
        self._limits = limits(control)
        self._absences = absences
        self._requests = LogDirRequests(cluster, snapshot_age)
        self._disk_reserve = disk_reserve
        self.forget(None)

    def forget(self, kept: KeptPlan | None) -> None:
        self._topic_ids = {} if kept is None else kept.topic_ids
        self._missed = Missed()
        self._seen = SeenSoFar()
        self._in_play: frozenset[str] | None = None
        """Topics of what is not finished; None before the first snapshot."""
        self._copying: frozenset[int] = frozenset()
        """Brokers that may be copying."""
        self._waits_since_ms: int | None = None
        """When something had no room, or was refused, last."""
        self._waits_for: str | None = None
        self._aborts_for: str | None = None
        """Why it is being given up, once it is."""
        self._snapshot.forget()
        self._answers.forget()
        self._requests.forget()
        self._throttle.forget()

    def misfit(self, approved: KeptPlan, live: LiveCluster) -> str | None:
        """What of the cluster and the brokers' log dirs speaks against carrying out this plan; None if nothing does."""
        misfits = approved.misfits(live) or self._differences(approved.plan, live)
        return changed_since_text(misfits) if misfits else None

    def throttled_brokers(self, execution: Execution, plan: Plan, live: LiveCluster) -> tuple[int, ...]:
        return self._throttle.brokers(execution, plan, live)

    def live(self, plan: Plan, *, whole: bool, now_ms: int) -> LiveCluster:
        """The topics of what is not finished, or (with `whole`) all of the plan; raises what `describe` does."""
        self._snapshot.read(plan.topics if whole or self._in_play is None else self._in_play, now_ms=now_ms)
        return self._snapshot.of(row.key for row in plan.log_dir_movements)

    @property
    def partitions(self) -> Mapping[PartitionKey, LivePartition]:
        return self._snapshot.partitions

    def _differences(self, plan: Plan, live: LiveCluster) -> tuple[str, ...]:
        log_dirs = self._cluster.log_dirs(plan.brokers, [row.key for row in plan.log_dir_movements])
        return differences_within(plan, live, log_dirs)

    def snapshot(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> LogDirSnapshot:
        """What the log dirs show of the plan."""
        log_dirs = self._log_dirs(plan, live, now_ms)
        self._missed = self._missed.after(plan, log_dirs)
        skipped = self._requests.given_up
        standing = self._standing(plan, live, log_dirs)
        if not _left(standing) and not self._answers.is_of_all(now_ms):  # it ends by what all brokers show
            log_dirs = self._answers.read_all(plan, now_ms=now_ms)
            standing = self._standing(plan, live, log_dirs)
        self._in_play = frozenset(topic for _, (topic, _) in _left(standing))
        snapshot = LogDirSnapshot(record, plan, live, log_dirs, now_ms, standing, skipped)
        self._copying = frozenset(broker for broker, _ in _moving(snapshot))
        return snapshot

    def _log_dirs(self, plan: Plan, live: LiveCluster, now_ms: int) -> LogDirs:
        """Returns the log dirs of all brokers of the plan if the plan is being given up, otherwise what
        `LogDirAnswers.read` returns.
        """
        if self._aborts_for is not None:
            return self._answers.read_all(plan, now_ms=now_ms)
        copying = self._copying.union(broker for broker, _ in self._requests.asked_to_stay)
        return self._answers.read(plan, copying, live.broker_racks.keys(), now_ms=now_ms)

    def _standing(self, plan: Plan, live: LiveCluster, log_dirs: LogDirs) -> Standing:
        """Replicas of a topic that only bears the approved one's name are not the plan's: they count as gone."""
        ours = standing_of(self._ours(plan, live), log_dirs, self._missed, self._requests.given_up)
        return {row.replica: ours.get(row.replica, Progress.GONE) for row in plan.log_dir_movements}

    def _ours(self, plan: Plan, live: LiveCluster) -> Plan:
        return without_made_again(plan, self._topic_ids, live)

    def step(self, snapshot: LogDirSnapshot, *, closed: str | None, pressure: str | None) -> bool:
        if self._aborts_for is not None:
            return self.abort(snapshot, self._aborts_for)
        self._stop_overflowing(snapshot)
        held_back = closed or (f"held back: {pressure}" if pressure else None)
        if held_back is None and not is_due(self._waits_since_ms, READ_INTERVAL_MS, snapshot.now_ms):
            held_back = self._waits_for
        step = self._next_step(snapshot, held_back)
        if isinstance(step, MoveWithin):
            step = self._with_room(snapshot, step)
        if closed is not None and isinstance(step, Wait) and not _moving(snapshot):
            self._clear_and_write(snapshot, Event.PAUSED, step.reason)
            return False
        if isinstance(step, Done) and self._going_back(snapshot):
            step = Wait("replicas that had arrived as planned stay where they are now")
        if isinstance(step, Done):
            self._clear_and_write(snapshot, Event.DONE, snapshot.result)
            return True
        if isinstance(step, Abort):
            return self.abort(snapshot, step.reason)
        brokers = self._throttle.more_brokers(snapshot.execution, snapshot.plan, snapshot.live, now_ms=snapshot.now_ms)
        self.reports.more_throttled(snapshot, brokers)
        alive = snapshot.live.broker_racks
        self._throttle.keep(snapshot.execution, alive=alive, pressed=pressure is not None, now_ms=snapshot.now_ms)
        self.reports.throttle(snapshot, self._throttle.new_lowest(), pressure)
        if isinstance(step, MoveWithin):
            step = self._reread(snapshot, step)
        if isinstance(step, MoveWithin):
            self._move(snapshot, step.targets)
        else:
            self.reports.waits(snapshot, step.reason)
        return False

    def _next_step(self, snapshot: LogDirSnapshot, held_back: str | None, room: RoomWithin | None = None) -> StepWithin:
        worked_ms, skipped = snapshot.execution.worked_ms(snapshot.now_ms), snapshot.skipped
        step = next_step_within(
            snapshot.plan,
            snapshot.standing,
            self._limits,
            worked_ms=worked_ms,
            held_back=held_back,
            skipped=skipped,
            room=room,
        )
        copies = [(broker,) for broker, _ in _moving(snapshot)]
        vain = self._absences.in_vain(snapshot.live, copies) if isinstance(step, Wait) else None
        return step if vain is None else Abort(vain, ())

    def _with_room(self, snapshot: LogDirSnapshot, wanted: MoveWithin) -> StepWithin:
        """What of the rest has room: on the brokers that come next, or else on all that have something left."""
        pending = [row for row in snapshot.plan.log_dir_movements if snapshot.standing[row.replica] is Progress.PENDING]
        left, first = {row.broker for row in pending}, {broker for broker, _ in wanted.targets}
        step = self._with_room_on(snapshot, pending, first)
        if not isinstance(step, MoveWithin) and left != first:
            step = self._with_room_on(snapshot, pending, left)
        if not isinstance(step, MoveWithin):
            self._waits_since_ms = snapshot.now_ms
            self._waits_for = step.reason if isinstance(step, Wait) else None
            log.info("movements_within_brokers_wait", wanted=len(wanted.targets), reason=self._waits_for)
        return step

    def _with_room_on(self, snapshot: LogDirSnapshot, pending: list[LogDirMovement], brokers: set[int]) -> StepWithin:
        """The next step by a read of all that lies on these brokers."""
        room = RoomWithin.of(snapshot.live, self._cluster.log_dirs(brokers), brokers, reserve=self._disk_reserve)
        tried = [row for row in pending if row.broker in brokers]
        self._requests.hinder({row.replica for row in tried}, lacking_within(tried, room), snapshot.now_ms)
        return self._next_step(snapshot, None, room)

    def _reread(self, snapshot: LogDirSnapshot, step: MoveWithin) -> MoveWithin | Wait:
        """What of a request is still right after the read of the room and the throttle, which take a second or more
        on a large cluster. Brokers move by name, also replicas of a topic that was deleted and made again meanwhile, so
        the question about the topics' ids comes last.
        """
        keys = {key for _, key in step.targets}
        log_dirs = self._cluster.log_dirs({broker for broker, _ in step.targets}, keys)
        self._snapshot.read_also({topic for topic, _ in keys}, now_ms=snapshot.now_ms)
        live = self._snapshot.of(row.key for row in snapshot.plan.log_dir_movements)
        check_same_cluster(snapshot.live, live)
        standing = self._standing(snapshot.plan, live, log_dirs)
        same = {replica: path for replica, path in step.targets.items() if standing[replica] is Progress.PENDING}
        return MoveWithin(same) if same else REREAD

    def _stop_overflowing(self, snapshot: LogDirSnapshot) -> None:
        """Let brokers give up copies that no longer fit: a log dir that is full goes offline with all that it holds.

        They are begun again when there is room, as all others are. What had arrived meanwhile stays where it is now.
        """
        copies = [*overflowing(snapshot.plan, snapshot.standing, snapshot.log_dirs), *self._going_back(snapshot)]
        if copies:
            refused = self._requests.stop(cancellations(snapshot.plan, copies, snapshot.log_dirs), snapshot.now_ms)
            log.warning("log_dir_fills", stopped=first_named(copies, NAMED_MAX, replica_name), refused=len(refused))

    def _going_back(self, snapshot: LogDirSnapshot) -> list[ReplicaKey]:
        """Replicas that had arrived when this execution asked them to stay, and are being copied back since."""
        ours = self._ours(snapshot.plan, snapshot.live)
        return [replica for replica in going_back(ours, snapshot.log_dirs) if replica in self._requests.asked_to_stay]

    def _move(self, snapshot: LogDirSnapshot, targets: Mapping[ReplicaKey, str]) -> None:
        """Ask for movements. What a broker refuses is tried again some seconds later, for some minutes."""
        self._copying |= {broker for broker, _ in targets}  # before a request that may fail without an answer
        refused = self._requests.move(targets, snapshot.now_ms)
        accepted = len(targets) - len(refused)
        detail = counted(accepted, "movement within brokers", "movements within brokers")
        if refused:
            self._waits_since_ms = snapshot.now_ms
            self._waits_for = f"{len(refused)} refused by brokers: {_refusals_text(refused)}"
            detail += f", {self._waits_for}"
        if accepted:
            copying = {*_moving(snapshot), *(key for key in targets if key not in refused)}
            places = tuple(place for place, row in enumerate(snapshot.plan.log_dir_movements) if row.replica in copying)
            self.reports.write(snapshot, Event.SUBMITTED, detail, movements_under_way=places)
        else:
            self.reports.waits(snapshot, detail)

    def abort(self, snapshot: LogDirSnapshot, reason: str) -> bool:
        """Let brokers give up what is in flight; True once a snapshot shows nothing of it, and the execution has ended.

        A copy may end just before the request to give it up, which then asks for a copy back: that is given up, too.
        """
        self._aborts_for = reason
        if not self._answers.is_of_all(snapshot.now_ms):
            return False  # a request without an answer may have begun copies since its broker was asked last
        hidden = [replica for replica, state in snapshot.standing.items() if state is Progress.MISSING]
        places = cancellations(
            snapshot.plan, [*moving_within(snapshot.standing), *self._going_back(snapshot)], snapshot.log_dirs
        )
        left = self._requests.cancel(places, hidden)
        if (places or left) and self._requests.may_cancel:
            return False
        detail = f"{reason}; {counted(len(self._requests.cancelled), 'movement', 'movements')} in flight given up"
        self._clear_and_write(snapshot, Event.ABORTED, detail, left)
        return True

    def _clear_and_write(
        self, snapshot: LogDirSnapshot, event: Event, detail: str, left: Mapping[ReplicaKey, str] = NOTHING_LEFT
    ) -> None:
        """Remove the throttle, then write the event. Brokers that may go on with a copy keep their rate: the sweeper
        gives the copy up, and removes the rate then. `left` is what they have refused to give up, with their reasons.
        """
        going_on = {**may_go_on(self._ours(snapshot.plan, snapshot.live), snapshot.log_dirs), **left}
        if going_on:
            detail += f"; {may_go_on_text(going_on)}"
        remains = self._throttle.clear(snapshot.execution, keeping={broker for broker, _ in going_on})
        self.reports.write_cleared(snapshot, event, detail, remains)

    def _progress_figures(self, snapshot: LogDirSnapshot) -> Mapping[str, Any]:
        """How far the snapshot shows it to be."""
        return {
            "movements_done": sum(state is Progress.DONE for state in snapshot.standing.values()),
            "bytes_moved": bytes_within(snapshot.plan, snapshot.standing, snapshot.log_dirs),
            **self._seen.changes(
                snapshot.execution, (row.replica for row in snapshot.plan.log_dir_movements), snapshot.standing
            ),
        }


def _left(standing: Standing) -> list[ReplicaKey]:
    """What is not finished."""
    left = (Progress.PENDING, Progress.MOVING, Progress.MISSING)
    return [replica for replica, state in standing.items() if state in left]


def _moving(snapshot: LogDirSnapshot) -> list[ReplicaKey]:
    """What may be copying."""
    return [replica for replica, state in snapshot.standing.items() if state in (Progress.MOVING, Progress.MISSING)]


def _refusals_text(refused: Mapping[ReplicaKey, str]) -> str:
    return first_named(sorted(refused), NAMED_MAX, lambda replica: f"{replica_name(replica)} ({refused[replica]})")
