"""A plan as it is kept and approved: the plan, what it rests on, and how it was made.

Owns the JSON form of the contract ("Result of plan") with `observed` and `elapsed_ms`. Whether a kept plan still fits
the live cluster is answered here, so that the decider, the executor and the commands ask the same question.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from assignor_core.execution.progress import Progress, progress_of
from assignor_core.execution.reconcile import differences
from assignor_core.identity import another_cluster, topics_made_again
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.plan import Figures, Plan, plan_from_json, plan_to_json
from assignor_core.price import plan_duration_ms, schedule


@dataclass(frozen=True, slots=True)
class Observed:
    """What a plan rests on besides the replicas that it names."""

    leaders: Mapping[PartitionKey, int]
    """Leader of each partition that the plan moves."""
    partition_counts: Mapping[str, int]
    """Partitions of each topic that the plan moves something of."""
    brokers_missing: frozenset[int] = frozenset()
    """Brokers that were away and that the plan takes replicas from."""
    kafka_cluster_id: str | None = None
    """Kafka's own id of the cluster; None of plans of an earlier version."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own id of each topic that the plan moves something of, where it is known."""

    @classmethod
    def of(cls, plan: Plan, cluster: LiveCluster) -> Self:
        """What `cluster` shows of the partitions of `plan`."""
        counts = Counter(topic for topic, _ in cluster.partitions)
        keys = [(movement.topic, movement.partition) for movement in plan.movements]
        left = {broker for row in plan.movements for broker in set(row.old_replicas) - set(row.new_replicas)}
        topics = sorted({topic for topic, _ in keys})
        named = sorted(plan.topics)
        return cls(
            {key: cluster.partitions[key].leader for key in keys if key in cluster.partitions},
            {topic: counts[topic] for topic in topics},
            frozenset(left - cluster.broker_racks.keys()),
            cluster.cluster_id,
            {topic: cluster.topic_ids[topic] for topic in named if topic in cluster.topic_ids},
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Reads what `to_json` wrote; plans of earlier versions lack the optional fields."""
        return cls(
            {(topic, partition): leader for topic, partition, leader in content["leaders"]},
            dict(content["partition_counts"]),
            frozenset(content.get("brokers_missing", ())),
            content.get("kafka_cluster_id"),
            dict(content.get("topic_ids", {})),
        )

    def to_json(self) -> dict[str, Any]:
        """As it stands in the kept plan."""
        return {
            "leaders": [[*key, leader] for key, leader in self.leaders.items()],
            "partition_counts": dict(self.partition_counts),
            "brokers_missing": sorted(self.brokers_missing),
            **({} if self.kafka_cluster_id is None else {"kafka_cluster_id": self.kafka_cluster_id}),
            **({"topic_ids": dict(self.topic_ids)} if self.topic_ids else {}),
        }


@dataclass(frozen=True, slots=True)
class ProposedPlan:
    """A plan with what it rests on; frozen from the moment it was made."""

    plan: Plan
    observed: Observed | None = None
    """None of a plan from a model or another tool: it was made on no live cluster."""
    elapsed_ms: float = 0.0
    """How long the planner took."""
    window_span_ms: tuple[int, int] | None = None
    """Start of the oldest and end of the newest window that it rests on; None where that is not known."""
    worst_hour: Mapping[str, Figures] | None = None
    """Figures "before" and "after" of the most uneven hour; None where it rests on the newest windows alone."""

    def to_json(self) -> dict[str, Any]:
        """The contract's "Result of plan"."""
        observed = {} if self.observed is None else {"observed": self.observed.to_json()}
        hours = {} if self.worst_hour is None else {"worst_hour": _plain(self.worst_hour)}
        away = frozenset() if self.observed is None else self.observed.brokers_missing
        price = {"duration_ms": plan_duration_ms(self.plan), "schedule": schedule(self.plan, away)}
        return {**plan_to_json(self.plan), **price, **observed, **hours, "elapsed_ms": self.elapsed_ms}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Reads what `to_json` wrote; raises InputError on a misfit, PlanTampered where content and id disagree."""
        observed = content.get("observed")
        return cls(
            plan_from_json(content),
            None if observed is None else Observed.from_json(observed),
            float(content.get("elapsed_ms", 0.0)),
            worst_hour=content.get("worst_hour"),
        )


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
        f"{topic}-{partition} is led by broker {leader}, by broker {seen.leaders[topic, partition]} when planned"
        for (topic, partition), leader in now.leaders.items()
        if (topic, partition) in untouched and seen.leaders.get((topic, partition), leader) != leader
    ]
    grown = [
        f"{topic} has {now.partition_counts[topic]} partitions, {count} when planned"
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
