"""Small clusters made after what people who run Kafka have reported, and variations of each kind."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from assignor_core.load import cluster_arrays
from assignor_core.model import (
    Broker,
    BrokerState,
    Capacity,
    ClusterState,
    Partition,
    PartitionLoad,
    cluster_from_json,
    cluster_to_json,
)
from assignor_core.plan import RACKS_LOST, Plan, apply_to, plan_to_json
from assignor_core.planner import PlannerPolicy, propose
from tests.benchmarks.models import Kind, generate
from tests.core.planner.cases import cluster, racked
from tests.core.planner.invariants import check_plan

DEAD, DRAINING = BrokerState.DEAD, BrokerState.DRAINING


def planned(state: ClusterState, policy: PlannerPolicy | None = None) -> Plan:
    plan = propose(state, policy)
    check_plan(state, policy or PlannerPolicy(), plan)
    return plan


def moved(plan: Plan) -> set[tuple[str, int]]:
    return {movement.key for movement in plan.movements}


def test_a_partition_without_a_live_replica_stays_and_is_named() -> None:
    plan = planned(cluster((3,), (1, 3), brokers=(Broker(1), Broker(2), Broker(3, state=DEAD))))
    assert moved(plan) == {("t", 1)}
    (line,) = [line for line in plan.problems if line.endswith("; left out: t-0")]
    assert line.startswith("broker 3 is dead and keeps 1 replica: no replica is on a broker that is alive")


def test_a_partition_whose_replicas_are_all_on_dead_brokers_stays_on_each() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=DEAD), Broker(4, state=DEAD))
    plan = planned(cluster((3, 4), (1, 2), brokers=brokers))
    assert moved(plan) == set()
    assert [line.partition(":")[0] for line in plan.problems] == [
        "broker 3 is dead and keeps 1 replica",
        "broker 4 is dead and keeps 1 replica",
    ]


@pytest.mark.parametrize(
    "small",
    [{"disk_room_bytes": 10.0}, {"capacity": Capacity(disk_bytes=900.0)}],
    ids=("without room", "without capacity"),
)
def test_what_nothing_is_left_of_needs_no_room_and_no_capacity(small: dict[str, Any]) -> None:
    brokers = (Broker(1, **small), Broker(2, **small), Broker(3, state=DEAD))
    plan = planned(cluster((3,), (3,), (1,), loads=(10.0, 10.0, 1.0), brokers=brokers))
    (line,) = plan.problems
    assert line.startswith("broker 3 is dead and keeps 2 replicas: no replica is on a broker that is alive")


def test_a_draining_broker_keeps_a_partition_without_a_replica_in_sync() -> None:
    state = cluster((1, 2), brokers=(Broker(1, state=DRAINING), Broker(2), Broker(3)))
    plan = planned(replace(state, partitions=(replace(state.partitions[0], in_sync=0),)))
    (line,) = plan.problems
    assert "keeps 1 replica: no replica is in sync, so there is nothing to copy from" in line


@pytest.mark.parametrize("state", [DEAD, DRAINING])
def test_without_any_broker_that_stays_consumers_of_racks_change_nothing(state: BrokerState) -> None:
    before = cluster((1, 2), brokers=racked("ab", b1=state, b2=state))
    read = replace(before, partitions=(replace(before.partitions[0], reader_racks=(("a", 0.5),)),))
    assert moved(planned(read)) == set()


def test_a_factor_above_the_number_of_brokers_is_no_matter_of_disks() -> None:
    brokers = (Broker(1, disk_room_bytes=10.0), Broker(2, disk_room_bytes=10.0), Broker(3, state=DRAINING))
    plan = planned(cluster((1, 2, 3), brokers=brokers))
    (line,) = plan.problems
    assert "replication factor 3 needs 3 brokers, 2 remain" in line


def test_a_partition_that_only_a_draining_broker_holds_is_copied() -> None:
    plan = planned(cluster((3,), brokers=(Broker(1), Broker(2), Broker(3, state=DRAINING))))
    assert plan.feasible
    assert moved(plan) == {("t", 0)}


def test_a_partition_without_a_replica_in_sync_does_not_move_for_balance() -> None:
    state = cluster((1,), (1,), (1,), brokers=(Broker(1), Broker(2)))
    offline = replace(state, partitions=(replace(state.partitions[0], in_sync=0), *state.partitions[1:]))
    assert ("t", 0) not in moved(planned(offline))
    assert moved(planned(offline))


@pytest.mark.long
@pytest.mark.parametrize(("state", "drained"), [(DEAD, ()), (BrokerState.ALIVE, (5,))], ids=("dead", "drain"))
def test_a_rack_that_loses_its_last_broker_is_named(state: BrokerState, drained: tuple[int, ...]) -> None:
    lists = [(5, 2, 4), (5, 3, 2), (3, 5, 2), (1, 4, 5)] * 5
    before = cluster(*lists, brokers=racked("aabbc", b5=state))
    plan = planned(before, PlannerPolicy(drain=frozenset(drained)))
    lost = "20 partitions lose their replica in rack c, which only broker 5 had, and have one more in another rack"
    assert plan.problems == (f"{RACKS_LOST}: {lost}",)
    assert "add a broker to rack c before it loses broker 5: 20 partitions then keep a replica there" in plan.diagnosis
    assert all(5 not in row.replicas for row in apply_to(before, plan).partitions), "it is emptied all the same"


def test_a_broker_without_a_rack_that_leaves_is_not_told_as_a_rack() -> None:
    brokers = (Broker(1, "a"), Broker(2, "a"), Broker(3, None, DRAINING))
    plan = planned(cluster((1, 3), brokers=brokers))
    lost = "1 partition loses its replica on broker 3, which has no rack, and has one more in another rack"
    assert plan.problems == (f"{RACKS_LOST}: {lost}",)
    assert not any("add a broker to" in line for line in plan.diagnosis)


def test_no_rack_is_lost_while_another_broker_of_it_stays() -> None:
    plan = planned(cluster((1, 2), (3, 2), brokers=racked("aabb", b1=DRAINING)))
    assert plan.feasible


def test_no_rack_is_lost_where_another_rack_takes_over() -> None:
    plan = planned(cluster((1, 2), (2, 1), brokers=racked("abc", b1=DRAINING)))
    assert plan.feasible
    assert moved(plan)


def test_too_few_brokers_for_the_replication_factor_are_counted() -> None:
    lists = [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    plan = planned(cluster(*lists, brokers=(Broker(1), Broker(2), Broker(3))), PlannerPolicy(drain=frozenset({3})))
    (line,) = plan.problems
    why = "replication factor 3 needs 3 brokers, 2 remain: add one, or lower the factor first"
    assert line == f"broker 3 is draining and keeps 3 replicas: {why}; left out: t-0, t-1, t-2"
    alone = planned(cluster((1, 2), (3,), brokers=(Broker(1), Broker(2, state=DEAD), Broker(3, state=DRAINING))))
    assert "broker 2 is dead and keeps 1 replica: replication factor 2 needs 2 brokers, 1 remains" in alone.problems[0]
    assert moved(alone) == {("t", 1)}, "the rest is done"


def test_factors_that_fit_and_factors_that_do_not_are_told_apart() -> None:
    lists = [(1, 2, 3, 4), (1, 2, 3), (3, 4)]
    brokers = (Broker(1), Broker(2), Broker(3, state=DRAINING), Broker(4, state=DRAINING))
    plan = planned(cluster(*lists, brokers=brokers))
    assert moved(plan) >= {("t", 2)}
    assert any(
        "factor 4 needs 4 brokers, 2 remain: add 2, or" in line and "left out: t-0" in line for line in plan.problems
    )
    assert any(
        "factor 3 needs 3 brokers, 2 remain: add one, or" in line and "left out: t-1" in line for line in plan.problems
    )


def test_what_the_policy_excludes_is_said_to_be_excluded() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=DRAINING))
    plan = planned(cluster((1, 3), brokers=brokers), PlannerPolicy(excluded_topics=frozenset({"t"})))
    assert "the policy excludes their topics" in plan.problems[0]


@pytest.mark.long
def test_racks_that_lack_room_are_named_with_what_they_lack() -> None:
    brokers = [replace(broker, disk_room_bytes=600e9) for broker in racked("aabbc")]
    brokers[4] = replace(brokers[4], disk_room_bytes=20e9)
    size = PartitionLoad(1e6, 1e6, 10e9)
    lists = [(1, 2, 3), (3, 4, 1)] * 5
    rows = tuple(Partition("t", number, placed, size) for number, placed in enumerate(lists))
    plan = planned(ClusterState("c", 0, tuple(brokers), rows))
    (line,) = plan.problems
    why = "8 of them need 80.0 GB in rack c, broker 5 has room for 0 B: it lacks 80.0 GB"
    assert line == f"8 partitions have more replicas in one rack than they need: {why}"


def test_a_rack_whose_capacity_of_disk_is_used_is_named_too() -> None:
    brokers = tuple(replace(broker, capacity=Capacity(disk_bytes=2000.0)) for broker in racked("aab"))
    rows = cluster((1, 2), (1, 2), (2, 1), brokers=brokers, loads=(9.0, 9.0, 9.0)).partitions
    plan = planned(ClusterState("c", 0, brokers, rows))
    assert "1 of them needs 900 B in rack b, broker 3 has room for 200 B: it lacks 700 B" in plan.problems[0]


def loads_of(plan: Plan, brokers: tuple[int, ...]) -> list[float]:
    return [plan.loads_after["disk"][broker] for broker in brokers]


def test_what_is_excluded_counts_in_no_fair_share() -> None:
    """Brokers 1 to 3 are one half of a cluster, 4 to 6 the other, which holds three times as much."""
    light, heavy = [(1,)] * 12, [(4,)] * 4 + [(5,)] * 4 + [(6,)] * 4
    state = cluster(*light, *heavy, brokers=tuple(map(Broker, range(1, 7))), loads=(1.0,) * 12 + (3.0,) * 12)
    plan = planned(state, PlannerPolicy(excluded_brokers=frozenset({4, 5, 6})))
    assert loads_of(plan, (1, 2, 3)) == [400.0, 400.0, 400.0]
    assert (plan.skew_before["disk"]["max_over_mean"], plan.skew_after["disk"]["max_over_mean"]) == (3.0, 1.0)
    assert plan.diagnosis == ()


def test_brokers_that_are_kept_empty_raise_no_bound_and_no_figure() -> None:
    brokers = tuple(map(Broker, range(1, 7)))
    plan = planned(cluster(*[(1, 2)] * 12, brokers=brokers), PlannerPolicy(excluded_brokers=frozenset({5, 6})))
    assert len(set(loads_of(plan, (1, 2, 3, 4)))) == 1
    assert (plan.skew_after["disk"]["max_over_mean"], plan.lower_bound["disk"]) == pytest.approx((1.0, 1.0))
    assert plan.diagnosis == ()


def test_an_excluded_broker_keeps_what_it_has_however_full_it_is() -> None:
    state = cluster(*[(1,)] * 9, (2,), (3,), brokers=(Broker(1), Broker(2), Broker(3)))
    plan = planned(state, PlannerPolicy(excluded_brokers=frozenset({1})))
    assert moved(plan) == set()
    assert plan.diagnosis == ()


@pytest.mark.long
def test_equal_replicas_that_do_not_divide_evenly_have_a_bound() -> None:
    lists = [(1 + number % 17, 1 + (number + 1) % 17) for number in range(48)]
    plan = planned(cluster(*lists, brokers=tuple(map(Broker, range(1, 19)))))
    assert plan.lower_bound["disk"] == pytest.approx(1.125)
    assert plan.skew_after["disk"]["max_over_mean"] == pytest.approx(1.125)
    (line,) = plan.diagnosis
    assert line.startswith("no placement has ")
    assert "below 1.125 fair shares: a replica can't be divided" in line


@pytest.mark.long
@pytest.mark.parametrize("kind", [Kind(9, 200, disk_twice_every=3), Kind(6, 90, disk_twice_every=2)])
def test_a_budget_that_does_not_bind_changes_nothing(kind: Kind) -> None:
    state = generate(kind, 3)
    free = planned(state)
    roomy = PlannerPolicy(bytes_max=1e18, movements_max=10**6, inflow_max=1e18)
    assert plan_to_json(planned(state, roomy)) == plan_to_json(free)
    exact = PlannerPolicy(bytes_max=free.bytes_to_move, movements_max=len(free.movements))
    assert plan_to_json(planned(state, exact)) == plan_to_json(free)


def test_a_dead_broker_is_not_asked_for_its_rack() -> None:
    """Metadata has no rack of a broker that is away."""
    brokers = (*racked("abc"), Broker(4, None, DEAD))
    assert "has no rack" not in str(planned(cluster((1, 4), (2, 3), brokers=brokers)).diagnosis)
    there = (*racked("abc"), Broker(4, None))
    assert "broker 4 has no rack" in str(planned(cluster((1, 4), (2, 3), brokers=there)).diagnosis)


def test_an_empty_name_is_no_rack() -> None:
    """Both brokers would else be in one rack, and each replica list crowded once a third has a name."""
    model = cluster_to_json(cluster((1, 2), brokers=(Broker(1), Broker(2), Broker(3))))
    for broker in model["brokers"]:
        broker["rack"] = ""
    state = cluster_from_json(model)
    assert [broker.rack for broker in state.brokers] == [None, None, None]
    assert cluster_arrays(state).rack_names == ("broker 1", "broker 2", "broker 3")


@pytest.mark.parametrize(("racks", "named"), [("a", "broker 2"), ("aab", None), ("", None)])
def test_racks_on_some_brokers_only_are_named(racks: str, named: str | None) -> None:
    brokers = tuple(Broker(number + 1, rack) for number, rack in enumerate((*racks, *[None] * (3 - len(racks)))))
    lines = [line for line in planned(cluster((1, 2), (2, 3), (3, 1), brokers=brokers)).diagnosis if "no rack" in line]
    assert len(lines) == (named is not None)
    assert all("broker 2, broker 3 have no rack" in line for line in lines)


def at_random(racks: str, replicas: int, seed: int, partitions: int = 120) -> ClusterState:
    """Partitions of uneven loads, each in as many racks as it has replicas: even but for chance. A rack a letter."""
    random, brokers = np.random.default_rng(seed), racked(racks)
    rows = []
    for number in range(partitions):
        chosen = random.permutation(sorted(set(racks)))[:replicas]
        placed = tuple(int(random.choice([one.broker_id for one in brokers if one.rack == rack])) for rack in chosen)
        rate, fan_out = (float(figure) for figure in random.lognormal(0.0, 0.5, size=2))
        rows.append(Partition("t", number, placed, PartitionLoad(rate, rate * fan_out, 1e3 * rate)))
    return ClusterState("random", 0, brokers, tuple(rows))


LEADERSHIP = ("bytes_out", "leader_bytes_in")


@pytest.mark.long
@pytest.mark.parametrize("racks", ["abcabc", "abcd" * 3, "abcdefgh"])
@pytest.mark.parametrize("state", [DEAD, BrokerState.ALIVE], ids=("dead", "drain"))
def test_what_leaves_a_broker_goes_where_all_end_even(racks: str, state: BrokerState) -> None:
    """A rack's other brokers take the replicas: leadership must go to more. Who carried more before keeps it."""
    before = at_random(racks, 3, seed=len(racks))
    brokers = (replace(before.brokers[0], state=state), *before.brokers[1:])
    plan = planned(replace(before, brokers=brokers), PlannerPolicy(drain=frozenset({1})).for_relief(frozenset({1})))
    on_it = [row for row in before.partitions if 1 in row.replicas]
    assert moved(plan) == {(row.topic, row.partition) for row in on_it}
    assert plan.bytes_to_move == pytest.approx(sum(float(np.max(row.load.disk_bytes)) for row in on_it))
    for load in LEADERSHIP:
        mean = sum(plan.loads_after[load].values()) / (len(racks) - 1)
        kept = plan.loads_before[load]
        assert all(carried <= max(1.12 * mean, kept[broker]) for broker, carried in plan.loads_after[load].items()), (
            load
        )


