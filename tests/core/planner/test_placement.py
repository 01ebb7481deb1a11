"""A placement and the loads that follow from its replicas, whatever it has taken before."""

import random
from dataclasses import replace

import numpy as np
import pytest

from assignor_core.load import NEGLIGIBLE, NO_BROKER, ClusterArrays, broker_loads, cluster_arrays
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner.placement import GRID, Placement, on_grid
from assignor_core.resources import Resource
from tests.core.planner.cases import cluster, state_of


def arrays_of(*replicas: tuple[int, ...], loads: tuple[float, ...] = ()) -> ClusterArrays:
    """Topic t with these replica lists on brokers 1 to 4: indices 0 to 3."""
    return cluster_arrays(cluster(*replicas, loads=loads))


def column(placement: Placement, resource: Resource) -> list[float]:
    """Load of each broker."""
    figures: list[float] = placement.loads[:, placement.arrays.columns.of(resource)].ravel().tolist()
    return figures


def shuffled(draws: random.Random, row: list[int], brokers: int) -> list[int]:
    """Another row of as many replicas on any of the brokers."""
    return draws.sample(range(brokers), len(row))


@pytest.mark.parametrize("partitions", [1, 3, 80])
def test_loads_follow_the_replicas_to_the_bit(partitions: int) -> None:
    draws = random.Random(partitions)
    replicas = tuple(tuple(draws.sample((1, 2, 3, 4), draws.choice((1, 2, 3)))) for _ in range(partitions))
    placement = Placement(arrays_of(*replicas, loads=tuple(float(draws.randint(1, 9)) for _ in replicas)))
    width = placement.original.shape[1]
    for _ in range(20):
        rows = [shuffled(draws, [b for b in row if b != NO_BROKER], 4) for row in placement.original.tolist()]
        placement.take(np.array([row + [NO_BROKER] * (width - len(row)) for row in rows], dtype=np.int32))
        assert [set(row) - {NO_BROKER} for row in placement.replicas.tolist()] == [set(row) for row in rows]
        assert placement.replicas[:, 0].tolist() == [row[0] for row in rows]
        own = replace(placement.arrays, leader_load=placement.leading, follower_load=placement.following)
        assert (placement.loads == broker_loads(own, placement.replicas)).all()
        assert [len(placement.held_by(broker)) for broker in range(4)] == [
            sum(broker in row for row in rows) for broker in range(4)
        ]
    placement.take(placement.original)
    assert (placement.loads == placement.original_loads).all()
    assert placement.changed().tolist() == []


def test_a_move_and_a_new_leader_shift_their_own_loads() -> None:
    """Two partitions of 10 B/s on brokers 1 and 2; a leader sends 20 B/s to consumers. Fractions of 40 B/s each."""
    placement = state_of((1, 2), (1, 2), brokers=3).placement
    assert (column(placement, Resource.BYTES_IN), column(placement, Resource.LEADERS)) == ([0.5, 0.5, 0], [1, 0, 0])
    placement.take(np.array([[0, 2], [0, 1]]))
    assert (column(placement, Resource.BYTES_IN), column(placement, Resource.LEADERS)) == ([0.5, 0.25, 0.25], [1, 0, 0])
    placement.take(np.array([[2, 0], [0, 1]]))
    assert placement.replicas[0].tolist() == [2, 0]
    assert column(placement, Resource.LEADERS) == [0.5, 0, 0.5]


def test_followers_that_stay_keep_their_places() -> None:
    placement = Placement(arrays_of((1, 2, 3)))
    placement.take(np.array([[0, 2, 1]]))
    assert placement.changed().tolist() == [], "the order of followers means nothing"
    placement.take(np.array([[2, 3, 0]]))
    assert placement.replicas.tolist() == [[2, 3, 0]]


def test_what_changed_is_counted_in_bytes() -> None:
    placement = Placement(arrays_of((1, 2, 3), (1, 2), (4,), loads=(10.0, 20.0, 30.0)))
    assert placement.inflow().tolist() == [0, 0, 0, 0]
    first = placement.original.tolist()
    placement.take(np.array([[2, 1, 0], first[1], first[2]]))
    assert placement.changed().tolist() == [0], "a new leader copies nothing"
    assert placement.inflow().tolist() == [0, 0, 0, 0]
    placement.take(np.array([[2, 3, 0], [2, 3, NO_BROKER], first[2]]))
    assert placement.changed().tolist() == [0, 1]
    assert placement.inflow().tolist() == [0, 0, 2_000, 1_000 + 2_000]
    # A replica that moves within the list of brokers that held it is no copy.
    placement.take(np.array([[2, 3, 0], [0, 2, NO_BROKER], first[2]]))
    assert placement.inflow().tolist() == [0, 0, 2_000, 1_000]


def test_the_fullest_window_counts_for_disk() -> None:
    loads = (
        PartitionLoad((1.0, 1.0), (0.0, 0.0), (300.0, 100.0)),
        PartitionLoad((1.0, 1.0), (0.0, 0.0), (100.0, 300.0)),
    )
    partitions = tuple(Partition("t", number, (1, 2), load) for number, load in enumerate(loads))
    placement = Placement(cluster_arrays(ClusterState("c", 0, (Broker(1), Broker(2)), partitions)))
    assert placement.disk_bytes.tolist() == [300.0, 300.0]
    assert placement.disk_fraction.tolist() == [on_grid(np.array(300 / 800)), on_grid(np.array(300 / 800))]


def test_a_column_without_load_is_0_everywhere() -> None:
    placement = Placement(arrays_of((1, 2), (3,), loads=(0.0, 0.0)))
    for resource in (Resource.BYTES_IN, Resource.DISK):
        assert column(placement, resource) == [0, 0, 0, 0]
    assert column(placement, Resource.LEADERS) == [0.5, 0, 0.5, 0]
    assert placement.scale[placement.arrays.columns.of(Resource.BYTES_IN)].tolist() == [0.0]


def test_a_load_is_one_above_the_negligible() -> None:
    for load, scale in ((NEGLIGIBLE, 0.0), (2 * NEGLIGIBLE, 1 / (2 * NEGLIGIBLE))):
        placement = Placement(arrays_of((1,), loads=(load,)))
        assert placement.scale[placement.arrays.columns.of(Resource.BYTES_IN)].tolist() == [scale]


def test_fractions_lie_on_a_grid_of_2_to_the_minus_40() -> None:
    assert GRID == 2**40
    assert on_grid(np.array([1 / 3])).tolist() == [round(2**40 / 3) / 2**40]
