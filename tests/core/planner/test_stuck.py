"""Where every single movement makes another broker worse, several together still get on."""

import pytest

from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.invariants import check_plan

Row = tuple[tuple[int, ...], float, float, float]
"""Replicas, bytes in, bytes out, disk."""


def of(brokers: int, *rows: Row) -> ClusterState:
    partitions = (Partition("t", number, row[0], PartitionLoad(*row[1:])) for number, row in enumerate(rows))
    return ClusterState("c", 0, tuple(Broker(broker) for broker in range(1, brokers + 1)), tuple(partitions))


def test_two_heavy_partitions_on_one_broker_part() -> None:
    cluster = of(4, ((1,), 7.0, 8.0, 100.0), ((1,), 3.0, 18.0, 800.0))
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    for resource in ("bytes_in", "bytes_out", "disk", "leader_bytes_in"):
        assert plan.skew_after[resource]["max_over_mean"] == pytest.approx(plan.lower_bound[resource])


def test_a_heavy_leadership_leaves_the_broker_that_holds_another_heavy_partition_and_copies_nothing() -> None:
    cluster = of(2, ((2, 1), 5.494, 3.964, 769.5), ((2,), 1.195, 2.651, 7104.0))
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    assert [(movement.partition, movement.new_replicas) for movement in plan.movements] == [(0, (1, 2))]


def test_two_brokers_that_are_both_above_a_limit_exchange_leaderships() -> None:
    cluster = of(
        2,
        ((2, 1), 4.753, 2.745, 367.7),
        ((1, 2), 1.445, 11.1, 233.1),
        ((2, 1), 8.637, 7.794, 278.9),
        ((1, 2), 3.346, 4.831, 108.6),
        ((1, 2), 1.474, 8.291, 651.3),
    )
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    assert plan.bytes_to_move == 0.0
    assert max(plan.skew_after[load]["max_over_mean"] for load in ("bytes_out", "leader_bytes_in")) < 1.04
