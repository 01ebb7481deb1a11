"""No placement that does as well copies less than `least_bytes`: compared with all placements of small clusters."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.load import NO_BROKER, ClusterArrays, Floats, Ints, broker_loads
from assignor_core.model import Broker, BrokerState, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.balance import balance
from assignor_core.planner.cheapest_rows import Room, Rows, cheapest_rows
from assignor_core.planner.least_bytes import least_bytes
from assignor_core.planner.problem import Search
from assignor_core.planner.proposal import with_drained
from tests.benchmarks.models import Kind, generate
from tests.benchmarks.shapes import variants
from tests.core.planner.cases import clusters, placements, search_of

ROUNDING = 1e-6
BAND = PlannerPolicy().band


@st.composite
def few(draw: st.DrawFn, *, all_alive: bool = False) -> ClusterState:
    """Up to four brokers, alive, draining or dead, in racks or not, and up to four partitions, each where it may be."""
    count = draw(st.integers(2, 4))
    racks = draw(st.sampled_from((("a", "b", "a", "b"), ("a", "b", "b", "b"), (None,) * 4)))
    last = BrokerState.ALIVE if all_alive else draw(st.sampled_from((BrokerState.ALIVE, *BrokerState)))
    states = (*(BrokerState.ALIVE,) * (count - 1), last)
    brokers = tuple(Broker(number, racks[number], states[number]) for number in range(count))
    figure = st.integers(1, 20).map(float)
    partitions = []
    for number in range(draw(st.integers(1, 4 if count < 4 else 3))):
        placed = tuple(draw(st.permutations(range(count)))[: draw(st.integers(1, 2))])
        load = PartitionLoad(draw(figure), draw(figure), draw(figure))
        partitions.append(Partition(f"t{draw(st.integers(0, 2))}", number, placed, load))
    return ClusterState("few", 0, brokers, tuple(partitions))


def ended(state: ClusterState, policy: PlannerPolicy | None = None) -> Search:
    """The search of the plan for `state`."""
    policy = policy or PlannerPolicy()
    search = search_of(with_drained(state, policy), policy)
    balance(search)
    return search


def copied(arrays: ClusterArrays, replicas: Ints, sizes: Floats) -> float:
    is_new = (replicas != NO_BROKER) & (replicas[:, :, None] != arrays.replicas[:, None, :]).all(axis=2)
    return float((is_new.sum(axis=1) * sizes).sum())


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(few())
def test_no_placement_that_does_as_well_copies_less(state: ClusterState) -> None:
    search = ended(state)
    problem, placement, arrays = search.problem, search.placement, search.problem.arrays
    loads = broker_loads(arrays, placement.replicas)
    total = loads.sum(axis=0)
    most = np.maximum(problem.share * (1.0 + BAND) * total, loads) * (1.0 + ROUNDING) + ROUNDING
    counted = ~arrays.columns.counts
    held = [row[row != NO_BROKER] for row in placement.replicas]
    allowed = sorted({int(broker) for row in (np.flatnonzero(arrays.alive), *held) for broker in row})
    in_own_racks = [len(set(arrays.racks[row].tolist())) == len(row) for row in held]
    ways = [
        [way for way in permutations(allowed, len(row)) if not spread or len(set(arrays.racks[[*way]])) == len(way)]
        for row, spread in zip(held, in_own_racks, strict=True)
    ]
    least = min(
        copied(arrays, replicas, placement.disk_bytes)
        for replicas in placements(ways)
        if (broker_loads(arrays, replicas)[:, counted] <= most[:, counted]).all()
    )
    assert least_bytes(search) <= least * (1.0 + ROUNDING)


@pytest.mark.long
@settings(deadline=None)
@given(st.data())
def test_each_partition_is_where_it_is_cheapest(data: st.DataObject) -> None:
    """The prices and rows are any ones; the loads that come with them have the price that is returned."""
    brokers, loads = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    rows = data.draw(any_rows(brokers, loads))
    figure = st.integers(0, 12).map(float)
    prices = np.array(data.draw(st.lists(figure, min_size=loads * brokers, max_size=loads * brokers)))
    prices = prices.reshape(loads, brokers)
    carried = np.full((brokers, loads), 7.0)
    total = cheapest_rows(rows, prices, Room.of(brokers, rows.original.shape[1]), carried)
    every_way = [ways(rows, row, prices) for row in range(len(rows.original))]
    assert total == sum(min(prices_of) for prices_of in every_way if prices_of)
    placed = [row for row, prices_of in enumerate(every_way) if prices_of]
    expected = (rows.following[placed] * rows.counts[placed][:, None] + rows.leading[placed]).sum(axis=0)
    assert carried.sum(axis=0).tolist() == expected.tolist()
    copies = total - float((carried.T * prices).sum())
    assert 0.0 <= copies <= float((rows.copied * rows.counts)[placed].sum())


@st.composite
def any_rows(draw: st.DrawFn, brokers: int, loads: int) -> Rows:
    figure = st.integers(0, 9).map(float)
    count = draw(st.integers(0, 6))
    width = min(3, brokers)
    counts = np.array([draw(st.integers(1, width)) for _ in range(count)], dtype=np.int64)
    original = np.full((count, width), NO_BROKER, dtype=np.int32)
    for row in range(count):
        original[row, : counts[row]] = draw(st.permutations(range(brokers)))[: counts[row]]
    drawn = [draw(st.integers(0, 2)) for _ in range(brokers)]
    racks = np.unique(drawn, return_inverse=True)[1].astype(np.int32)
    may_keep, may_take = (np.array([draw(st.booleans()) for _ in range(brokers)], dtype=np.bool_) for _ in range(2))
    is_spread = np.array([draw(st.booleans()) for _ in range(count)], dtype=np.bool_)
    held = [original[row, : counts[row]] for row in range(count)]
    in_own_racks = np.array([len(set(racks[row].tolist())) == len(row) for row in held], dtype=np.bool_)
    some = np.array([draw(st.booleans()) for _ in range(brokers)], dtype=np.bool_)
    members = np.stack((np.ones(brokers, dtype=np.bool_), some))
    set_of = np.array([draw(st.integers(0, 1)) for _ in range(count)], dtype=np.int64)
    keeps = [members[number, row] & may_keep[row] for number, row in zip(set_of, held, strict=True)]
    stays = np.array([bool(row.all()) for row in keeps], dtype=np.bool_)
    following, leading = (np.array([[draw(figure) for _ in range(loads)] for _ in range(count)]) for _ in range(2))
    return Rows(
        original, counts, following.reshape(count, loads), leading.reshape(count, loads),
        np.array([draw(figure) for _ in range(count)], dtype=np.float64),
        np.array([draw(st.sampled_from((True, True, False))) for _ in range(count)], dtype=np.bool_),
        is_spread, stays & (~is_spread | in_own_racks), racks,
        racks.max(initial=-1, keepdims=True) + 1, may_keep, may_take, set_of, members,
    )  # fmt: skip


def ways(rows: Rows, row: int, prices: Floats) -> list[float]:
    """The price of every way to place one partition."""
    held = rows.original[row, : rows.counts[row]].tolist()
    allowed = [
        broker
        for broker in np.flatnonzero(rows.members[rows.set_of[row]]).tolist()
        if (rows.may_keep if broker in held else rows.may_take)[broker]
    ]
    chosen = [held] if not rows.may_change[row] else map(list, permutations(allowed, len(held)))
    prices_of = []
    for brokers in chosen:
        in_racks = len(set(rows.racks[brokers].tolist()))
        if rows.may_change[row] and rows.is_spread[row] and in_racks < len(brokers):
            continue
        price = sum(float(rows.following[row] @ prices[:, broker]) for broker in brokers)
        price += float(rows.leading[row] @ prices[:, brokers[0]])
        prices_of.append(price + float(rows.copied[row]) * len(set(brokers) - set(held)))
    return prices_of


@pytest.mark.long
@settings(max_examples=20, deadline=None)
@given(clusters(reads=True))
def test_of_any_plan_it_is_no_more_than_what_that_copies(state: ClusterState) -> None:
    plan = propose(state, proves_least=True)
    assert plan.least_bytes is not None
    assert 0.0 <= plan.least_bytes <= plan.bytes_to_move * (1.0 + ROUNDING)
    assert plan == replace(propose(state), least_bytes=plan.least_bytes)


def part_proven(kind: Kind, seed: int) -> float:
    """What part of the bytes of the plan is proven to be needed."""
    plan = propose(generate(kind, seed), proves_least=True)
    assert plan.least_bytes is not None
    return plan.least_bytes / plan.bytes_to_move


@pytest.mark.long
@pytest.mark.parametrize(("seed", "least"), [(71, 0.300), (54, 0.211), (102, 0.243), (83, 0.350)])
def test_what_must_be_sorted_over_unequal_disks_is_proven(seed: int, least: float) -> None:
    """`least` is a part of all bytes on disk. A solver of the linear program proves 0.308, 0.215, 0.248 and 0.357 for
    these seeds (HiGHS in SciPy, 2026-11-28). What brokers have too much of disk and bytes in proves 0.19, 0.20, 0.15
    and 0.23.
    """
    state = generate(variants(seed)["unequal disks"], seed)
    plan = propose(state, proves_least=True)
    assert plan.least_bytes is not None
    assert plan.least_bytes / sum(plan.loads_before["disk"].values()) > least


@pytest.mark.long
def test_all_that_a_broker_must_give_away_counts() -> None:
    """Empty brokers get a third of everything, and a dead one's replicas are copied from others."""
    for kind in (Kind(6, 600, brokers_new=3), Kind(9, 600, replication_factor=2, brokers_dead=1)):
        assert part_proven(kind, 1) > 0.95
