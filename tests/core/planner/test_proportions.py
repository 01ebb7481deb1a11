"""Brokers with more disk than network: the level that both loads can have at once, and plans that meet it."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from assignor_core.load import cluster_arrays
from assignor_core.model import Broker, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import problem_of
from assignor_core.planner.proportions import NOTICEABLE, levels_of_proportions
from assignor_core.planner.two_loads import levels_together
from assignor_core.racks import RackSpread
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays
from tests.core.planner.invariants import check_plan

NETWORK = 1e6
BOTH = (Resource.BYTES_IN, Resource.DISK)


def unequal_disks(disks: tuple[float, ...], loads: list[tuple[float, float]], *, racks: int = 0) -> ClusterState:
    """Brokers with equal networks and these disks; partitions with (bytes in, disk), all on the first broker."""
    brokers = tuple(
        Broker(number, f"r{number % racks}" if racks else None, capacity=Capacity(NETWORK, NETWORK, disk))
        for number, disk in enumerate(disks)
    )
    partitions = tuple(
        Partition("t", number, (number % len(disks),), PartitionLoad(rate, rate, size))
        for number, (rate, size) in enumerate(loads)
    )
    return ClusterState("unequal", 0, brokers, partitions)


def level_of(state: ClusterState) -> float:
    arrays = cluster_arrays(state)
    placement = Placement(arrays)
    share = problem_of(arrays, PlannerPolicy(), placement).share
    return float(levels_of_proportions(arrays, placement, share).max())


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_no_placement_at_all_is_below_the_level_in_both_loads(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = random.integers(1, 20, size=7)
    loads = [(float(rate), float(rate * random.uniform(5, 15))) for rate in rates]
    state = unequal_disks((4e6, 2e6, 1e6), loads)
    arrays, level = cluster_arrays(state), level_of(state)
    least = min(
        max(skew_of_arrays(arrays, np.array(placed, dtype=np.int32)[:, None])[name].max_over_mean for name in BOTH)
        for placed in product(range(3), repeat=len(loads))
    )
    assert 1.05 < level <= least + NOTICEABLE


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(("racks", "factor"), [("aabb", 2), ("abbb", 2), ("aabc", 2), ("aabbc", 3)])
def test_no_placement_that_spreads_racks_is_below_the_level(racks: str, factor: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    disks = (4e6, 1e6, 2e6, 1e6, 1e6)[: len(racks)]
    brokers = tuple(
        Broker(number, rack, capacity=Capacity(NETWORK, NETWORK, disk))
        for number, (rack, disk) in enumerate(zip(racks, disks, strict=True))
    )
    spread = RackSpread(dict(enumerate(racks)), in_use=range(len(racks)))
    allowed = [row for row in combinations(range(len(racks)), factor) if not spread.is_crowded(row)]
    partitions = []
    for number in range(4):
        rate = float(random.integers(1, 20))
        load = PartitionLoad(rate, rate, rate * float(random.uniform(5, 15)))
        partitions.append(Partition("t", number, allowed[0], load))
    state = ClusterState("racks", 0, brokers, tuple(partitions))
    arrays, level = cluster_arrays(state), level_of(state)
    least = min(
        max(skew_of_arrays(arrays, np.array(rows, dtype=np.int32))[name].max_over_mean for name in BOTH)
        for rows in product(allowed, repeat=len(partitions))
    )
    assert 1.0 < level <= least + NOTICEABLE


def test_a_rack_has_to_sort_what_it_must_hold_by_itself() -> None:
    """Both racks hold a replica of all. In rack a broker 0 has three quarters of its disk and half of its network.

    All partitions keep alike for what is written. At 4 thirds of its network broker 0 holds two thirds of all, and the
    third that is left is 4 thirds of what broker 1 should hold. All disks of rack b are alike, and even.
    """
    disks = {"a": (3e6, 1e6), "b": (2e6, 2e6)}
    brokers = tuple(
        Broker(2 * number + at, rack, capacity=Capacity(NETWORK, NETWORK, disk))
        for number, rack in enumerate(disks)
        for at, disk in enumerate(disks[rack])
    )
    partitions = tuple(Partition("t", n, (n % 2, 2 + n % 2), PartitionLoad(1.0, 1.0, 10.0)) for n in range(240))
    state = ClusterState("racks", 0, brokers, partitions)
    assert level_of(state) == pytest.approx(4 / 3)
    plan = propose(state)
    for name in BOTH:
        assert plan.skew_after[name]["max_over_mean"] <= 4 / 3 * 1.03
    assert any(line.startswith("broker 0 has 38% of the disk and 25% of the network") for line in plan.diagnosis)
    assert not any("above the band" in line for line in plan.diagnosis)


def test_partitions_that_keep_alike_end_within_the_band_of_the_level() -> None:
    """All keep ten seconds: 3 of 9 brokers with twice the disk get a third of the network and half of the disk."""
    random = np.random.default_rng(1)
    loads = [(float(rate), 10.0 * float(rate)) for rate in random.uniform(1, 3, size=900)]
    state = unequal_disks((2e6, 1e6, 1e6) * 3, loads)
    plan = propose(state)
    assert level_of(state) == pytest.approx(1.2, abs=1e-6)
    for name in BOTH:
        assert plan.skew_after[name]["max_over_mean"] <= 1.2 * 1.03
        assert plan.lower_bound[name] <= 1.2
    assert any("(0, 3, 6) have 50% of the disk and 33% of the network" in line for line in plan.diagnosis)
    assert not any("above the band" in line for line in plan.diagnosis)
    assert propose(check_plan(state, PlannerPolicy(), plan)).movements == ()


def test_no_bound_is_above_what_a_load_is_now_though_two_loads_together_can_not_be_as_low() -> None:
    brokers = (Broker(1, None, capacity=Capacity(900.0, 900.0, 1e3)), Broker(2, None, capacity=Capacity(1e2, 1e2, 9e3)))
    partitions = tuple(
        Partition("t", number, (1 if number < 18 else 2,), PartitionLoad(5.0, 5.0, 40.0)) for number in range(20)
    )
    plan = propose(ClusterState("unequal", 0, brokers, partitions), PlannerPolicy())
    reached = {name: min(plan.skew_before[name]["max_over_mean"], row["max_over_mean"])
               for name, row in plan.skew_after.items()}  # fmt: skip
    assert plan.movements
    assert {name: bound for name, bound in plan.lower_bound.items() if bound > reached[name] + NOTICEABLE} == {}


def test_brokers_of_equal_proportions_have_no_level() -> None:
    brokers = tuple(Broker(number, capacity=Capacity(size, size, size)) for number, size in enumerate((4e6, 2e6, 1e6)))
    partitions = tuple(Partition("t", number, (0,), PartitionLoad(1.0, 1.0, float(number))) for number in range(9))
    assert level_of(ClusterState("equal", 0, brokers, partitions)) == 1.0


def test_one_rack_that_holds_a_replica_of_all_holds_no_more_than_that() -> None:
    """Each rack holds one of two replicas, whatever its disks: half of the disk where there is room for two thirds."""
    brokers = tuple(Broker(n, f"r{n % 2}", capacity=Capacity(NETWORK, NETWORK, 2e6 - 1e6 * (n % 2))) for n in range(4))
    partitions = tuple(
        Partition("t", number, (number % 2 * 2, number % 2 * 2 + 1), PartitionLoad(1.0, 1.0, float(number + 1)))
        for number in range(40)
    )
    assert level_of(ClusterState("racks", 0, brokers, partitions)) == pytest.approx(1.5)


@pytest.mark.parametrize(("rate", "size"), [(1.0, 0.0), (0.0, 1.0)])
def test_a_load_that_nothing_brings_forces_nothing_on_another(rate: float, size: float) -> None:
    """Empty topics, or ones that nobody writes to: on any brokers both loads may be even."""
    disks: tuple[float, ...] = (4e6, 4e6, *[1e6] * 4)
    copies = [(n % 2, 2 + n % 4) if n % 3 else (0, 1) for n in range(60)]
    state = unequal_disks(disks, [(rate, size)] * 60)
    pairs = [replace(row, replicas=both) for row, both in zip(state.partitions, copies, strict=True)]
    state = replace(state, partitions=tuple(pairs))
    assert level_of(state) == 1.0
    plan = propose(state)
    assert set(plan.lower_bound.values()) == {1.0}
    assert not any("of the disk" in line for line in plan.diagnosis)
    loaded = Resource.BYTES_IN if rate else Resource.DISK
    assert plan.skew_after[loaded]["max_over_mean"] <= 1.03
    heavy = replace(state.partitions[0], load=PartitionLoad(20 * rate, 20 * rate, 20 * size))
    assert levels_of_two(replace(state, partitions=(heavy, *state.partitions[1:8]))) == {}


def levels_of_two(state: ClusterState) -> dict[tuple[Resource, Resource], float]:
    arrays = cluster_arrays(state)
    placement = Placement(arrays)
    share = problem_of(arrays, PlannerPolicy(), placement).share
    return levels_together(arrays, placement, share, dict.fromkeys(BOTH, 1.0))
