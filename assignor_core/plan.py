"""A plan: which partitions get which replicas, what it costs and what it promises.

A plan is content-addressed: what was approved is what is carried out. `plan_id` is a hash of everything that is
executed or checked: the cluster, the movements in their order with bytes and waves, what was observed of the cluster,
and the promised skew. Reasons, gains and other figures are not hashed, since they only explain a plan. The module knows
how a plan is checked, applied and written, not how one is made.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import fsum
from types import MappingProxyType
from typing import Any, Self

from assignor_core.errors import InputError, PlanTampered
from assignor_core.live import LiveCluster, PartitionKey, partition_name
from assignor_core.log_dir_movement import LogDirMovement, misplanned
from assignor_core.model import BrokerState, ClusterState

Figures = Mapping[str, Mapping[str, float]]
"""Resource: {"max_over_mean": ..., "coefficient_of_variation": ...}."""

BrokerLoads = Mapping[str, Mapping[int, float]]
"""Resource: load by broker id, in the resource's unit."""

HASH_VERSION = 2
"""Form of the hash of new plans. Form 1 covers cluster and replica lists alone: it is read, and no longer made."""
HASH_PART = 32
"""The last so many characters of a `plan_id` are those of its form 1, by which rows of `movement` are recognised."""
TAKE_NONE = "brokers that take no replicas"
"""How lines of a diagnosis begin that name brokers which get nothing, whatever their load is."""
RACKS_LOST = "racks lost"
"""How lines of problems begin that name a rack which the plan leaves without a broker in use."""


@dataclass(frozen=True, slots=True)
class Movement:
    """A new replica list for one partition; leader first in both."""

    topic: str
    partition: int
    old_replicas: tuple[int, ...]
    new_replicas: tuple[int, ...]
    bytes_to_move: float
    """Bytes copied to replicas that are new."""
    reason: str = ""
    gain: float = 0.0
    """By how much it lowers the objective, carried out in the plan's order."""
    wave: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """(topic, partition)."""
        return (self.topic, self.partition)

    @property
    def kind(self) -> str:
        """`leader` where the brokers stay the same and only their order changes, `replica` otherwise."""
        return "leader" if set(self.old_replicas) == set(self.new_replicas) else "replica"


@dataclass(frozen=True, slots=True)
class Wave:
    """Movements that may run together; `duration_ms` at the policy's throttle, None without one."""

    movements: int
    bytes_to_move: float
    duration_ms: float | None = None


