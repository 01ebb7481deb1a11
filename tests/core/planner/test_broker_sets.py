"""Sets of brokers that topics live on: no plan leaves them, bounds follow them, and what cannot be kept is named."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.load import NO_BROKER, ClusterArrays, broker_loads, cluster_arrays
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.asked import plan_as_asked
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.least_bytes import least_bytes
from assignor_core.planner.policy import BrokerSet
from assignor_core.planner.replication_factor import lists_with_factor
from assignor_core.racks import least_spread
from assignor_core.resources import PLANNED
from assignor_core.skew import skew_of_arrays
from tests.benchmarks.models import generate
from tests.benchmarks.shapes import shape
from tests.core.planner.cases import cluster, clusters, placements, search_of, sets_of
from tests.core.planner.invariants import brokers_of_topics, check_plan
from tests.core.planner.test_least_bytes import BAND, copied, ended, few

ROUNDING = 1e-6
ORDERS = frozenset({"orders"})


def on(*brokers: int, topics: frozenset[str] = ORDERS) -> BrokerSet:
    return BrokerSet(topics, brokers=frozenset(brokers))


def every_third_topic(state: ClusterState) -> frozenset[str]:
    return frozenset(sorted({row.topic for row in state.partitions})[::3])


@pytest.mark.parametrize("seed", [75, *(pytest.param(seed, marks=pytest.mark.long) for seed in (29, 142))])
def test_a_shape_with_a_set_ends_even_within_it_and_a_second_plan_is_empty(seed: int) -> None:
    """A third of the topics on two thirds of the brokers: all brokers can be as even as without the set."""
    state = generate(shape(seed), seed)
    ids, topics = [row.broker_id for row in state.brokers], every_third_topic(state)
    members = ids[: max(2 * len(ids) // 3, shape(seed).replication_factor)]
    policy = PlannerPolicy(broker_sets=(on(*members, topics=topics),))
    plan = propose(state, policy)
    after = check_plan(state, policy, plan)
    assert plan.problems == ()
    assert set(members) >= {broker for row in after.partitions if row.topic in topics for broker in row.replicas}
    assert propose(after, policy).movements == ()


def in_set(arrays: ClusterArrays, sets: Mapping[str, set[int]], partition: Partition) -> Iterator[tuple[int, ...]]:
    """Replicas in the set of the partition, as evenly over racks as the brokers of the set allow."""
    allowed, factor = sorted(sets.get(partition.topic, set(arrays.broker_ids))), len(partition.replicas)
    least = least_spread(factor, np.bincount(arrays.racks[allowed]).tolist())
    for way in permutations(allowed, factor):
        if (np.bincount(arrays.racks[[*way]]) ** 2).sum() == least:
            yield way


@pytest.mark.long
@given(few(all_alive=True), st.data())
@settings(max_examples=60, deadline=None)
def test_no_placement_in_the_sets_is_below_the_bound_or_copies_less(state: ClusterState, data: st.DataObject) -> None:
    """Brute force: what the diagnosis refuses has no placement, and where there are any the bounds hold for each."""
    policy = PlannerPolicy(broker_sets=data.draw(sets_of(state)))
    plan, search, arrays = propose(state, policy), ended(state, policy), cluster_arrays(state)
    sets = brokers_of_topics(state, policy)
    check_plan(state, policy, plan)
    ways = [*placements([[*in_set(arrays, sets, row)] for row in arrays.partitions])]
    assert (not ways) == any("replication factor" in line for line in plan.problems)
    if not ways:
        return
    assert plan.problems == ()
    skews = [skew_of_arrays(arrays, replicas) for replicas in ways]
    for resource in PLANNED:
        least = min(skew[resource].max_over_mean for skew in skews)
        # Levels that two loads force together are no bound of one of them.
        problem, placement = search.problem, search.placement
        bounds = lower_bounds(problem.arrays, placement, problem.even_share, crowded=False)
        assert bounds[resource] <= least * (1.0 + ROUNDING)
    loads = broker_loads(arrays, search.placement.replicas)
    most = np.maximum(search.problem.share * (1.0 + BAND) * loads.sum(axis=0), loads) * (1.0 + ROUNDING) + ROUNDING
    counted = ~arrays.columns.counts
    fitting = [
        copied(arrays, replicas, search.placement.disk_bytes)
        for replicas in ways
        if (broker_loads(arrays, replicas)[:, counted] <= most[:, counted]).all()
    ]
    assert least_bytes(search) <= min(fitting) * (1.0 + ROUNDING)


def on_six(*rows: tuple[int, ...], racks: str = "abcabc") -> ClusterState:
    """Partitions of topic orders with these replicas, and as many of topic rest alike; all loads are equal."""
    brokers = tuple(Broker(number, rack) for number, rack in enumerate(racks, start=1))
    both = cluster(*rows, *rows, brokers=brokers)
    partitions = (replace(row, topic="orders" if row.partition < len(rows) else "rest") for row in both.partitions)
    return replace(both, partitions=tuple(partitions))


AROUND = tuple((1 + n % 6, 1 + (n + 1) % 6) for n in range(12))


@pytest.mark.long
def test_fair_shares_are_those_within_the_set_and_of_what_is_left_beside_it() -> None:
    """Half of all lives on brokers 1 and 2, which is 1.5 fair shares; the other half is even on the other four."""
    state, policy = on_six(*AROUND), PlannerPolicy(broker_sets=(on(1, 2),))
    plan = propose(state, policy)
    after = check_plan(state, policy, plan)
    assert {broker for row in after.partitions if row.topic == "rest" for broker in row.replicas} == {3, 4, 5, 6}
    assert plan.skew_after["disk"]["max_over_mean"] == pytest.approx(1.5)
    assert plan.lower_bound["disk"] == pytest.approx(1.5)
    carried = plan.loads_after["disk"]
    assert [carried[broker] / carried[1] for broker in (2, 3, 4, 5, 6)] == pytest.approx([1.0, 0.5, 0.5, 0.5, 0.5])
    (line,) = (line for line in plan.diagnosis if "fair shares there" in line)
    assert line.startswith("orders may only be on brokers 1, 2, and no placement has ")
    assert line.endswith("below 1.500 fair shares there: add brokers to the set")
    assert propose(after, policy).movements == ()


@pytest.mark.long
def test_a_movement_into_the_set_says_so() -> None:
    plan = propose(on_six(*AROUND), PlannerPolicy(broker_sets=(BrokerSet(ORDERS, racks=frozenset({"a", "b"})),)))
    first = next(row for row in plan.movements if row.topic == "orders" and 3 in row.old_replicas)
    assert first.reason == "belongs on brokers of racks a, b: broker 3 is not in the set of topic orders"


@pytest.mark.long
def test_replicas_are_spread_over_the_racks_of_the_set_alone() -> None:
    """Both brokers of rack a are the set: that its partitions are in one rack is no fault."""
    policy = PlannerPolicy(broker_sets=(BrokerSet(ORDERS, racks=frozenset({"a"})),))
    state = on_six(*AROUND)
    plan = propose(state, policy)
    after = check_plan(state, policy, plan)
    assert plan.problems == ()
    assert {frozenset(row.replicas) for row in after.partitions if row.topic == "orders"} == {frozenset({1, 4})}
    assert propose(after, policy).movements == ()


@pytest.mark.long
def test_racks_within_a_set_force_what_they_hold() -> None:
    """Broker 1 alone is in rack a of the set, and holds a replica of each of its partitions: a quarter of all."""
    state = on_six(*AROUND, racks="abbabb")
    policy = PlannerPolicy(broker_sets=(on(1, 2, 3),))
    plan = propose(state, policy)
    check_plan(state, policy, plan)
    loads = plan.loads_after["disk"]
    assert loads[1] == pytest.approx(sum(loads.values()) / 4)
    assert plan.lower_bound["disk"] == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("state", "remain"), [(BrokerState.ALIVE, "2 of its set (brokers 1, 2)"), (BrokerState.DEAD, "1 of its set")]
)
def test_a_set_with_fewer_brokers_than_replicas_moves_nothing_and_says_so(state: BrokerState, remain: str) -> None:
    cluster_of_six = on_six((1, 2, 3), (2, 3, 4))
    brokers = (replace(cluster_of_six.brokers[0], state=state), *cluster_of_six.brokers[1:])
    plan = propose(replace(cluster_of_six, brokers=brokers), PlannerPolicy(broker_sets=(on(1, 2),), rules_only=True))
    assert not [row for row in plan.movements if row.topic == "orders"]
    assert not plan.feasible
    assert any(f"replication factor 3 needs 3 brokers, {remain}" in line for line in plan.problems), plan.problems
    assert any("to the set, or lower the factor first" in line for line in plan.problems)


def test_a_set_without_room_says_what_it_lacks() -> None:
    state = on_six(*AROUND)
    brokers = tuple(replace(row, disk_room_bytes=1500.0) for row in state.brokers)
    plan = propose(replace(state, brokers=brokers), PlannerPolicy(broker_sets=(on(1, 2),), rules_only=True))
    (line,) = plan.problems
    assert line.startswith("14 replicas stay outside brokers 1, 2, the set of orders: they hold ")
    assert "brokers 1, 2 have room for 1.0 kB: add brokers to the set, or disk to these; left out: orders-" in line


def test_what_has_no_room_in_the_set_at_first_comes_once_others_have_left() -> None:
    """Broker 1 is the set, and full of topic rest, which balance moves away."""
    brokers = tuple(Broker(number, capacity=Capacity(1e9, 1e9, 3000.0)) for number in (1, 2, 3))
    state = cluster((2,), (1,), (1,), (1,), brokers=brokers)
    state = replace(state, partitions=(replace(state.partitions[0], topic="orders"), *state.partitions[1:]))
    policy = PlannerPolicy(broker_sets=(on(1),))
    plan = propose(state, policy)
    after = check_plan(state, policy, plan)
    assert plan.problems == ()
    assert next(row.replicas for row in after.partitions if row.topic == "orders") == (1,)


def test_what_a_dead_broker_of_the_set_held_is_replaced_within_it() -> None:
    state = on_six((1, 2), (2, 3), (3, 1))
    dead = replace(state, brokers=(replace(state.brokers[0], state=BrokerState.DEAD), *state.brokers[1:]))
    policy = PlannerPolicy(broker_sets=(on(1, 2, 3),), rules_only=True)
    after = check_plan(dead, policy, propose(dead, policy))
    assert {frozenset(row.replicas) for row in after.partitions if row.topic == "orders"} == {frozenset({2, 3})}


def test_topics_that_may_not_move_stay_outside_and_are_named() -> None:
    policy = PlannerPolicy(broker_sets=(on(1, 2, 9),), excluded_topics=ORDERS)
    plan = propose(on_six(*AROUND), policy)
    assert plan.problems == ()
    assert "16 replicas are outside brokers 1, 2, 9, the set of orders: this plan may not move that" in plan.diagnosis
    assert "the set of orders names broker 9, which the cluster does not have" in plan.diagnosis


@pytest.mark.long
def test_sets_that_share_brokers_count_together() -> None:
    """What lives on brokers 1, 2 and on 2, 3 is three quarters of all: 1.5 fair shares on each of the three."""
    state = on_six(*AROUND)
    topics = ("first", "first", "second", "second", "second", "second", "third", "third")
    rows = tuple(replace(row, topic=topics[n % 8], partition=n) for n, row in enumerate(state.partitions))
    sets = (on(1, 2, topics=frozenset({"first"})), on(1, 2, 3, topics=frozenset({"second"})))
    policy = PlannerPolicy(broker_sets=sets)
    plan = propose(replace(state, partitions=rows), policy)
    check_plan(replace(state, partitions=rows), policy, plan)
    assert plan.lower_bound["disk"] == pytest.approx(1.5)
    carried = plan.loads_after["disk"]
    assert carried[1] == pytest.approx(carried[3], rel=0.1)


def test_lists_that_a_person_asks_for_name_the_set_that_they_break() -> None:
    policy = PlannerPolicy(broker_sets=(on(1, 2, 3),))
    plan = plan_as_asked(on_six((1, 2)), policy, {("orders", 0): (1, 5)}, "asked for")
    assert "1 partition has replicas outside the set of brokers of its topic: orders-0" in plan.problems


def test_more_replicas_go_to_brokers_of_the_set() -> None:
    policy, state = PlannerPolicy(broker_sets=(on(1, 2, 6),)), on_six((1, 2))
    assert lists_with_factor(state, policy, {"orders": 3}, {}) == {("orders", 0): (1, 2, 6)}
    with pytest.raises(InputError, match="factor 4 needs 4 brokers, 3 of its set may take replicas"):
        lists_with_factor(state, policy, {"orders": 4}, {})


@given(clusters(), st.data())
@settings(max_examples=20, deadline=None)
def test_loads_of_sets_are_as_even_as_a_flow_can_make_them(state: ClusterState, data: st.DataObject) -> None:
    """No group of brokers has to hold more than their shares, by each group of all brokers (Hall's condition)."""
    policy = PlannerPolicy(broker_sets=data.draw(sets_of(state)))
    search = search_of(state, policy)
    arrays, problem = search.problem.arrays, search.problem
    if arrays.sets is None or not arrays.alive.any():
        return
    kept, alive = arrays.sets.kept_set, np.flatnonzero(arrays.alive)
    if problem.policy.excluded_brokers or search.placement.in_racks is not None:
        return
    loads = search.placement.following * (arrays.replicas[:, 1:] != NO_BROKER).sum(axis=1)[:, None]
    loads = loads + search.placement.leading
    for count in range(1, len(alive) + 1):
        for group in combinations(alive, count):
            outside = np.ones(len(arrays.broker_ids), dtype=np.bool_)
            outside[list(group)] = False
            inside = ~(arrays.sets.members[kept] & arrays.alive & outside).any(axis=1) & (kept > 0)
            forced = loads[inside].sum(axis=0)
            assert (problem.share[list(group)].sum(axis=0) >= forced - ROUNDING).all()
