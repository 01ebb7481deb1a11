"""Settings turned into the core's policies: the one place where the two vocabularies meet."""

import re
from collections.abc import Iterable
from dataclasses import replace

from assignor_core.deciding.policy import DecisionPolicy, Detector, LastingPolicy, Mode, TriggerPolicy
from assignor_core.deciding.reasons import Reason
from assignor_core.execution.reconcile import Limits
from assignor_core.live import LiveCluster
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.maintenance import MaintenanceWindow, window_of
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.resources import Resource
from streaming.control.windows import stale_after_ms
from streaming.settings import ControlSettings, PlannerSettings, Settings, TriggerSettings
from streaming.views.broker_windows import capacities_of

EXECUTING_INTERVAL_MS = 1_000
"""Between two ticks while an execution is under way: what has room begins at the next one."""


def trigger_policy(trigger: TriggerSettings, *, window_ms: int) -> TriggerPolicy:
    """Policy of the trigger on windows of `window_ms`."""
    return TriggerPolicy(
        enter_ratio=trigger.enter_ratio,
        exit_ratio=trigger.exit_ratio,
        windows_over=trigger.windows_over,
        windows_considered=trigger.windows_considered,
        detector=Detector(trigger.detector),
        recurring_load=trigger.recurring_load,
        recurring_plan_min_ms=trigger.recurring_plan_min_ms,
        cooldown_ms=trigger.cooldown_ms,
        completeness_min=trigger.completeness_min,
        load_min_bytes_per_sec=trigger.load_min_bytes_per_sec,
        stale_after_ms=stale_after_ms(window_ms),
        broker_failure_grace_ms=trigger.broker_failure_grace_ms,
        relief_max_away_share=trigger.relief_max_away_share,
    )


def decision_policy(settings: Settings, topics: Iterable[str]) -> DecisionPolicy:
    """All that a decision on a cluster with these topics depends on."""
    return DecisionPolicy(
        trigger=trigger_policy(settings.trigger, window_ms=settings.pipeline.window_ms),
        lasting=lasting_policy(settings.trigger),
        fill=fill_policy(settings),
        mode=Mode(settings.control.mode),
        maintenance=maintenance_windows(settings.control),
        resources=tuple(Resource(name) for name in settings.trigger.resources),
        capacities=capacities_of(settings.planner),
        planner=policy_of_plans(settings, topics),
        planner_windows=settings.planner.windows,
        bytes_per_day_max=settings.control.bytes_per_day_max,
    )


def lasting_policy(trigger: TriggerSettings) -> LastingPolicy:
    """Which states of the placement ask for a plan."""
    return LastingPolicy(
        reasons=frozenset(Reason(name) for name in trigger.placement_reasons),
        empty_broker_share=trigger.empty_broker_share,
        grace_ms=trigger.placement_grace_ms,
        leaders_grace_ms=trigger.leaders_grace_ms,
    )


def fill_policy(settings: Settings) -> FillPolicy | None:
    """When a log dir is too full; None if that makes no plan."""
    fill_max = settings.trigger.log_dir_fill_max
    return None if fill_max is None else FillPolicy(fill_max=fill_max, reserve=settings.planner.disk_reserve)


def maintenance_windows(control: ControlSettings) -> tuple[MaintenanceWindow, ...]:
    """The windows of the settings, parsed."""
    return tuple(window_of(text) for text in control.maintenance_windows)


def policy_of_plans(settings: Settings, topics: Iterable[str]) -> PlannerPolicy:
    """Policy of plans on a cluster with these topics; durations are those of control's throttle unless one is set."""
    throttle = settings.planner.throttle_bytes_per_sec or settings.control.throttle_bytes_per_sec
    return replace(planner_policy(settings.planner, topics), throttle_bytes_per_sec=throttle)


def policy_on(settings: Settings, live: LiveCluster) -> PlannerPolicy:
    """That of plans on this cluster."""
    return policy_of_plans(settings, {topic for topic, _ in live.partitions})


def planner_policy(planner: PlannerSettings, topics: Iterable[str]) -> PlannerPolicy:
    """Policy of the planner; patterns of topics become those of `topics` that match them, the first one of several."""
    excluded, left, leader_racks = re.compile(planner.excluded_topics), sorted(set(topics)), []
    for pattern, racks in planner.leader_racks.items():
        matching = frozenset(topic for topic in left if re.search(pattern, topic))
        leader_racks.append((matching, tuple(racks)))
        left = [topic for topic in left if topic not in matching]
    return PlannerPolicy(
        band=planner.band,
        leader_band=planner.leader_band,
        count_band=planner.count_band,
        replicas_max=planner.replicas_max,
        keep_racks=planner.keep_racks,
        leader_racks=tuple(leader_racks),
        headroom=planner.headroom,
        movements_max=planner.movements_max,
        bytes_max=planner.bytes_max,
        inflow_max=planner.inflow_max,
        excluded_topics=frozenset(topic for topic in topics if excluded.search(topic)),
        throttle_bytes_per_sec=planner.throttle_bytes_per_sec,
        wave_movements_max=planner.wave_movements_max,
    )


def relief_policy(brokers: frozenset[int], *, drain: bool, settings: PlannerPolicy | None = None) -> PlannerPolicy:
    """Replicas of these brokers move, internal topics too, and nothing else: to empty them, or to replace the lost.

    Aims, waves and throttle are those of `settings`; its budgets hold nothing back.
    """
    return replace((settings or PlannerPolicy()).for_relief(brokers), drain=brokers if drain else frozenset())


def limits(control: ControlSettings) -> Limits:
    """Caps of the executor."""
    return Limits(
        movements_in_flight_max=control.movements_in_flight_max,
        movements_per_topic_max=control.movements_per_topic_max or control.movements_in_flight_max,
        movements_per_broker_max=control.movements_per_broker_max,
        elections_at_once_max=control.elections_at_once_max,
        deadline_ms=control.execution_deadline_ms,
        staged=control.staged_moves,
    )