@dataclass(frozen=True, slots=True)
class CheaperPlan:
    """A plan with a smaller budget of bytes: what part of the gain it brings, and what it copies."""

    gain_share: float
    movements: int
    bytes_to_move: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Movements in the order to carry them out, and what was true and will be true."""

    cluster_id: str
    movements: tuple[Movement, ...]
    skew_before: Figures = field(default_factory=dict)
    skew_after: Figures = field(default_factory=dict)
    lower_bound: Mapping[str, float] = field(default_factory=dict)
    """Resource: no placement has a lower max over mean; where network and disk are bound together, not in both."""
    diagnosis: tuple[str, ...] = ()
    """What moving can't help, in words."""
    problems: tuple[str, ...] = ()
    """Hard rules that the plan could not satisfy, and what stands in the way; empty means feasible."""
    waves: tuple[Wave, ...] = ()
    log_dir_movements: tuple[LogDirMovement, ...] = ()
    """Movements within brokers. A plan has these or `movements`, never both."""
    cheaper: tuple[CheaperPlan, ...] = ()
    """What would bring most of its gain for fewer bytes; none where a hard rule asks for movements."""
    loads_before: BrokerLoads = field(default_factory=dict)
    """Loads of brokers in the window of `skew_before`; empty if unknown, as in plans of an earlier version."""
    loads_after: BrokerLoads = field(default_factory=dict)
    least_bytes: float | None = None
    """Bytes that any plan copies that does as well (`planner.least_bytes`); None where that was not worked out."""
    observed: "Observed | None" = None
    """What was observed of the cluster; None of a plan from a model or another tool, which was made on no live cluster.
    """
    hash_version: int = HASH_VERSION
    """Form of the hash that `plan_id` is."""
    plan_id: str = field(init=False)

    def __post_init__(self) -> None:
        hashed = replicas_hash(self)
        if self.hash_version > 1:
            hashed = _sha256(checked_content(self))[:-HASH_PART] + hashed[-HASH_PART:]
        object.__setattr__(self, "plan_id", hashed)

    @property
    def within_brokers(self) -> bool:
        """Whether the plan moves replicas between log dirs of their brokers, and nothing else."""
        return bool(self.log_dir_movements)

    @property
    def movement_count(self) -> int:
        """Movements of either kind."""
        return len(self.movements) + len(self.log_dir_movements)

    @property
    def topics(self) -> frozenset[str]:
        """Topics that it moves something of."""
        return frozenset({row.topic for row in self.movements} | {row.topic for row in self.log_dir_movements})

    @property
    def bytes_to_move(self) -> float:
        """Bytes that all movements copy."""
        # Exact, whatever the order of the movements is.
        copied = [movement.bytes_to_move for movement in self.movements]
        return fsum(copied + [movement.bytes_to_move for movement in self.log_dir_movements])

    @property
    def brokers(self) -> frozenset[int]:
        """Brokers that a movement takes a replica from, leaves one on, or gives one to."""
        named = {broker for movement in self.movements for broker in (*movement.old_replicas, *movement.new_replicas)}
        return frozenset(named | {movement.broker for movement in self.log_dir_movements})

    @property
    def feasible(self) -> bool:
        """Whether every hard rule holds after the plan."""
        return not self.problems


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
        keys = [movement.key for movement in plan.movements]
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
        """The observation as JSON, as the stored plan holds it."""
        return {
            "leaders": [[*key, leader] for key, leader in self.leaders.items()],
            "partition_counts": dict(self.partition_counts),
            "brokers_missing": sorted(self.brokers_missing),
            **({} if self.kafka_cluster_id is None else {"kafka_cluster_id": self.kafka_cluster_id}),
            **({"topic_ids": dict(self.topic_ids)} if self.topic_ids else {}),
        }


def validate(plan: Plan, cluster: ClusterState) -> list[str]:
    """What keeps `plan` from being carried out on `cluster`; empty if nothing does.

    Whoever executes a plan that is not fresh asks again: hours and other people's changes may lie between.

    >>> from assignor_core.model import Broker, Partition, PartitionLoad
    >>> partition = Partition("t", 0, (1,), PartitionLoad(10.0, 20.0, 500.0))
    >>> cluster = ClusterState("c", 0, (Broker(1), Broker(2)), (partition,))
    >>> validate(Plan("c", (Movement("t", 0, (1,), (2,), 500.0),)), cluster)
    []
    >>> validate(Plan("c", (Movement("t", 0, (1,), (3,), 500.0),)), cluster)
    ['t-0: new replica on unknown broker 3']
    """
    states = {broker.broker_id: broker.state for broker in cluster.brokers}
    current = {partition.key: partition.replicas for partition in cluster.partitions}
    problems = []
    if plan.cluster_id != cluster.cluster_id:
        problems.append(f"plan is for cluster {plan.cluster_id!r}, found cluster {cluster.cluster_id!r}")
    planned = Counter(movement.key for movement in plan.movements)
    problems += [f"{partition_name(key)}: planned {count} times" for key, count in sorted(planned.items()) if count > 1]
    for movement in plan.movements:
        problem = _misfit(movement, current.get(movement.key), states)
        if problem:
            problems.append(f"{partition_name(movement.key)}: {problem}")
    return problems


