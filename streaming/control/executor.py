"""Carrying out one plan: one bounded step per tick, told from the cluster, recorded in the journal.

Order that makes it safe to kill anywhere: the journal names the throttled brokers before a throttle is set; throttles
are cleared before the journal says done, or paused. The next start finds the open execution and goes on, or clears up.
Nothing is submitted before this process has set the throttle. Only partitions of the plan are ever reassigned, elected
or cancelled.
"""

from typing import Any

import structlog

from assignor_core.execution.reconcile import (
    Abort,
    Done,
    ElectLeaders,
    Progress,
    Step,
    Submit,
    Wait,
    next_step,
    progress_of,
)
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Plan
from streaming.cluster.ports import ControlledCluster
from streaming.control.journal import Journal
from streaming.control.latency import LatencyPressure
from streaming.control.policies import limits, may_act, next_opening
from streaming.control.pressure import LagPressure
from streaming.control.records import PAUSED, RESUMED, SWEPT, ExecutionRecord, PlanRecord
from streaming.control.throttle import AdaptiveRates, throttle_scope
from streaming.errors import ClusterRequestFailed
from streaming.settings import Settings

log = structlog.get_logger()

PROGRESS_INTERVAL_MS = 10_000
ABORT_CONFIRMATIONS = 3
"""A broker's metadata may be a moment behind the controller's: an alarming look must be repeated this often."""
LIFE_MAX_MS = 14 * 86_400_000
"""An execution, its pauses included, gives up after this: the load it was planned for is history by then."""


