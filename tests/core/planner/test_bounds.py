"""What racks, heavy partitions, unequal brokers and readers force: bounds that no placement beats, and that plans meet.

Brute force: each bound is compared with all placements that spread racks as evenly as they can.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np
import pytest

from assignor_core.load import cluster_arrays
from assignor_core.model import Broker, Capacity, ClusterState, Partition, PartitionLoad, ReaderRacks
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.bounds import level_of_heaviest, lower_bounds
from assignor_core.planner.proportions import NOTICEABLE, levels_of_proportions
from assignor_core.planner.targets import bounds_of
from assignor_core.planner.two_loads import levels_together
from assignor_core.racks import RackSpread
from assignor_core.resources import Resource
from assignor_core.skew import Skew, skew_of_arrays
from tests.core.planner.cases import placements, search_of
from tests.core.planner.invariants import check_plan

COPIED = (Resource.BYTES_IN, Resource.DISK)
LED = (Resource.BYTES_OUT, Resource.LEADER_BYTES_IN)
ROUNDING = 1e-9
NETWORK = 1e6
Rows = Sequence[tuple[int, ...]]


def even_rows(racks: Sequence[str | None], factor: int, *, by_leader: bool = False) -> Rows:
    """Replica lists that are spread over racks as evenly as they can be, of brokers 0, 1, ... in these `racks`."""
    spread = RackSpread(dict(enumerate(racks)), in_use=range(len(racks)))
    ways = (permutations if by_leader else combinations)(range(len(racks)), factor)
    return [row for row in ways if not spread.is_crowded(row)]


def least_of_all(state: ClusterState, allowed: Rows, value: Callable[[Mapping[str, Skew]], float]) -> float:
    """The least value of the skews of all placements of the `allowed` rows."""
    arrays = cluster_arrays(state)
    return min(value(skew_of_arrays(arrays, rows)) for rows in placements([allowed] * len(state.partitions)))


def worse_over(bounds: Mapping[str, float]) -> Callable[[Mapping[str, Skew]], float]:
    """Takes the worse of both copied loads of a placement, as a factor on its bound."""
    return lambda skew: max(skew[name].max_over_mean / bounds[name] for name in COPIED)


def bounds_alone(state: ClusterState) -> dict[str, float]:
    """Bounds of each load by itself."""
    search = search_of(state)
    return lower_bounds(search.problem.arrays, search.placement, search.problem.share, crowded=False)


def level_of(state: ClusterState) -> float:
    """The level that unequal brokers force."""
    search = search_of(state)
    return float(levels_of_proportions(search.problem.arrays, search.placement, search.problem.share).max())


def levels_of_two(state: ClusterState, bounds: Mapping[str, float]) -> dict[tuple[Resource, Resource], float]:
    """What the heaviest partition forces on two loads together."""
    search = search_of(state)
    return levels_together(search.problem.arrays, search.placement, search.problem.share, bounds)


def proven(state: ClusterState) -> dict[str, float]:
    """Bounds of a placement, each no higher than what it has."""
    search = search_of(state)
    return bounds_of(search.problem, search.placement)


def on_first(racks: str, factor: int, loads: Sequence[PartitionLoad]) -> ClusterState:
    """Brokers from 0 in these racks; all partitions on the first `factor` of them."""
    brokers = tuple(Broker(number, rack) for number, rack in enumerate(racks))
    rows = tuple(Partition("t", number, tuple(range(factor)), load) for number, load in enumerate(loads))
    return ClusterState("racks", 0, brokers, rows)


def alike(*loads: float) -> list[PartitionLoad]:
    """Partitions with as much disk as bytes in and out."""
    return [PartitionLoad(load, load, load) for load in loads]


@pytest.mark.parametrize(
    "racks", ["aabb", "aabc", *(pytest.param(more, marks=pytest.mark.long) for more in ("abbb", "abcd", "abbcc"))]
)
@pytest.mark.parametrize("factor", [2, 3])
def test_no_placement_at_all_is_below_the_bound(racks: str, factor: int) -> None:
    random = np.random.default_rng(len(racks) + factor)
    state = on_first(racks, factor, alike(*random.uniform(1, 3, size=3).tolist(), random.choice((1.0, 8.0, 20.0))))
    bounds = bounds_alone(state)
    least = least_of_all(state, even_rows(racks, factor), lambda skew: skew[Resource.BYTES_IN].max_over_mean)
    for resource in COPIED:
        assert 1.0 <= bounds[resource] <= least + ROUNDING


def test_a_broker_that_is_alone_in_its_rack_holds_one_of_three_replicas_of_all() -> None:
    """Racks of one and three brokers can't hold alike: of three replicas the small one holds one, the other two."""
    assert bounds_alone(on_first("abbb", 3, alike(*[1.0] * 40)))[Resource.BYTES_IN] == pytest.approx(4 / 3)


