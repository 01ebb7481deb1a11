"""Removes what brokers kept of the throttle of an execution that has ended: they were down at its end, or refused, or
may go on with a copy between their log dirs that nobody could give up. That copy is given up before.

An execution may be gone from the tables, because they were rolled back while it was under way. Its rates bear control's
tag all the same, and `StrayRates` removes them.
"""

from collections.abc import Collection, Iterable, Mapping, Set

import structlog

from assignor_core.execution.accounting import NAMED_MAX
from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.identity import another_cluster, without_made_again
from assignor_core.intervals import is_due
from assignor_core.live import ReplicaKey, replica_name
from assignor_core.plan import Plan
from assignor_core.proposed_plan import KeptPlan
from assignor_core.throttles import is_tagged
from assignor_core.wording import counted, first_named
from streaming.cluster.ports import ControlledCluster
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.late_requests import give_up
from streaming.control.requests import LogDirRequests
from streaming.errors import AnotherControl, ClusterRequestFailed, ClusterUnreachable

log = structlog.get_logger()

READ_INTERVAL_MS = 30_000
"""Time between two reads of brokers that owe: a read describes the whole cluster, and a broker may be away for days."""
COPY_READ_INTERVAL_MS = 5_000
"""Time between two reads of brokers that owe if a copy may still run, ms: a log dir that fills goes offline with all
that it holds. Such a read requests the plan's replicas only.
"""
REFUSED_AGAIN_MS = 600_000
"""How long a broker that refuses is left alone."""


class StrayRates:
    """Removes rates that bear control's tag and that no execution in the tables accounts for."""

    def __init__(self, cluster: ControlledCluster, lease_id: str | None) -> None:
        """Only on a cluster that bears a marker of the lease `lease_id`: these tables have changed it before. While
        another rebalancer changes the cluster, the lease of `cluster` allows no change.
        """
        self._cluster = cluster
        self._lease_id = lease_id

    def remove(self, owing: Iterable[Execution]) -> None:
        """Remove them while nothing is under way; brokers of executions that are `owing` are the sweeper's. A broker
        that takes part in a copy keeps its rate, as the copy may be ours: a later call removes that rate.
        """
        try:
            if any(marker.lease_id == self._lease_id for marker in self._cluster.markers()):
                self._remove({broker for execution in owing for broker in execution.throttled_brokers})
        except (ClusterRequestFailed, ClusterUnreachable, AnotherControl) as error:
            log.warning("stray_rates_left", error=str(error))

    def _remove(self, owed: Set[int]) -> None:
        between, within = tagged_brokers(self._cluster.throttle_rates(), self._cluster.log_dir_rates())
        if between := between - owed:
            live = self._cluster.describe()
            moving = {row for key in live.reassigning() for row in live.partitions[key].replicas}
            if not live.reassignments_hidden and (at_rest := sorted(between - moving)):
                self._cluster.clear_throttle(at_rest, {}, {})
                log.warning("stray_rates_removed", brokers=at_rest)
        if within := within - owed:
            shown = self._cluster.log_dirs(within)
            at_rest = sorted(row for row in within & shown.keys() if not any(one.future_replicas for one in shown[row]))
            if at_rest:
                self._cluster.clear_log_dir_rates(at_rest)
                log.warning("stray_rates_removed", brokers=at_rest, within=True)


