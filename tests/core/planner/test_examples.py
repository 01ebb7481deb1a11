"""What plans must be on clusters that can be checked by head, and on seeded models of the reference's kinds."""

import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from assignor_core.errors import InputError
from assignor_core.load import cluster_arrays
from assignor_core.model import NO_LOAD, Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.plan import Plan
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.planner.balance import balance
from assignor_core.planner.waves import pending_movement
from assignor_core.skew import measure_skew
from tests.benchmarks.bench_planner import least_bytes
from tests.benchmarks.models import FURTHER, REFERENCE, Kind, generate
from tests.core.planner.cases import cluster, founding, racked, search_of
from tests.core.planner.invariants import check_plan
from tests.costs import grows_at_most

BYTES = ("bytes_in", "bytes_out", "disk")


def planned(state: ClusterState, policy: PlannerPolicy | None = None) -> tuple[Plan, ClusterState]:
    policy = policy or PlannerPolicy()
    plan = propose(state, policy)
    return plan, check_plan(state, policy, plan)


@cache
def planned_kind(kind: Kind, seed: int, band: float = PlannerPolicy().band) -> tuple[ClusterState, Plan, ClusterState]:
    """A seeded model, its plan, and the cluster after it: several tests ask about the same."""
    state = generate(kind, seed)
    return state, *planned(state, PlannerPolicy(band=band))


@pytest.mark.long
def test_founding_scenario_becomes_exactly_even_with_four_movements() -> None:
    plan, after = planned(founding())
    assert len(plan.movements) == 4
    assert measure_skew(after)["bytes_in"].max_over_mean == pytest.approx(1.0, abs=1e-12)


@pytest.mark.long
def test_founding_scenario_with_one_topic_10000_times_the_other_reaches_its_optimum() -> None:
    _, after = planned(founding(10_000.0, 1.0))
    leads = [partition.replicas[0] for partition in after.partitions if partition.topic == "topic-A"]
    assert sorted(leads.count(broker) for broker in (1, 2, 3)) == [10, 10, 10]


def test_an_even_cluster_stays_as_it_is() -> None:
    plan, _ = planned(cluster((1, 2), (2, 3), (3, 4), (4, 1)))
    assert plan.movements == ()


def test_leadership_alone_is_enough_where_replicas_are_even() -> None:
    plan, after = planned(cluster((1, 2), (1, 2), brokers=(Broker(1), Broker(2))))
    assert [movement.kind for movement in plan.movements] == ["leader"]
    assert plan.bytes_to_move == 0
    assert measure_skew(after)["bytes_out"].max_over_mean == 1.0


def test_a_draining_broker_ends_empty_and_a_dead_one_too() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=BrokerState.DRAINING), Broker(4, state=BrokerState.DEAD))
    plan, after = planned(cluster((1, 3), (3, 2), (4, 1), (4, 3), brokers=brokers))
    assert plan.feasible
    assert {broker for partition in after.partitions for broker in partition.replicas} == {1, 2}


def test_four_replicas_use_all_of_three_racks() -> None:
    plan, after = planned(cluster((1, 2, 3, 4), brokers=racked("aabbcc")))
    assert plan.feasible
    assert set(after.partitions[0].replicas) & {5, 6}


def test_a_rack_with_one_broker_is_no_reason_to_complain() -> None:
    plan, _ = planned(cluster((1, 2, 3, 4), brokers=racked("abbb")))
    assert (plan.feasible, plan.movements) == (True, ())


THREE_ONE_DEAD = (Broker(1), Broker(2), Broker(3, state=BrokerState.DEAD))


def test_fewer_brokers_alive_than_replicas_is_no_matter_of_racks() -> None:
    plan, _ = planned(cluster((1, 2, 3), (2, 3, 1), brokers=THREE_ONE_DEAD))
    assert plan.movements == ()
    assert [problem.split(":")[0] for problem in plan.problems] == ["broker 3 is dead and keeps 2 replicas"]


def test_a_leadership_change_beside_a_dead_broker_is_not_said_to_empty_it() -> None:
    plan, _ = planned(cluster(*[(1, 2, 3)] * 4, brokers=THREE_ONE_DEAD))
    assert [movement.new_replicas for movement in plan.movements] == [(2, 1, 3)] * 2
    assert all("broker 1 goes" in movement.reason for movement in plan.movements)


