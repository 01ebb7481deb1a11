"""Where a linear program leads: annealing by price copies little, moves nothing in vain, and other ways stay open."""

import numpy as np
import pytest

from assignor_core.load import Floats
from assignor_core.planner import annealing, propose, relief
from assignor_core.planner.annealing import NOTICEABLE, anneal_by_price
from assignor_core.planner.attainable import attainable
from assignor_core.planner.bound_lines import above, lines_of
from assignor_core.planner.guided import guide, put_in_order
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import problem_of
from assignor_core.planner.relaxation import MOVED_ON_PRICE, MOVED_PRICE, relaxation_of
from assignor_core.planner.repair import repair
from assignor_core.planner.search import Search
from assignor_core.planner.turns import Step
from tests.benchmarks.bench_shapes import OVER_MAX, over_band_or_bound
from tests.benchmarks.models import generate
from tests.benchmarks.shapes import variants
from tests.core.planner.cases import search_of
from tests.core.planner.invariants import check_plan

pytestmark = pytest.mark.long

SEED = 175
KIND = variants(SEED)["unequal disks"]
"""40 brokers, a third of them with twice the disk, 2,345 partitions of four replicas."""
EVENED = 166
"""81 brokers, 1,884 partitions of two replicas: some could be 0.2 fair shares above limits that can be met."""
TO_EMPTY = 48
"""18 brokers, one of them to empty, 1,263 partitions of four replicas."""
ANY, TINY = np.inf, 1e-9


def guided_search(seed: int = SEED) -> Search:
    """A search where whole replicas have followed the linear program."""
    search = search_of(generate(variants(seed)["unequal disks"], seed))
    repair(search)
    guide(search.under(attainable(search.problem, search.placement)))
    return search


def test_what_relieves_most_for_its_bytes_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    by_price, at_once = guided_search(), guided_search()
    assert above(by_price) > 100 * NOTICEABLE
    assert anneal_by_price(by_price, lines_of(by_price), ANY)
    monkeypatch.setattr(annealing, "PRICE_STEPS", (Step(0.0003),) * 3)
    assert anneal_by_price(at_once, lines_of(at_once), ANY)
    assert above(by_price) <= NOTICEABLE
    assert by_price.spending.bytes_copied < 0.9 * at_once.spending.bytes_copied
    assert by_price.spending.movements < 0.9 * at_once.spending.movements


@pytest.mark.parametrize(("part", "excess_max"), [(0.9, ANY), (1.0, -1.0)])
def test_where_not_all_comes_below_the_lines_nothing_moves(part: float, excess_max: float) -> None:
    search = guided_search()
    before, lines = len(search.journal), lines_of(search)
    below: Floats = lines * part
    assert not anneal_by_price(search, below, excess_max)
    assert len(search.journal) == before


def test_a_plan_with_a_budget_is_not_annealed() -> None:
    search = guided_search()
    policy = PlannerPolicy(bytes_max=1e18)
    limited = search.under(problem_of(search.placement.arrays, policy, search.placement))
    assert not anneal_by_price(limited, lines_of(limited), ANY)


def test_relief_of_counts_leaves_loads_within_band_and_bound() -> None:
    """Annealing does not wait for the soft caps of leaders and replicas."""
    kind = variants(19)["unequal disks"]
    state = generate(kind, 19)
    plan = propose(state)
    assert over_band_or_bound(plan, PlannerPolicy()) <= OVER_MAX
    after = search_of(check_plan(state, PlannerPolicy(), plan))
    counts = after.problem.arrays.columns.counts
    assert (after.placement.loads <= after.problem.limit)[:, counts].all()


def above_limits(search: Search) -> float:
    """What loads are above limits that can be met, squared, over all brokers."""
    return float(search.under(attainable(search.problem, search.placement)).violation().sum())