def test_the_brokers_of_a_heavy_partition_carry_what_the_others_may_not_hold_twice() -> None:
    """The heavy one is 10 on three brokers, and 10 others are 1 each: the two other brokers hold 10 each at most.

    So of all 60 the three hold 40 or more, each 40 / 3, where a fair share is 12.
    """
    assert bounds_alone(on_first("abcde", 3, alike(10.0, *[1.0] * 10)))[Resource.DISK] == pytest.approx(40 / 3 / 12)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("racks", "factor"),
    [("abc", 1), ("aab", 1), *(pytest.param(row, 2, marks=pytest.mark.long) for row in ("abcd", "aabb"))],
)
def test_no_placement_at_all_has_two_loads_below_what_the_heaviest_forces_on_both(
    racks: str, factor: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    rates = [*random.uniform(1, 3, size=3).tolist(), 9.0]
    sizes = [*random.uniform(1, 3, size=3).tolist(), 4.0]
    state = on_first(racks, factor, [PartitionLoad(rate, rate, size) for rate, size in zip(rates, sizes, strict=True)])
    bounds = bounds_alone(state)
    for scale in (1.0, 0.5):
        scaled: dict[str, float] = {resource: max(1.0, scale * bounds[resource]) for resource in COPIED}
        least = least_of_all(state, even_rows(racks, factor), worse_over(scaled))
        assert levels_of_two(state, scaled).get(COPIED, 1.0) <= least + 1e-6


def test_the_broker_of_a_heavy_partition_sorts_the_others_or_leaves_its_disk_empty() -> None:
    """Of three brokers one has the heavy partition: its fair share of the network, and nothing on disk.

    The six others keep alike. At level l its broker holds l - 1 fair shares of the disk, or rather the part of the
    others that brings so much of the network; each of both others holds l of 3. The others are 2 thirds of the network
    and all of the disk: (l - 1) / 3 * 3 / 2 + 2 l / 3 = 1 at l = 9 / 7.
    """
    state = on_first("abc", 1, [PartitionLoad(3.0, 3.0, 0.0), *alike(*[1.0] * 6)])
    assert levels_of_two(state, dict.fromkeys(COPIED, 1.0))[COPIED] == pytest.approx(9 / 7)


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


def unequal_disks(disks: tuple[float, ...], loads: list[tuple[float, float]]) -> ClusterState:
    """Brokers with equal networks and these disks; partitions with (bytes in, disk), on one broker each in turn."""
    brokers = tuple(Broker(number, capacity=Capacity(NETWORK, NETWORK, disk)) for number, disk in enumerate(disks))
    partitions = tuple(
        Partition("t", number, (number % len(disks),), PartitionLoad(rate, rate, size))
        for number, (rate, size) in enumerate(loads)
    )
    return ClusterState("unequal", 0, brokers, partitions)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_no_placement_at_all_is_below_the_level_in_both_loads(seed: int) -> None:
    random = np.random.default_rng(seed)
    rates = random.integers(1, 20, size=7)
    state = unequal_disks((4e6, 2e6, 1e6), [(float(rate), float(rate * random.uniform(5, 15))) for rate in rates])
    assert (
        1.05
        < level_of(state)
        <= least_of_all(state, [(0,), (1,), (2,)], worse_over(dict.fromkeys(COPIED, 1.0))) + NOTICEABLE
    )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
@pytest.mark.parametrize(
    ("racks", "factor"), [("aabb", 2), ("abbb", 2), ("aabc", 2), pytest.param("aabbc", 3, marks=pytest.mark.long)]
)
def test_no_placement_that_spreads_racks_is_below_the_level(racks: str, factor: int, seed: int) -> None:
    random, allowed = np.random.default_rng(seed), even_rows(racks, factor)
    loads = [(rate, rate * float(random.uniform(5, 15))) for rate in map(float, random.integers(1, 20, size=4))]
    state = unequal_disks((4e6, 1e6, 2e6, 1e6, 1e6)[: len(racks)], loads)
    state = replace(
        state,
        brokers=tuple(replace(row, rack=rack) for row, rack in zip(state.brokers, racks, strict=True)),
        partitions=tuple(replace(row, replicas=allowed[0]) for row in state.partitions),
    )
    assert 1.0 < level_of(state) <= least_of_all(state, allowed, worse_over(dict.fromkeys(COPIED, 1.0))) + NOTICEABLE


@pytest.mark.long
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
    for name in COPIED:
        assert plan.skew_after[name]["max_over_mean"] <= 4 / 3 * 1.03
    assert any(line.startswith("broker 0 has 38% of the disk and 25% of the network") for line in plan.diagnosis)
    assert not any("above the band" in line for line in plan.diagnosis)


@pytest.mark.long
def test_partitions_that_keep_alike_end_within_the_band_of_the_level() -> None:
    """All keep ten seconds: 3 of 9 brokers with twice the disk get a third of the network and half of the disk."""
    random = np.random.default_rng(1)
    loads = [(float(rate), 10.0 * float(rate)) for rate in random.uniform(1, 3, size=900)]
    state = unequal_disks((2e6, 1e6, 1e6) * 3, loads)
    plan = propose(state)
    assert level_of(state) == pytest.approx(1.2, abs=1e-6)
    for name in COPIED:
        assert plan.skew_after[name]["max_over_mean"] <= 1.2 * 1.03
        assert plan.lower_bound[name] <= 1.2
    assert any("(0, 3, 6) have 50% of the disk and 33% of the network" in line for line in plan.diagnosis)
    assert not any("above the band" in line for line in plan.diagnosis)
    assert propose(check_plan(state, PlannerPolicy(), plan)).movements == ()


@pytest.mark.long
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


@pytest.mark.long
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
    assert levels_of_two(replace(state, partitions=(heavy, *state.partitions[1:8])), dict.fromkeys(COPIED, 1.0)) == {}


def of_racks(racks: str, rows: list[tuple[int, ...]], read: float, readers: ReaderRacks) -> ClusterState:
    """Brokers 0, 1, ... in these racks; each partition is written at 1 B/s and read at `read`."""
    return ClusterState(
        "c",
        0,
        tuple(Broker(number, rack) for number, rack in enumerate(racks)),
        tuple(
            Partition("t", number, row, PartitionLoad(1.0, read, 1.0), reader_racks=readers)
            for number, row in enumerate(rows)
        ),
    )


def in_turn(racks: int, partitions: int, brokers_of_rack: int) -> list[tuple[int, ...]]:
    """A replica in each rack, leaders and brokers in turn."""
    rows = []
    for number in range(partitions):
        of_rack = [rack + racks * (number // racks % brokers_of_rack) for rack in range(racks)]
        rows.append(tuple(of_rack[number % racks :] + of_rack[: number % racks]))
    return rows


@pytest.mark.parametrize(
    ("racks", "factor"),
    [("aab", 2), ("abb", 3), ("abc", 2), *(pytest.param(row, 3, marks=pytest.mark.long) for row in ("abc", "abcd"))],
)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
def test_no_placement_at_all_is_below_what_readers_force(racks: str, factor: int, seed: int) -> None:
    """All partitions are on the same brokers at first: each figure is then high, and hides no bound."""
    random, names = np.random.default_rng(seed), sorted(set(racks))
    allowed, partitions = even_rows(racks, factor, by_leader=True), []
    for number in range(3):
        parts = random.dirichlet([0.3] * (len(names) + 1))
        readers = tuple((rack, float(part)) for rack, part in zip(names, parts, strict=False))
        load = PartitionLoad(*(float(figure) for figure in random.uniform(1, 3, size=3) * (1.0, 3.0, 1.0)))
        partitions.append(Partition("t", number, allowed[0], load, reader_racks=readers))
    state = replace(on_first(racks, factor, ()), partitions=tuple(partitions))
    bounds, alone = proven(state), bounds_alone(state)[Resource.BYTES_OUT]
    assert least_of_all(state, allowed, lambda skew: skew[Resource.BYTES_OUT].max_over_mean) >= alone - ROUNDING
    assert (
        least_of_all(state, allowed, lambda skew: max(skew[one].max_over_mean - bounds[one] for one in LED))
        >= -ROUNDING
    )


def test_what_a_rack_reads_alone_bounds_bytes_out() -> None:
    """Of 6 B/s of each partition rack c reads 4: two thirds on a third of the brokers."""
    state = of_racks("abc", in_turn(3, 12, 1), 4.0, (("c", 1.0),))
    assert proven(state)[Resource.BYTES_OUT] == pytest.approx(2.0)


def test_a_rack_that_reads_much_leads_little_or_sends_much() -> None:
    """Rack c reads a quarter of all bytes out, and three quarters follow leaders.

    At level l the others lead 2 l / 3, and what they don't lead sends (1 - 2 l / 3) x 3 / 4 in rack c, which may send
    l / 3: l = 1.2.
    """
    state = of_racks("abc", in_turn(3, 30, 1), 2.0, (("c", 0.5),))
    bounds = proven(state)
    assert [bounds[resource] for resource in LED] == pytest.approx([1.2, 1.0])


@pytest.mark.long
def test_a_plan_reaches_the_level_in_both_loads_and_says_why_no_lower() -> None:
    state = of_racks("abcabcabc", in_turn(3, 300, 3), 2.0, (("c", 0.5),))
    plan = propose(state)
    for resource in LED:
        assert plan.skew_after[resource]["max_over_mean"] <= 1.2 * 1.05
        now = plan.skew_before[resource]["max_over_mean"]
        assert plan.lower_bound[resource] == pytest.approx(min(1.2, now), abs=1e-3)
    (reason,) = plan.diagnosis
    assert reason == (
        "consumers of rack c read so much from the 3 of 9 brokers there that no placement has both bytes out and "
        "leader bytes in below 1.200 fair shares: add brokers there"
    )
