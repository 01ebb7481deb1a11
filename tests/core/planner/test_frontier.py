"""Cheaper plans: most of the gain for far fewer bytes, as a plan with that budget brings it."""

from dataclasses import replace
from functools import cache
from itertools import accumulate

import pytest

from assignor_core.model import ClusterState
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.frontier import GAIN_SHARES
from tests.benchmarks.models import HEAVY, Kind, generate
from tests.core.planner.cases import founding
from tests.core.planner.invariants import check_plan

PLAIN = Kind(12, 600, broken_share=0.0)
KINDS = {
    "plain": (PLAIN, 1),
    "unequal": (replace(PLAIN, twice_every=3), 3),
    "many crowded racks": (replace(PLAIN, broken_share=0.05), 1),
    "heavy": (replace(HEAVY, brokers=12, partitions=600, broken_share=0.0), 1),
}
ALL = [
    "plain",
    *(pytest.param(name, marks=pytest.mark.long) for name in sorted(KINDS.keys() - {"plain"})),
]
"""`make test-fast` tries the first."""
ROUNDING = 1e-3
"""What a plan made again may bring less: it takes back movements that it does not need within the band."""


@cache
def model(name: str) -> ClusterState:
    return generate(*KINDS[name])


@cache
def planned(name: str) -> tuple[ClusterState, Plan]:
    """A model and its plan: several tests ask about the same."""
    return model(name), propose(model(name))


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_cheaper_plans_are_ever_dearer_and_bring_ever_more(name: str) -> None:
    _, plan = planned(name)
    gains, copied = ([getattr(row, key) for row in plan.cheaper] for key in ("gain_share", "bytes_to_move"))
    assert sorted(set(gains)) == gains
    assert sorted(set(copied)) == copied
    assert copied[-1] < plan.bytes_to_move
    assert gains[-1] >= GAIN_SHARES[-1]


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_four_fifths_of_the_gain_take_far_fewer_bytes_than_the_beginning_of_the_plan(name: str) -> None:
    _, plan = planned(name)
    gain = sum(movement.gain for movement in plan.movements)
    gains = accumulate(movement.gain for movement in plan.movements)
    copied = accumulate(movement.bytes_to_move for movement in plan.movements)
    cheaper = next(row for row in plan.cheaper if row.gain_share >= 0.8)
    shares = zip(gains, copied, strict=True)
    by_beginning = next(sent for share, sent in shares if share >= cheaper.gain_share * gain)
    assert cheaper.bytes_to_move <= 0.9 * by_beginning


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_a_plan_with_that_budget_is_sound_and_brings_as_much(name: str) -> None:
    state, plan = planned(name)
    gain = sum(movement.gain for movement in plan.movements)
    for cheaper in plan.cheaper:
        policy = PlannerPolicy(bytes_max=cheaper.bytes_to_move)
        again = propose(state, policy)
        check_plan(state, policy, again)
        if name == "many crowded racks":
            assert again.problems == () == plan.problems, "it spreads all of them, as the plan does"
        assert sum(movement.gain for movement in again.movements) >= (cheaper.gain_share - ROUNDING) * gain


@pytest.mark.long
@pytest.mark.parametrize("partitions", [8, 10])
def test_of_few_partitions_a_plan_with_that_budget_brings_exactly_as_much(partitions: int) -> None:
    kind = Kind(4, partitions, racks=2, replication_factor=2, broken_share=0.0)
    for state in (generate(kind, seed) for seed in range(20, 26)):
        plan = propose(state)
        gain = sum(movement.gain for movement in plan.movements)
        for cheaper in plan.cheaper:
            again = propose(state, PlannerPolicy(bytes_max=cheaper.bytes_to_move))
            share = sum(movement.gain for movement in again.movements) / gain
            assert (len(again.movements), again.bytes_to_move) == (cheaper.movements, cheaper.bytes_to_move)
            assert share == pytest.approx(cheaper.gain_share)


def test_a_plan_that_only_spreads_racks_has_no_cheaper_part() -> None:
    plan = propose(model("many crowded racks"), PlannerPolicy(rules_only=True))
    assert plan.movements
    assert plan.cheaper == ()


@pytest.mark.long
def test_what_brokers_must_give_away_has_no_cheaper_part() -> None:
    state = model("plain")
    assert propose(state, PlannerPolicy(drain=frozenset({state.brokers[0].broker_id}))).cheaper == ()


@pytest.mark.long
def test_a_plan_that_copies_nothing_has_no_cheaper_part() -> None:
    assert propose(founding(), PlannerPolicy(movements_max=0)).cheaper == ()
    state = model("plain")
    assert propose(state, PlannerPolicy(leaders_only=True)).cheaper == ()
