"""What the search tries is bounded and pays: no crumbs go round between full brokers, and an early end is shown."""

from dataclasses import replace

import pytest

from assignor_core.plan import SEARCH_ENDED
from assignor_core.planner.diagnose import diagnose
from assignor_core.planner.effort import Effort
from assignor_core.planner.proposal import propose_counted
from assignor_core.planner.search import Search
from assignor_core.resources import PLANNED
from tests.benchmarks.models import HEAVY, Kind, generate
from tests.core.planner.cases import cluster, search_of

EVEN = {str(resource): 1.0 for resource in PLANNED}
"""Bounds that force nothing."""

SMALL = replace(HEAVY, brokers=24, partitions=2_400)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "seed"), [(replace(SMALL, brokers_new=5), 1), (SMALL, 3)], ids=["new brokers", "plain"]
)
def test_heavy_partitions_are_placed_without_passing_crumbs_on(kind: Kind, seed: int) -> None:
    """With one line for limit and goal, and no larger gains asked for, both needed 6,500,000 candidates and more."""
    plan, effort = propose_counted(generate(kind, seed))
    assert effort.candidates < 5_500_000
    assert effort.edits < 5 * len(plan.movements)
    for name in ("bytes_in", "disk"):
        assert plan.skew_after[name]["max_over_mean"] <= 1.03
    assert not any(line.startswith(SEARCH_ENDED) for line in plan.diagnosis)


def test_a_search_whose_effort_is_spent_ends_and_the_diagnosis_shows_it() -> None:
    problem, placement, *_ = search_of(cluster((1,), (1,), (1,), (1,))).state
    search = Search(problem, placement, effort=Effort(candidates_max=1))
    search.relieve()
    assert search.effort.is_spent
    assert search.effort.edits == 1
    lines = diagnose(problem, placement, search.effort, EVEN)
    assert lines[0].startswith(f"{SEARCH_ENDED} after {search.effort.candidates} candidates, the most")
    assert lines[1].endswith("the search ended before")


def test_a_search_within_its_effort_claims_no_early_end() -> None:
    search = search_of(cluster((1,), (1,), (1,), (1,)))
    search.relieve()
    assert not search.effort.is_spent
    assert diagnose(search.problem, search.placement, search.effort, EVEN) == ()


def test_the_same_model_costs_the_same_effort() -> None:
    state = generate(Kind(12, 400), 3)
    shuffled = replace(state, brokers=state.brokers[::-1], partitions=state.partitions[::-1])
    assert propose_counted(state)[1] == propose_counted(shuffled)[1]
