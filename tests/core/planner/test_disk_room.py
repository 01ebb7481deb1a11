"""Room on disks, capacities and most replicas: no plan exceeds them, and what is left out is named."""

from collections import Counter
from dataclasses import replace

import pytest

from assignor_core.errors import InputError
from assignor_core.model import (
    Broker,
    BrokerState,
    Capacity,
    ClusterState,
    Partition,
    PartitionLoad,
    cluster_from_json,
    cluster_to_json,
)
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.cases import cluster
from tests.core.planner.invariants import check_plan

DISK_BYTES = 1000.0


def full_cluster(*, away: int, used: float, replicas: int = 120, reserve: float = 0.1) -> ClusterState:
    """Six brokers whose disks are full to this part with replicas of one size; the last `away` are dead."""
    size = 6 * used * DISK_BYTES / replicas
    load = PartitionLoad(1.0, 1.0, size)
    partitions = tuple(
        Partition("t", number, (1 + number % 6, 1 + (number + 1 + number // 6 % 5) % 6), load)
        for number in range(replicas // 2)
    )
    room = max(0.0, (1.0 - reserve - used) * DISK_BYTES)
    brokers = tuple(
        Broker(row, None, BrokerState.ALIVE if row <= 6 - away else BrokerState.DEAD, disk_room_bytes=room)
        for row in range(1, 7)
    )
    return ClusterState("full", 0, brokers, partitions)


def copied_to(plan: Plan) -> dict[int, float]:
    copied: dict[int, float] = {}
    for movement in plan.movements:
        new = set(movement.new_replicas) - set(movement.old_replicas)
        for broker in new:
            copied[broker] = copied.get(broker, 0.0) + movement.bytes_to_move / len(new)
    return copied


@pytest.mark.long
@pytest.mark.parametrize(("away", "used"), [(1, 0.85), (3, 0.6)], ids=["one of six at 85 %", "three of six at 60 %"])
def test_relief_ends_at_the_ceiling_and_names_the_bound(away: int, used: float) -> None:
    """Without a ceiling the disks would come to hold 102 % and 120 %."""
    state = full_cluster(away=away, used=used)
    room = state.brokers[0].disk_room_bytes
    assert room is not None
    plan = propose(state, PlannerPolicy(only_brokers=frozenset(range(7 - away, 7))))
    check_plan(state, PlannerPolicy(), plan)
    copied = copied_to(plan)
    assert copied.keys() == set(range(1, 7 - away))
    size = state.partitions[0].load.disk_bytes
    assert isinstance(size, float)
    assert all(room - size < value <= room for value in copied.values())  # as far as room allows, and no further
    assert not plan.feasible
    assert "; left out: t-" in plan.problems[0]
    assert plan.problems[-1].endswith("moving can't help, add brokers or disks")


@pytest.mark.long
def test_relief_that_fits_is_whole() -> None:
    state = full_cluster(away=1, used=0.5)
    plan = propose(state, PlannerPolicy(only_brokers=frozenset({6})))
    assert plan.feasible
    assert {movement.key for movement in plan.movements} == {
        (row.topic, row.partition) for row in state.partitions if 6 in row.replicas
    }


@pytest.mark.long
def test_partitions_with_the_fewest_replicas_in_sync_are_made_anew_first() -> None:
    """Broker 5 has room for one replica; the lighter one is more endangered than the heavier ones."""
    light, heavy = PartitionLoad(1.0, 1.0, 10.0), PartitionLoad(9.0, 9.0, 10.0)
    partitions = (
        Partition("t", 0, (1, 2, 4), heavy, in_sync=2),
        Partition("t", 1, (1, 2, 4), light, in_sync=1),
        Partition("t", 2, (2, 1, 4), heavy, in_sync=2),
    )
    brokers = (
        *(Broker(row, disk_room_bytes=0.0) for row in (1, 2, 3)),
        Broker(4, state=BrokerState.DEAD),
        Broker(5, disk_room_bytes=10.0),
    )
    state = ClusterState("c", 0, brokers, partitions)
    plan = propose(state, PlannerPolicy(only_brokers=frozenset({4})))
    assert [(row.key, sorted(row.new_replicas)) for row in plan.movements] == [(("t", 1), [1, 2, 5])]
    assert plan.problems[0].startswith("broker 4 is dead and keeps 2 replicas: ")
    assert plan.problems[0].endswith("; left out: t-0, t-2")
    roomy = replace(state, brokers=(*brokers[:4], Broker(5)))
    assert propose(roomy, PlannerPolicy(only_brokers=frozenset({4}))).movements[0].key == ("t", 1)


def test_the_second_lost_replica_of_a_partition_waits_for_the_first_ones_of_others() -> None:
    """Both partitions have one replica in sync; room is for two replicas: each of them gets one."""
    load = PartitionLoad(1.0, 1.0, 10.0)
    partitions = (Partition("t", 0, (1, 4, 5), load), Partition("t", 1, (1, 4), load))
    brokers = (
        Broker(1, disk_room_bytes=0.0),
        Broker(2, disk_room_bytes=10.0),
        Broker(3, disk_room_bytes=10.0),
        *(Broker(row, state=BrokerState.DEAD) for row in (4, 5)),
    )
    plan = propose(ClusterState("c", 0, brokers, partitions), PlannerPolicy(only_brokers=frozenset({4, 5})))
    assert {row.key for row in plan.movements} == {("t", 0), ("t", 1)}
    assert "broker 5 is dead and keeps 1 replica" in plan.problems[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [PlannerPolicy(), PlannerPolicy(add=frozenset({3})), PlannerPolicy(drain=frozenset({1}))],
    ids=["skew", "add", "drain"],
)
def test_no_plan_passes_the_ceiling_whatever_leaves_the_broker(policy: PlannerPolicy) -> None:
    load = PartitionLoad(1.0, 1.0, 10.0)
    partitions = tuple(Partition("t", number, (1,), load) for number in range(9))
    brokers = (Broker(1, disk_room_bytes=0.0), Broker(2, disk_room_bytes=0.0), Broker(3, disk_room_bytes=25.0))
    state = ClusterState("c", 0, brokers, partitions)
    plan = propose(state, policy)
    assert copied_to(plan) == {3: 20.0}
    assert "their disks have no room above the reserve: " in " ".join(plan.diagnosis)


def test_a_disk_without_room_takes_not_even_an_empty_replica() -> None:
    partitions = tuple(Partition("t", number, (1,), PartitionLoad(1.0, 1.0, 0.0)) for number in range(4))
    brokers = (Broker(1), Broker(2, disk_room_bytes=0.0))
    assert propose(ClusterState("c", 0, brokers, partitions)).movements == ()


def test_the_model_keeps_room_and_replicas_in_sync() -> None:
    state = ClusterState(
        "c",
        0,
        (Broker(1, disk_room_bytes=5.0), Broker(2)),
        (Partition("t", 0, (1, 2), PartitionLoad(1.0, 1.0, 1.0), in_sync=1),),
    )
    assert cluster_from_json(cluster_to_json(state)) == state
    for room in (-1.0, "much", True):
        with pytest.raises(InputError, match="broker 1: disk_room_bytes"):
            cluster_from_json({"brokers": [{"broker_id": 1, "disk_room_bytes": room}], "partitions": []})


LOAD = PartitionLoad(1e6, 2e6, 1e9)


@pytest.mark.parametrize(
    "policy",
    [
        PlannerPolicy(leaders_only=True),
        *(pytest.param(policy, marks=pytest.mark.long) for policy in (PlannerPolicy(), PlannerPolicy(headroom=0.2))),
    ],
    ids=("leaders only", "any", "headroom"),
)
def test_leadership_moves_between_brokers_whose_disks_are_above_their_capacity(policy: PlannerPolicy) -> None:
    brokers = tuple(Broker(broker, capacity=Capacity(1e9, 1e9, 11e9)) for broker in (1, 2, 3))
    state = ClusterState("c", 0, brokers, tuple(Partition("t", n, (1, 2, 3), LOAD) for n in range(12)))
    plan = propose(state, policy)
    check_plan(state, policy, plan)
    assert plan.skew_after["leaders"]["max_over_mean"] == 1.0
    assert plan.bytes_to_move == 0.0


@pytest.mark.long
def test_followers_of_a_dead_broker_are_made_anew_on_brokers_that_are_read_too_much() -> None:
    states = {4: BrokerState.DEAD}
    brokers = tuple(
        Broker(broker, state=states.get(broker, BrokerState.ALIVE), capacity=Capacity(1e9, 1e7, 1e12))
        for broker in (1, 2, 3, 4)
    )
    state = ClusterState("c", 0, brokers, tuple(Partition("t", n, (1 + n % 3, 4), LOAD) for n in range(12)))
    plan = propose(state)
    after = check_plan(state, PlannerPolicy(), plan)
    assert not any(4 in partition.replicas for partition in after.partitions)


def test_a_disk_above_its_capacity_takes_nothing() -> None:
    brokers = (Broker(1, capacity=Capacity(1e9, 1e9, 1e12)), Broker(2, capacity=Capacity(1e9, 1e9, 1e9)))
    empty = tuple(Partition("t", n, (1,), PartitionLoad(1e6, 2e6, 0.0)) for n in range(6))
    full = tuple(Partition("full", n, (2,), LOAD) for n in range(2))
    policy = PlannerPolicy(excluded_topics=frozenset({"full"}))
    assert propose(ClusterState("c", 0, brokers, (*empty, *full)), policy).movements == ()


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