def test_leaders_stay_where_a_drain_leaves_all_even() -> None:
    """Broker 1 leads nothing, and the others lead two partitions each."""
    state = cluster((2, 1), (3, 1), (4, 1), (2, 3), (3, 4), (4, 2))
    plan = planned(state, PlannerPolicy(drain=frozenset({1}), only_brokers=frozenset({1})))
    assert {movement.new_replicas[0] == movement.old_replicas[0] for movement in plan.movements} == {True}


@pytest.mark.long
def test_replicas_that_spread_racks_go_where_all_end_even() -> None:
    """Both replicas of each partition are in rack a: one of them goes to rack b, and may take the leadership along."""
    lists = [(1 + number % 4, 1 + (number + 1) % 4) for number in range(48)]
    plan = planned(cluster(*lists, brokers=racked("aaaabbbb")), PlannerPolicy(rules_only=True))
    assert len(plan.movements) == 48
    assert plan.skew_after["leader_bytes_in"]["max_over_mean"] <= 1.05


@pytest.mark.long
@pytest.mark.parametrize(("lists", "brokers"), [(87, 5), (40, 3), (300, 12)])
def test_without_any_load_a_new_broker_gets_its_share_by_count(lists: int, brokers: int) -> None:
    """Topics are there and nobody writes yet: the last broker is new."""
    old = brokers - 1
    placed = [(1 + number % old, 1 + (number + 1) % old) for number in range(lists)]
    state = cluster(*placed, brokers=tuple(map(Broker, range(1, brokers + 1))), loads=(0.0,) * lists)
    for policy in (PlannerPolicy(), PlannerPolicy(add=frozenset({brokers}))):
        plan = planned(state, policy)
        for load, mean in (("replicas", 2 * lists / brokers), ("leaders", lists / brokers)):
            assert max(plan.loads_after[load].values()) <= math.ceil(1.03 * mean)
            assert plan.loads_after[load][brokers] >= 0.75 * mean
        assert planned(apply_to(state, plan), policy).movements == ()


