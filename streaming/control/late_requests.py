"""Checks for what arrives after the end of an execution: a request that a broker held back, and carried out once its
execution was over.

A check before a request can't prevent that: the request was right when it was sent. So control checks again some time
after each end, while nothing is under way. What belongs to the plan is cancelled, and named in an event.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from assignor_core.execution.accounting import NAMED_MAX, refusals_text
from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.progress import Progress, hidden_in_flight, progress_of
from assignor_core.execution.within_brokers import (
    Missed,
    cancellations,
    going_back,
    may_go_on,
    moving_within,
    standing_of,
)
from assignor_core.identity import another_cluster, topics_made_again, without_made_again, without_topics
from assignor_core.intervals import is_due
from assignor_core.live import LiveCluster, PartitionKey, ReplicaKey, partition_name, replica_name
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.throttles import is_tagged
from assignor_core.wording import counted, first_named
from streaming.cluster.ports import ControlledCluster
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.requests import LogDirRequests, Requests
from streaming.control.throttled_lists import ThrottleScope, throttle_scope
from streaming.errors import ClusterRequestFailed, ClusterUnreachable

CHECKS_AFTER_MS = (60_000, 300_000, 900_000)
"""How long after the end of an execution control checks again."""
UNANSWERED_AGAIN_MS = 60_000
"""Time between two tries of a check if a broker does not answer, ms: each may take as long as a request may."""
GIVEN_UP_AFTER_MS = CHECKS_AFTER_MS[-1] + 3_600_000
"""How long after the end such a check is given up: control must not ask a broker that hangs for ever."""
LATE_NAMED_MAX = 20
"""Partitions named in one event."""


@dataclass(slots=True)
class _Watched:
    """An execution that has ended, and how many of the checks after its end are over."""

    record: ExecutionRecord
    within: LogDirRequests
    """What was asked for within brokers since its end."""
    ended_ms: int
    """When the execution ended; no later than the clock shows, which may have been set back since."""
    checks: int = 0
    unanswered_ms: int | None = None
    """When a broker did not answer the check that is due."""
    on_steps: frozenset[PartitionKey] = frozenset()
    """Partitions that were named, as they lie on a step of their staged move."""
    taken_back: frozenset[PartitionKey] = frozenset()
    """Partitions that were named, as they lie where an earlier plan wanted them."""

    @property
    def due_ms(self) -> int:
        return self.ended_ms + CHECKS_AFTER_MS[self.checks]


class LateRequests:
    """Watches each execution for late requests from its end until the last check after it."""

    def __init__(
        self, cluster: ControlledCluster, journal: Journal, snapshot_age: SnapshotAge, *, staged: bool
    ) -> None:
        """`staged`: replicas are moved one at a time (control.staged_moves)."""
        self._cluster = cluster
        self._journal = journal
        self._snapshot_age = snapshot_age
        self._staged = staged
        self._watched: list[_Watched] = []

    def watch(self, record: ExecutionRecord, *, now_ms: int) -> None:
        """Checks again after the end of this execution, unless it is too long ago or nothing was ever asked for."""
        ended_ms = record.execution.ended_ms
        assert ended_ms is not None, "only what has ended is watched"
        if record.execution.started_ms is None or now_ms > ended_ms + CHECKS_AFTER_MS[-1]:
            return
        self._watched.append(_Watched(record, LogDirRequests(self._cluster, self._snapshot_age), ended_ms))

    def check_if_due(self, *, now_ms: int) -> None:
        """The checks that are due; to be called while no execution is under way."""
        for watched in self._watched:
            watched.ended_ms = min(watched.ended_ms, now_ms)
            if now_ms < watched.due_ms or not is_due(watched.unanswered_ms, UNANSWERED_AGAIN_MS, now_ms):
                continue
            watched.unanswered_ms = None if self._check_or_note(watched, now_ms) else now_ms
            if watched.unanswered_ms is None:
                # One check stands for all that were missed.
                watched.checks = sum(now_ms >= watched.ended_ms + after_ms for after_ms in CHECKS_AFTER_MS)
        self._watched = [row for row in self._watched if row.checks < len(CHECKS_AFTER_MS)]

    def _check_or_note(self, watched: _Watched, now_ms: int) -> bool:
        """Whether this check is over; else it is to be tried again. What Kafka refuses now, or one broker does not
        answer, will mostly be the same at the next tick: deciding and measuring must not wait.
        """
        execution_id = watched.record.execution.execution_id
        try:
            self._check(watched, now_ms)
        except ClusterRequestFailed as error:
            log.warning("late_look_refused", execution_id=execution_id, error=str(error))
        except ClusterUnreachable as error:
            if now_ms <= watched.ended_ms + GIVEN_UP_AFTER_MS:
                log.warning("late_look_unanswered", execution_id=execution_id, error=str(error))
                return False
            log.warning("late_look_given_up", execution_id=execution_id, error=str(error))
        return True

    def _check(self, watched: _Watched, now_ms: int) -> None:
        execution = watched.record.execution
        kept = self._journal.plan_of(execution)
        if kept is None:
            return
        self._snapshot_age.begin()
        live = self._cluster.describe()
        started_on = kept.kafka_cluster_id or execution.figures.kafka_cluster_id
        if another_cluster(started_on, live) is not None:
            return
        if kept.plan.within_brokers:
            plan = without_made_again(kept.plan, kept.topic_ids, live)
            parts = take_back(self._cluster, self._snapshot_age, execution, plan, watched.within)
        else:
            parts = self._taken_back_between(watched, kept, live)
        if parts:
            detail = f"late requests, carried out after the end: {'; '.join(parts)}"
            log.warning("late_requests", execution_id=execution.execution_id, detail=detail)
            self._journal.write_event(watched.record, Event.SWEPT, detail, now_ms=now_ms)

    def _taken_back_between(self, watched: _Watched, kept: KeptPlan, live: LiveCluster) -> list[str]:
        """Cancel what belongs to a plan of movements between brokers; returns what was done, in words."""
        live_now = without_topics(live, topics_made_again(kept.topic_ids, live))
        progress = progress_of(kept.plan, live_now, staged=self._staged)
        moving = self._moving(kept.plan, progress, live_now)
        parts = [*self._cancel(moving), *self._on_steps(watched, kept, progress, live_now)]
        parts += self._taken_back(watched, kept, progress, live_now)
        parts += self._clear(watched, kept, live.reassigning() - set(moving))
        return parts

    def _moving(self, plan: Plan, progress: Mapping[PartitionKey, Progress], live: LiveCluster) -> list[PartitionKey]:
        """Partitions on their way to exactly the replicas of the plan (or a staged step on the way to them)."""
        moving = (key for key, state in progress.items() if state is Progress.MOVING)
        shown = [key for key in moving if live.partitions[key].reassigning]
        return sorted(shown + hidden_in_flight(plan.movements, progress, live, staged=self._staged))

    def _on_steps(
        self, watched: _Watched, kept: KeptPlan, progress: Mapping[PartitionKey, Progress], live: LiveCluster
    ) -> list[str]:
        """Names partitions that lie on a step of their staged move though the execution is done, each once.

        A step that was carried out late, and has ended already, can't be cancelled: only a new plan takes it back.
        """
        if watched.record.execution.done_ms is None:
            return []
        pending = {row.key: row for row in kept.plan.movements if progress[row.key] is Progress.PENDING}
        steps = {key for key, row in pending.items() if live.partitions[key].replicas != row.old_replicas}
        new = sorted(steps - watched.on_steps)
        watched.on_steps |= steps
        if not new:
            return []
        return [f"partitions that lie on a step of their move: {_placed(new, live)}; a new plan takes them from there"]

    def _taken_back(
        self, watched: _Watched, kept: KeptPlan, progress: Mapping[PartitionKey, Progress], live: LiveCluster
    ) -> list[str]:
        """Names partitions that lie again where an earlier plan wanted them though all of this one was made, each once.

        A request of the earlier execution that changes only the order of replicas ends as soon as it is carried out.
        """
        execution = watched.record.execution
        was_made = (
            execution.done_ms is not None and execution.figures.movements_done == execution.figures.movements_total
        )
        left = {row.key for row in kept.plan.movements if progress[row.key] is Progress.PENDING} if was_made else set()
        index = self._watched.index(watched)
        if not left or not index:
            return []
        left -= {row.key for later in self._watched[index + 1 :] for row in self._movements(later)}
        earlier = {(row.key, row.new_replicas) for before in self._watched[:index] for row in self._movements(before)}
        moved_back = {key for key in left if (key, live.partitions[key].replicas) in earlier}
        new = sorted(moved_back - watched.taken_back)
        watched.taken_back |= moved_back
        if not new:
            return []
        return [f"partitions that lie where an earlier plan wanted them: {_placed(new, live)}"]

    def _movements(self, watched: _Watched) -> tuple[Movement, ...]:
        kept = self._journal.plan_of(watched.record.execution)
        return () if kept is None else kept.plan.movements

    def _cancel(self, moving: Collection[PartitionKey]) -> list[str]:
        if not moving:
            return []
        refused = Requests(self._cluster, self._snapshot_age).cancel(moving)
        cancelled = [partition_name(key) for key in moving if key not in refused]
        parts = [f"{counted(len(cancelled), 'move', 'moves')} cancelled, first {cancelled[0]}"] if cancelled else []
        return parts + ([f"Kafka refuses to cancel {refusals_text(refused)}"] if refused else [])

    def _clear(self, watched: _Watched, kept: KeptPlan, others: Collection[PartitionKey]) -> list[str]:
        """Remove a throttle that came late. Its entries name the plan's replicas; those of a partition that `others`
        move could be theirs. Its rates bear control's tag.
        """
        movements = tuple(row for row in kept.plan.movements if row.key not in others)
        scope = throttle_scope(replace(kept.plan, movements=movements))
        shown = self._cluster.throttle_rates(paid_back(watched.record.execution))
        brokers = sorted(broker for broker, rates in shown.items() if any(map(is_tagged, rates.values())))
        listed = self._listed(scope)
        if not listed and not brokers:
            return []
        self._cluster.clear_throttle(brokers, scope.leaders, scope.followers)
        return [f"throttle removed from {counted(len(listed), 'topic', 'topics')} and brokers {brokers}"]

    def _listed(self, scope: ThrottleScope) -> frozenset[str]:
        """Topics whose lists of throttled replicas name replicas of the plan."""
        topics = scope.leaders.keys() | scope.followers.keys()
        listed = set()
        for (topic, _), text in self._cluster.throttled_replicas(topics).items():
            pairs = scope.leaders.get(topic, frozenset()) | scope.followers.get(topic, frozenset())
            if {f"{partition}:{broker}" for partition, broker in pairs} & set(text.split(",")):
                listed.add(topic)
        return frozenset(listed)


def _placed(keys: Sequence[PartitionKey], live: LiveCluster) -> str:
    """Partitions with the replicas that they have now, for people; the first of many."""
    return first_named(
        keys, LATE_NAMED_MAX, lambda key: f"{partition_name(key)} on {list(live.partitions[key].replicas)}"
    )


CHECKS_MAX = 3
"""At log dirs, until one shows no copy that is to be given up."""


def take_back(
    cluster: ControlledCluster, snapshot_age: SnapshotAge, execution: Execution, plan: Plan, requests: LogDirRequests
) -> list[str]:
    """Let brokers give up the copies of an execution that has ended, and remove its rates; a broker that copies keeps
    its rate until the next check. Returns what was done, in words. `requests` are those of all checks after this
    execution.
    """
    copying, _ = give_up(cluster, snapshot_age, plan, requests)
    done = []
    if copying:
        given_up = sorted(requests.cancelled & copying)
        done.append(
            f"{counted(len(given_up), 'movement', 'movements')} given up: "
            f"{first_named(given_up, NAMED_MAX, replica_name)}"
        )
    ours = paid_back(execution)
    rates = cluster.log_dir_rates(ours) if ours else {}
    late = sorted({row for row, rate in rates.items() if is_tagged(rate)} - {broker for broker, _ in copying})
    if late:
        cluster.clear_log_dir_rates(late)
        done.append(f"rate removed from brokers {late}")
    return done


def paid_back(execution: Execution) -> frozenset[int]:
    """Brokers that had the throttle of an execution and owe nothing of it any more."""
    events = (event.figures.throttled_brokers or () for event in execution.events)
    return frozenset(broker for brokers in events for broker in brokers) - set(execution.throttled_brokers)


def give_up(
    cluster: ControlledCluster, snapshot_age: SnapshotAge, plan: Plan, requests: LogDirRequests
) -> tuple[frozenset[ReplicaKey], dict[ReplicaKey, str]]:
    """Let brokers give up the copies of a plan whose execution has ended. Returns what was being copied, and what may
    go on all the same, with the reason.

    A copy may end just before the request to give it up, which then asks for a copy back: the next check shows that,
    and it is given up, too.
    """
    copying: frozenset[ReplicaKey] = frozenset()
    for _ in range(CHECKS_MAX):
        snapshot_age.begin()
        log_dirs = cluster.log_dirs(plan.brokers, [row.key for row in plan.log_dir_movements])
        back = [replica for replica in going_back(plan, log_dirs) if replica in requests.asked_to_stay]
        places = cancellations(plan, [*moving_within(standing_of(plan, log_dirs, Missed())), *back], log_dirs)
        if not places:
            return copying, may_go_on(plan, log_dirs)
        copying |= places.keys()
        refused = requests.cancel(places, ())
    return copying, may_go_on(plan, log_dirs) | dict.fromkeys(places, "not shown as given up") | dict(refused)


log = structlog.get_logger()
