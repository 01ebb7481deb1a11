"""The control loop: at each tick go on with what is under way, else measure what is done, else decide.

A request that fails is logged and tried again at the next tick; the loop ends on a signal only.
"""

import threading
from collections.abc import Callable, Mapping
from functools import partial

import structlog

from assignor_core.deciding.gates import DELETED_AFTER_MS
from assignor_core.intervals import is_due
from assignor_core.plan import Plan
from streaming.cluster.clients import admin_client
from streaming.cluster.permissions import check_may_execute
from streaming.cluster.ports import ClusterReader, ControlledCluster
from streaming.cluster.topics import min_in_sync
from streaming.control.automatic import AutomaticPlans
from streaming.control.carrier import RETRIED_ERRORS, Carrier
from streaming.control.cluster_marker import ClusterMarker
from streaming.control.cluster_snapshot import SnapshotAge
from streaming.control.cordons import Cordons
from streaming.control.identity import cluster_of, lease_of, leased_cluster
from streaming.control.journal import ExecutionRecord, TimesAhead
from streaming.control.late_requests import LateRequests
from streaming.control.lease import Lease
from streaming.control.measuring import measured_levels, measured_skew
from streaming.control.policies import EXECUTING_INTERVAL_MS
from streaming.control.restarts import InSyncMin, RestartReports
from streaming.control.sweeping import StrayRates, Sweeper
from streaming.control.upkeep import Upkeep
from streaming.control.windows import ClosedWindows
from streaming.control.wiring import absences_of, decider_of, executors_of, journal_of, window_tables_of
from streaming.errors import ClusterRequestFailed, LeaseLost
from streaming.runtime import clocks
from streaming.runtime.cluster_threads import ClusterThreads
from streaming.runtime.own_process import stopped_by_signals
from streaming.settings import Settings
from streaming.settings.changes import AdjustBy
from streaming.tables import TableReader
from streaming.tables.conditional_puts import check_conditional_put
from streaming.views.broker_windows import capacities_of
from streaming.views.intents import Intent, brokers_by_intent

log = structlog.get_logger()

STAND_BY_INTERVAL_MS = 2_000
MEASURE_PATIENCE_WINDOWS = 20
"""Only windows that began so soon after the end of a plan show its result. Where too few have closed by then, it stays
unmeasured. Twice `control.settle_windows` if that is more.
"""
MEASURE_LEVELS_PATIENCE_MS = 3_600_000
"""How long after a plan within brokers has ended control tries to measure how full the log dirs are, ms. After that the
plan stays unmeasured.
"""
ENDED_READ_INTERVAL_MS = 600_000
"""Time between two searches for what others have left, ms: executions that another process has ended, such as a former
holder of the lease, and throttle rates of ours that no execution accounts for.
"""


