"""A broker that is above its capacity in one load still takes what adds nothing to that load."""

import pytest

from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
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
