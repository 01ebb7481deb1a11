"""What fits into no wave by the limits of brokers is carried out below the level of the fullest broker."""

from collections.abc import Mapping

from assignor_core.model import Broker, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.invariants import check_plan

ONE_BY_ONE = PlannerPolicy(wave_movements_max=1, count_band=1.0)


def _exchange_needed(capacity: Capacity) -> ClusterState:
    """Broker 1 carries 10, broker 2 carries 6 and broker 3 carries 8: to exchange 3 for 1 makes them even."""
    return _holding({1: (3.0, 7.0), 2: (1.0, 5.0), 3: (4.0, 4.0)}, capacity)


def _holding(held: Mapping[int, tuple[float, ...]], capacity: Capacity) -> ClusterState:
    """Brokers that lead partitions of these loads, without followers."""
    rows = [(broker, load) for broker, loads in held.items() for load in loads]
    partitions = tuple(
        Partition("t", number, (broker,), PartitionLoad(load, 2 * load, 100 * load))
        for number, (broker, load) in enumerate(rows)
    )
    return ClusterState("c", 0, tuple(Broker(broker, capacity=capacity) for broker in held), partitions)


def test_an_exchange_runs_in_two_waves_where_no_broker_is_fuller_than_the_fullest_was() -> None:
    cluster = _exchange_needed(Capacity())
    plan = propose(cluster, ONE_BY_ONE)
    check_plan(cluster, ONE_BY_ONE, plan)
    assert plan.skew_after["bytes_in"]["max_over_mean"] == 1.0
    assert [wave.movements for wave in plan.waves] == [1, 1]


def test_a_plan_that_leaves_movements_out_names_no_cheaper_ones() -> None:
    """Their part of its gain would be of the placement that it does not reach: up to 15 times its gain was seen."""
    held = {1: (1.0, 7.0), 2: (4.0, 5.0, 1.0), 3: (6.0,), 4: (5.0, 2.0), 5: (2.0, 2.0, 3.0)}
    cluster = _holding(held, Capacity(bytes_in_per_sec=10.5, bytes_out_per_sec=1e3, disk_bytes=1e6))
    plan = propose(cluster, ONE_BY_ONE)
    assert plan.movements
    assert "left out" in plan.diagnosis[0]
    assert plan.cheaper == ()


def test_it_is_left_out_where_a_wave_would_exceed_a_capacity() -> None:
    cluster = _exchange_needed(Capacity(bytes_in_per_sec=8.5, bytes_out_per_sec=1e3, disk_bytes=1e6))
    plan = propose(cluster, ONE_BY_ONE)
    check_plan(cluster, ONE_BY_ONE, plan)
    assert plan.movements == ()
    assert "left out" in plan.diagnosis[0]