@pytest.mark.long
def test_many_tiny_partitions_and_new_brokers_end_within_the_count_band() -> None:
    """One heavy partition on each of six brokers is all the load; three of them hold thousands of tiny ones as well."""
    tiny = [((1, 2), (2, 3), (3, 1))[number % 3] for number in range(3000)]
    loads = (1e-3,) * 3000 + (100.0,) * 6
    brokers = tuple(map(Broker, range(1, 7)))
    plan = planned(cluster(*tiny, *[(broker,) for broker in range(1, 7)], brokers=brokers, loads=loads))
    assert plan.skew_before["replicas"]["max_over_mean"] > 1.99
    assert max(plan.skew_after[load]["max_over_mean"] for load in ("leaders", "replicas")) <= 1.5


def test_what_the_policy_leaves_alone_is_named_where_brokers_stay_above_the_band() -> None:
    lists = [(1,)] * 8 + [(2,)] * 2
    brokers = (Broker(1), Broker(2), Broker(3))
    policy = PlannerPolicy(only_brokers=frozenset({2}))
    (line,) = {line.partition("limit: ")[2] for line in planned(cluster(*lists, brokers=brokers), policy).diagnosis}
    assert line == "only replicas of broker 2 may move"


@pytest.mark.parametrize("racks", ["aaaa", "abab"])
def test_where_fewer_brokers_than_replicas_remain_a_plan_is_made_and_its_bounds_hold(racks: str) -> None:
    """Brokers with more disk for their network than others are looked at apart, in each rack."""
    sizes = (2e6, 1e6, 2e6, 2e6)
    brokers = tuple(
        Broker(broker, racks[broker], BrokerState.ALIVE if broker < 2 else DEAD, Capacity(2e6, 1e7, size))
        for broker, size in enumerate(sizes)
    )
    partitions = (
        Partition("t", 0, (2,), PartitionLoad(1.0, 2.0, 0.0)),
        Partition("t", 1, (3, 1, 2), PartitionLoad(2.0, 0.0, 1.0)),
    )
    plan = planned(ClusterState("small", 0, brokers, partitions))
    assert any("replication factor 3 needs 3 brokers, 2 remain" in line for line in plan.problems), plan.problems
