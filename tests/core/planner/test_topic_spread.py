"""Topics that should be spread over brokers, and least numbers of leaders: soft rules, which balance goes before."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.balance import balance
from assignor_core.planner.policy import BrokerSet
from assignor_core.planner.rounds import Rounds
from tests.core.planner.cases import all_outcomes, case_of, cluster, search_of
from tests.core.planner.invariants import check_plan

ROUNDING = 1e-9
A, BOTH = frozenset({"a"}), frozenset({"a", "b"})
LEAST_TWO = PlannerPolicy(leaders_min=((A, 2),))


EACH = 60
"""Partitions of each topic: few heavy replicas would not be worth their bytes."""


def apart(brokers: tuple[Broker, ...] = tuple(map(Broker, range(1, 7)))) -> ClusterState:
    """Topic a is on brokers 1 to 3 and topic b on brokers 4 to 6; all loads are even."""
    rows = [(first + n % 3, first + (n + 1) % 3) for first in (1, 4) for n in range(EACH)]
    state = cluster(*rows, brokers=brokers)
    named = (replace(row, topic="a" if row.partition < EACH else "b") for row in state.partitions)
    return replace(state, partitions=tuple(named))


def counts(state: ClusterState, topic: str) -> tuple[Counter[int], Counter[int]]:
    """Replicas and leaders of a topic by broker."""
    rows = [row.replicas for row in state.partitions if row.topic == topic]
    return Counter(broker for row in rows for broker in row), Counter(row[0] for row in rows)


@pytest.mark.long
def test_topics_are_spread_though_all_loads_are_even() -> None:
    state, policy = apart(), PlannerPolicy(spread_topics=BOTH)
    assert propose(state).movements == ()
    plan = propose(state, policy)
    after = check_plan(state, policy, plan)
    for topic in BOTH:
        replicas, leaders = counts(after, topic)
        assert set(replicas.values()) == {20}
        assert set(leaders.values()) == {10}
    assert plan.diagnosis == ()
    assert any(row.reason == "evens out topic a, which should be spread over brokers" for row in plan.movements)
    assert propose(after, policy).movements == (), "a second plan finds nothing to do"


def test_what_stays_uneven_is_named() -> None:
    policy = PlannerPolicy(spread_topics=BOTH, leaders_only=True)
    (line,) = propose(apart(), policy).diagnosis
    words = "a: broker 1 has 40 replicas, 20 would be even, b: broker 4 has 40 replicas, 20 would be even"
    assert line == f"2 topics are not spread over brokers as they should be ({words})"


@pytest.mark.long
def test_balance_goes_before_the_spread_of_a_topic() -> None:
    """Each partition of topic a is as heavy as all others on a broker: even counts would make loads uneven."""
    loads = (10.0,) * 4 + (40.0,) * 2
    rows = ((1,), (2,), (1,), (2,), (3,), (4,))
    state = cluster(*rows, brokers=tuple(map(Broker, (1, 2, 3, 4))), loads=loads)
    state = replace(
        state, partitions=tuple(replace(row, topic="a" if row.partition < 4 else "b") for row in state.partitions)
    )
    policy = PlannerPolicy(spread_topics=A)
    plan = propose(state, policy)
    assert plan.skew_after["disk"]["max_over_mean"] <= propose(state).skew_after["disk"]["max_over_mean"] + 1e-6


@pytest.mark.long
def test_each_broker_leads_the_least_number() -> None:
    plan = propose(apart(), LEAST_TWO)
    after = check_plan(apart(), LEAST_TWO, plan)
    leaders = counts(after, "a")[1]
    assert all(leaders[broker] >= 2 for broker in range(1, 7))
    assert len(plan.movements) <= 24, "and of topic b only what makes up for it moves"
    assert propose(after, LEAST_TWO).movements == ()


def test_leaders_that_are_too_few_for_all_brokers_are_named() -> None:
    lines = propose(apart(), PlannerPolicy(leaders_min=((A, 11),), leaders_only=True)).diagnosis
    assert "a has 60 partitions, too few for 11 leaders on each of 6 brokers" in lines
    assert "broker 4 leads 0 partitions of a, 11 should be the least" in lines


@pytest.mark.long
def test_a_topic_with_a_set_is_spread_over_its_brokers() -> None:
    policy = PlannerPolicy(spread_topics=A, broker_sets=(BrokerSet(A, brokers=frozenset({3, 4, 5, 6})),))
    after = check_plan(apart(), policy, propose(apart(), policy))
    assert counts(after, "a")[0] == {3: 30, 4: 30, 5: 30, 6: 30}


@pytest.mark.long
def test_brokers_of_a_small_rack_may_hold_what_the_rack_must() -> None:
    """One of two racks has a single broker, which has to hold a replica of each partition."""
    brokers = tuple(Broker(number, "a" if number == 1 else "b") for number in range(1, 7))
    policy = PlannerPolicy(spread_topics=A)
    lines = propose(apart(brokers), policy).diagnosis
    assert not any("is not spread" in line for line in lines)


@pytest.mark.long
@given(st.data())
@settings(max_examples=15, deadline=None)
def test_no_placement_of_a_small_cluster_without_load_is_more_even(data: st.DataObject) -> None:
    """Brute force over all placements of four partitions on three brokers: none has less to be evened out, and the
    diagnosis names what is left.
    """
    rows = [data.draw(st.sampled_from(tuple(permutations((1, 2, 3), 1 + number % 2)))) for number in range(4)]
    load = PartitionLoad(0.0, 0.0, 0.0)
    partitions = tuple(Partition("a" if number < 3 else "b", number, row, load) for number, row in enumerate(rows))
    policy = PlannerPolicy(spread_topics=A, leaders_min=((A, 1),), count_band=5.0)
    state = ClusterState("few", 0, tuple(map(Broker, (1, 2, 3))), partitions)
    search = search_of(state, policy)
    case = case_of(search)
    outcomes = [*all_outcomes(case)]
    balance(search)
    reached = Rounds(case, case.task, search.placement.replicas).outcome()
    assert reached.led <= min(outcome.led for outcome in outcomes) + ROUNDING
    lines = propose(state, policy).diagnosis
    assert (reached.led > 0) == any("not spread" in line or "should be the least" in line for line in lines)
