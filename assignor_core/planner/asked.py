"""Plans whose replica lists somebody asks for: nothing is searched, everything else is as of any plan.

A file of `kafka-reassign-partitions` and a wish for another replication factor (`replication_factor`) both end here:
the lists become movements in waves that overload no broker and fill no disk on the way, with the bytes that they copy,
the loads before and after, and the hard rules that the cluster would break then.

Invariants: the lists are kept exactly, followers in their order, or the line "left out" says which are not. Nothing
here is done without a person who asks for it.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import compress

import numpy as np

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey, partition_name
from assignor_core.load import NO_BROKER, ClusterArrays, cluster_arrays
from assignor_core.model import BrokerState, ClusterState
from assignor_core.plan import Plan, apply_to
from assignor_core.planner.explain import ordered_movements
from assignor_core.planner.obstacles import ROUNDING
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import NAMED_MAX, PlannerPolicy
from assignor_core.planner.problem import Problem, problem_of
from assignor_core.planner.proposal import figures_of_skew, loads_by_broker, with_drained
from assignor_core.reassignment_file import ReplicaLists
from assignor_core.skew import skew_of_arrays
from assignor_core.wording import bytes_text, counted, first_named


def plan_as_asked(cluster: ClusterState, policy: PlannerPolicy, wanted: ReplicaLists, reason: str) -> Plan:
    """The plan after which the partitions of `wanted` have just these replicas; `reason` is that of each movement.

    Partitions that have them already are no part of it. Waves keep the limits of `policy`, and its topics and brokers
    that are excluded are named as rules that the plan breaks. Raises InputError for a list that the cluster can't have.
    """
    cluster = with_drained(cluster, policy)
    _check_fits(cluster, wanted)
    arrays = _with_slots(cluster_arrays(cluster), max(map(len, wanted.values()), default=0))
    placement = Placement(arrays)
    problem = problem_of(arrays, policy, placement)
    crowded = problem.crowded(placement.replicas)
    placement.hold(_rows(arrays, wanted))
    movements, waves, left_out = ordered_movements(problem, placement, crowded)
    movements = tuple(replace(movement, reason=reason) for movement in movements)
    plan = Plan(cluster.cluster_id, movements, waves=waves)
    # A leader sends what it takes to each follower, so its load follows from the number of replicas: once they are
    # placed, the loads are worked out anew.
    after = cluster_arrays(apply_to(cluster, plan))
    placed = Placement(after)
    broken = (*_without_source(problem, plan), *_broken(problem_of(after, policy, placed), placed, plan))
    return replace(
        plan,
        skew_before=figures_of_skew(skew_of_arrays(arrays, excluded=policy.excluded_brokers)),
        skew_after=figures_of_skew(skew_of_arrays(after, excluded=policy.excluded_brokers)),
        problems=(*left_out, *_excluded(policy, plan), *_without_room(arrays, placement), *broken),
        loads_before=loads_by_broker(arrays),
        loads_after=loads_by_broker(after),
    )


def _check_fits(cluster: ClusterState, wanted: ReplicaLists) -> None:
    """Raises InputError for a partition that is not there, and for a new replica on a broker that can't take one."""
    states = {broker.broker_id: broker.state for broker in cluster.brokers}
    replicas = {row.key: row.replicas for row in cluster.partitions}
    topics = {topic for topic, _ in replicas}
    for key, brokers in wanted.items():
        if key not in replicas:
            missing = (
                "it has no such partition, or that has no leader" if key[0] in topics else "there is no such topic"
            )
            raise InputError(f"{partition_name(key)}: is not in the cluster: {missing}")
        for broker in brokers:
            if broker not in states:
                known = first_named(sorted(states), NAMED_MAX)
                raise InputError(f"{partition_name(key)}: found broker {broker}, allowed are {known}")
            if broker not in replicas[key] and states[broker] is not BrokerState.ALIVE:
                raise InputError(f"{partition_name(key)}: new replica on broker {broker}, which is {states[broker]}")


def _with_slots(arrays: ClusterArrays, slots: int) -> ClusterArrays:
    """Returns `arrays` with room for `slots` replicas of a partition."""
    lacking = slots - arrays.replicas.shape[1]
    if lacking <= 0:
        return arrays
    return replace(arrays, replicas=np.pad(arrays.replicas, ((0, 0), (0, lacking)), constant_values=NO_BROKER))


