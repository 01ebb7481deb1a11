"""Brokers with more disk for their network than others: the linear program's prices, and plans that begin with them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from assignor_core.load import Floats
from assignor_core.model import Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.plan import Plan, validate
from assignor_core.planner import PlannerPolicy, annealing, guided, propose, relief
from assignor_core.planner.guided import have_unequal_proportions, may_guide
from assignor_core.planner.relaxation import LOAD_GRID, MOVED_PRICE, Relaxation, relaxation_of
from tests.benchmarks.bench_shapes import OVER_MAX, over_band_or_bound
from tests.benchmarks.models import generate
from tests.benchmarks.shapes import shape, variants
from tests.core.planner.cases import search_of
from tests.core.planner.invariants import check_plan

UNEQUAL_DISKS = "unequal disks"
ONE_REPLICA, TWO_REPLICAS, THREE_REPLICAS = 143, 102, 54
"""Seeds of shapes: 20 brokers and 3,766 partitions; 6 and 410; 8 and 459 in 3 racks."""
ABOVE = 48
"""18 brokers, 1,263 partitions of four replicas: the search alone ends 0.02 above."""
UNEVEN = (166, 72)
"""81 and 142 brokers: where all are within band and bound, some are above their own limits still."""
SEEDS = (pytest.param(ONE_REPLICA, marks=pytest.mark.long), TWO_REPLICAS, THREE_REPLICAS)
ROUNDING = 1e-6


@cache
def unequal(seed: int) -> ClusterState:
    return generate(variants(seed)[UNEQUAL_DISKS], seed)


@cache
def planned(seed: int) -> Plan:
    return propose(unequal(seed))


def least_price(relaxed: Relaxation, prices: Floats) -> float:
    """The dual function: no solution within the goals costs less. In fair shares of disk, at any prices."""
    of_load = prices / relaxed.sizes
    above = np.where(np.isfinite(relaxed.goals), relaxed.before - relaxed.goals, 0.0) / relaxed.sizes
    here = (relaxed.loads * of_load[relaxed.sources]).sum(axis=1)
    there = relaxed.costs + (relaxed.loads[:, None, :] * of_load[relaxed.targets]).sum(axis=2)
    saved = np.maximum(here - there.min(axis=1), 0.0).sum()
    if len(relaxed.led):
        led = (relaxed.leaderships[:, None, :] * of_load[relaxed.holders]).sum(axis=2)
        led = np.where(relaxed.may_lead, led, np.inf)
        led[:, 1:] += MOVED_PRICE
        saved += (led[:, 0] - led.min(axis=1)).sum()
    return float((prices * above).sum() - saved)


@pytest.mark.long
@pytest.mark.parametrize("seed", [ONE_REPLICA, THREE_REPLICAS])
def test_machine_code_and_matrices_give_the_same_to_the_bit(seed: int) -> None:
    relaxed = relaxation_of(search_of(unequal(seed)))
    random = np.random.default_rng(seed)
    for blur in (2.0, 0.1, 0.015):
        prices = random.uniform(0.0, 2.0, size=relaxed.goals.shape)
        results = []
        for by_machine in (True, False):
            ways = replace(relaxed, by_machine=by_machine)
            some = ways.that_may_move(prices, blur)
            results.append((some.partitions.tolist(), some.sources.tolist(), ways.loads_at(prices, blur).tolist()))
        assert results[0] == results[1]
        assert results[0][2] != relaxed.before.tolist()


@pytest.mark.parametrize("seed", SEEDS)
def test_at_the_shadow_prices_the_parts_cost_hardly_more_than_any_plan_must(seed: int) -> None:
    relaxed = relaxation_of(search_of(unequal(seed)))
    prices, blur = relaxed.shadow_prices()
    parts = relaxed.parts(prices, blur)
    after = relaxed.loads_with(parts)
    cheapest = relaxed.costs[parts.movers].min(axis=1)
    cost = float((parts.moved.sum(axis=1) * cheapest).sum() + parts.handed.sum() * MOVED_PRICE)
    above = (after - relaxed.goals) / relaxed.sizes
    # Parts are a little above some goals, which the prices make up for.
    assert 0 < least_price(relaxed, prices) <= cost + float((prices * above).sum()) < 1.1 * least_price(relaxed, prices)
    assert above.max() < 0.07
    assert ((relaxed.before - relaxed.goals) / relaxed.sizes).max() > 0.2
    assert after.sum(axis=0) == pytest.approx(relaxed.before.sum(axis=0), rel=ROUNDING)


def test_loads_are_those_of_all_parts_added_one_by_one() -> None:
    relaxed = relaxation_of(search_of(unequal(TWO_REPLICAS)))
    prices, _ = relaxed.shadow_prices()
    parts = relaxed.parts(prices, blur=0.5)
    assert (parts.moved > 0).any()
    assert (parts.handed > 0).any()
    after = relaxed.before.copy()
    for row, shares in zip(parts.movers, parts.moved, strict=True):
        for broker, share in zip(relaxed.targets, shares, strict=True):
            after[broker] += share * relaxed.loads[row]
            after[relaxed.sources[row]] -= share * relaxed.loads[row]
    for leadership, holders, shares in zip(relaxed.leaderships, relaxed.holders, parts.handed, strict=True):
        for broker, share in zip(holders, shares, strict=True):
            after[broker] += share * leadership
            after[holders[0]] -= share * leadership
    assert relaxed.loads_with(parts) == pytest.approx(after, abs=ROUNDING)


@pytest.mark.parametrize("blur", [0.01, 0.5])
def test_a_leadership_goes_to_whom_it_costs_least_and_in_parts_where_prices_are_near(blur: float) -> None:
    relaxed = relaxation_of(search_of(unequal(THREE_REPLICAS)))
    prices: Floats = np.random.default_rng(1).integers(0, 9, relaxed.goals.shape) / 1.0
    handed = relaxed.parts(prices, blur).handed
    of_load = prices / relaxed.sizes
    costs = (relaxed.leaderships[:, None, :] * of_load[relaxed.holders]).sum(axis=2)
    costs[:, 1:] += MOVED_PRICE
    costs = np.where(relaxed.may_lead, costs, np.inf)
    near = blur * relaxed.leaderships.sum(axis=1)
    is_sure = np.sort(costs, axis=1)[:, 1] > costs.min(axis=1) + 1.1 * near
    best = costs.argmin(axis=1)
    assert is_sure.any()
    assert (best[is_sure] > 0).any()
    wanted = np.eye(handed.shape[1])[best]
    wanted[:, 0] = 0.0
    assert (handed[is_sure] == wanted[is_sure]).all()
    assert (handed.sum(axis=1) <= 1.0 + ROUNDING).all()
    assert (handed[~relaxed.may_lead] == 0.0).all()
    assert ((handed > 0) & (handed < 1)).any()


def test_replicas_that_stay_are_left_out_whole() -> None:
    relaxed = relaxation_of(search_of(unequal(TWO_REPLICAS)))
    prices, blur = relaxed.shadow_prices()
    some = relaxed.that_may_move(prices, blur)
    assert 0 < len(some.partitions) < len(relaxed.partitions)
    assert len(some.partitions) == len(some.sources) == len(some.loads) == len(some.costs)
    movers = relaxed.parts(prices, blur).movers
    assert set(zip(relaxed.partitions[movers], relaxed.sources[movers], strict=True)) <= set(
        zip(some.partitions, some.sources, strict=True)
    )


def test_higher_and_lower_prices_prove_less() -> None:
    relaxed = relaxation_of(search_of(unequal(TWO_REPLICAS)))
    prices, _ = relaxed.shadow_prices()
    least = least_price(relaxed, prices)
    assert least_price(relaxed, prices * 1.5) < least
    assert least_price(relaxed, prices * 0.5) < least
    assert least_price(relaxed, prices * 0.0) == 0.0


def test_loads_lie_on_a_grid_so_that_machines_add_alike() -> None:
    relaxed = relaxation_of(search_of(unequal(THREE_REPLICAS)))
    for loads in (relaxed.loads, relaxed.leaderships, relaxed.before):
        assert (loads * LOAD_GRID == np.rint(loads * LOAD_GRID)).all()
    prices, blur = relaxed.shadow_prices()
    parts = relaxed.parts(prices, blur)
    shuffled = np.random.default_rng(1).permutation(len(parts.movers))
    other = parts._replace(movers=parts.movers[shuffled], moved=parts.moved[shuffled])
    assert relaxed.loads_with(parts).tolist() == relaxed.loads_with(other).tolist()


@pytest.mark.long
@pytest.mark.parametrize("seed", [*SEEDS, *UNEVEN])
def test_a_plan_of_unequal_disks_keeps_all_rules_ends_within_its_band_and_is_the_last(seed: int) -> None:
    after = check_plan(unequal(seed), PlannerPolicy(), planned(seed))
    assert over_band_or_bound(planned(seed), PlannerPolicy()) <= OVER_MAX
    assert propose(after).movements == ()


@pytest.mark.long
@pytest.mark.parametrize(("seed", "part"), [(ONE_REPLICA, 0.65), (TWO_REPLICAS, 0.95), (THREE_REPLICAS, 0.85)])
def test_a_plan_that_begins_with_the_linear_program_copies_less_than_one_that_does_not(
    seed: int, part: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`part` is what it has of the other one's movements at most."""
    with_it = planned(seed)
    monkeypatch.setattr(guided, "PAIRS_MAX", 0)
    without = propose(unequal(seed))
    assert with_it.bytes_to_move < 0.92 * without.bytes_to_move
    assert len(with_it.movements) < part * len(without.movements)


