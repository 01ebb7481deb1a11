"""Settings turned into the core's policies: the one place where the two vocabularies meet."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from assignor_core.deciding.policy import DecisionPolicy, LastingPolicy, Mode, TriggerPolicy
from assignor_core.execution.reconcile import Limits
from assignor_core.live import LiveCluster
from assignor_core.log_dirs.planning import FillPolicy
from assignor_core.maintenance import MaintenanceWindow, window_of
from assignor_core.planner.policy import BrokerSet, PlannerPolicy
from streaming.settings import ControlSettings, PlannerSettings, Settings
from streaming.settings.fields import filled
from streaming.views.broker_windows import capacities_of
from streaming.views.spans import stale_after_ms

T = TypeVar("T")
EXECUTING_INTERVAL_MS = 1_000
"""Time between two ticks while an execution is under way, ms: a movement that has room begins at the next tick."""


def decision_policy(settings: Settings, topics: Iterable[str]) -> DecisionPolicy:
    """All that a decision on a cluster with these topics depends on."""
    fill_max = settings.trigger.log_dir_fill_max
    return DecisionPolicy(
        trigger=filled(TriggerPolicy, settings.trigger, stale_after_ms=stale_after_ms(settings.pipeline.window_ms)),
        lasting=filled(LastingPolicy, settings.trigger),
        fill=None if fill_max is None else FillPolicy(fill_max=fill_max, reserve=settings.planner.disk_reserve),
        mode=Mode(settings.control.mode),
        maintenance=maintenance_windows(settings.control),
        resources=tuple(settings.trigger.resources),
        capacities=capacities_of(settings.planner),
        planner=policy_of_plans(settings, topics),
        planner_windows=settings.planner.windows,
        bytes_per_day_max=settings.control.bytes_per_day_max,
    )


def maintenance_windows(control: ControlSettings) -> tuple[MaintenanceWindow, ...]:
    """The windows of the settings, parsed."""
    return tuple(window_of(text) for text in control.maintenance_windows)


def policy_of_plans(settings: Settings, topics: Iterable[str]) -> PlannerPolicy:
    """Policy of plans on a cluster with these topics; durations are those of control's throttle unless one is set."""
    throttle = settings.planner.throttle_bytes_per_sec or settings.control.throttle_bytes_per_sec
    return replace(planner_policy(settings.planner, topics), throttle_bytes_per_sec=throttle)


def policy_on(settings: Settings, live: LiveCluster) -> PlannerPolicy:
    """Returns the policy of plans on the cluster that `live` shows."""
    return policy_of_plans(settings, {topic for topic, _ in live.partitions})


def planner_policy(planner: PlannerSettings, topics: Iterable[str]) -> PlannerPolicy:
    """Policy of the planner; patterns of topics become those of `topics` that match them, the first one of several."""
    excluded, known = re.compile(planner.excluded_topics), sorted(set(topics))
    led, living = _by_pattern(planner.leader_racks, known), _by_pattern(planner.broker_sets, known)
    return filled(
        PlannerPolicy,
        planner,
        leader_racks=tuple((matching, tuple(racks)) for matching, racks in led),
        spread_topics=frozenset(
            topic for pattern in planner.spread_topics for topic in known if re.search(pattern, topic)
        ),
        leaders_min=tuple(_by_pattern(planner.leaders_min, known)),
        broker_sets=tuple(BrokerSet(named, frozenset(one.brokers), frozenset(one.racks)) for named, one in living),
        excluded_topics=frozenset(topic for topic in topics if excluded.search(topic)),
    )


def _by_pattern(given: Mapping[str, T], topics: Sequence[str]) -> Iterator[tuple[frozenset[str], T]]:
    """The topics for which each pattern is the first one that matches, and what is given for it."""
    left = list(topics)
    for pattern, value in given.items():
        matching = frozenset(topic for topic in left if re.search(pattern, topic))
        left = [topic for topic in left if topic not in matching]
        yield matching, value


def relief_policy(brokers: frozenset[int], *, drain: bool, settings: PlannerPolicy | None = None) -> PlannerPolicy:
    """Replicas of these brokers move, internal topics too, and nothing else: to empty them, or to replace the lost.

    Aims, waves and throttle are those of `settings`; its budgets hold nothing back.
    """
    return replace((settings or PlannerPolicy()).for_relief(brokers), drain=brokers if drain else frozenset())


def limits(control: ControlSettings) -> Limits:
    """Caps of the executor."""
    return filled(Limits, control, deadline_ms=control.execution_deadline_ms, staged=control.staged_moves)
