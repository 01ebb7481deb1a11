"""What is left out before it is scored gains too little: bounds against all exchanges and moves, scored one by one."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.load import Floats
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad, first_window
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.candidates import SearchState, SinceEdit, movable_replicas, target_brokers
from assignor_core.planner.moves import SHORTLIST_WIDE, ReplicaMoves
from assignor_core.planner.placement import Indices
from assignor_core.planner.problem import Standing
from assignor_core.planner.promising import LOOKED_AT, ROUNDING, promising_exchanges, promising_moves
from assignor_core.planner.proposal import propose_counted
from assignor_core.planner.search import Search
from tests.core.planner.cases import search_of

HOURS = 9
BROKERS = 5
GAIN_PARTS = (0.0, 0.02, 0.3, 0.9)


def of_hours(seed: int, *, partitions: int = 40, heavy: float = 3.0) -> ClusterState:
    """Any cluster whose loads differ from hour to hour, most alike, and some brokers with far more than others."""
    random = np.random.default_rng(seed)
    crowded = 1.0 / np.arange(1, BROKERS + 1)
    of_day = random.uniform(0.5, 1.5, size=HOURS)

    def rates(scale: float) -> tuple[float, ...]:
        return tuple((scale * of_day * random.gamma(20.0, size=HOURS)).round(3).tolist())

    rows = []
    for number, weight in enumerate(random.pareto(heavy, partitions) + 0.01):
        placed = random.choice(BROKERS, size=2, replace=False, p=crowded / crowded.sum())
        load = PartitionLoad(rates(weight), rates(2 * weight), rates(100 * weight))
        rows.append(Partition(f"t{number % 3}", number, tuple(placed.tolist()), load))
    return ClusterState("hours", 0, tuple(Broker(number) for number in range(BROKERS)), tuple(rows))


def over_most(seed: int, *, partitions: int = 40) -> tuple[SearchState, int, float]:
    """A search, its broker that is furthest above its goal, and how far."""
    search = search_of(of_hours(seed, partitions=partitions))
    violation = search.violation()
    broker = int(np.argmax(violation))
    return search.state, broker, float(violation[broker])


seeds, parts = st.integers(0, 10_000), st.sampled_from(GAIN_PARTS)


@settings(max_examples=30)
@given(seed=seeds, part=parts)
def test_no_exchange_that_relieves_of_enough_is_left_out(seed: int, part: float) -> None:
    state, broker, excess = over_most(seed)
    here, gain_min = state.placement.loads[broker], part * excess
    standing, given = state.problem.standing(here, broker), movable_replicas(state, broker)
    for partner in set(range(BROKERS)) - {broker}:
        taken = movable_replicas(state, partner)
        rows, at = (grid.ravel() for grid in np.indices((len(given.partitions), len(taken.partitions))))
        relief = state.problem.relief(here, given.loads[rows] - taken.loads[at], broker)
        kept = set(zip(*promising_exchanges(standing, given.loads, taken.loads, rows, at, gain_min), strict=True))
        assert {pair for pair, gain in zip(zip(rows, at, strict=True), relief, strict=True) if gain > gain_min} <= kept


@settings(max_examples=30)
@given(seed=seeds, part=parts)
def test_no_move_that_gains_enough_is_left_out(seed: int, part: float) -> None:
    state, broker, excess = over_most(seed)
    every = ReplicaMoves(state, broker, SHORTLIST_WIDE).best(part * excess)
    assert ReplicaMoves(state, broker, SHORTLIST_WIDE, part * excess).best(part * excess) == every


@settings(max_examples=30)
@given(seed=seeds, part=parts, shortlisted=st.sampled_from((4, SHORTLIST_WIDE)))
def test_what_was_left_out_gains_too_little_after_edits_too(seed: int, part: float, shortlisted: int) -> None:
    state, broker, excess = over_most(seed)
    search, gain_min = Search(state.problem, state.placement, state.spending, state.effort), part * excess
    every, some = (ReplicaMoves(search.state, broker, shortlisted, least) for least in (None, gain_min))
    while candidate := every.best(gain_min):
        assert some.best(gain_min) == candidate
        brokers = search.apply(candidate)
        for look in (every, some):
            look.update(candidate.edits, brokers)
    assert some.best(gain_min) is None


@settings(max_examples=30)
@given(seed=seeds)
def test_what_a_look_is_spared_is_what_it_would_work_out(seed: int) -> None:
    state, broker, _ = over_most(seed)
    placement = state.placement
    led, followed = (int(np.flatnonzero(placement.replicas[:, slot] == broker)[0]) for slot in (0, 1))
    to = next(one for one in range(BROKERS) if one not in placement.replicas[led])
    edits: list[Callable[[], None]] = [
        lambda: None,
        lambda: placement.move(led, 0, to),
        lambda: placement.lead(followed, 1),
        lambda: placement.restore(led),
    ]
    for edit in edits:
        edit()
        for one in (broker, to, broker):
            targets, replicas = target_brokers(state), movable_replicas(state, one)
            anew = state._replace(since_edit=SinceEdit())
            assert targets.tolist() == target_brokers(anew).tolist()
            assert [part.tolist() for part in replicas] == [part.tolist() for part in movable_replicas(anew, one)]


@settings(max_examples=30)
@given(seed=seeds, scale=st.sampled_from((1e-6, 1e-3, 0.1, 1.0)), shed=st.booleans())
def test_no_load_adds_less_than_the_least(seed: int, scale: float, shed: bool) -> None:
    state, _, _ = over_most(seed)
    brokers, loads, problem = np.arange(BROKERS), state.placement.loads, state.problem
    taken = scale * np.random.default_rng(seed).uniform(-float(shed), 1.0, size=(200, *loads.shape))
    least = problem.standing(loads, brokers).least_cost(-scale if shed else 0.0, scale)
    assert (problem.burden(loads, taken, brokers) >= least.sum(axis=1) - 1e-12).all()
    for column in range(loads.shape[1]):  # one load alone, so that each column's own least is held
        alone = np.zeros_like(taken)
        alone[..., column] = taken[..., column]
        assert (problem.burden(loads, alone, brokers) >= least[:, column] - 1e-12).all()


@settings(max_examples=30)
@given(seed=seeds, low=st.sampled_from((-1.0, -0.01, 0.0, 0.02)), width=st.sampled_from((0.0, 1e-3, 0.1, 2.0)))
def test_the_least_is_what_a_search_of_the_range_finds(seed: int, low: float, width: float) -> None:
    """Also where a broker is below its goal, and only the pull to even counts, a hundred thousandth as much."""
    state, _, _ = over_most(seed)
    here = state.placement.loads
    standing = state.problem.standing(here, np.arange(BROKERS))
    added = standing.added_cost
    left, right = np.full(here.shape, low), np.full(here.shape, low + width)
    for _ in range(200):  # it is convex: the third that is farther from the least goes
        third = (right - left) / 3.0
        rises = added(left + third) < added(right - third)
        left, right = np.where(rises, left, left + third), np.where(rises, right - third, right)
    assert standing.least_cost(low, low + width) == pytest.approx(added((left + right) / 2.0), rel=1e-9, abs=1e-18)


def test_a_replica_that_gains_just_enough_is_kept_and_others_are_not() -> None:
    state, _, _ = over_most(1)
    targets = state.problem.standing(state.placement.loads, np.arange(BROKERS))
    nowhere = state.problem.standing(state.placement.loads[:0], np.arange(0))
    least = float(targets.least_cost(0.0, np.inf).sum(axis=1).min())
    assert least < -1e-8  # some broker has less than its share, and gains by what it takes
    relief = 0.25 + least + np.array([-3.0, -0.5, 0.5]) * ROUNDING
    assert promising_moves(relief, targets, 0.25).tolist() == [1, 2]
    assert promising_moves(relief, nowhere, relief[1] + ROUNDING / 2).tolist() == [1, 2]


@settings(max_examples=30)
@given(seed=seeds)
def test_the_move_that_gains_most_is_found_where_just_less_is_asked_for(seed: int) -> None:
    state, broker, _ = over_most(seed)
    gains = [0.0]
    while found := ReplicaMoves(state, broker, SHORTLIST_WIDE).best(gains[-1]):
        gains.append(found.gain)
    for gain in gains[1:]:
        asked = np.nextafter(gain, 0.0)
        every = ReplicaMoves(state, broker, SHORTLIST_WIDE).best(asked)
        assert ReplicaMoves(state, broker, SHORTLIST_WIDE, asked).best(asked) == every is not None


def test_most_exchanges_are_left_out_after_few_loads() -> None:
    state, broker, _ = over_most(3, partitions=400)
    here, given = state.placement.loads[broker], movable_replicas(state, broker)
    assert len(here) > LOOKED_AT
    taken = movable_replicas(state, (broker + 1) % BROKERS)
    rows, at = (grid.ravel() for grid in np.indices((len(given.partitions), len(taken.partitions))))
    relief = state.problem.relief(here, given.loads[rows] - taken.loads[at], broker)
    gain_min = 0.9 * float(relief.max())
    standing = state.problem.standing(here, broker)
    left, _ = promising_exchanges(standing, given.loads, taken.loads, rows, at, gain_min)
    assert 0 < (relief > gain_min).sum() <= len(left) < len(rows) / 4


def test_with_few_loads_nothing_is_left_out() -> None:
    state = search_of(first_window(of_hours(3))).state
    here, given = state.placement.loads[0], movable_replicas(state, 0)
    assert len(here) <= LOOKED_AT
    rows = np.arange(len(given.partitions))
    standing = state.problem.standing(here, 0)
    assert promising_exchanges(standing, given.loads, given.loads, rows, rows, 1.0)[0] is rows


@pytest.mark.long
@pytest.mark.parametrize("seed", [*(pytest.param(seed, marks=pytest.mark.long) for seed in (0, 2)), 3])
def test_the_plan_is_that_of_a_search_that_scores_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, policy = of_hours(seed, partitions=120, heavy=1.2), PlannerPolicy(band=0.03)
    planned = propose_counted(cluster, policy)
    left_out = 0

    def all_exchanges(
        standing: Standing, given: Floats, taken: Floats, rows: Indices, at: Indices, gain_min: float
    ) -> tuple[Indices, Indices]:
        nonlocal left_out
        left_out += len(rows) - len(promising_exchanges(standing, given, taken, rows, at, gain_min)[0])
        return rows, at

    def all_moves(relief: Floats, targets: Standing, gain_min: float) -> Indices:
        nonlocal left_out
        left_out += len(relief) - len(promising_moves(relief, targets, gain_min))
        return np.arange(len(relief))

    monkeypatch.setattr("assignor_core.planner.exchanges.promising_exchanges", all_exchanges)
    monkeypatch.setattr("assignor_core.planner.moves.promising_moves", all_moves)
    assert propose_counted(cluster, policy) == planned
    assert left_out > 0