@pytest.mark.long
def test_what_can_not_be_mended_is_not_tried_partition_by_partition() -> None:
    """8,000 partitions on three brokers, one of them dead, took 5 s to find that nothing can be done; now 0.03 s."""
    state = cluster(*[((1, 2, 3), (2, 3, 1))[number % 2] for number in range(8000)], brokers=THREE_ONE_DEAD)
    assert propose(state).movements == ()
    computations: list[Callable[[ClusterState], object]] = [cluster_arrays, propose]
    assert grows_at_most(30, lambda number: computations[number](state), 0, 1)


def test_nothing_is_claimed_to_be_the_best_where_a_dead_broker_keeps_what_is_heaviest() -> None:
    state = cluster((3,), (1,), (2,), brokers=THREE_ONE_DEAD, loads=(100.0, 10.0, 10.0))
    plan, _ = planned(state, PlannerPolicy(bytes_max=0.0))
    assert plan.skew_after["disk"]["max_over_mean"] == 1.0
    assert set(plan.lower_bound.values()) == {1.0}
    assert not any("split it" in line for line in plan.diagnosis)


def test_racks_that_stay_crowded_force_nothing() -> None:
    plan, _ = planned(cluster((2, 3), (3, 4), (4, 2), brokers=racked("abbb")), PlannerPolicy(movements_max=0))
    assert "3 partitions have more replicas in one rack" in plan.problems[0]
    assert plan.lower_bound["disk"] == pytest.approx(4 / 3), "six replicas on four brokers, not all a on broker 1"
    assert not any(line.startswith("rack a") for line in plan.diagnosis)


@pytest.mark.long
def test_without_racks_partitions_times_brokers_is_never_held_in_memory() -> None:
    """600 brokers and 30,000 partitions took 275 MiB to see that no two replicas are on one broker."""
    replicas = [tuple((number + 7 * slot) % 300 for slot in range(3)) for number in range(10_000)]
    search = search_of(cluster(*replicas, brokers=tuple(Broker(broker) for broker in range(300))))
    tracemalloc.start()
    assert not search.problem.crowded(search.placement.replicas).any()
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 300 * 10_000


def test_no_broker_alive_gives_an_empty_plan_that_says_so() -> None:
    plan, _ = planned(cluster((1,), brokers=(Broker(1, state=BrokerState.DEAD),)))
    assert plan.movements == ()
    assert "there is nothing to copy from" in plan.problems[0]


def test_a_heavy_partition_is_named_with_what_to_do() -> None:
    state = cluster((1,), (2,), (3,), (4,), loads=(100.0, 10.0, 10.0, 10.0))
    plan, _ = planned(state)
    assert plan.movements == ()
    assert plan.diagnosis[0].startswith("t-0 alone is 3.08 fair shares")
    assert plan.lower_bound["bytes_in"] == pytest.approx(plan.skew_after["bytes_in"]["max_over_mean"])


def test_a_rack_that_is_too_small_is_named() -> None:
    plan, _ = planned(cluster((1, 2), (1, 3), (1, 4), brokers=racked("abbb")))
    assert plan.lower_bound["disk"] == pytest.approx(2.0)
    assert any(line.startswith("rack a has 1 of 4 brokers") for line in plan.diagnosis)


def test_unequal_brokers_are_even_by_utilisation() -> None:
    brokers = tuple(Broker(broker, capacity=Capacity(size, size, size)) for broker, size in ((1, 3e4), (2, 1e4)))
    plan, after = planned(cluster((1,), (2,), (2,), (2,), brokers=brokers))
    assert [partition.replicas[0] for partition in after.partitions].count(1) == 3
    assert plan.skew_after["bytes_in"]["max_over_mean"] == pytest.approx(1.0)


def test_what_is_too_heavy_for_a_small_broker_goes_to_a_large_one() -> None:
    """It stayed, as if no broker could carry it: broker 2 ended at 2.5 fair shares."""
    brokers = tuple(
        Broker(broker, capacity=Capacity(size, size, size)) for broker, size in ((1, 6e4), (2, 2e4), (3, 2e4))
    )
    state = cluster((2,), *[(1,)] * 6, (3,), (3,), brokers=brokers, loads=(30.0, *[4.0] * 6, 3.0, 3.0))
    _, after = planned(state)
    assert after.partitions[0].replicas == (1,)
    assert max(measure_skew(after)[name].max_over_mean for name in BYTES) <= 1.03


