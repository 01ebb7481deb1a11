"""Edits of a placement: after each of them its loads and lists are those of a placement that is made anew."""

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


def assert_true(placement: Placement) -> None:
    """Loads, to the bit, are those that follow from the replica lists."""
    anew = Placement(replace(placement.arrays, replicas=placement.replicas))
    leading, following = placement.leading, placement.following
    fresh = broker_loads(replace(anew.arrays, leader_load=leading, follower_load=following))
    assert (placement.loads == fresh).all()
    for broker in range(len(placement.loads)):
        held = placement.held_by(broker)
        assert (placement.replicas[held, placement.slots_of(held, broker)] == broker).all()
        assert len(held) == (placement.replicas == broker).sum()


@pytest.mark.parametrize("partitions", [1, 3, 80])
def test_loads_stay_true_through_any_edits(partitions: int) -> None:
    draws = random.Random(partitions)
    replicas = tuple(tuple(draws.sample((1, 2, 3, 4), draws.choice((1, 2, 3)))) for _ in range(partitions))
    placement = Placement(arrays_of(*replicas, loads=tuple(float(draws.randint(1, 9)) for _ in replicas)))
    for _ in range(80):
        partition = draws.randrange(partitions)
        row = placement.replicas[partition]
        slots = [slot for slot, broker in enumerate(row) if broker != NO_BROKER]
        free = [broker for broker in range(4) if broker not in row]
        edit = draws.choice(("move", "move", "lead", "restore"))
        if edit == "restore":
            placement.restore(partition)
            assert (placement.replicas[partition] == placement.original[partition]).all()
        elif edit == "move" and free:
            placement.move(partition, draws.choice(slots), draws.choice(free))
        elif edit == "lead" and len(slots) > 1:
            placement.lead(partition, draws.choice(slots[1:]))
        assert_true(placement)
    for partition in range(partitions):
        placement.restore(partition)
    assert (placement.loads == placement.original_loads).all()
    assert placement.changed().tolist() == []


def test_a_move_and_a_new_leader_shift_their_own_loads() -> None:
    """Two partitions of 10 B/s on brokers 1 and 2; a leader sends 20 B/s to consumers. Fractions of 40 B/s each."""
    placement = state_of((1, 2), (1, 2), brokers=3).placement
    assert (column(placement, Resource.BYTES_IN), column(placement, Resource.LEADERS)) == ([0.5, 0.5, 0], [1, 0, 0])
    placement.move(0, 1, 2)
    assert (column(placement, Resource.BYTES_IN), column(placement, Resource.LEADERS)) == ([0.5, 0.25, 0.25], [1, 0, 0])
    placement.lead(0, 1)
    assert placement.replicas[0].tolist() == [2, 0]
    assert column(placement, Resource.LEADERS) == [0.5, 0, 0.5]
    assert placement.loads_at(np.array([0, 0, 1]), np.array([0, 1, 1])).tolist() == [
        placement.leading[0].tolist(),
        placement.following[0].tolist(),
        placement.following[1].tolist(),
    ]


def test_what_changed_is_counted_in_bytes() -> None:
    placement = Placement(arrays_of((1, 2, 3), (1, 2), (4,), loads=(10.0, 20.0, 30.0)))
    assert placement.inflow().tolist() == [0, 0, 0, 0]
    placement.lead(0, 2)  # copies nothing
    assert placement.changed().tolist() == [0]
    assert placement.inflow().tolist() == [0, 0, 0, 0]
    placement.move(0, 1, 3)
    placement.move(1, 0, 2)
    placement.move(1, 1, 3)
    assert placement.changed().tolist() == [0, 1]
    assert placement.inflow().tolist() == [0, 0, 2_000, 1_000 + 2_000]
    # A replica that moves within the list of brokers that held it is no copy.
    placement.restore(1)
    placement.move(1, 1, 2)
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