def test_disks_and_networks_in_proportion_are_left_to_the_search_first() -> None:
    assert have_unequal_proportions(search_of(unequal(TWO_REPLICAS)).problem)
    for kind in (shape(TWO_REPLICAS), replace(shape(TWO_REPLICAS), twice_every=3)):
        assert not have_unequal_proportions(search_of(generate(kind, TWO_REPLICAS)).problem)


@pytest.mark.parametrize(
    "policy",
    [
        PlannerPolicy(leaders_only=True),
        PlannerPolicy(movements_max=10),
        PlannerPolicy(bytes_max=1e9),
        PlannerPolicy(inflow_max=1e9),
        PlannerPolicy(band=9.0),
    ],
)
def test_budgets_and_even_clusters_are_left_to_the_search(policy: PlannerPolicy) -> None:
    assert may_guide(search_of(unequal(TWO_REPLICAS)))
    assert not may_guide(search_of(unequal(TWO_REPLICAS), policy))


@pytest.mark.long
@pytest.mark.parametrize(("seed", "name"), [(34, "new"), (75, "new")])
def test_where_the_search_ends_above_the_linear_program_is_tried_whatever_the_proportions(
    seed: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, policy = generate(variants(seed)[name], seed), PlannerPolicy()
    plan = propose(state)
    check_plan(state, policy, plan)
    assert over_band_or_bound(plan, policy) <= OVER_MAX
    monkeypatch.setattr(guided, "PAIRS_MAX", 0)
    monkeypatch.setattr(relief, "SEATINGS", 0)
    monkeypatch.setattr(annealing, "STEPS", ())
    assert over_band_or_bound(propose(state), policy) > 10 * OVER_MAX


def test_of_several_hours_the_mean_counts() -> None:
    state = unequal(THREE_REPLICAS)
    one, alike, apart = (
        relaxation_of(search_of(given)) for given in (state, with_hours(state, 1.0, 1.0), with_hours(state, 0.4, 1.6))
    )
    assert alike.loads.tolist() == one.loads.tolist()
    assert alike.goals == pytest.approx(one.goals)
    assert apart.loads.shape == one.loads.shape
    assert apart.loads != pytest.approx(one.loads, rel=0.01)
    assert apart.loads.sum(axis=0) == pytest.approx(one.loads.sum(axis=0), rel=0.01)


@pytest.mark.long
def test_a_plan_for_day_and_night_begins_with_the_linear_program_too(monkeypatch: pytest.MonkeyPatch) -> None:
    state = with_hours(unequal(THREE_REPLICAS), 0.4, 1.6)
    plan = propose(state)
    assert validate(plan, state) == []
    monkeypatch.setattr(guided, "PAIRS_MAX", 0)
    without = propose(state)
    assert plan.bytes_to_move < without.bytes_to_move
    assert over_band_or_bound(plan, PlannerPolicy()) <= max(OVER_MAX, over_band_or_bound(without, PlannerPolicy()))


def with_hours(state: ClusterState, *parts: float) -> ClusterState:
    """A window for each of `parts` of a topic's rates; topics of odd numbers have them the other way round."""
    return replace(state, partitions=tuple(replace(row, load=hours_of(row, parts)) for row in state.partitions))


def hours_of(row: Partition, parts: Sequence[float]) -> PartitionLoad:
    read, written, disk = row.load.bytes_out_per_sec, row.load.bytes_in_per_sec, row.load.disk_bytes
    assert isinstance(read, float)
    assert isinstance(written, float)
    assert isinstance(disk, float)
    parts = parts if int(row.topic.rsplit("-", 1)[1]) % 2 else parts[::-1]
    return PartitionLoad(tuple(written * p for p in parts), tuple(read * p for p in parts), tuple(disk for _ in parts))


@pytest.mark.long
def test_what_may_not_move_stays_and_what_may_not_take_gets_nothing() -> None:
    state = unequal(TWO_REPLICAS)
    excluded = state.brokers[0].broker_id
    topics = sorted({partition.topic for partition in state.partitions})
    policy = PlannerPolicy(excluded_brokers=frozenset({excluded}), excluded_topics=frozenset(topics[:3]))
    plan = propose(state, policy)
    assert plan.movements
    check_plan(state, policy, plan)


@pytest.mark.long
def test_a_plan_that_the_search_leaves_above_its_band_ends_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = PlannerPolicy()
    assert over_band_or_bound(planned(ABOVE), policy) <= OVER_MAX
    monkeypatch.setattr(guided, "PAIRS_MAX", 0)
    monkeypatch.setattr(relief, "SEATINGS", 0)
    monkeypatch.setattr(annealing, "STEPS", ())
    assert over_band_or_bound(propose(unequal(ABOVE)), policy) > 10 * OVER_MAX


@pytest.mark.long
@pytest.mark.parametrize("seed", [TWO_REPLICAS, THREE_REPLICAS])
def test_capacities_that_are_nearly_used_up_hold(seed: int) -> None:
    state = unequal(seed)
    brokers = tuple(replace(row, capacity=smaller(row.capacity)) for row in state.brokers)
    cluster = replace(state, brokers=brokers)
    plan = propose(cluster)
    assert plan.movements
    check_plan(cluster, PlannerPolicy(), plan)


def smaller(capacity: Capacity | None) -> Capacity:
    assert capacity is not None
    assert capacity.disk_bytes is not None
    return replace(capacity, disk_bytes=capacity.disk_bytes * 0.8)
