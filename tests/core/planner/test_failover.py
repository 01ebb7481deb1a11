"""Failover headroom: room for the leaders that brokers take over when a broker, or a whole rack, goes offline."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.load import NO_BROKER, Ints, broker_loads
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.balance import balance
from assignor_core.planner.failover import excesses, failover_bound, failover_lines, takeovers
from assignor_core.planner.placement import GRID, TABLE_MAX, heirs
from assignor_core.planner.problem import Search
from assignor_core.planner.rounds import Rounds
from assignor_core.planner.tuning import TUNING
from assignor_core.resources import Resource
from tests.benchmarks.models import Kind, generate
from tests.core.planner.cases import all_outcomes, are_reads_divided, case_of, cluster, clusters, search_of, with_room
from tests.core.planner.invariants import check_plan

ANY_BROKER, ANY_RACK = (PlannerPolicy(failover_headroom=what) for what in ("broker", "rack"))
ROUNDING = 1e-9
either_policy = st.sampled_from((ANY_BROKER, ANY_RACK))


def too_much(state: ClusterState, policy: PlannerPolicy) -> list[float]:
    """How full brokers would be that would be above their capacity, for each zone that may go offline."""
    search = search_of(state, policy)
    placement = search.placement
    found: list[float] = excesses(search.problem, placement, placement.replicas, placement.loads).fullness.tolist()
    return found


def without_zone(search: Search, zone: int) -> Ints:
    """P x R: the replicas that remain if a zone goes offline, in their order; the first one leads."""
    rows, zones = search.placement.replicas, search.placement.zones
    assert zones is not None
    left = np.where((rows == NO_BROKER) | (zones[rows] == zone) | (zones[rows] == NO_BROKER), NO_BROKER, rows)
    return np.take_along_axis(left, np.argsort(left == NO_BROKER, axis=1, kind="stable"), axis=1)


@pytest.mark.long
@given(clusters(reads=True), either_policy)
@settings(max_examples=60, deadline=None)
def test_what_is_taken_over_is_what_the_replicas_that_remain_carry_more(
    state: ClusterState, policy: PlannerPolicy
) -> None:
    """Nobody takes over a partition whose replicas are all offline, or one that a dead broker still leads."""
    dead = {row.broker_id for row in state.brokers if row.state is BrokerState.DEAD}
    rows = (row for row in state.partitions if not dead & set(row.replicas))
    search = search_of(replace(state, partitions=tuple(rows)), policy)
    placement, out = search.placement, search.problem.arrays.columns.of(Resource.BYTES_OUT)
    assert placement.zones is not None
    taken = takeovers(placement, placement.replicas)
    scale = placement.scale[out]
    before = broker_loads(search.problem.arrays)[:, out] * scale
    # Consumers of a rack with two followers read from both; if one of them leads, from that alone.
    is_divided = are_reads_divided(search)
    for zone in np.unique(placement.zones):
        remaining = without_zone(search, int(zone))
        kept = np.flatnonzero(remaining[:, 0] != NO_BROKER)
        gone = np.flatnonzero(remaining[:, 0] == NO_BROKER)
        remaining[gone] = placement.replicas[gone]
        after = broker_loads(search.problem.arrays, remaining)[:, out] * scale
        assert len(kept) + len(gone) == len(remaining)
        more = np.zeros_like(before)
        of_zone = taken.zone == zone
        more[taken.broker[of_zone]] = taken.load[of_zone]
        inside = placement.zones == zone
        assert (after - before - more)[~inside].max(initial=0.0) < 1000 / GRID, "never too low"
        if not is_divided:
            assert np.abs((after - before - more)[~inside]).max(initial=0.0) < 1000 / GRID


def test_a_capacity_far_below_the_load_is_told_without_infinity() -> None:
    brokers = tuple(Broker(broker, capacity=Capacity(bytes_out_per_sec=1.0)) for broker in (1, 2))
    plan = propose(
        cluster((1, 2), (2, 1), brokers=brokers, loads=(1e22, 1e22)), PlannerPolicy(failover_headroom="broker")
    )
    lines = [line for line in plan.diagnosis if "far above 100 %" in line]
    assert lines, plan.diagnosis
    assert not any("inf" in line for line in (*plan.diagnosis, *plan.problems))


def test_the_first_follower_that_is_alive_and_outside_the_zone_takes_over() -> None:
    rows, zones = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, NO_BROKER, NO_BROKER]]), np.array([0, 0, 1, NO_BROKER])
    assert heirs(rows, zones).tolist() == [2, NO_BROKER, NO_BROKER]
    assert heirs(rows, np.arange(4)).tolist() == [1, 2, 3]


def skewed(times: float, replication_factor: int = 3) -> ClusterState:
    """Twelve brokers in three racks, uneven in load, that can send so many times the mean."""
    kind = Kind(12, 600, racks=3, replication_factor=replication_factor, broken_share=0.0)
    return with_room(generate(kind, 1), times)


def heaviest(state: ClusterState, plan: Plan, policy: PlannerPolicy) -> float:
    """How full the fullest broker would be after the plan; 1 if none would be above its capacity."""
    return max(too_much(check_plan(state, policy, plan), policy), default=1.0)


@pytest.mark.long
@pytest.mark.parametrize(("policy", "times"), [(ANY_BROKER, 1.2), (ANY_RACK, 1.6)])
def test_a_plan_leaves_the_room_that_a_plan_without_the_rule_does_not(policy: PlannerPolicy, times: float) -> None:
    state = skewed(times)
    plain, plan = propose(state), propose(state, policy)
    after = check_plan(state, policy, plan)
    assert heaviest(state, plain, policy) > 1.05
    assert too_much(after, policy) == []
    assert plan.diagnosis == ()
    for resource in ("bytes_in", "bytes_out", "disk"):
        assert plan.skew_after[resource]["max_over_mean"] <= 1.0 + policy.band, "balance is no worse for it"
    assert propose(after, policy).movements == (), "a second plan finds nothing to do"


@pytest.mark.long
def test_another_heir_is_a_new_order_of_replicas_that_copies_nothing_and_says_why() -> None:
    """Brokers 1 to 4 lead alike, and broker 2 would take over all that broker 1 leads. Others could take half."""
    brokers = tuple(Broker(number, capacity=Capacity(bytes_out_per_sec=310.0)) for number in (1, 2, 3, 4))
    rows: tuple[tuple[int, ...], ...] = ((1, 2, 3, 4),) * 4 + ((2, 3, 4, 1), (2, 4, 1, 3), (2, 1, 3, 4), (2, 3, 1, 4))
    rows += ((3, 4, 1, 2), (3, 1, 2, 4), (3, 2, 4, 1), (3, 4, 2, 1), (4, 1, 2, 3), (4, 2, 3, 1), (4, 3, 1, 2))
    state = cluster(*rows, (4, 1, 3, 2), brokers=brokers)
    assert propose(state).movements == ()
    plan = propose(state, ANY_BROKER)
    after = check_plan(state, ANY_BROKER, plan)
    assert too_much(state, ANY_BROKER)
    assert too_much(after, ANY_BROKER) == []
    assert plan.bytes_to_move == 0.0
    assert {row.old_replicas[0] == row.new_replicas[0] for row in plan.movements} == {True}
    assert all("takes over if broker 1 goes offline: others would have no room" in row.reason for row in plan.movements)


@pytest.mark.long
def test_what_is_left_is_named_with_the_figure_of_before() -> None:
    state = skewed(1.06)
    plan = propose(state, ANY_BROKER)
    (line,) = (line for line in plan.diagnosis if "offline" in line)
    full = max(too_much(check_plan(state, ANY_BROKER, plan), ANY_BROKER))
    assert f"would have {100 * full:.0f} % of its bytes out capacity; " in line
    assert line.endswith(f" in all, {len(too_much(state, ANY_BROKER))} before this plan")


def test_headroom_counts_and_what_is_allowed_is_named() -> None:
    """The capacity is 1.5 times the mean, and `headroom` keeps a fifth of it free: 1.2 times the mean may be sent."""
    state = cluster((1, 2), (1, 2), brokers=tuple(Broker(n, capacity=Capacity(1e9, 60.0, 1e9)) for n in (1, 2)))
    policy = replace(ANY_BROKER, headroom=0.2)
    lines = propose(state, policy).diagnosis
    assert (
        "with broker 1 offline, broker 2 would have 100 % of its bytes out capacity, 80 % is allowed; "
        "2 such cases in all, 1 before this plan"
    ) in lines
    assert any(line.startswith("no placement can do without broker 1: ") for line in lines)


def test_brokers_without_a_capacity_are_named() -> None:
    lines = propose(cluster((1, 2), (2, 1)), ANY_BROKER).diagnosis
    assert "failover headroom is unknown for all brokers: set bytes_out_per_sec in planner.capacities" in lines
    brokers = (Broker(1), Broker(2, capacity=Capacity(bytes_out_per_sec=1e9)))
    lines = propose(cluster((1, 2), (2, 1), brokers=brokers), ANY_BROKER).diagnosis
    assert "failover headroom is unknown for broker 1: set bytes_out_per_sec in planner.capacities" in lines


@pytest.mark.long
@given(clusters(reads=True), either_policy)
@settings(max_examples=20, deadline=None)
def test_without_capacities_the_plan_is_that_without_the_rule(state: ClusterState, policy: PlannerPolicy) -> None:
    endless = tuple(replace(broker, capacity=Capacity()) for broker in state.brokers)
    state = replace(state, brokers=endless)
    assert propose(state, policy).plan_id == propose(state).plan_id


@pytest.mark.long
@pytest.mark.parametrize("policy", [ANY_BROKER, ANY_RACK])
def test_without_capacities_no_order_of_followers_changes(policy: PlannerPolicy) -> None:
    """The search exchanges followers on its way; that must make no movement where their order means nothing."""
    brokers = tuple(replace(broker, capacity=Capacity()) for broker in skewed(1.0).brokers)
    state = replace(skewed(1.0), brokers=brokers)
    assert propose(state, policy).plan_id == propose(state).plan_id


@pytest.mark.long
@given(st.data())
@settings(max_examples=25, deadline=None)
def test_no_placement_of_a_small_cluster_leaves_more_room(data: st.DataObject) -> None:
    """Brute force over all replica lists of three partitions on three brokers: the bound holds for each of them, none
    has less too much than what the search reaches, and the diagnosis names what is left.
    """
    racks = data.draw(st.sampled_from(((None,) * 3, ("a", "a", "b"))))
    policy = data.draw(either_policy)
    figure = st.integers(1, 9).map(float)
    loads = [PartitionLoad(0.0, data.draw(figure), 0.0) for _ in range(3)]
    rows = [data.draw(st.sampled_from(tuple(permutations((1, 2, 3), 2 + number % 2)))) for number in range(3)]
    partitions = tuple(Partition("t", n, row, load) for n, (row, load) in enumerate(zip(rows, loads, strict=True)))
    capacity = Capacity(bytes_out_per_sec=data.draw(st.sampled_from((6.0, 9.0, 12.0, 18.0))))
    brokers = tuple(Broker(n, rack, capacity=capacity) for n, rack in enumerate(racks, start=1))
    # Bands so wide that balance and bands ask for nothing.
    policy = replace(policy, band=9.0, leader_band=9.0, count_band=9.0)
    search = search_of(ClusterState("few", 0, brokers, partitions), policy)
    problem, placement = search.problem, search.placement
    case = case_of(search)
    able = [one for one in all_outcomes(case) if not problem.crowded(one.rows).any() and one.above < np.inf]
    balance(search)
    reached = Rounds(case, case.task, placement.replicas).outcome()
    # What a broker carries above its capacity as it is counts before what it would have to take over.
    least = min(one.led for one in able if one.above <= reached.above)
    left = excesses(problem, placement, placement.replicas, placement.loads)
    assert (reached.led > 1e-4) <= (len(left.zone) > 0) <= (reached.led > 0.0)
    assert reached.led <= least + TUNING.worth + ROUNDING, "what is not worth a plan may stay"
    if failover_bound(problem, placement)[0] > 1.0 + ROUNDING:
        assert least > 0.0


@pytest.mark.long
def test_the_table_of_the_search_is_bounded_and_the_plan_says_so() -> None:
    brokers = tuple(Broker(number, "abc"[number % 3], capacity=Capacity(1e9, 60.0, 1e12)) for number in range(6_000))
    state = cluster((1, 2), (1, 2), (1, 2), brokers=brokers)
    by_broker, by_rack = (search_of(state, policy).placement for policy in (ANY_BROKER, ANY_RACK))
    assert by_broker.searched_zones is None
    assert by_rack.searched_zones is not None
    assert len(brokers) ** 2 > TABLE_MAX
    lines = propose(state, replace(ANY_BROKER, leaders_only=True, only_topics=frozenset({"no"}))).diagnosis
    assert any("too much to search for" in line and "set planner.failover_headroom to rack" in line for line in lines)


def test_the_name_of_a_rack_is_shown_as_it_is() -> None:
    room = Capacity(bytes_out_per_sec=30.0)
    brokers = (Broker(1, "50%", capacity=room), Broker(2, "b", capacity=room))
    search = search_of(cluster((1, 2), (1, 2), brokers=brokers), PlannerPolicy(failover_headroom="rack"))
    assert any(
        line.startswith("with rack 50% offline, broker 2 would have 200 % of its bytes out capacity")
        for line in failover_lines(search.problem, search.placement)
    )
