"""No search where the bound shows that no plan gains enough; where one might, the plan is the same as without that."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.live_plans.planning import judged
from assignor_core.model import Broker, BrokerState, ClusterState, PartitionLoad, figures_of
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner import balance as module
from assignor_core.planner.problem import Search
from assignor_core.planner.rounds import Case
from tests.core.planner.cases import cluster, clusters, founding

ONE_TOO_LARGE = cluster((1,), (1,), (2,), (3,), (4,), loads=(100.0, 10.0, 1.0, 1.0, 1.0))
"""Four brokers carry 113 together, so a fair share is 28.25. The heaviest partition alone is 3.54 fair shares, and
broker 1, which holds it, carries 3.89.
"""


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[Search]:
    """The searches that were made."""
    made: list[Search] = []

    def balance(search: Search) -> Case | None:
        made.append(search)
        return as_ever(search)

    as_ever = module.balance
    monkeypatch.setattr(module, "balance", balance)
    return made


def needing(resource: str, gain: float) -> PlannerPolicy:
    return PlannerPolicy(gain_needed=(resource, gain))


@pytest.mark.long
@pytest.mark.parametrize(("gain", "is_made"), [(0.35, True), (0.36, False)])
def test_a_partition_that_no_broker_can_carry_is_no_reason_to_search(
    gain: float, is_made: bool, searches: list[Search]
) -> None:
    plan = propose(ONE_TOO_LARGE, needing("bytes_in", gain))
    assert (bool(plan.movements), bool(searches)) == (is_made, is_made)
    assert round(plan.lower_bound["bytes_in"], 2) == 3.54
    assert any("alone is" in line for line in plan.diagnosis)


def test_exactly_as_much_as_is_needed_is_enough() -> None:
    """A partition of 2 of 4 on two brokers; broker 1 carries 3 of 4, at best 2: 1.5 down to 1."""
    state = cluster((1,), (1,), (2,), brokers=(Broker(1), Broker(2)), loads=(2.0, 1.0, 1.0))
    assert propose(state, needing("bytes_in", 0.5)).movements
    assert not propose(state, needing("bytes_in", 0.51)).movements


def test_what_small_racks_force_counts(searches: list[Search]) -> None:
    """One of two replicas must be on broker 1, alone in its rack: it carries half of all, 1.5 fair shares of three."""
    brokers = (Broker(1, "a"), Broker(2, "b"), Broker(3, "b"))
    state = cluster((1, 2), (1, 2), (1, 2), (1, 3), brokers=brokers)
    assert propose(state, needing("bytes_in", 0.01)).lower_bound["bytes_in"] == pytest.approx(1.5)
    assert searches == []


@pytest.mark.long
def test_what_must_be_done_is_done_whatever_it_gains() -> None:
    drained = replace(
        ONE_TOO_LARGE,
        brokers=tuple(
            Broker(number, state=BrokerState.DRAINING if number == 4 else BrokerState.ALIVE) for number in (1, 2, 3, 4)
        ),
    )
    assert propose(drained, needing("bytes_in", 0.5)).movements
    crowded = cluster((1, 2), (3, 1), brokers=(Broker(1, "a"), Broker(2, "a"), Broker(3, "b")))
    assert propose(crowded, needing("bytes_in", 5.0)).movements


@pytest.mark.long
def test_an_unknown_resource_is_no_reason_to_stop() -> None:
    assert propose(founding(), needing("coffee", 9.0)).movements


def two_windows(state: ClusterState) -> ClusterState:
    """The same in the first window; in the second the partitions' loads are in turn."""
    loads = [figures_of(row.load) for row in state.partitions]
    partitions = tuple(
        replace(row, load=PartitionLoad(*zip(now, then, strict=True)))
        for row, now, then in zip(state.partitions, loads, loads[1:] + loads[:1], strict=True)
    )
    return replace(state, partitions=partitions)


def test_only_the_first_window_counts(searches: list[Search]) -> None:
    """Even now, and skewed in the other window: what a plan would gain there is not what is asked for."""
    even = cluster((1,), (1,), (2,), brokers=(Broker(1), Broker(2)), loads=(1.0, 1.0, 2.0))
    rows = zip(even.partitions, ((1.0, 3.0), (1.0, 3.0), (2.0, 1.0)), strict=True)
    state = replace(even, partitions=tuple(replace(row, load=PartitionLoad(load, load, load)) for row, load in rows))
    assert state.windows == 2
    propose(state, needing("bytes_in", 0.1))
    assert searches == []
    propose(state)
    assert searches


def gain_of(plan: Plan, state: ClusterState, resource: str) -> float:
    """As a decision sees it."""
    on_now, _ = judged(plan, state, PlannerPolicy())
    return on_now.skew_before[resource]["max_over_mean"] - on_now.skew_after[resource]["max_over_mean"]


@pytest.mark.long
@settings(max_examples=30)
@given(
    clusters(reads=True),
    st.sampled_from(("bytes_in", "bytes_out", "disk")),
    st.floats(0.0, 1.5),
    st.booleans(),
)
def test_no_plan_is_lost_that_gains_enough(state: ClusterState, resource: str, gain: float, is_hourly: bool) -> None:
    if is_hourly:
        state = two_windows(state)
    made, free = propose(state, needing(resource, gain)), propose(state)
    if made.movements != free.movements:
        assert not made.movements
        assert gain_of(free, state, resource) < gain