def test_what_is_too_heavy_for_any_broker_goes_to_the_largest() -> None:
    """It stayed on broker 2, at 4.6 fair shares."""
    brokers = tuple(Broker(id_, capacity=Capacity(size, size, size)) for id_, size in ((1, 6e4), (2, 2e4), (3, 2e4)))
    state = cluster((2,), (1,), (1,), (3,), brokers=brokers, loads=(100.0, 3.0, 3.0, 3.0))
    plan, after = planned(state)
    assert after.partitions[0].replicas == (1,)
    for name in BYTES:
        assert plan.skew_after[name]["max_over_mean"] <= plan.lower_bound[name] + 0.05


def test_no_broker_is_loaded_above_its_capacity() -> None:
    small = Broker(2, capacity=Capacity(disk_bytes=1500.0))
    plan, after = planned(cluster((1,), (1,), (1,), (1,), brokers=(Broker(1), small)))
    assert [partition.replicas[0] for partition in after.partitions].count(2) == 1
    assert plan.feasible


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [
        PlannerPolicy(movements_max=2),
        PlannerPolicy(bytes_max=450.0),
        PlannerPolicy(inflow_max=300.0),
        PlannerPolicy(only_topics=frozenset({"topic-B"})),
        PlannerPolicy(excluded_topics=frozenset({"topic-A"})),
        PlannerPolicy(excluded_brokers=frozenset({2})),
        PlannerPolicy(add=frozenset({3})),
        PlannerPolicy(only_brokers=frozenset({1})),
    ],
    ids=lambda policy: next(str(k) for k in policy.__slots__ if getattr(policy, k) != getattr(PlannerPolicy(), k)),
)
def test_a_targeted_plan_keeps_within_its_limits_and_still_helps(policy: PlannerPolicy) -> None:
    before = measure_skew(founding())["bytes_in"].max_over_mean
    plan, after = planned(founding(), policy)
    assert plan.movements
    assert measure_skew(after)["bytes_in"].max_over_mean < before


def test_a_partition_leaves_its_rack_where_only_a_drained_and_an_excluded_broker_are_in_it() -> None:
    policy = PlannerPolicy(drain=frozenset({2}), excluded_brokers=frozenset({1}))
    _, after = planned(cluster((2, 3), brokers=racked("aabb")), policy)
    assert set(after.partitions[0].replicas) == {3, 4}


def test_an_unknown_broker_in_the_policy_is_an_input_error() -> None:
    with pytest.raises(InputError, match="found broker 99"):
        propose(founding(), PlannerPolicy(drain=frozenset({99})))


def test_more_load_than_capacity_is_said_with_what_lacks() -> None:
    brokers = tuple(Broker(broker, capacity=Capacity(bytes_in_per_sec=20.0)) for broker in (1, 2))
    plan, _ = planned(cluster((1,), (2,), (2,), brokers=brokers, loads=(30.0, 10.0, 10.0)))
    assert not plan.feasible
    assert plan.problems[1:] == (
        "bytes in needs 1.25 x what all alive brokers can carry: add brokers",
        "t-0 alone needs 1.50 x what the largest broker carries in bytes in: split it",
    )


def test_a_capacity_far_below_the_load_lacks_a_finite_part() -> None:
    brokers = tuple(Broker(broker, capacity=Capacity(disk_bytes=1.0)) for broker in (1, 2))
    plan, _ = planned(cluster((1,), (2,), brokers=brokers, loads=(5e20, 5e20)))
    needs = [line.split()[2] for line in plan.problems if line.startswith("disk needs ")]
    assert [float(times) for times in needs] == [pytest.approx(5e22)]


def test_brokers_above_their_capacity_are_told_apart_by_load() -> None:
    brokers = (
        Broker(1, capacity=Capacity(bytes_in_per_sec=20.0)),
        Broker(2, capacity=Capacity(disk_bytes=900.0)),
        Broker(3, capacity=Capacity(disk_bytes=900.0)),
    )
    policy = PlannerPolicy(excluded_topics=frozenset({"t"}), replicas_max=2)
    plan = propose(cluster((1,), (1,), (1,), (2,), (3,), brokers=brokers), policy)
    assert [line.partition(":")[0] for line in plan.problems[:3]] == [
        "1 broker is above its capacity of bytes in (first",
        "2 brokers are above their capacity of disk (first",
        "1 broker has more than 2 replicas (first",
    ]


