"""A plan as it is kept and approved: the plan, what it rests on, and how it was made.

Owns the JSON form of the contract ("Result of plan") with price and `elapsed_ms`. Whether a kept plan still fits
the live cluster is answered here, so that the decider, the executor and the commands ask the same question.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from assignor_core.execution.progress import Progress, progress_of
from assignor_core.execution.reconcile import differences
from assignor_core.identity import another_cluster, topics_made_again
from assignor_core.live import NO_LEADER, LiveCluster
from assignor_core.plan import Figures, Observed, Plan, plan_from_json, plan_to_json
from assignor_core.price import plan_duration_ms, schedule
from assignor_core.wording import many

__all__ = ["KeptPlan", "Observed", "ProposedPlan", "changes_since"]


@dataclass(frozen=True, slots=True)
class ProposedPlan:
    """A plan with what it rests on; frozen from the moment it was made."""

    plan: Plan
    observed: Observed | None = None
    """What was observed of the cluster; None of a plan from a model or another tool, which was made on no live cluster.
    """
    elapsed_ms: float = 0.0
    """How long the planner took."""
    window_span_ms: tuple[int, int] | None = None
    """Start of the oldest and end of the newest window that it rests on; None where that is not known."""
    worst_hour: Mapping[str, Figures] | None = None
    """Figures "before" and "after" of the most uneven hour; None where it rests on the newest windows alone."""

    def __post_init__(self) -> None:
        """The id of the plan covers what was observed, so the plan holds it, too."""
        if self.observed is None:
            object.__setattr__(self, "observed", self.plan.observed)
        elif self.observed != self.plan.observed:
            object.__setattr__(self, "plan", replace(self.plan, observed=self.observed))

    def to_json(self) -> dict[str, Any]:
        """The contract's "Result of plan"."""
        hours = {} if self.worst_hour is None else {"worst_hour": _plain(self.worst_hour)}
        away = frozenset() if self.observed is None else self.observed.brokers_missing
        price = {"duration_ms": plan_duration_ms(self.plan), "schedule": schedule(self.plan, away)}
        return {**plan_to_json(self.plan), **price, **hours, "elapsed_ms": self.elapsed_ms}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Reads what `to_json` wrote; raises InputError on a misfit, PlanTampered where content and id disagree."""
        plan, elapsed_ms = plan_from_json(content), float(content.get("elapsed_ms", 0.0))
        return cls(plan, elapsed_ms=elapsed_ms, worst_hour=content.get("worst_hour"))


def _plain(worst_hour: Mapping[str, Figures]) -> dict[str, dict[str, dict[str, float]]]:
    return {when: {name: dict(row) for name, row in figures.items()} for when, figures in worst_hour.items()}


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A proposed plan as the tables keep it."""

    proposed: ProposedPlan
    created_ms: int
    expires_ms: int

    @property
    def plan(self) -> Plan:
        """The plan itself."""
        return self.proposed.plan

    @property
    def kafka_cluster_id(self) -> str | None:
        """Kafka's own id of the cluster that it was made on; None where that is not known."""
        return None if self.proposed.observed is None else self.proposed.observed.kafka_cluster_id

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's own ids of the topics that it was made on, where they are known."""
        return {} if self.proposed.observed is None else self.proposed.observed.topic_ids

    def misfits(self, live: LiveCluster) -> tuple[str, ...]:
        """How the cluster has changed since the plan was made; empty if the plan can be started as approved."""
        other = another_cluster(self.kafka_cluster_id, live)
        if other is not None:
            return (other,)
        seen = self.proposed.observed
        made_again = [
            f"{topic} was deleted and made again: its id is {live.topic_ids[topic]}, was {self.topic_ids[topic]}"
            for topic in topics_made_again(self.topic_ids, live)
        ]
        return (*made_again, *differences(self.plan, live), *(changes_since(seen, self.plan, live) if seen else ()))


def changes_since(seen: Observed, plan: Plan, cluster: LiveCluster) -> tuple[str, ...]:
    """How the cluster differs from what was `seen` when the plan was made, apart from what the plan itself moved."""
    now = Observed.of(plan, cluster)
    untouched = {key for key, state in progress_of(plan, cluster).items() if state is Progress.PENDING}
    led_by_others = [
        _led_by(f"{topic}-{partition}", leader, seen.leaders[topic, partition])
        for (topic, partition), leader in now.leaders.items()
        if (topic, partition) in untouched and seen.leaders.get((topic, partition), leader) != leader
    ]
    grown = [
        f"{topic} has {many(now.partition_counts[topic], 'partition')}, {count} when planned"
        for topic, count in seen.partition_counts.items()
        if now.partition_counts.get(topic) not in (count, 0)
    ]
    # Its replicas lie where they lay, so nothing else shows that the plan would now empty a sound broker.
    back = [
        f"broker {broker} is alive, was away when planned"
        for broker in sorted(seen.brokers_missing)
        if broker in cluster.broker_racks
    ]
    return (*led_by_others, *grown, *back)


def _led_by(name: str, now: int, before: int) -> str:
    """The leader that a partition has now and had when the plan was made, in words; a partition that is offline has
    none.

    >>> _led_by("t-0", 2, 1), _led_by("t-0", NO_LEADER, 1)
    ('t-0 is led by broker 2, by broker 1 when planned', 't-0 has no leader, it was led by broker 1 when planned')
    """
    if now == NO_LEADER:
        return f"{name} has no leader, it was led by broker {before} when planned"
    by = "it had no leader" if before == NO_LEADER else f"by broker {before}"
    return f"{name} is led by broker {now}, {by} when planned"