def run_control(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises UsageProblem in mode `apply` without the right to,
    RefusedForSafety on an object store that could give the lease to two.
    """
    return _control(settings, stopped_by_signals())


def run_controls(clusters: Mapping[str, Settings], adjust_by: AdjustBy) -> int:
    """Run for several clusters until SIGTERM or SIGINT, each in a thread with a client, a lease, a journal and a marker
    of its own. What ends the control of one cluster is logged, and that cluster is tried again after a pause.
    """
    threads = ClusterThreads("control", clusters, _control, stopped_by_signals())
    adjust_by(threads.adjust)
    return threads.run()


def _control(settings: Settings, stopping: threading.Event) -> int:
    check_conditional_put(settings.storage.tables)
    admin = admin_client(settings.kafka)
    try:
        if settings.control.mode == "apply":
            check_may_execute(admin)
        lease = lease_of(admin, settings)
        with lease.kept():
            shown = cluster_of(admin, settings, logs=True)
            check_rights, in_sync_min = partial(check_may_execute, admin), partial(min_in_sync, admin)
            turns = ControlTurns(
                leased_cluster(admin, lease), lease, settings, shown=shown, check_rights=check_rights,
                in_sync_min=in_sync_min,
            )  # fmt: skip
            while not stopping.is_set():
                stopping.wait(turns.take(now_ms=clocks.now_ms()) / 1000)
    finally:
        admin.close()
    log.info("control_stopped")
    return 0


class ControlTurns:
    """Ticks while the lease is ours; else stands by. A loop that lost it is thrown away: the journal is its memory."""

    def __init__(
        self,
        cluster: ControlledCluster,
        lease: Lease,
        settings: Settings,
        *,
        shown: ClusterReader | None = None,
        check_rights: Callable[[], None] | None = None,
        in_sync_min: InSyncMin | None = None,
    ) -> None:
        self._begin = partial(
            ControlLoop, cluster, settings, lease=lease, shown=shown, check_rights=check_rights,
            in_sync_min=in_sync_min,
        )  # fmt: skip
        self._lease = lease
        self._settings = settings
        self._loop: ControlLoop | None = None
        self._standing_by = False

    def take(self, *, now_ms: int) -> int:
        """One turn; returns the time until the next one is due, ms."""
        self._lease.progress()
        try:
            return self._turn(now_ms)
        except LeaseLost as error:
            log.error("lease_lost", reason=str(error))
            self._loop = None
            return STAND_BY_INTERVAL_MS
        except RETRIED_ERRORS as error:
            log.warning("tick_failed", error=str(error))
            return self._settings.control.tick_interval_ms

    def _turn(self, now_ms: int) -> int:
        control, cluster_name = self._settings.control, self._settings.kafka.cluster_name
        if not self._lease.held:
            self._loop = None
        if self._loop is not None:
            busy = self._loop.tick(now_ms=now_ms)
            return EXECUTING_INTERVAL_MS if busy else control.tick_interval_ms
        if self._lease.held or self._lease.try_acquire():
            self._loop = self._begin(now_ms=now_ms)
            log.info("control_started", mode=control.mode, kafka_cluster=cluster_name)
            self._standing_by = False
            return 0
        if not self._standing_by:
            log.info("standing_by", kafka_cluster=cluster_name, reason="another control holds the lease")
            self._standing_by = True
        return STAND_BY_INTERVAL_MS


class ControlLoop:
    """What one tick does; everything it must not forget is in the journal."""

    def __init__(
        self,
        cluster: ControlledCluster,
        settings: Settings,
        *,
        now_ms: int,
        lease: Lease | None = None,
        shown: ClusterReader | None = None,
        check_rights: Callable[[], None] | None = None,
        in_sync_min: InSyncMin | None = None,
    ) -> None:
        """With the `lease`, its marker stands on the cluster while an execution is under way. Decisions and plans rest
        on `shown`, the same cluster with what may be seen of it; None: all may be.
        """
        self._cluster = cluster
        self._settings = settings
        self._window_tables = window_tables_of(settings)
        self._journal = journal_of(settings)
        self._journal.make_tables()
        self._windows = ClosedWindows(self._window_tables)
        absences = absences_of(settings)
        self._automatic = AutomaticPlans(self._journal, settings.control)
        self._decider = decider_of(shown or cluster, self._journal, settings, absences)
        snapshot_age = SnapshotAge() if lease is None else lease.snapshot_age
        self._sweeper = Sweeper(cluster, self._journal, snapshot_age)
        self._stray_rates = StrayRates(cluster, None if lease is None else lease.lease_id)
        self._late_requests = LateRequests(cluster, self._journal, snapshot_age, staged=settings.control.staged_moves)
        marker = None if lease is None else ClusterMarker(cluster, lease)
        executors = executors_of(cluster, self._journal, settings, snapshot_age, absences)
        self._carrier = Carrier(executors, self._journal, marker, check_rights)
        self._shown = shown or cluster
        root, name = settings.storage.tables, settings.kafka.cluster_name
        self._restarts = None if in_sync_min is None else RestartReports(in_sync_min, root, name)
        self._cordons = Cordons(cluster, root, name)
        self._executing = False
        self._ahead = TimesAhead()
        self._unmeasured: ExecutionRecord | None = None
        self._owing: list[ExecutionRecord] = []
        self._ended: set[str] = set()
        """Ids of executions whose end is noted."""
        self._read_ended(now_ms)
        interval_ms = settings.pipeline.maintenance_interval_ms
        self._upkeep = Upkeep(root, name, settings.control, interval_ms=interval_ms, now_ms=now_ms)

    def tick(self, *, now_ms: int) -> bool:
        """One bounded step; True while an execution is under way that does not wait for its time."""
        # First: Kafka refuses a plan that fills a broker as long as that broker is cordoned.
        self._cordons.settle(now_ms=now_ms, executing=self._executing)
        if self._restarts is not None:
            self._restarts.read_if_due(self._shown, now_ms=now_ms)
        active = self._carrier.tick(now_ms=now_ms)
        self._executing = active is not None and active.execution.under_way
        if active is not None:
            if active.execution.ended:
                self._note_end(active, now_ms)
            return active.execution.under_way or active.execution.waiting  # its marker has been announced
        if is_due(self._read_ms, ENDED_READ_INTERVAL_MS, now_ms):
            self._read_ended(now_ms)
            self._stray_rates.remove(record.execution for record in self._owing)
        # Not before: a rate that an ended execution has left on a broker throttles the one under way, too.
        self._owing = [record for record in self._owing if not self._sweeper.sweep(record, now_ms=now_ms)]
        self._late_requests.check_if_due(now_ms=now_ms)
        if self._unmeasured is not None:
            self._measure(self._unmeasured, now_ms=now_ms)
        self._upkeep.run_if_due(now_ms=now_ms)
        if not self._automatic.are_due:
            self._automatic.decided(self._decider.tick(now_ms=now_ms), now_ms=now_ms)
            if self._restarts is not None and self._decider.live is not None:
                self._restarts.note(self._decider.live, now_ms=now_ms)
        return self._automatic.approve(now_ms=now_ms)

    def _read_ended(self, now_ms: int) -> None:
        """What other processes have left: a result not measured, throttles. The carrier takes up what is open."""
        self._read_ms = now_ms
        for execution in self._journal.executions(now_ms=now_ms):
            if execution.ended and execution.execution_id not in self._ended:
                self._note_end(ExecutionRecord(execution), now_ms)

    def _note_end(self, record: ExecutionRecord, now_ms: int) -> None:
        self._ended.add(record.execution.execution_id)
        self._late_requests.watch(record, now_ms=now_ms)
        self._owing += [record] if record.execution.owes else []
        if record.execution.started_ms is not None:
            self._unmeasured = record if record.execution.to_be_measured else None

    def _measure(self, record: ExecutionRecord, *, now_ms: int) -> None:
        """Once enough windows have closed after the end, write down what the brokers really carry."""
        assert record.execution.ended_ms is not None
        ended_ms = self._ahead.at_most_now(record.execution.ended_ms, now_ms)
        # One that promised nothing about skew may have moved replicas within brokers.
        kept = None if record.execution.figures.predicted else self._journal.plan_of(record.execution)
        if kept is not None and kept.plan.within_brokers:
            self._measure_levels(record, kept.plan, ended_ms, now_ms)
            return
        wanted = self._settings.control.settle_windows
        patience_ms = max(MEASURE_PATIENCE_WINDOWS, 2 * wanted) * self._settings.pipeline.window_ms
        closed = self._windows.newest(now_ms=now_ms)
        windows = tuple(window for window in closed if 0 <= window.start_ms - ended_ms <= patience_ms)[:wanted]
        if len(windows) < wanted:
            if now_ms - ended_ms > patience_ms:
                self._leave_unmeasured(record)
            return
        by_intent = brokers_by_intent(TableReader(self._window_tables.root), self._window_tables.kafka_cluster)
        left_out = by_intent[Intent.DRAIN] | by_intent[Intent.DEMOTE]
        skew = measured_skew(windows, self._cluster.describe(), capacities_of(self._settings.planner), left_out)
        self._journal.write_measured(record, skew, now_ms=now_ms)
        log.info("measured", execution_id=record.execution.execution_id, detail=record.execution.last.detail)
        self._unmeasured = None

    def _measure_levels(self, record: ExecutionRecord, plan: Plan, ended_ms: int, now_ms: int) -> None:
        """Measures how full the log dirs are after a plan within brokers, once Kafka has deleted what left them."""
        if now_ms - ended_ms > MEASURE_LEVELS_PATIENCE_MS:
            self._leave_unmeasured(record)
        elif now_ms - ended_ms >= DELETED_AFTER_MS:
            try:
                levels = measured_levels(self._cluster, plan)
            except ClusterRequestFailed as error:  # a refusal comes again at each tick: deciding must not wait for it
                self._leave_unmeasured(record, error=str(error))
                return
            self._journal.write_measured_levels(record, levels, now_ms=now_ms)
            self._unmeasured = None

    def _leave_unmeasured(self, record: ExecutionRecord, **why: str) -> None:
        log.warning("result_not_measured", execution_id=record.execution.execution_id, **why)
        self._unmeasured = None