def test_once_all_is_below_the_lines_the_rest_above_own_limits_is_weighed_against_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, bytes_copied = list[float](), list[float]()
    for part in (0.0, annealing.EVEN_PART, 1.0):
        monkeypatch.setattr(annealing, "EVEN_PART", part)
        search = guided_search(EVENED)
        assert anneal_by_price(search, lines_of(search), ANY)
        assert above(search) <= NOTICEABLE
        left.append(above_limits(search))
        bytes_copied.append(search.spending.bytes_copied)
    assert left[1] < 0.1 * left[0]
    assert left[2] < 0.5 * left[1]
    assert bytes_copied[0] < 0.9 * bytes_copied[1] < 0.9 * 0.9 * bytes_copied[2]


def test_what_annealing_has_weighed_is_not_asked_of_relief_once_more() -> None:
    search = guided_search(EVENED)
    assert (relief.asked(search).limit == attainable(search.problem, search.placement).limit).all()
    assert anneal_by_price(search, lines_of(search), ANY)
    before, loaded = search.placement.loads.copy(), ~search.problem.arrays.columns.counts
    limit, lines = relief.asked(search).limit, lines_of(search)
    assert above_limits(search) > 0.0
    assert (before <= limit + NOTICEABLE)[:, loaded].all()
    search.under(relief.asked(search)).relieve()
    most = np.maximum(before, attainable(search.problem, search.placement).limit)
    assert (search.placement.loads <= np.minimum(most, np.maximum(lines, search.problem.limit)) + TINY)[:, loaded].all()


def test_a_cluster_within_its_bound_is_evened_too_and_only_once() -> None:
    """It begins where another plan has left it that did not look at what is below the lines."""
    state = generate(variants(EVENED)["unequal disks"], EVENED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "EVEN_PART", 0.0)
        state = check_plan(state, PlannerPolicy(), propose(state))
    plan = propose(state)
    assert plan.movements
    assert above(search_of(state)) <= NOTICEABLE
    after = check_plan(state, PlannerPolicy(), plan)
    assert above(search_of(after)) <= NOTICEABLE
    assert above_limits(search_of(after)) < above_limits(search_of(state))
    assert propose(after).movements == ()


def test_what_went_there_and_back_is_left_out_of_the_way() -> None:
    search = search_of(generate(KIND, SEED))
    guide(search.under(attainable(search.problem, search.placement)))
    edits, rows = len(search.journal), search.placement.replicas.copy()
    for applied in list(search.journal[:9]):
        search.apply_edit(applied.reverse)
        search.apply_edit(applied.edit)
    put_in_order(search, 0)
    assert len(search.journal) <= edits
    assert (np.sort(search.placement.replicas, axis=1) == np.sort(rows, axis=1)).all()


def test_the_way_that_ends_nearer_is_kept_and_else_the_placement_is_as_it_was() -> None:
    search = guided_search()
    start = relief.Relief([0, len(search.journal)], is_annealed=False)
    rows, loads = search.placement.replicas.copy(), search.placement.loads.copy()
    assert relief.or_better(search, start, lambda: None) is start
    assert (search.placement.replicas == rows).all()
    assert (search.placement.loads == loads).all()

    def other() -> relief.Relief:
        search.relieve()
        return relief.Relief([0, len(search.journal)], is_annealed=False)

    distance, copied = above(search), search.spending.bytes_copied
    assert relief.or_better(search, start, other, bytes_more=0.01) is start
    assert (search.placement.replicas == rows).all()
    assert relief.or_better(search, start, other, bytes_more=10.0) is not start
    assert above(search) < distance
    assert search.spending.bytes_copied <= 10.0 * copied


def test_what_had_to_leave_its_broker_goes_on_for_nothing() -> None:
    """Repair has placed what a broker to empty held. Wherever that goes now, it is copied once."""
    search = search_of(generate(variants(TO_EMPTY)["to empty"], TO_EMPTY))
    at_first = relaxation_of(search)
    repair(search)
    relaxed = relaxation_of(search)
    placement = search.placement
    has_left = ~(placement.original[relaxed.partitions] == relaxed.sources[:, None]).any(axis=1)
    assert has_left.any()
    assert (relaxed.prices[has_left] == MOVED_ON_PRICE).all()
    assert (relaxed.prices[~has_left] >= MOVED_PRICE).all()
    assert (at_first.prices >= MOVED_PRICE).all()