def _misfit(movement: Movement, current: tuple[int, ...] | None, states: Mapping[int, BrokerState]) -> str | None:
    """Why `movement` can't be carried out on a partition with the `current` replicas; None if it can."""
    new = movement.new_replicas
    if current is None:
        return "is not in the cluster"
    if current != movement.old_replicas:
        return f"has replicas {list(current)}, planned for {list(movement.old_replicas)}"
    if not new:
        return "would have no replicas"
    if len(set(new)) != len(new):
        return f"new replicas {list(new)} name a broker twice"
    unknown = sorted(set(new) - states.keys())
    if unknown:
        return f"new replica on unknown broker {unknown[0]}"
    # A replica that is on a dying broker already may stay in the list: only new ones need a broker that is alive.
    unfit = [broker for broker in new if broker not in movement.old_replicas and states[broker] != BrokerState.ALIVE]
    return f"new replica on broker {unfit[0]}, which is {states[unfit[0]].value}" if unfit else None


def apply_to(cluster: ClusterState, plan: Plan) -> ClusterState:
    """The cluster once `plan` has been carried out; raises InputError where it does not fit."""
    problems = validate(plan, cluster)
    if problems:
        raise InputError(f"plan {plan.plan_id[:12]} does not fit the cluster: {problems[0]}")
    new = {movement.key: movement.new_replicas for movement in plan.movements}
    moved = tuple(
        replace(partition, replicas=new[partition.key]) if partition.key in new else partition
        for partition in cluster.partitions
    )
    return replace(cluster, partitions=moved)


def reassignment_json(plan: Plan) -> dict[str, Any]:
    """The form that Kafka's own kafka-reassign-partitions tool reads: leader first."""
    partitions = [
        {"topic": movement.topic, "partition": movement.partition, "replicas": list(movement.new_replicas)}
        for movement in plan.movements
    ]
    return {"version": 1, "partitions": partitions}


def plan_to_json(plan: Plan) -> dict[str, Any]:
    """The contract's "Result of plan", without `elapsed_ms`, which only the caller knows."""
    gap = {name: plan.skew_after[name]["max_over_mean"] - bound for name, bound in plan.lower_bound.items()}
    return {
        "plan_id": plan.plan_id,
        **({"hash_version": plan.hash_version} if plan.hash_version > 1 else {}),
        "cluster_id": plan.cluster_id,
        "movements": [
            {
                "topic": movement.topic,
                "partition": movement.partition,
                "kind": movement.kind,
                "old_replicas": list(movement.old_replicas),
                "new_replicas": list(movement.new_replicas),
                "bytes_to_move": movement.bytes_to_move,
                "reason": movement.reason,
                "gain": movement.gain,
                "wave": movement.wave,
            }
            for movement in plan.movements
        ],
        **({"log_dir_movements": [row.to_json() for row in plan.log_dir_movements]} if plan.within_brokers else {}),
        "skew_before": {name: dict(figures) for name, figures in plan.skew_before.items()},
        "skew_after": {name: dict(figures) for name, figures in plan.skew_after.items()},
        "lower_bound": dict(plan.lower_bound),
        "gap": gap,
        "bytes_to_move": plan.bytes_to_move,
        **({} if plan.least_bytes is None else {"least_bytes": plan.least_bytes}),
        "feasible": plan.feasible,
        "problems": list(plan.problems),
        "diagnosis": list(plan.diagnosis),
        "waves": [
            {"movements": wave.movements, "bytes_to_move": wave.bytes_to_move, "duration_ms": wave.duration_ms}
            for wave in plan.waves
        ],
        "cheaper": [asdict(row) for row in plan.cheaper],
        **({"loads_before": _loads_to_json(plan.loads_before)} if plan.loads_before else {}),
        **({"loads_after": _loads_to_json(plan.loads_after)} if plan.loads_after else {}),
        "reassignment": reassignment_json(plan),
        **({} if plan.observed is None else {"observed": plan.observed.to_json()}),
    }


