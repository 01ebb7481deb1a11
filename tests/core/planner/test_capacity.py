"""Capacities and most replicas hold; who is above one takes only what adds nothing to it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.cases import cluster, clusters
from tests.core.planner.invariants import check_plan

LOAD = PartitionLoad(1e6, 2e6, 1e9)


@pytest.mark.parametrize(
    "policy", [PlannerPolicy(), PlannerPolicy(leaders_only=True), PlannerPolicy(headroom=0.2)], ids=str
)
def test_leadership_moves_between_brokers_whose_disks_are_above_their_capacity(policy: PlannerPolicy) -> None:
    brokers = tuple(Broker(broker, capacity=Capacity(1e9, 1e9, 11e9)) for broker in (1, 2, 3))
    cluster = ClusterState("c", 0, brokers, tuple(Partition("t", n, (1, 2, 3), LOAD) for n in range(12)))
    plan = propose(cluster, policy)
    check_plan(cluster, policy, plan)
    assert plan.skew_after["leaders"]["max_over_mean"] == 1.0
    assert plan.bytes_to_move == 0.0


def test_followers_of_a_dead_broker_are_made_anew_on_brokers_that_are_read_too_much() -> None:
    states = {4: BrokerState.DEAD}
    brokers = tuple(
        Broker(broker, state=states.get(broker, BrokerState.ALIVE), capacity=Capacity(1e9, 1e7, 1e12))
        for broker in (1, 2, 3, 4)
    )
    cluster = ClusterState("c", 0, brokers, tuple(Partition("t", n, (1 + n % 3, 4), LOAD) for n in range(12)))
    plan = propose(cluster)
    after = check_plan(cluster, PlannerPolicy(), plan)
    assert not any(4 in partition.replicas for partition in after.partitions)


def test_a_disk_above_its_capacity_takes_nothing() -> None:
    brokers = (Broker(1, capacity=Capacity(1e9, 1e9, 1e12)), Broker(2, capacity=Capacity(1e9, 1e9, 1e9)))
    empty = tuple(Partition("t", n, (1,), PartitionLoad(1e6, 2e6, 0.0)) for n in range(6))
    full = tuple(Partition("full", n, (2,), LOAD) for n in range(2))
    policy = PlannerPolicy(excluded_topics=frozenset({"full"}))
    assert propose(ClusterState("c", 0, brokers, (*empty, *full)), policy).movements == ()


@given(clusters(reads=True), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_no_broker_gets_more_replicas_than_it_may_have(state: ClusterState, most: int) -> None:
    policy = PlannerPolicy(replicas_max=most)
    after = check_plan(state, policy, propose(state, policy))
    before, held = (
        Counter(broker for row in cluster.partitions for broker in row.replicas) for cluster in (state, after)
    )
    assert all(count <= max(most, before[broker]) for broker, count in held.items())


def test_a_full_broker_takes_none() -> None:
    """Broker 1 holds eight light replicas, and broker 2 two heavy ones: by load alone more would go to broker 1."""
    state = cluster(*[(1,)] * 8, (2,), (2,), loads=(1.0,) * 8 + (20.0,) * 2, brokers=(Broker(1), Broker(2)))
    assert {row.new_replicas for row in propose(state).movements} >= {(1,)}
    plan = propose(state, PlannerPolicy(replicas_max=8))
    after = check_plan(state, PlannerPolicy(replicas_max=8), plan)
    assert max(Counter(row.replicas[0] for row in after.partitions).values()) <= 8


@pytest.mark.parametrize("most", [1, 2])
def test_a_full_broker_takes_a_replica_only_in_exchange_for_another(most: int) -> None:
    """Broker 1 holds both heavy replicas and broker 2 both light ones, and each has as many as it may have, or more."""
    state = cluster((1,), (1,), (2,), (2,), loads=(30.0, 30.0, 10.0, 10.0), brokers=(Broker(1), Broker(2)))
    plan = propose(state, PlannerPolicy(replicas_max=most))
    after = check_plan(state, PlannerPolicy(replicas_max=most), plan)
    assert len(plan.movements) == 2
    assert Counter(row.replicas[0] for row in after.partitions) == {1: 2, 2: 2}


def test_where_no_broker_may_have_more_replicas_the_plan_says_so() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=BrokerState.DRAINING))
    plan = propose(cluster((1,), (2,), (3,), brokers=brokers), PlannerPolicy(replicas_max=1))
    assert not plan.movements
    assert "no broker may have more than 1 replica: add brokers, or raise that" in plan.problems[0]