def test_a_partition_is_heavy_beside_the_brokers_that_take_part() -> None:
    """Broker 1 is excluded, and carries nine tenths of all; of the rest one partition is four fifths."""
    state = cluster((1,), (2,), (2,), brokers=(Broker(1), Broker(2), Broker(3)), loads=(90.0, 8.0, 2.0))
    plan, _ = planned(state, PlannerPolicy(excluded_brokers=frozenset({1})))
    assert plan.diagnosis[0].startswith("t-1 alone is 1.60 fair shares of ")


def test_a_load_that_nobody_has_lacks_no_capacity() -> None:
    """Nothing is read, and broker 1 can't be emptied: what lacks is looked for."""
    brokers = (
        Broker(1, state=BrokerState.DRAINING, capacity=Capacity(bytes_out_per_sec=20.0)),
        Broker(2, capacity=Capacity(bytes_out_per_sec=20.0)),
    )
    state = ClusterState("c", 0, brokers, (Partition("t", 0, (1,), PartitionLoad(1.0, 0.0, 1.0)),))
    plan = propose(state, PlannerPolicy(excluded_topics=frozenset({"t"})))
    assert len(plan.problems) == 1
    assert plan.problems[0].startswith("broker 1 is draining and keeps 1 replica")


def _two_brokers_that_want_to_exchange(disk_capacity: float) -> ClusterState:
    """Each holds two partitions of 450 bytes; broker 1 those of 30 bytes/s, broker 2 those of 10."""
    brokers = tuple(Broker(broker, capacity=Capacity(disk_bytes=disk_capacity)) for broker in (1, 2))
    partitions = tuple(
        Partition("t", number, (broker,), PartitionLoad(rate, rate, 450.0))
        for number, (broker, rate) in enumerate(((1, 30.0), (1, 30.0), (2, 10.0), (2, 10.0)))
    )
    return ClusterState("c", 0, brokers, partitions)


def test_an_exchange_shares_a_wave_where_disks_have_room_for_both() -> None:
    plan, after = planned(_two_brokers_that_want_to_exchange(1400.0))
    assert [wave.movements for wave in plan.waves] == [2]
    assert measure_skew(after)["bytes_in"].max_over_mean == 1.0


def test_an_exchange_that_would_fill_disks_on_the_way_is_left_out_and_said() -> None:
    plan, _ = planned(_two_brokers_that_want_to_exchange(1000.0))
    assert plan.movements == ()
    assert plan.diagnosis[0].startswith("2 movements left out")


def test_an_exchange_does_not_fit_into_waves_of_one_movement() -> None:
    plan, _ = planned(_two_brokers_that_want_to_exchange(1400.0), PlannerPolicy(wave_movements_max=1))
    assert plan.movements == ()


ONE_BY_ONE = PlannerPolicy(wave_movements_max=1, count_band=1.0)


def _exchange_needed(capacity: Capacity) -> ClusterState:
    """Broker 1 carries 10, broker 2 carries 6 and broker 3 carries 8: to exchange 3 for 1 makes them even."""
    return _holding({1: (3.0, 7.0), 2: (1.0, 5.0), 3: (4.0, 4.0)}, capacity)


def _holding(held: Mapping[int, tuple[float, ...]], capacity: Capacity) -> ClusterState:
    """Brokers that lead partitions of these loads, without followers."""
    rows = [(broker, load) for broker, loads in held.items() for load in loads]
    partitions = tuple(
        Partition("t", number, (broker,), PartitionLoad(load, 2 * load, 100 * load))
        for number, (broker, load) in enumerate(rows)
    )
    return ClusterState("c", 0, tuple(Broker(broker, capacity=capacity) for broker in held), partitions)


def test_an_exchange_runs_in_two_waves_where_no_broker_is_fuller_than_the_fullest_was() -> None:
    cluster = _exchange_needed(Capacity())
    plan = propose(cluster, ONE_BY_ONE)
    check_plan(cluster, ONE_BY_ONE, plan)
    assert plan.skew_after["bytes_in"]["max_over_mean"] == 1.0
    assert [wave.movements for wave in plan.waves] == [1, 1]


@pytest.mark.long
def test_a_plan_that_leaves_movements_out_names_no_cheaper_ones() -> None:
    """Their part of its gain would be of the placement that it does not reach: up to 15 times its gain was seen."""
    held = {1: (1.0, 7.0), 2: (4.0, 5.0, 1.0), 3: (6.0,), 4: (5.0, 2.0), 5: (2.0, 2.0, 3.0)}
    cluster = _holding(held, Capacity(bytes_in_per_sec=10.5, bytes_out_per_sec=1e3, disk_bytes=1e6))
    plan = propose(cluster, ONE_BY_ONE)
    assert plan.movements
    assert "left out" in plan.diagnosis[0]
    assert plan.cheaper == ()