class Executor:
    """Carries out one execution; `tick` until it says that it has ended."""

    def __init__(self, cluster: ControlledCluster, journal: Journal, settings: Settings) -> None:
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._lag = LagPressure(settings)
        self._latency = LatencyPressure(settings)
        self._rates = AdaptiveRates(settings)
        self._abort_looks = 0
        self._throttled = False
        self._last_progress_ms = 0

    def begin(self, record: ExecutionRecord, approved: PlanRecord, *, now_ms: int) -> bool:
        """Check the approved plan against the live cluster and start it; False where it was refused."""
        if now_ms > approved.expires_ms:
            age_s = (now_ms - approved.created_ms) / 1000
            return self._refuse(record, f"plan {record.plan_id[:12]} is {age_s:.0f} s old and has expired", now_ms)
        live = self._cluster.describe()
        problem = _misfit(approved, live)
        if problem:
            return self._refuse(record, problem, now_ms)
        self.resume()
        self._journal.write_event(
            record,
            "started",
            f"plan {approved.plan.plan_id[:12]} with {len(approved.plan.movements)} movements",
            now_ms=now_ms,
            throttle_bytes_per_sec=self._settings.control.throttle_bytes_per_sec,
            throttled_brokers=self._brokers_to_throttle(record, approved.plan, live),
            produce_p99_ms_before=self._latency.highest_ms(),
        )
        return True

    def _refuse(self, record: ExecutionRecord, problem: str, now_ms: int) -> bool:
        self._journal.write_event(record, "refused", problem, now_ms=now_ms)
        log.warning("plan_refused", plan_id=record.plan_id[:12], reason=problem)
        return False

    def resume(self) -> None:
        """From now on `tick` is for another execution: nothing is known of it, not even whether it is throttled."""
        self._abort_looks = 0
        self._throttled = False

    def tick(self, record: ExecutionRecord, plan: Plan, *, now_ms: int) -> bool:
        """Take the one next step; True once the execution has ended and nothing of it is left on the cluster."""
        closed = self._closed(record, now_ms)
        given_up = record.abort_requested or now_ms - record.started_ms > LIFE_MAX_MS
        if record.paused and closed is not None and not given_up:
            return False
        live = self._cluster.describe()
        if given_up:
            reason = "a person asked to stop" if record.abort_requested else "not finished 14 days after the start"
            return self._abort(record, plan, live, reason, now_ms)
        if record.paused:
            self._go_on(record, plan, live, now_ms)
            return False
        pressure = self._pressure(record, now_ms)
        held_back = closed or (f"held back: {pressure}" if pressure else None)
        worked_ms = record.worked_ms(now_ms)
        step = next_step(plan, live, limits(self._settings), worked_ms=worked_ms, held_back=held_back)
        self._abort_looks = self._abort_looks + 1 if isinstance(step, Abort) else 0
        if closed is not None and isinstance(step, Wait) and not _moving(plan, live):
            self._pause(record, plan, live, step.reason, now_ms)
            return False
        if not isinstance(step, Abort | Done):  # those must not wait for a throttle that can't be set
            self._throttle(record, plan, pressed=pressure is not None, now_ms=now_ms)
        return self._take(step, record, plan, live, now_ms)

    def _take(self, step: Step, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> bool:
        """Carry out one step and write it down; True once the execution has ended."""
        match step:
            case Submit(reassignments):
                self._cluster.reassign(dict(reassignments))
                self._record(record, plan, live, "submitted", f"{len(reassignments)} reassignments", now_ms)
            case ElectLeaders(partitions):
                self._record(
                    record, plan, live, "electing", f"preferred leaders of {len(partitions)} partitions", now_ms
                )
                self._cluster.elect_preferred(partitions)
            case Wait(reason):
                if now_ms - self._last_progress_ms >= PROGRESS_INTERVAL_MS:
                    self._record(record, plan, live, "progress", f"{reason}{_remaining(record, now_ms)}", now_ms)
            case Abort(reason, _):
                return self._abort_looks >= ABORT_CONFIRMATIONS and self._abort(record, plan, live, reason, now_ms)
            case Done():
                left = self._clear_throttle(record, plan)
                self._record(record, plan, live, "done", _made(plan, live), now_ms, throttled_brokers=left)
                return True
        return False

    def _closed(self, record: ExecutionRecord, now_ms: int) -> str | None:
        """Why the hour forbids anything new, or None. A person who applies a plan decides on the hour himself."""
        if not record.in_windows_only or may_act(self._settings, now_ms):
            return None
        return f"no maintenance window is open: waits for {next_opening(self._settings, now_ms)}"

    def _pressure(self, record: ExecutionRecord, now_ms: int) -> str | None:
        """Why clients suffer, against how they fared when it began or went on; None if they don't."""
        before_ms = record.events[-1].get("produce_p99_ms_before")
        lag = self._lag.reason(started_ms=record.since_ms, now_ms=now_ms)
        return lag or self._latency.reason(before_ms, now_ms=now_ms)

    def _pause(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, reason: str, now_ms: int) -> None:
        """Wait without leaving anything on the cluster: a throttle would slow replicas that come back meanwhile."""
        left = self._clear_throttle(record, plan)
        self._record(record, plan, live, PAUSED, reason, now_ms, throttled_brokers=left)

    def _go_on(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, now_ms: int) -> None:
        columns = {
            "throttled_brokers": self._brokers_to_throttle(record, plan, live),
            "produce_p99_ms_before": self._latency.highest_ms(),
        }
        self._record(record, plan, live, RESUMED, "its time has come", now_ms, **columns)

    def sweep(self, record: ExecutionRecord, *, now_ms: int) -> bool:
        """Take away what brokers that were down kept of an ended execution's throttle; True once nothing is left."""
        owed = record.events[-1]["throttled_brokers"]
        left = self._cluster.clear_throttle(owed, {}, {})
        if left != owed:
            detail = f"throttle of brokers {sorted(set(owed) - set(left))} taken away, which were down at the end"
            self._journal.write_event(record, SWEPT, detail, now_ms=now_ms, throttled_brokers=left)
        return not left

    def _clear_throttle(self, record: ExecutionRecord, plan: Plan) -> list[int]:
        """Take away the throttle that the journal names as ours; safe to repeat. Brokers that are down keep theirs."""
        self._throttled = False  # before, so that what fails half-way is set anew where the execution goes on
        scope = throttle_scope(plan)
        return self._cluster.clear_throttle(
            record.events[-1]["throttled_brokers"] or (), scope.leaders, scope.followers
        )

    def _brokers_to_throttle(self, record: ExecutionRecord, plan: Plan, live: LiveCluster) -> list[int]:
        """A rate that somebody else has set is respected and not ours to remove; a broker that is gone takes none."""
        owed = set(record.events[-1].get("throttled_brokers") or ())
        foreign = self._cluster.throttle_rates().keys() - owed
        return sorted(((throttle_scope(plan).brokers & live.broker_racks.keys()) - foreign) | owed)

    def _throttle(self, record: ExecutionRecord, plan: Plan, *, pressed: bool, now_ms: int) -> None:
        """Set the throttle where this process hasn't yet, and adapt it from then on."""
        ours = frozenset(record.events[-1]["throttled_brokers"] or ())
        if not self._throttled:
            scope = throttle_scope(plan)
            self._cluster.set_throttled_replicas(scope.leaders, scope.followers)
            self._set_rates(self._rates.initial(ours, now_ms=now_ms))
            self._throttled = True
        elif rates := self._rates.changed(ours, pressed=pressed, now_ms=now_ms):
            self._set_rates(rates)
            log.info("throttle_adapted", plan_id=plan.plan_id[:12], rates=rates)

    def _set_rates(self, rates: dict[int, int]) -> None:
        self._cluster.set_throttle_rates(rates)
        self._rates.sent(rates)

    def _abort(self, record: ExecutionRecord, plan: Plan, live: LiveCluster, reason: str, now_ms: int) -> bool:
        moving = _moving(plan, live)
        if moving:
            try:
                self._cluster.reassign(dict.fromkeys(moving))
            except ClusterRequestFailed as error:
                log.warning("cancel_refused", execution_id=record.execution_id, error=str(error))
                return False
        left = self._clear_throttle(record, plan)
        detail = f"{reason}; {len(moving)} moves in flight cancelled"
        self._record(record, plan, live, "aborted", detail, now_ms, throttled_brokers=left)
        return True

    def _record(
        self,
        record: ExecutionRecord,
        plan: Plan,
        live: LiveCluster,
        event: str,
        detail: str,
        now_ms: int,
        **columns: Any,
    ) -> None:
        progress = progress_of(plan, live)
        figures = {
            **columns,
            "movements_done": sum(state in (Progress.DONE, Progress.PLACED) for state in progress.values()),
            "bytes_moved": self._bytes_moved(plan, progress),
        }
        self._last_progress_ms = now_ms
        self._journal.write_event(record, event, detail, now_ms=now_ms, **figures)
        log.info(
            "execution", execution_id=record.execution_id, plan_id=plan.plan_id[:12], event_name=event, detail=detail
        )

    def _bytes_moved(self, plan: Plan, progress: dict[tuple[str, int], Progress]) -> int:
        """Bytes of finished movements, and what the replicas under way hold so far."""
        moving = any(state is Progress.MOVING for state in progress.values())
        copying = moving or self._settings.control.staged_moves
        sizes = self._cluster.replica_sizes() if copying else {}
        total = 0
        for movement in plan.movements:
            key = (movement.topic, movement.partition)
            if progress[key] in (Progress.DONE, Progress.PLACED):
                total += round(movement.bytes_to_move)
            elif progress[key] in (Progress.MOVING, Progress.PENDING):
                receiving = set(movement.new_replicas) - set(movement.old_replicas)
                held = sum(sizes.get((broker, key), 0) for broker in receiving)
                total += min(round(movement.bytes_to_move), held)
        return total


def _misfit(approved: PlanRecord, live: LiveCluster) -> str | None:
    """What of the live cluster speaks against carrying out this plan; None if nothing does."""
    found = approved.misfits(live)
    if found:
        return f"the cluster has changed since the plan was made: {'; '.join(found[:5])}"
    ours = {(movement.topic, movement.partition) for movement in approved.plan.movements}
    foreign = sorted(live.reassigning() - ours)
    if foreign:
        return f"{len(foreign)} other partitions are being reassigned, first {foreign[0][0]}-{foreign[0][1]}"
    return None


def _moving(plan: Plan, live: LiveCluster) -> list[PartitionKey]:
    return [key for key, state in progress_of(plan, live).items() if state is Progress.MOVING]


def _made(plan: Plan, live: LiveCluster) -> str:
    """What was made of the plan in the end."""
    gone = sum(state is Progress.GONE for state in progress_of(plan, live).values())
    made = len(plan.movements) - gone
    return f"{made} movements made, {gone} partitions are gone" if gone else "every movement has been made"


def _remaining(record: ExecutionRecord, now_ms: int) -> str:
    """How much has been copied and about how long the rest takes at the pace so far; empty before anything has."""
    last = record.events[-1]
    moved, total = last["bytes_moved"], last["bytes_total"]
    elapsed_ms = record.worked_ms(now_ms)
    if not moved or not total or elapsed_ms <= 0:
        return ""
    left_s = max(0, total - moved) * elapsed_ms / moved / 1000
    return f"; {moved / total:.0%} of {total:,} bytes, about {left_s:,.0f} s left"
