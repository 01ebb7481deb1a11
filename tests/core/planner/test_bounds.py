"""What racks and a heavy partition force on brokers: bounds that no placement beats, and that plans meet."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from assignor_core.load import cluster_arrays
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.bounds import level_of_heaviest, lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import problem_of
from assignor_core.planner.two_loads import levels_together
from assignor_core.racks import RackSpread
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays

COPIED = (Resource.BYTES_IN, Resource.DISK)
ROUNDING = 1e-9


def cluster(racks: str, factor: int, loads: list[float]) -> ClusterState:
    """Brokers from 0 in these racks; all partitions on the first `factor` of them, with as much disk as bytes in."""
    brokers = tuple(Broker(number, rack) for number, rack in enumerate(racks))
    partitions = tuple(
        Partition("t", number, tuple(range(factor)), PartitionLoad(load, load, load))
        for number, load in enumerate(loads)
    )
    return ClusterState("racks", 0, brokers, partitions)


def bounds_of(state: ClusterState) -> dict[str, float]:
    arrays = cluster_arrays(state)
    placement = Placement(arrays)
    return lower_bounds(arrays, placement, problem_of(arrays, PlannerPolicy(), placement).share, crowded=False)


def least_of_all_placements(state: ClusterState, factor: int) -> float:
    """The least max over mean of bytes in over all placements that spread racks as evenly as they can."""
    arrays = cluster_arrays(state)
    racks = {broker.broker_id: broker.rack for broker in state.brokers}
    spread = RackSpread(racks, in_use=racks.keys())
    allowed = [row for row in combinations(sorted(racks), factor) if not spread.is_crowded(row)]
    return min(
        skew_of_arrays(arrays, np.array(rows, dtype=np.int32))[Resource.BYTES_IN].max_over_mean
        for rows in product(allowed, repeat=len(state.partitions))
    )


@pytest.mark.parametrize(
    "racks", ["aabb", "abbb", "aabc", *(pytest.param(more, marks=pytest.mark.long) for more in ("abcd", "abbcc"))]
)
@pytest.mark.parametrize("factor", [2, 3])
def test_no_placement_at_all_is_below_the_bound(racks: str, factor: int) -> None:
    random = np.random.default_rng(len(racks) + factor)
    state = cluster(racks, factor, [*random.uniform(1, 3, size=3).tolist(), float(random.choice((1.0, 8.0, 20.0)))])
    bounds, least = bounds_of(state), least_of_all_placements(state, factor)
    for resource in COPIED:
        assert 1.0 <= bounds[resource] <= least + ROUNDING


def test_a_broker_that_is_alone_in_its_rack_holds_one_of_three_replicas_of_all() -> None:
    """Racks of one and three brokers can't hold alike: of three replicas the small one holds one, the other two."""
    assert bounds_of(cluster("abbb", 3, [1.0] * 40))[Resource.BYTES_IN] == pytest.approx(4 / 3)


def test_the_brokers_of_a_heavy_partition_carry_what_the_others_may_not_hold_twice() -> None:
    """The heavy one is 10 on three brokers, and 10 others are 1 each: the two other brokers hold 10 each at most.

    So of all 60 the three hold 40 or more, each 40 / 3, where a fair share is 12.
    """
    assert bounds_of(cluster("abcde", 3, [10.0] + [1.0] * 10))[Resource.DISK] == pytest.approx(40 / 3 / 12)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1,))])
@pytest.mark.parametrize(
    ("racks", "factor"), [("abc", 1), pytest.param("abcd", 2, marks=pytest.mark.long), ("aab", 1), ("aabb", 2)]
)
def test_no_placement_at_all_has_two_loads_below_what_the_heaviest_forces_on_both(
    racks: str, factor: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rates = [*random.uniform(1, 3, size=3).tolist(), 9.0]
    sizes = [*random.uniform(1, 3, size=3).tolist(), 4.0]
    state = cluster(racks, factor, rates)
    partitions = tuple(
        replace(row, load=PartitionLoad(rate, rate, size))
        for row, rate, size in zip(state.partitions, rates, sizes, strict=True)
    )
    state = replace(state, partitions=partitions)
    arrays, bounds = cluster_arrays(state), bounds_of(state)
    placement = Placement(arrays)
    share = problem_of(arrays, PlannerPolicy(), placement).share
    for scale in (1.0, 0.5):
        scaled: dict[str, float] = {resource: max(1.0, scale * bounds[resource]) for resource in COPIED}
        level = levels_together(arrays, placement, share, scaled).get(COPIED, 1.0)
        assert level <= least_of_two(state, factor, scaled) + 1e-6


def least_of_two(state: ClusterState, factor: int, bounds: dict[str, float]) -> float:
    """The least factor on `bounds` that both loads meet, over all placements that keep racks as even as they can."""
    arrays = cluster_arrays(state)
    racks = {broker.broker_id: broker.rack for broker in state.brokers}
    spread = RackSpread(racks, in_use=racks.keys())
    allowed = [row for row in combinations(sorted(racks), factor) if not spread.is_crowded(row)]
    skews = (
        skew_of_arrays(arrays, np.array(rows, dtype=np.int32))
        for rows in product(allowed, repeat=len(state.partitions))
    )
    return min(max(skew[resource].max_over_mean / bounds[resource] for resource in COPIED) for skew in skews)


def test_the_broker_of_a_heavy_partition_sorts_the_others_or_leaves_its_disk_empty() -> None:
    """Of three brokers one has the heavy partition: its fair share of the network, and nothing on disk.

    The six others keep alike. At level l its broker holds l - 1 fair shares of the disk, or rather the part of the
    others that brings so much of the network; each of both others holds l of 3. The others are 2 thirds of the network
    and all of the disk: (l - 1) / 3 * 3 / 2 + 2 l / 3 = 1 at l = 9 / 7.
    """
    state = cluster("abc", 1, [3.0] + [1.0] * 6)
    heavy, *others = state.partitions
    state = replace(state, partitions=(replace(heavy, load=PartitionLoad(3.0, 3.0, 0.0)), *others))
    arrays = cluster_arrays(state)
    placement = Placement(arrays)
    share = problem_of(arrays, PlannerPolicy(), placement).share
    bounds: dict[str, float] = dict.fromkeys(COPIED, 1.0)
    levels = levels_together(arrays, placement, share, bounds)
    assert levels[COPIED] == pytest.approx(9 / 7)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 10))])
def test_no_placement_on_unequal_brokers_is_below_the_level_of_the_heaviest(seed: int) -> None:
    random = np.random.default_rng(seed)
    share = random.choice((1.0, 2.0, 3.0), size=int(random.integers(2, 4)))
    share /= share.sum()
    loads = random.choice((0.1, 1.0, 3.0), size=int(random.integers(1, 8))) * random.uniform(0.9, 1.1)
    loads /= loads.sum()
    least = min(
        float((np.bincount(placed, loads, len(share)) / share).max())
        for placed in product(range(len(share)), repeat=len(loads))
    )
    assert level_of_heaviest(loads, share) <= least + ROUNDING


def test_one_hot_partition_more_than_large_brokers_is_a_bound() -> None:
    """Two of six brokers carry a quarter each. A third partition of a quarter is twice what any broker has left."""
    share = np.array([2, 2, 1, 1, 1, 1]) / 8
    assert level_of_heaviest(np.full(2, 0.25), share) == pytest.approx(1.0)
    assert level_of_heaviest(np.full(3, 0.25), share) == pytest.approx(2.0)
