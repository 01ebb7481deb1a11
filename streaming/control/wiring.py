"""Settings turned into the parts of control: the one place that knows which part needs which of them.

For the loop and for the commands that do its work. Makes parts, does nothing with them.
"""

from functools import partial

from assignor_core.execution.adaptive_rates import RatePolicy
from assignor_core.execution.caution import LagBound, LatencyBound
from streaming.cluster.ports import ClusterReader, ControlledCluster
from streaming.control.absences import Absences
from streaming.control.cluster_snapshot import ExecutionSnapshot, SnapshotAge
from streaming.control.deciding import Decider
from streaming.control.disk_room import DiskAnswers, DiskRoom
from streaming.control.executor import Executor, Executors, Moves
from streaming.control.journal import Journal
from streaming.control.log_dir_moves import LogDirMoves, LogDirSnapshot
from streaming.control.policies import decision_policy
from streaming.control.pressure import LagPressure, LatencyPressure
from streaming.control.replica_moves import ReplicaMoves
from streaming.control.reports import SnapshotT
from streaming.control.throttle import AdaptiveRates, LogDirThrottle, Throttle, UnknownThrottle
from streaming.control.windows import WindowTables
from streaming.settings import Settings
from streaming.views.broker_windows import capacities_of
from streaming.views.group_picture import LagRules


def journal_of(settings: Settings) -> Journal:
    """The journal of the settings' Kafka cluster."""
    return Journal(
        settings.storage.tables,
        settings.kafka.cluster_name,
        mode=settings.control.mode,
        plan_ttl_ms=settings.planner.plan_ttl_ms,
        approvals=settings.control.approvals,
    )


def window_tables_of(settings: Settings) -> WindowTables:
    """Returns the tables from which windows of the settings' Kafka cluster are read."""
    return WindowTables(
        settings.storage.tables,
        settings.kafka.cluster_name,
        settings.pipeline.window_ms,
        settings.pipeline.watermark_ms,
        max(decision_policy(settings, ()).lookback_windows, settings.control.settle_windows),
        LagRules.of(settings.lag),
        settings.trigger.readers_without_commits_max,
    )


def decider_of(
    cluster: ClusterReader, journal: Journal, settings: Settings, absences: Absences | None = None
) -> Decider:
    """What decides on `cluster`; `absences` are those of the executors beside it."""
    policy_for = partial(decision_policy, settings)
    return Decider(cluster, journal, window_tables_of(settings), settings.planner, policy_for, absences or Absences())


def absences_of(settings: Settings) -> Absences:
    """Returns the absences for executions and decisions of a control: it re-creates lost replicas in
    mode `apply` only.
    """
    trigger = settings.trigger
    grace_ms = trigger.broker_failure_grace_ms if settings.control.mode == "apply" else None
    return Absences(grace_ms, trigger.relief_max_away_share)


def rates_of(settings: Settings) -> AdaptiveRates:
    """The rates of a throttle."""
    control = settings.control
    policy = RatePolicy(control.throttle_bytes_per_sec, control.throttle_min_bytes_per_sec, control.throttle_adaptive)
    return AdaptiveRates(policy, window_tables_of(settings), capacities_of(settings.planner))


def executor_of(
    cluster: ControlledCluster,
    journal: Journal,
    settings: Settings,
    snapshot_age: SnapshotAge | None = None,
    absences: Absences | None = None,
    *,
    throttle: type[Throttle] = Throttle,
) -> Executor[ExecutionSnapshot]:
    """An executor of plans on `cluster`, of movements between brokers; `snapshot_age` is that of the lease which
    `cluster` asks, if it asks one. Without `absences` nothing ends for a broker that fails. Raises UsageProblem for a
    pattern of groups that is none.
    """
    snapshot_age, absences = snapshot_age or SnapshotAge(), absences or Absences()
    disk_answers = DiskAnswers(cluster)
    moves = ReplicaMoves(
        cluster,
        journal,
        throttle(cluster, rates_of(settings)),
        disk_answers,
        DiskRoom(disk_answers, settings.planner),
        settings.control,
        snapshot_age,
        absences,
        relief_max_away_share=settings.trigger.relief_max_away_share,
    )
    return _executor(cluster, moves, journal, settings, snapshot_age, absences)


def log_dir_executor_of(
    cluster: ControlledCluster,
    journal: Journal,
    settings: Settings,
    snapshot_age: SnapshotAge | None = None,
    absences: Absences | None = None,
) -> Executor[LogDirSnapshot]:
    """Returns the executor of movements within brokers."""
    control = settings.control
    rate_max = control.log_dir_throttle_bytes_per_sec
    policy = RatePolicy(rate_max, control.throttle_min_bytes_per_sec, control.throttle_adaptive)
    snapshot_age, absences = snapshot_age or SnapshotAge(), absences or Absences()
    moves = LogDirMoves(
        cluster,
        journal,
        # What copies within a broker takes none of its network's headroom.
        LogDirThrottle(cluster, AdaptiveRates(policy, window_tables_of(settings), {})),
        control,
        snapshot_age,
        absences,
        disk_reserve=settings.planner.disk_reserve,
    )
    return _executor(cluster, moves, journal, settings, snapshot_age, absences)


def _executor(
    cluster: ControlledCluster,
    moves: Moves[SnapshotT],
    journal: Journal,
    settings: Settings,
    snapshot_age: SnapshotAge,
    absences: Absences,
) -> Executor[SnapshotT]:
    control = settings.control
    lag_bound = LagBound(control.lag_growth_max, control.lag_min_records)
    lag = LagPressure(window_tables_of(settings), lag_bound, control.lag_groups)
    latency_bound = LatencyBound(control.latency_growth_max, control.latency_min_ms)
    latency = LatencyPressure(settings.collect.jmx_endpoints, latency_bound)
    return Executor(cluster, moves, journal, lag, latency, control, snapshot_age, absences)


def executors_of(
    cluster: ControlledCluster,
    journal: Journal,
    settings: Settings,
    snapshot_age: SnapshotAge,
    absences: Absences | None = None,
) -> Executors:
    """Executors of plans of either kind, and of what is left where the plan is gone."""
    between = executor_of(cluster, journal, settings, snapshot_age, absences)
    within = log_dir_executor_of(cluster, journal, settings, snapshot_age, absences)
    unknown = executor_of(cluster, journal, settings, snapshot_age, absences, throttle=UnknownThrottle)
    return Executors(between, within, unknown)