def test_it_is_left_out_where_a_wave_would_exceed_a_capacity() -> None:
    cluster = _exchange_needed(Capacity(bytes_in_per_sec=8.5, bytes_out_per_sec=1e3, disk_bytes=1e6))
    plan = propose(cluster, ONE_BY_ONE)
    check_plan(cluster, ONE_BY_ONE, plan)
    assert plan.movements == ()
    assert "left out" in plan.diagnosis[0]


def test_loads_that_peak_at_different_times_share_a_broker() -> None:
    day, night = (10.0, 0.0), (0.0, 10.0)
    loads = (day, day, night, night)
    partitions = tuple(
        Partition("t", number, (1 + number // 2,), PartitionLoad(load, load, 1.0)) for number, load in enumerate(loads)
    )
    plan, after = planned(ClusterState("c", 0, (Broker(1), Broker(2)), partitions))
    assert plan.skew_before["bytes_in"]["max_over_mean"] == 2.0
    assert plan.skew_after["bytes_in"]["max_over_mean"] == 1.0
    days = [partition.replicas for partition in after.partitions if partition.load.bytes_in_per_sec == day]
    assert sorted(days) == [(1,), (2,)]


@pytest.mark.long
@pytest.mark.parametrize("band", [0.03, 0.1])
def test_30_brokers_end_within_the_band_for_little_more_than_the_least_bytes(band: float) -> None:
    state, plan, _ = planned_kind(REFERENCE["30 brokers"], 11, band)
    assert max(plan.skew_after[name]["max_over_mean"] for name in BYTES) <= 1 + band
    assert plan.skew_after["leader_bytes_in"]["max_over_mean"] <= 1.02 + band
    assert plan.bytes_to_move <= 1.25 * least_bytes(state, band)
    assert plan.feasible


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        Kind(20, 2_000, racks=4, brokers_new=2, heat=0.5, zipf=0.6),
        Kind(20, 2_000, racks=5, brokers_draining=2, heat=0.3, zipf=0.6),
        Kind(20, 2_000, racks=4, twice_every=3, heat=0.3, zipf=0.6),
        FURTHER["tight racks"],
        FURTHER["2 dead"],
    ],
    ids=["new brokers", "to empty", "unequal", "tight racks", "dead"],
)
def test_other_kinds_end_near_their_bound(kind: Kind) -> None:
    _, plan, _ = planned_kind(kind, 5)
    for name in BYTES:
        assert plan.skew_after[name]["max_over_mean"] <= max(1.03, plan.lower_bound[name] * 1.02)
    assert plan.feasible


@pytest.mark.long
def test_renumbered_brokers_give_a_plan_of_equal_quality() -> None:
    state = generate(Kind(12, 1_200), 3)
    renamed = {broker.broker_id: 100 - 7 * broker.broker_id for broker in state.brokers}
    other = replace(
        state,
        brokers=tuple(replace(broker, broker_id=renamed[broker.broker_id]) for broker in state.brokers),
        partitions=tuple(
            replace(partition, replicas=tuple(renamed[broker] for broker in partition.replicas))
            for partition in state.partitions
        ),
    )
    one, two = propose(state), propose(other)
    for name in BYTES:
        assert two.skew_after[name]["max_over_mean"] <= max(1.03, one.skew_after[name]["max_over_mean"] + 0.005)
    assert two.bytes_to_move == pytest.approx(one.bytes_to_move, rel=0.1)


@pytest.mark.long
def test_a_partition_too_heavy_for_any_network_share_goes_to_a_broker_with_a_large_disk() -> None:
    """Wherever it is, its broker is above its fair share of bytes in: that must not keep it on a small disk."""
    brokers = tuple(
        Broker(id_, None, BrokerState.ALIVE, Capacity(1e6, 1e6, disk))
        for id_, disk in ((1, 2e6), (2, 1e6), (3, 1e6), (4, 1e6))
    )
    state = cluster(
        (2,), *(((1,),) * 8), *(((3,),) * 8), *(((4,),) * 8), brokers=brokers, loads=(160.0, *((10.0,) * 24))
    )
    plan = propose(state)
    (heavy,) = (movement for movement in plan.movements if movement.partition == 0)
    assert heavy.new_replicas == (1,)
    assert plan.skew_after["disk"]["max_over_mean"] == plan.lower_bound["disk"]


