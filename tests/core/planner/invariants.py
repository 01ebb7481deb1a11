"""The one checker of plans: every hard rule, every promise. All examples and properties go through it."""

import math
from collections import Counter
from collections.abc import Set

import numpy as np
import pytest

from assignor_core.load import broker_loads, cluster_arrays
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import Plan, apply_to, plan_from_json, plan_to_json, validate
from assignor_core.planner import PlannerPolicy
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays
from tests.core.serving_rule import served_parts

ROUNDING = 1e-6
HARD_RULES = ("empties", "takes leadership from", "belongs on", "spreads")
"""What the reasons of movements begin with that no balance asks for."""


def check_plan(cluster: ClusterState, policy: PlannerPolicy, plan: Plan) -> ClusterState:
    """Asserts that `plan` breaks no rule and keeps its promises; returns the cluster after it."""
    assert validate(plan, cluster) == []
    assert plan_from_json(plan_to_json(plan)) == plan
    after = apply_to(cluster, plan)
    leaving = {broker.broker_id for broker in cluster.brokers if broker.state != BrokerState.ALIVE} | policy.drain
    check_racks(cluster, after, leaving, policy)
    check_sets(cluster, after, policy, plan)
    check_policy(cluster, policy, plan)
    check_placement(cluster, after, policy)
    if not policy.drain:
        for resource, skew in skew_of_arrays(cluster_arrays(after), excluded=policy.excluded_brokers).items():
            assert plan.skew_after[resource]["max_over_mean"] == pytest.approx(skew.max_over_mean, rel=ROUNDING)
    for resource, figures in plan.skew_after.items():
        assert 1.0 <= plan.lower_bound[resource] <= figures["max_over_mean"] + ROUNDING
    if plan.feasible:
        assert not leaving & {broker for partition in after.partitions for broker in partition.replicas}
    check_waves(cluster, policy, plan)
    return after


def brokers_of_topics(cluster: ClusterState, policy: PlannerPolicy) -> dict[str, set[int]]:
    """By topic that has a set of brokers, the brokers of it."""
    found: dict[str, set[int]] = {}
    for one in policy.broker_sets:
        members = {row.broker_id for row in cluster.brokers if row.broker_id in one.brokers or row.rack in one.racks}
        found |= dict.fromkeys(one.topics - found.keys(), members)
    return found


def check_sets(before: ClusterState, after: ClusterState, policy: PlannerPolicy, plan: Plan) -> None:
    """No replica has come to a broker outside its set, and what stays outside on a living broker is named."""
    sets = brokers_of_topics(before, policy)
    alive = {broker.broker_id for broker in before.brokers if broker.state is BrokerState.ALIVE} - policy.drain
    stays = False
    for old, new in zip(before.partitions, after.partitions, strict=True):
        outside = set(new.replicas) - sets.get(new.topic, set(new.replicas))
        assert outside <= set(old.replicas)
        stays |= bool(outside & alive)
    words = ("stays outside", "stay outside", "is outside", "are outside")
    assert stays == any(word in line for line in (*plan.problems, *plan.diagnosis) for word in words)


def check_racks(before: ClusterState, after: ClusterState, leaving: Set[int], policy: PlannerPolicy) -> None:
    """No partition is in fewer racks, or thicker in its fullest, unless it was on a broker that had to be left."""
    sets = brokers_of_topics(before, policy)
    racks = {broker.broker_id: broker.rack or f"broker {broker.broker_id}" for broker in before.brokers}
    for old, new in zip(before.partitions, after.partitions, strict=True):
        if leaving & set(old.replicas) or set(old.replicas) - sets.get(old.topic, set(old.replicas)):
            continue
        counts = [Counter(racks[broker] for broker in partition.replicas) for partition in (old, new)]
        assert len(counts[1]) >= len(counts[0])
        assert max(counts[1].values()) <= max(counts[0].values())


def check_policy(cluster: ClusterState, policy: PlannerPolicy, plan: Plan) -> None:
    """Budgets and exclusions hold."""
    if policy.movements_max is not None:
        assert len(plan.movements) <= policy.movements_max
    if policy.bytes_max is not None:
        assert plan.bytes_to_move <= policy.bytes_max * (1 + ROUNDING)
    inflow: Counter[int] = Counter()
    for movement in plan.movements:
        changed = set(movement.new_replicas) ^ set(movement.old_replicas)
        assert movement.topic not in policy.excluded_topics
        assert not policy.only_topics or movement.topic in policy.only_topics
        assert not changed & policy.excluded_brokers
        assert movement.key not in policy.pinned_partitions or movement.reason.startswith(HARD_RULES)
        assert not policy.leaders_only or movement.kind == "leader"
        assert movement.reason
        new = set(movement.new_replicas) - set(movement.old_replicas)
        assert not policy.add or new <= policy.add
        if policy.only_brokers:
            gone = set(movement.old_replicas) - set(movement.new_replicas) or {movement.old_replicas[0]}
            assert gone <= policy.only_brokers
        for broker in new:
            inflow[broker] += movement.bytes_to_move / len(new)  # type: ignore[assignment]
    room = {broker.broker_id: broker.disk_room_bytes for broker in cluster.brokers}
    for broker, copied in inflow.items():
        bound = room[broker]
        assert bound is None or 0 < bound >= copied * (1 - ROUNDING), "the ceiling of a disk, whatever leaves it"
    if policy.inflow_max is not None:
        assert all(value <= policy.inflow_max * (1 + ROUNDING) for value in inflow.values())