def plan_from_json(obj: object) -> Plan:
    """Reads what `plan_to_json` wrote; raises InputError on a misfit, PlanTampered if content and id disagree."""
    if not isinstance(obj, Mapping):
        raise InputError(f"plan: found {type(obj).__name__}, allowed is an object")
    hash_version, observed = obj.get("hash_version", 1), obj.get("observed")
    if hash_version not in range(1, HASH_VERSION + 1):
        raise InputError(f"plan: hash_version: found {hash_version!r}, this release reads up to {HASH_VERSION}")
    try:
        plan = Plan(
            obj["cluster_id"],
            tuple(_movement(entry) for entry in obj["movements"]),
            MappingProxyType(dict(obj["skew_before"])),
            MappingProxyType(dict(obj["skew_after"])),
            MappingProxyType(dict(obj["lower_bound"])),
            tuple(obj["diagnosis"]),
            tuple(obj["problems"]),
            tuple(Wave(entry["movements"], entry["bytes_to_move"], entry["duration_ms"]) for entry in obj["waves"]),
            tuple(LogDirMovement.from_json(entry) for entry in obj.get("log_dir_movements", ())),
            tuple(CheaperPlan(**entry) for entry in obj.get("cheaper", ())),
            _loads_from_json(obj.get("loads_before", {})),
            _loads_from_json(obj.get("loads_after", {})),
            None if obj.get("least_bytes") is None else float(obj["least_bytes"]),
            None if observed is None else Observed.from_json(observed),
            hash_version,
        )
        claimed, reassignment = obj["plan_id"], obj["reassignment"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"plan: found no valid {error}, see the contract's result of plan") from None
    if claimed != plan.plan_id:
        raise PlanTampered(f"plan_id: found {claimed!r}, but the content hashes to {plan.plan_id!r}")
    if reassignment != reassignment_json(plan):
        raise PlanTampered(f"plan {plan.plan_id[:12]}: its reassignment is not that of its movements")
    problems = misplanned(plan.log_dir_movements)
    if plan.movements and plan.within_brokers:
        problems.append("log_dir_movements: found beside movements, allowed in a plan of their own")
    if problems:
        raise InputError(f"plan {plan.plan_id[:12]}: {problems[0]}")
    return plan


def _loads_to_json(loads: BrokerLoads) -> dict[str, dict[str, float]]:
    return {name: {str(broker): load for broker, load in row.items()} for name, row in loads.items()}


def _loads_from_json(obj: Mapping[str, Any]) -> BrokerLoads:
    return {str(name): {int(broker): float(load) for broker, load in row.items()} for name, row in obj.items()}


def _movement(entry: Mapping[str, Any]) -> Movement:
    return Movement(
        str(entry["topic"]),
        int(entry["partition"]),
        tuple(int(broker) for broker in entry["old_replicas"]),
        tuple(int(broker) for broker in entry["new_replicas"]),
        float(entry["bytes_to_move"]),
        str(entry["reason"]),
        float(entry.get("gain", 0.0)),
        int(entry.get("wave", 0)),
    )


def replicas_hash(plan: Plan) -> str:
    """Form 1 of the hash: SHA-256 of the cluster and the replica lists or log dirs in their order, hexadecimal."""
    within = [movement.content for movement in plan.log_dir_movements]
    content = {
        "cluster_id": plan.cluster_id,
        **({"log_dir_movements": within} if within else {}),  # without any the id is that of earlier versions
        "movements": [[m.topic, m.partition, list(m.old_replicas), list(m.new_replicas)] for m in plan.movements],
    }
    return _sha256(content)


def checked_content(plan: Plan) -> dict[str, Any]:
    """What form 2 of the hash covers: whatever control executes, or compares with the cluster before or after."""
    return {
        "cluster_id": plan.cluster_id,
        "movements": [
            [m.topic, m.partition, list(m.old_replicas), list(m.new_replicas), float(m.bytes_to_move), m.wave]
            for m in plan.movements
        ],
        "log_dir_movements": [[*row.content, float(row.bytes_to_move)] for row in plan.log_dir_movements],
        "observed": None if plan.observed is None else plan.observed.to_json(),
        "skew": [plan.skew_before, plan.skew_after],
    }


def _sha256(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), default=dict)
    return hashlib.sha256(canonical.encode()).hexdigest()
