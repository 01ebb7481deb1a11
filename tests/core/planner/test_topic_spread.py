"""Topics that should be spread over brokers, and least numbers of leaders: soft rules, which balance goes before."""

from collections import Counter
from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.load import NO_BROKER
from assignor_core.model import Broker, ClusterState, Partition, PartitionLoad
from assignor_core.plan import plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.balance import balance
from assignor_core.planner.policy import BrokerSet
from assignor_core.planner.round_task import state_of_rows, task_of
from assignor_core.planner.rounds import Case, Rounds
from assignor_core.planner.targets import targets_of
from assignor_core.planner.tuning import TUNING
from streaming.control.policies import planner_policy
from streaming.settings import Settings
from tests.core.planner.cases import cluster, clusters, search_of
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


def test_a_topic_with_a_set_is_spread_over_its_brokers() -> None:
    policy = PlannerPolicy(spread_topics=A, broker_sets=(BrokerSet(A, brokers=frozenset({3, 4, 5, 6})),))
    after = check_plan(apart(), policy, propose(apart(), policy))
    assert counts(after, "a")[0] == {3: 30, 4: 30, 5: 30, 6: 30}


def test_brokers_of_a_small_rack_may_hold_what_the_rack_must() -> None:
    """One of two racks has a single broker, which has to hold a replica of each partition."""
    brokers = tuple(Broker(number, "a" if number == 1 else "b") for number in range(1, 7))
    policy = PlannerPolicy(spread_topics=A)
    lines = propose(apart(brokers), policy).diagnosis
    assert not any("is not spread" in line for line in lines)


@given(
    clusters(reads=True),
    st.sampled_from(
        (PlannerPolicy(spread_topics=frozenset({"t0", "t1"})), PlannerPolicy(leaders_min=((frozenset({"t0"}), 2),)))
    ),
)
@settings(max_examples=30, deadline=None)
def test_plans_keep_all_rules_and_are_one_for_one_input(state: ClusterState, policy: PlannerPolicy) -> None:
    plan = propose(state, policy)
    check_plan(state, policy, plan)
    assert plan_to_json(propose(state, policy)) == plan_to_json(plan)


@given(clusters(reads=True))
@settings(max_examples=15, deadline=None)
def test_counts_of_topics_stay_true_through_rounds(state: ClusterState) -> None:
    policy = PlannerPolicy(spread_topics=frozenset({"t0", "t1"}), leaders_min=((frozenset({"t1"}), 1),))
    search = search_of(state, policy)
    if not len(search.placement.original) or not search.problem.arrays.alive.any():
        return
    task = task_of(search, targets_of(search.problem, search.placement), TUNING)
    rounds = Rounds(Case(search, task, task.target, TUNING), task, search.placement.replicas)
    for turn in TUNING.ramp:
        rounds.run(turn)
    anew = state_of_rows(task, rounds.state.rows)
    assert (rounds.state.topic_replicas == anew.topic_replicas).all()
    assert (rounds.state.topic_leaders == anew.topic_leaders).all()


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
    targets = targets_of(search.problem, search.placement)
    case = Case(search, task_of(search, targets, TUNING), targets, TUNING)
    ways = ([[*way, *[NO_BROKER] * (2 - len(way))] for way in permutations(range(3), len(row))] for row in rows)
    outcomes = [Rounds(case, case.task, np.array(placed, dtype=np.int32)).outcome() for placed in product(*ways)]
    balance(search)
    reached = Rounds(case, case.task, search.placement.replicas).outcome()
    assert reached.led <= min(outcome.led for outcome in outcomes) + ROUNDING
    lines = propose(state, policy).diagnosis
    assert (reached.led > 0) == any("not spread" in line or "should be the least" in line for line in lines)


def test_patterns_of_the_settings_become_topics() -> None:
    given_settings = Settings.model_validate(
        {"planner": {"spread_topics": ["^a", "^c"], "leaders_min": {"^a": 2, ".": 1}}}
    )
    policy = planner_policy(given_settings.planner, ["a", "b", "c"])
    assert policy.spread_topics == frozenset({"a", "c"})
    assert policy.leaders_min == ((A, 2), (frozenset({"b", "c"}), 1))


def test_less_than_one_leader_is_refused() -> None:
    with pytest.raises(InputError, match="planner policy leaders_min: found less than one leader"):
        PlannerPolicy(leaders_min=((A, 0),))


def test_a_rule_for_topics_that_are_not_there_changes_nothing() -> None:
    policy = PlannerPolicy(spread_topics=frozenset({"elsewhere"}), leaders_min=((frozenset(), 3),))
    assert plan_to_json(propose(apart(), policy)) == plan_to_json(propose(apart()))