@pytest.mark.long
def test_next_to_no_movement_can_be_left_out_without_a_broker_above_its_limit() -> None:
    """A search that never takes a movement back leaves a sixth of its movements without use: others made later do what
    these were made for.
    """
    search = search_of(generate(FURTHER["tight racks"], 1))
    balance(search)
    placement, limit, useless = search.placement, search.problem.limit, 0
    for partition in placement.changed().tolist():
        movement = pending_movement(placement, partition)
        original = placement.original[partition]
        if not search.problem.arrays.alive[original].all():
            continue
        if search.problem.crowding(original[None])[0] > search.problem.crowding(placement.replicas[[partition]])[0]:
            continue
        here = placement.loads[movement.brokers]
        useless += not (here - movement.change > np.maximum(limit[movement.brokers], here)).any()
    assert useless <= 0.02 * len(placement.changed())


def load_of(rate: float) -> PartitionLoad:
    return PartitionLoad(rate, 2 * rate, 100 * rate)


@pytest.mark.parametrize(
    "policy",
    [
        PlannerPolicy(count_band=2.0, only_brokers=frozenset({1})),
        PlannerPolicy(count_band=2.0, excluded_brokers=frozenset({2})),
    ],
    ids=("only broker 1", "without broker 2"),
)
def test_within_the_band_nothing_moves_where_brokers_that_are_left_alone_stay_uneven(policy: PlannerPolicy) -> None:
    loads = {1: (50.0, 1.0), 2: (51.0,), 3: (48.0,)}
    rows = [(broker, load) for broker, row in loads.items() for load in row]
    partitions = tuple(Partition("t", number, (broker,), load_of(load)) for number, (broker, load) in enumerate(rows))
    cluster = ClusterState("c", 0, tuple(Broker(broker) for broker in loads), partitions)
    assert propose(cluster, policy).movements == ()


def test_an_empty_partition_that_is_spread_over_racks_says_so() -> None:
    brokers = (Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b"))
    empty = Partition("t", 0, (1, 2), NO_LOAD, is_load_known=False)
    cluster = ClusterState("c", 0, brokers, (empty, Partition("u", 0, (3, 1), load_of(1.0))))
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    reason = next(movement.reason for movement in plan.movements if movement.topic == "t")
    assert reason.startswith("spreads replicas over racks")


Row = tuple[tuple[int, ...], float, float, float]
"""Replicas, bytes in, bytes out, disk."""


def of(brokers: int, *rows: Row) -> ClusterState:
    partitions = (Partition("t", number, row[0], PartitionLoad(*row[1:])) for number, row in enumerate(rows))
    return ClusterState("c", 0, tuple(Broker(broker) for broker in range(1, brokers + 1)), tuple(partitions))


def test_two_heavy_partitions_on_one_broker_part() -> None:
    cluster = of(4, ((1,), 7.0, 8.0, 100.0), ((1,), 3.0, 18.0, 800.0))
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    for resource in ("bytes_in", "bytes_out", "disk", "leader_bytes_in"):
        assert plan.skew_after[resource]["max_over_mean"] == pytest.approx(plan.lower_bound[resource])


def test_a_heavy_leadership_leaves_the_broker_that_holds_another_heavy_partition_and_copies_nothing() -> None:
    cluster = of(2, ((2, 1), 5.494, 3.964, 769.5), ((2,), 1.195, 2.651, 7104.0))
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    assert [(movement.partition, movement.new_replicas) for movement in plan.movements] == [(0, (1, 2))]


@pytest.mark.long
def test_two_brokers_that_are_both_above_a_limit_exchange_leaderships() -> None:
    cluster = of(
        2,
        ((2, 1), 4.753, 2.745, 367.7),
        ((1, 2), 1.445, 11.1, 233.1),
        ((2, 1), 8.637, 7.794, 278.9),
        ((1, 2), 3.346, 4.831, 108.6),
        ((1, 2), 1.474, 8.291, 651.3),
    )
    plan = propose(cluster)
    check_plan(cluster, PlannerPolicy(), plan)
    assert plan.bytes_to_move == 0.0
    assert max(plan.skew_after[load]["max_over_mean"] for load in ("bytes_out", "leader_bytes_in")) < 1.04
