"""What consumers force that read in their racks: bounds that no placement beats, limits that plans meet."""

from itertools import permutations, product

import numpy as np
import pytest

from assignor_core.load import cluster_arrays
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.bounds import lower_bounds
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import problem_of
from assignor_core.planner.targets import bounds_of
from assignor_core.racks import RackSpread
from assignor_core.reader_racks import ReaderRacks
from assignor_core.resources import Resource
from assignor_core.skew import skew_of_arrays

ROUNDING = 1e-9
BOTH = (Resource.BYTES_OUT, Resource.LEADER_BYTES_IN)


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


def proven(state: ClusterState) -> dict[str, float]:
    """Bounds of a placement, each no higher than what it has."""
    arrays = cluster_arrays(state)
    placement = Placement(arrays)
    return bounds_of(problem_of(arrays, PlannerPolicy(), placement), placement)


@pytest.mark.parametrize(
    ("racks", "factor"),
    [("abc", 3), ("aab", 2), ("abb", 3), ("abc", 2), pytest.param("abcd", 3, marks=pytest.mark.long)],
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1,))])
def test_no_placement_at_all_is_below_the_bounds(racks: str, factor: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    state = of_racks(racks, [tuple(range(factor))] * 3, 1.0, ())
    partitions = []
    for row in state.partitions:
        parts = random.dirichlet([0.3] * (len(set(racks)) + 1))
        readers = tuple((rack, float(part)) for rack, part in zip(sorted(set(racks)), parts, strict=False))
        load = PartitionLoad(*(float(figure) for figure in random.uniform(1, 3, size=3) * (1.0, 3.0, 1.0)))
        partitions.append(Partition("t", row.partition, row.replicas, load, reader_racks=readers))
    state = ClusterState("c", 0, state.brokers, tuple(partitions))
    arrays = cluster_arrays(state)
    spread = RackSpread(dict(enumerate(racks)), in_use=range(len(racks)))
    allowed = [row for row in permutations(range(len(racks)), factor) if not spread.is_crowded(row)]
    arrays_of_one = cluster_arrays(on_the_same(state, allowed[0]))
    placement = Placement(arrays_of_one)
    problem = problem_of(arrays_of_one, PlannerPolicy(), placement)
    bounds, alone = (
        bounds_of(problem, placement),
        lower_bounds(arrays_of_one, placement, problem.share, crowded=False),
    )
    for rows in product(allowed, repeat=len(partitions)):
        skew = skew_of_arrays(arrays, np.array(rows, dtype=np.int32))
        assert skew[Resource.BYTES_OUT].max_over_mean >= alone[Resource.BYTES_OUT] - ROUNDING
        assert any(skew[resource].max_over_mean >= bounds[resource] - ROUNDING for resource in BOTH)


def on_the_same(state: ClusterState, row: tuple[int, ...]) -> ClusterState:
    """All partitions on the same brokers: each figure is then high, and hides no bound."""
    placed = (Partition(p.topic, p.partition, row, p.load, reader_racks=p.reader_racks) for p in state.partitions)
    return ClusterState("c", 0, state.brokers, tuple(placed))


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
    assert [bounds[resource] for resource in BOTH] == pytest.approx([1.2, 1.0])


def test_a_plan_reaches_the_level_in_both_loads_and_says_why_no_lower() -> None:
    state = of_racks("abcabcabc", in_turn(3, 300, 3), 2.0, (("c", 0.5),))
    plan = propose(state)
    for resource in BOTH:
        assert plan.skew_after[resource]["max_over_mean"] <= 1.2 * 1.05
        now = plan.skew_before[resource]["max_over_mean"]
        assert plan.lower_bound[resource] == pytest.approx(min(1.2, now), abs=1e-3)
    (reason,) = plan.diagnosis
    assert reason == (
        "consumers of rack c read so much from the 3 of 9 brokers there that no placement has both bytes out and "
        "leader bytes in below 1.200 fair shares: add brokers there"
    )