def tagged_brokers(
    between: Mapping[int, Mapping[str, int]], within: Mapping[int, int]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return the brokers with a rate that bears control's tag: of the replication throttle, and of their log dirs."""
    replicating = frozenset(row for row, rates in between.items() if any(map(is_tagged, rates.values())))
    return replicating, frozenset(row for row, rate in within.items() if is_tagged(rate))


class Sweeper:
    """Sweeps while nothing is under way: a rate that is removed could be that of another execution."""

    def __init__(self, cluster: ControlledCluster, journal: Journal, snapshot_age: SnapshotAge | None = None) -> None:
        self._cluster = cluster
        self._journal = journal
        self._snapshot_age = snapshot_age or SnapshotAge()
        self._read_lately: dict[str, tuple[int, int]] = {}
        """By execution that owes: when its brokers were read, and how long they are left alone since, ms."""
        self._requests: dict[str, LogDirRequests] = {}
        """By execution that owes: what was requested within brokers since the execution's end."""

    def sweep(self, record: ExecutionRecord, *, now_ms: int) -> bool:
        """Remove the rates that brokers owe; True once nothing is left."""
        execution = record.execution
        read_ms, pause_ms = self._read_lately.get(execution.execution_id, (None, 0))
        if not is_due(read_ms, pause_ms, now_ms):
            return False
        try:
            return self._sweep(record, now_ms)
        except ClusterUnreachable as error:
            # One broker may be alive and answer nobody for hours: deciding and measuring must not wait for it.
            log.warning("sweep_unanswered", execution_id=execution.execution_id, error=str(error))
            self._read_lately[execution.execution_id] = now_ms, READ_INTERVAL_MS
            return False

    def _sweep(self, record: ExecutionRecord, now_ms: int) -> bool:
        """Removes the rates that brokers owe, at once; True once nothing is left."""
        execution = record.execution
        kept = self._journal.plan_of(execution)
        plan = kept.plan if kept is not None and kept.plan.within_brokers else None
        live = self._cluster.describe(topics=() if plan is None else plan.topics)
        other = another_cluster(kept.kafka_cluster_id if kept else None, live)
        if other is not None:
            log.warning("sweep_held", execution_id=execution.execution_id, reason=other)
            self._read_lately[execution.execution_id] = now_ms, READ_INTERVAL_MS
            return False
        owed = execution.throttled_brokers
        given_up: list[ReplicaKey] = []
        going_on: dict[ReplicaKey, str] = {}
        if kept is not None and plan is not None:
            own = without_made_again(plan, kept.topic_ids, live)
            given_up, going_on = self._give_up(execution.execution_id, own)
        copying = {broker for broker, _ in going_on} & {*owed}
        try:
            cleared = [row for row in owed if row not in copying]
            left = tuple(sorted({*self._clear(cleared, kept, untagged=not execution.tags_rates), *copying}))
        except ClusterRequestFailed as error:
            log.warning("sweep_refused", execution_id=execution.execution_id, brokers=owed, error=str(error))
            self._read_lately[execution.execution_id] = now_ms, REFUSED_AGAIN_MS
            return False
        if left != owed or given_up:
            detail = f"throttle of brokers {sorted(set(owed) - set(left))} removed after the end"
            if given_up:
                made = counted(len(given_up), "movement", "movements")
                detail += f"; {made} given up: {first_named(given_up, NAMED_MAX, replica_name)}"
            self._journal.write_event(record, Event.SWEPT, detail, now_ms=now_ms, throttled_brokers=left)
        if left:
            self._read_lately[execution.execution_id] = now_ms, COPY_READ_INTERVAL_MS if copying else READ_INTERVAL_MS
            return False
        self._read_lately.pop(execution.execution_id, None)
        self._requests.pop(execution.execution_id, None)
        return True

    def _give_up(self, execution_id: str, plan: Plan) -> tuple[list[ReplicaKey], dict[ReplicaKey, str]]:
        """Let brokers give up copies of an execution that has ended. Returns those, and what may go on all the same."""
        requests = self._requests.setdefault(execution_id, LogDirRequests(self._cluster, self._snapshot_age))
        before = requests.cancelled
        copying, going_on = give_up(self._cluster, self._snapshot_age, plan, requests)
        return sorted((requests.cancelled - before) & copying), going_on

    def _clear(self, brokers: Collection[int], kept: KeptPlan | None, *, untagged: bool) -> set[int]:
        """Remove rates of the plan's kind, or of both where the plan is gone; returns the brokers that keep them.
        What somebody else has set is no longer owed.
        """
        left: set[int] = set()
        if brokers and (kept is None or kept.plan.within_brokers):
            left |= {*self._cluster.clear_log_dir_rates(brokers, untagged=untagged)}
        if brokers and (kept is None or not kept.plan.within_brokers):
            left |= {*self._cluster.clear_throttle(brokers, {}, {}, untagged=untagged)}
        return left