def check_placement(before: ClusterState, after: ClusterState, policy: PlannerPolicy) -> None:
    """No broker that may hold replicas has got above its capacity or its number of replicas, and under `keep_racks`
    replicas are in the racks that they were in.
    """
    arrays = cluster_arrays(before)
    old, new = broker_loads(arrays), broker_loads(cluster_arrays(after))
    most = np.full_like(old, np.inf)
    for resource in (Resource.BYTES_IN, Resource.BYTES_OUT, Resource.DISK):
        capacity = np.nan_to_num(arrays.capacity_for(resource), nan=np.inf)
        most[:, arrays.columns.of(resource)] = capacity[:, None] * (1.0 - policy.headroom)
    if policy.replicas_max is not None:
        most[:, arrays.columns.of(Resource.REPLICAS)] = policy.replicas_max
    assert (new <= np.maximum(most, old) * (1.0 + ROUNDING) + ROUNDING)[arrays.alive].all(), "above a capacity"
    if policy.keep_racks:
        dead = {row.broker_id for row in before.brokers if row.state is BrokerState.DEAD and row.rack is None}
        racks = {row.broker_id: row.rack or row.broker_id for row in before.brokers}
        for row, moved in zip(before.partitions, after.partitions, strict=True):
            # Kafka shows no rack of a broker that is away.
            if not dead & set(row.replicas):
                assert Counter(map(racks.get, row.replicas)) == Counter(map(racks.get, moved.replicas)), "left a rack"


def check_waves(cluster: ClusterState, policy: PlannerPolicy, plan: Plan) -> None:
    """Cut after any wave, no resource is more uneven than at the start or than at the end; no disk fills on the way."""
    assert Counter(movement.wave for movement in plan.movements) == {
        number: wave.movements for number, wave in enumerate(plan.waves)
    }
    assert all(wave.movements <= policy.wave_movements_max for wave in plan.waves)
    check_disks(cluster, plan)
    if policy.drain or any(broker.state != BrokerState.ALIVE for broker in cluster.brokers):
        return  # who must be emptied doesn't count for what the plan promises
    excluded = policy.excluded_brokers
    before = skew_of_arrays(cluster_arrays(cluster), excluded=excluded)
    for wave in range(len(plan.waves) - 1):
        part = Plan(plan.cluster_id, tuple(movement for movement in plan.movements if movement.wave <= wave))
        for resource, skew in skew_of_arrays(cluster_arrays(apply_to(cluster, part)), excluded=excluded).items():
            limit = max(before[resource].max_over_mean, plan.skew_after[resource]["max_over_mean"], limit_of(resource))
            assert skew.max_over_mean <= limit + ROUNDING


def check_disks(cluster: ClusterState, plan: Plan) -> None:
    """While a wave runs, what arrives on a disk is there before anything has left; full at the start counts as room."""
    arrays = cluster_arrays(cluster)
    capacity = {broker.broker_id: broker.capacity.disk_bytes or math.inf for broker in cluster.brokers}
    disk = {(p.topic, p.partition): p.load.disk_bytes for p in cluster.partitions}
    on_disk = broker_loads(arrays)[:, arrays.columns.of(Resource.DISK)[0]]
    filled = Counter(dict(zip(arrays.broker_ids, on_disk.tolist(), strict=True)))
    room = {broker: max(capacity[broker], filled[broker]) * (1 + ROUNDING) + ROUNDING for broker in capacity}
    for wave in range(len(plan.waves)):
        movements = [movement for movement in plan.movements if movement.wave == wave]
        for arriving in (True, False):
            for movement in movements:
                old, new = set(movement.old_replicas), set(movement.new_replicas)
                for broker in new - old if arriving else old - new:
                    size = disk[movement.topic, movement.partition]
                    assert isinstance(size, float)
                    filled[broker] += size if arriving else -size  # type: ignore[assignment]
            assert all(filled[broker] <= room[broker] for broker in room)


def limit_of(resource: str) -> float:
    """max/mean that the widest policy of the tests allows anyway."""
    return {"leader_bytes_in": 1.12, "leaders": 1.5, "replicas": 1.5}.get(resource, 1.1)


def bytes_out_by_broker(cluster: ClusterState) -> dict[int, float]:
    """One partition after the other, with the pure function, in the first window."""
    racks = {broker.broker_id: broker.rack for broker in cluster.brokers}
    totals = dict.fromkeys(racks, 0.0)
    for row in cluster.partitions:
        written, read = row.load.bytes_in_per_sec, row.load.bytes_out_per_sec
        assert isinstance(written, float)
        assert isinstance(read, float)
        totals[row.replicas[0]] += written * (len(row.replicas) - 1)
        parts = served_parts([racks[broker] for broker in row.replicas], row.reader_racks)
        for broker, part in zip(row.replicas, parts, strict=True):
            totals[broker] += read * part
    return totals
