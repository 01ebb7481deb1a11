"""A placement and the loads that follow from its replicas, whatever it has taken before."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.load import NEGLIGIBLE, NO_BROKER, ClusterArrays, broker_loads, cluster_arrays
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner.placement import GRID, Placement, on_grid
from assignor_core.planner.waves import pending_movement
from assignor_core.resources import Resource
from tests.core.planner.cases import cluster, clusters


def arrays_of(*replicas: tuple[int, ...], loads: tuple[float, ...] = ()) -> ClusterArrays:
    """Topic t with these replica lists on brokers 1 to 4: indices 0 to 3."""
    return cluster_arrays(cluster(*replicas, loads=loads))


def column(placement: Placement, resource: Resource) -> list[float]:
    """Load of each broker."""
    figures: list[float] = placement.loads[:, placement.arrays.columns.of(resource)].ravel().tolist()
    return figures


@pytest.mark.long
@given(clusters(reads=True), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_loads_follow_the_replicas(cluster: ClusterState, seed: int) -> None:
    """As a recount has them; pending movements have the change, and the first replicas the first loads, to the bit."""
    draws = random.Random(seed)
    arrays = cluster_arrays(cluster)
    placement = Placement(arrays)
    for _ in range(6):
        rows = arrays.replicas.copy()
        for row in rows:
            held = int((row != NO_BROKER).sum())
            if draws.random() < 0.5:
                row[:held] = draws.sample(range(len(arrays.broker_ids)), held)
        placement.take(rows)
        assert (np.sort(placement.replicas, axis=1) == np.sort(rows, axis=1)).all()
        assert (placement.replicas[:, 0] == rows[:, 0]).all()
        recount = broker_loads(arrays, placement.replicas) * placement.scale
        assert abs(recount - placement.loads).max(initial=0.0) < 1e-9
        change = np.zeros_like(placement.loads)
        for changed in placement.changed().tolist():
            movement = pending_movement(placement, changed)
            change[movement.brokers] += movement.change
        assert abs(placement.original_loads + change - placement.loads).max(initial=0.0) < 1e-9
    placement.take(placement.original)
    assert (placement.loads == placement.original_loads).all()


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
