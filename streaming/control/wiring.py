"""Settings turned into the parts of control: the one place that knows which part needs which of them.

For the loop and for the commands that do its work. Makes parts, does nothing with them.
"""

from functools import partial

from assignor_core.execution.adaptive_rates import RatePolicy
from assignor_core.execution.caution import LagBound, LatencyBound
from streaming.cluster.ports import ClusterReader, ControlledCluster
from streaming.control.deciding import Decider
from streaming.control.disk_room import DiskRoom
from streaming.control.executor import Executor
from streaming.control.journal import Journal
from streaming.control.latency import LatencyPressure
from streaming.control.look_age import LookAge
from streaming.control.policies import decision_policy
from streaming.control.pressure import LagPressure
from streaming.control.throttle import AdaptiveRates, Throttle
from streaming.control.windows import WindowTables
from streaming.settings import Settings
from streaming.views.broker_windows import capacities_of


def journal_of(settings: Settings) -> Journal:
    """The journal of the settings' Kafka cluster."""
    return Journal(
        settings.storage.tables,
        settings.kafka.cluster_name,
        mode=settings.control.mode,
        plan_ttl_ms=settings.planner.plan_ttl_ms,
    )


def window_tables_of(settings: Settings) -> WindowTables:
    """Where windows of the settings' Kafka cluster are read."""
    return WindowTables(
        settings.storage.tables,
        settings.kafka.cluster_name,
        settings.pipeline.window_ms,
        settings.pipeline.watermark_ms,
        max(settings.trigger.windows_considered, settings.planner.windows, settings.control.settle_windows),
    )


def decider_of(cluster: ClusterReader, journal: Journal, settings: Settings) -> Decider:
    """What decides on `cluster`."""
    return Decider(cluster, journal, window_tables_of(settings), settings.planner, partial(decision_policy, settings))


def rates_of(settings: Settings) -> AdaptiveRates:
    """The rates of a throttle."""
    control = settings.control
    policy = RatePolicy(control.throttle_bytes_per_sec, control.throttle_min_bytes_per_sec, control.throttle_adaptive)
    return AdaptiveRates(policy, window_tables_of(settings), capacities_of(settings.planner))


def executor_of(
    cluster: ControlledCluster, journal: Journal, settings: Settings, look_age: LookAge | None = None
) -> Executor:
    """An executor of plans on `cluster`; `look_age` is that of the lease which `cluster` asks, if it asks one. Raises
    UsageProblem for a pattern of groups that is none.
    """
    control = settings.control
    lag_bound = LagBound(control.lag_growth_max, control.lag_min_records)
    lag = LagPressure(window_tables_of(settings), lag_bound, control.lag_groups)
    latency_bound = LatencyBound(control.latency_growth_max, control.latency_min_ms)
    latency = LatencyPressure(settings.collect.jmx_endpoints, latency_bound)
    return Executor(
        cluster,
        journal,
        Throttle(cluster, rates_of(settings)),
        lag,
        latency,
        DiskRoom(cluster, settings.planner),
        control,
        look_age or LookAge(),
        relief_max_away_share=settings.trigger.relief_max_away_share,
    )
