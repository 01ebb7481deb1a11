"""Where a linear program leads: annealing by price copies little, moves nothing in vain, and other ways stay open."""

import numpy as np
import pytest

from assignor_core.load import Floats
from assignor_core.planner import annealing, propose, relief
from assignor_core.planner.annealing import NOTICEABLE, anneal_by_price
from assignor_core.planner.attainable import attainable
from assignor_core.planner.bound_lines import above, lines_of
from assignor_core.planner.guided import guide
from assignor_core.planner.policy import PlannerPolicy
from assignor_core.planner.problem import problem_of
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
ANY = np.inf


def guided_search() -> Search:
    """A search where whole replicas have followed the linear program."""
    search = search_of(generate(KIND, SEED))
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
