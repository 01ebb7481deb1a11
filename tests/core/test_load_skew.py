"""Loads of brokers and their skew, on clusters that can be checked by head."""

import pytest

from assignor_core.errors import InputError
from assignor_core.load import NEGLIGIBLE, broker_loads, cluster_arrays
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.resources import PLANNED
from assignor_core.skew import Skew, measure_skew, skew_of
from tests.core.planner.cases import founding


def test_a_leader_takes_sends_and_serves_and_followers_take() -> None:
    partition = Partition("t", 0, (2, 1, 3), PartitionLoad(10.0, 5.0, 100.0))
    arrays = cluster_arrays(ClusterState("c", 0, (Broker(3), Broker(2), Broker(1)), (partition,)))
    loads = dict(zip(arrays.broker_ids, broker_loads(arrays).tolist(), strict=True))
    leader, *followers = (dict(zip(PLANNED, loads[broker], strict=True)) for broker in (2, 1, 3))
    assert leader.items() >= {
        "bytes_in": 10.0, "bytes_out": 25.0, "disk": 100.0, "leader_bytes_in": 10.0, "leaders": 1.0, "replicas": 1.0
    }.items()  # fmt: skip
    for follower in followers:
        assert follower.items() >= {
            "bytes_in": 10.0, "bytes_out": 0.0, "disk": 100.0, "leader_bytes_in": 0.0, "leaders": 0.0, "replicas": 1.0
        }.items()  # fmt: skip


def test_the_founding_scenario_is_skewed_by_a_quarter() -> None:
    skew = measure_skew(founding())["bytes_in"]
    assert skew.max_over_mean == pytest.approx(1.25)
    assert skew.deviation == pytest.approx({1: 0.25, 2: -0.15, 3: -0.10})


def test_brokers_that_are_not_alive_do_not_count() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=BrokerState.DRAINING))
    partitions = tuple(Partition("t", number, (number + 1,), PartitionLoad(9.0, 0.0, 1.0)) for number in range(3))
    skew = measure_skew(ClusterState("c", 0, brokers, partitions))["bytes_in"]
    assert skew.max_over_mean == 1.0
    assert set(skew.deviation) == {1, 2}


def test_of_several_windows_the_most_uneven_counts() -> None:
    load = PartitionLoad((1.0, 1.0), (0.0, 0.0), (1.0, 1.0))
    peak = PartitionLoad((1.0, 3.0), (0.0, 0.0), (1.0, 1.0))
    state = ClusterState("c", 0, (Broker(1), Broker(2)), (Partition("t", 0, (1,), load), Partition("t", 1, (2,), peak)))
    assert measure_skew(state)["bytes_in"].max_over_mean == 1.5


def test_of_equally_uneven_windows_the_first_counts() -> None:
    loads = ((3.0, 3.0), (2.0, 3.0), (1.0, 0.0))  # the largest is 1.5 times the mean in both
    partitions = tuple(
        Partition("t", number, (number,), PartitionLoad(load, (0.0, 0.0), (1.0, 1.0)))
        for number, load in enumerate(loads)
    )
    state = ClusterState("c", 0, tuple(Broker(number) for number in range(3)), partitions)
    assert measure_skew(state)["bytes_in"].deviation == pytest.approx({0: 0.5, 1: 0.0, 2: -0.5})


def test_capacity_counts_only_where_every_broker_has_one() -> None:
    partitions = tuple(Partition("t", number, (number % 2 + 1,), PartitionLoad(1.0, 1.0, 1.0)) for number in range(2))
    one = (Broker(1, capacity=Capacity(3.0)), Broker(2))
    both = (Broker(1, capacity=Capacity(3.0)), Broker(2, capacity=Capacity(1.0)))
    assert measure_skew(ClusterState("c", 0, one, partitions))["bytes_in"].max_over_mean == 1.0
    assert measure_skew(ClusterState("c", 0, both, partitions))["bytes_in"].max_over_mean == 2.0


def test_no_load_at_all_is_even() -> None:
    assert skew_of({1: 0.0, 2: 0.0}).max_over_mean == 1.0
    assert skew_of({1: 0.0}).coefficient_of_variation == 0.0


def test_deviation_and_variation_are_those_of_utilisation() -> None:
    even, uneven = {1: 20.0, 2: 10.0}, {1: 30.0, 2: 10.0}
    assert skew_of(even, {1: 2.0, 2: 1.0}) == Skew(1.0, 0.0, {1: 0.0, 2: 0.0})
    assert skew_of(uneven) == Skew(1.5, 0.5, {1: 0.5, 2: -0.5})
    # Two thirds of the capacity is a quarter over the mean utilisation, one third is half below it.
    skew = skew_of({1: 50.0, 2: 10.0}, {1: 0.5, 2: 0.25})
    assert skew.deviation == pytest.approx({1: 0.25, 2: -0.5})
    assert skew.coefficient_of_variation == pytest.approx((2 / 3 / 16 + 1 / 3 / 4) ** 0.5)


def test_next_to_no_load_is_even() -> None:
    assert skew_of({1: NEGLIGIBLE, 2: 0.0}).max_over_mean == 1.0
    assert skew_of({1: 2 * NEGLIGIBLE, 2: 0.0}).max_over_mean == 2.0


def test_where_no_broker_is_alive_nothing_is_uneven() -> None:
    dead = ClusterState("c", 0, (Broker(1, state=BrokerState.DEAD),), ())
    assert measure_skew(dead) == dict.fromkeys(PLANNED, Skew(1.0, 0.0, {}))


def test_skew_of_nothing_or_without_a_capacity_is_an_input_error() -> None:
    with pytest.raises(InputError, match="found no broker"):
        skew_of({})
    with pytest.raises(InputError, match="no capacity of broker 2"):
        skew_of({1: 1.0, 2: 1.0}, {1: 1.0})
    with pytest.raises(InputError, match="a capacity that is not above 0"):
        skew_of({1: 1.0, 2: 1.0}, {1: 1.0, 2: 0.0})