def _rows(arrays: ClusterArrays, wanted: ReplicaLists) -> np.ndarray:
    """P x R replica lists as they are to be."""
    index: Mapping[int, int] = {broker: place for place, broker in enumerate(arrays.broker_ids)}
    at: Mapping[PartitionKey, int] = {row.key: place for place, row in enumerate(arrays.partitions)}
    rows = arrays.replicas.copy()
    for key, brokers in wanted.items():
        rows[at[key]] = NO_BROKER
        rows[at[key], : len(brokers)] = [index[broker] for broker in brokers]
    return rows


def _broken(problem: Problem, placed: Placement, plan: Plan) -> tuple[str, ...]:
    """Hard rules that `placed`, the cluster after the plan, does not keep where the plan has changed it, in words."""
    arrays, changed = problem.arrays, {row.key for row in plan.movements}
    is_changed = np.array([row.key in changed for row in arrays.partitions], dtype=np.bool_)
    crowded = np.flatnonzero(problem.crowded(placed.replicas) & is_changed)
    gaining = {broker for row in plan.movements for broker in row.new_replicas}
    outside = np.flatnonzero(problem.misplaced(placed.replicas) & is_changed)
    over = (placed.loads > problem.ceiling * (1 + ROUNDING)).any(axis=1) & np.isin(arrays.broker_ids, sorted(gaining))
    lines = []
    if len(crowded):
        keys = [arrays.partitions[row].key for row in crowded]
        have = counted(len(keys), "partition has", "partitions have")
        named = first_named(keys, NAMED_MAX, partition_name)
        lines.append(f"{have} more replicas in one rack than the racks make necessary: {named}")
    if len(outside):
        keys = [arrays.partitions[row].key for row in outside]
        have = counted(len(keys), "partition has replicas", "partitions have replicas")
        lines.append(f"{have} outside the set of brokers of its topic: {first_named(keys, NAMED_MAX, partition_name)}")
    if over.any():
        named = first_named(np.array(arrays.broker_ids)[over].tolist(), NAMED_MAX)
        lines.append(f"above the capacity or the replicas that a broker may have: broker {named}")
    return tuple(lines)


def _without_source(problem: Problem, plan: Plan) -> list[str]:
    """Returns a line if new replicas have nothing to copy from: what is in sync is on dead brokers, if anything is."""
    lacking = {row.key for row in compress(problem.arrays.partitions, ~problem.has_source)}
    keys = [row.key for row in plan.movements if row.key in lacking and set(row.new_replicas) - set(row.old_replicas)]
    if not keys:
        return []
    have = counted(len(keys), "partition has", "partitions have")
    return [f"{have} no replica in sync to copy from: {first_named(keys, NAMED_MAX, partition_name)}"]


def _without_room(arrays: ClusterArrays, placement: Placement) -> tuple[str, ...]:
    """Brokers whose disks have no room for all that is copied to them, in words: the executor would wait for room."""
    inflow = placement.inflow()
    lines = []
    for broker in np.flatnonzero(inflow > arrays.disk_room_bytes)[:NAMED_MAX]:
        gets, room = bytes_text(float(inflow[broker])), bytes_text(max(0.0, float(arrays.disk_room_bytes[broker])))
        lines.append(f"broker {arrays.broker_ids[broker]} gets {gets}, and its disks have room for {room}")
    return tuple(lines)


def _excluded(policy: PlannerPolicy, plan: Plan) -> tuple[str, ...]:
    """Topics and brokers that the policy keeps out of plans and that this plan changes, in words."""
    topics = sorted(plan.topics & policy.excluded_topics)
    gaining = {broker for row in plan.movements for broker in set(row.new_replicas) - set(row.old_replicas)}
    brokers = sorted(gaining & policy.excluded_brokers)
    lines = []
    if topics:
        lines.append(f"changes what planner.excluded_topics keeps from moving: {first_named(topics, NAMED_MAX)}")
    if brokers:
        lines.append(f"puts replicas on brokers that are excluded: {first_named(brokers, NAMED_MAX)}")
    return tuple(lines)
