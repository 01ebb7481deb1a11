"""Exactly even or not at all, no movements for next to nothing, and the true reason of each movement."""

import pytest

from assignor_core.model import NO_LOAD, Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from tests.benchmarks.models import generate
from tests.benchmarks.shapes import variants
from tests.core.planner.invariants import check_plan


def _load(rate: float) -> PartitionLoad:
    return PartitionLoad(rate, 2 * rate, 100 * rate)


@pytest.mark.parametrize(
    "policy",
    [
        PlannerPolicy(count_band=2.0, only_brokers=frozenset({1})),
        PlannerPolicy(count_band=2.0, excluded_brokers=frozenset({2})),
    ],
    ids=("only broker 1", "without broker 2"),
)
def test_within_the_band_nothing_moves_where_brokers_that_are_left_alone_stay_uneven(policy: PlannerPolicy) -> None:
    loads = {1: (50.0, 1.0), 2: (51.0,), 3: (48.0,)}
    rows = [(broker, load) for broker, row in loads.items() for load in row]
    partitions = tuple(Partition("t", number, (broker,), _load(load)) for number, (broker, load) in enumerate(rows))
    cluster = ClusterState("c", 0, tuple(Broker(broker) for broker in loads), partitions)
    assert propose(cluster, policy).movements == ()


def test_an_empty_partition_that_is_spread_over_racks_says_so() -> None:
    brokers = (Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b"))
    empty = Partition("t", 0, (1, 2), NO_LOAD, is_load_known=False)
    cluster = ClusterState("c", 0, brokers, (empty, Partition("u", 0, (3, 1), _load(1.0))))
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    reason = next(movement.reason for movement in plan.movements if movement.topic == "t")
    assert reason.startswith("spreads replicas over racks")


@pytest.mark.long
@pytest.mark.parametrize(("seed", "variant"), [(129, "unequal"), (18, "dead")])
def test_where_all_is_within_band_and_bound_nothing_moves_that_copies_more_than_it_relieves(
    seed: int, variant: str
) -> None:
    state = generate(variants(seed)[variant], seed)
    after = check_plan(state, PlannerPolicy(), propose(state))
    assert propose(after).movements == ()
