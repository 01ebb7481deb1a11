"""Rules of a policy about racks: replicas that stay in theirs, and racks that should lead."""

from collections import Counter
from dataclasses import replace

import pytest

from assignor_core.model import Broker, BrokerState, ClusterState, Partition, PartitionLoad
from assignor_core.plan import apply_to
from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.invariants import check_plan

ORDERS, LEFT = frozenset({"orders"}), (1, 4)


def three_racks(*rows: tuple[int, ...]) -> ClusterState:
    """Brokers 1 to 6 in racks a, b, c, a, b, c; each row is a partition of topic orders, and all loads are equal."""
    brokers = tuple(Broker(number, "abc"[(number - 1) % 3]) for number in range(1, 7))
    load = PartitionLoad(10.0, 20.0, 1_000.0)
    partitions = tuple(Partition("orders", number, row, load) for number, row in enumerate(rows))
    return ClusterState("c", 0, brokers, partitions)


def racks_of(cluster: ClusterState) -> dict[int, str | int]:
    return {broker.broker_id: broker.rack or broker.broker_id for broker in cluster.brokers}


def test_what_would_have_to_leave_its_rack_stays_and_is_named() -> None:
    cluster = three_racks((1, 2), (4, 2))
    plan = propose(cluster, PlannerPolicy(keep_racks=True, drain=frozenset(LEFT)))
    after = apply_to(cluster, plan)
    assert [set(row.replicas) & set(LEFT) for row in after.partitions] == [{1}, {4}]
    assert "replicas stay in their racks" in plan.problems[0]
    assert propose(cluster, PlannerPolicy(drain=frozenset(LEFT))).feasible


def test_replicas_of_a_lost_broker_are_replaced_though_nobody_shows_its_rack() -> None:
    """Kafka names no rack of a broker that is away."""
    cluster = three_racks(*((2, 1),) * 4)
    lost = tuple(Broker(1, None, BrokerState.DEAD) if row.broker_id == 1 else row for row in cluster.brokers)
    cluster = replace(cluster, brokers=lost)
    policy = PlannerPolicy(keep_racks=True)
    plan = propose(cluster, policy)
    after = check_plan(cluster, policy, plan)
    assert plan.problems == ()
    assert all(1 not in row.replicas for row in after.partitions)


def test_a_movement_for_a_rack_that_should_lead_says_so() -> None:
    """One leader in the wrong rack beside much even load: no broker is relieved by its hand-over."""
    rows = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6), (5, 6, 4), (6, 4, 5))
    cluster = three_racks(*rows)
    light = Partition("small", 0, (3, 1, 2), PartitionLoad(1e-3, 0.0, 0.0))
    plan = propose(
        replace(cluster, partitions=(*cluster.partitions, light)),
        PlannerPolicy(leader_racks=((frozenset({"small"}), ("a",)),)),
    )
    (movement,) = plan.movements
    assert (movement.topic, racks_of(cluster)[movement.new_replicas[0]]) == ("small", "a")
    assert movement.reason == "leads in rack a, as topic small should"


def test_a_hard_rule_goes_before_a_rack_that_should_lead_in_the_reason() -> None:
    """Broker 3 holds one light partition, whose move relieves nobody; rack a should lead it."""
    cluster = three_racks((1, 2, 6), (2, 6, 1), (6, 1, 2), (4, 5, 6), (5, 6, 4), (6, 4, 5))
    light = Partition("small", 0, (3, 1, 2), PartitionLoad(1e-3, 0.0, 0.0))
    policy = PlannerPolicy(leader_racks=((frozenset({"small"}), ("a",)),), drain=frozenset({3}))
    plan = propose(replace(cluster, partitions=(*cluster.partitions, light)), policy)
    (movement,) = (row for row in plan.movements if row.topic == "small")
    assert movement.new_replicas[0] in LEFT, "it is led in rack a"
    assert movement.reason == "empties broker 3, which is draining"


def wrong_leaders(count: int, *others: Partition, away: int = 0) -> ClusterState:
    """Topic orders is led in rack b and followed in rack a, but for `away` partitions that lie in rack b alone."""
    brokers = (Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b"), Broker(5, "c"))
    load = PartitionLoad(1.0, 2.0, 100.0)
    rows = [(3 + n % 2, 1 + n % 2) for n in range(count)] + [(3 + n % 2, 4 - n % 2) for n in range(away)]
    partitions = tuple(Partition("orders", number, row, load) for number, row in enumerate(rows))
    return ClusterState("c", 0, brokers, (*partitions, *others))


HOT = tuple(Partition("hot", n, (5,), PartitionLoad(50.0, 100.0, 5_000.0)) for n in range(4))
IN_A = PlannerPolicy(leader_racks=((ORDERS, ("a",)),), band=2.0, leader_band=2.0, count_band=2.0)


@pytest.mark.long
def test_a_budget_that_binds_brings_leaders_to_their_rack_in_steps() -> None:
    plan = propose(wrong_leaders(20), replace(IN_A, movements_max=5))
    assert len(plan.movements) == 5


@pytest.mark.long
def test_a_load_that_nothing_relieves_does_not_hold_leaders_back() -> None:
    policy = PlannerPolicy(leader_racks=((ORDERS, ("a",)),), excluded_topics=frozenset({"hot"}))
    assert propose(wrong_leaders(20, *HOT), policy).movements


def test_leaders_that_can_never_be_in_their_rack_do_not_hold_others_back() -> None:
    plan = propose(wrong_leaders(10, away=200), replace(IN_A, keep_racks=True))
    assert len(plan.movements) == 10


def test_leaders_go_to_the_rack_that_is_wanted_most_and_copy_nothing_for_it() -> None:
    """Loads are even already: each broker leads as much, and half of it is of another topic."""
    rows = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6), (5, 6, 4), (6, 4, 5))
    cluster = three_racks(*rows)
    others = tuple(replace(row, topic="other") for row in cluster.partitions)
    both = replace(cluster, partitions=(*cluster.partitions, *others))
    assert propose(both).movements == ()
    policy = PlannerPolicy(leader_racks=((ORDERS, ("c", "b")),))
    plan = propose(both, policy)
    after = check_plan(both, policy, plan)
    leaders = Counter((row.topic, racks_of(both)[row.replicas[0]]) for row in after.partitions)
    assert plan.bytes_to_move == 0.0
    assert leaders["orders", "c"] > leaders["orders", "b"] + leaders["orders", "a"]
    away = leaders["orders", "a"] + leaders["orders", "b"]
    lines = [line for line in plan.diagnosis if "not in rack c" in line]
    assert [line.partition(" leaders")[0] for line in lines] == ([f"{away} of 6"] if away else [])
    assert propose(after, policy).movements == (), "a second plan finds nothing to do"


def test_balance_goes_before_the_racks_that_should_lead() -> None:
    """All that there is should be led in rack a: then its two brokers would carry all leadership, and they do not."""
    rows = ((1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6), (5, 6, 4), (6, 4, 5))
    policy = PlannerPolicy(leader_racks=((ORDERS, ("a",)),))
    plan = propose(three_racks(*rows), policy)
    assert plan.skew_after["leader_bytes_in"]["max_over_mean"] < 1.5
    assert "4 of 6 leaders of orders are not in rack a, which they should be" in plan.diagnosis
