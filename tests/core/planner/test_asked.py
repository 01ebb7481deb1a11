"""Plans of replica lists that somebody asks for, and of another replication factor, on any cluster."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.errors import InputError
from assignor_core.live import PartitionKey
from assignor_core.load import broker_loads, cluster_arrays
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState
from assignor_core.plan import apply_to
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.asked import plan_as_asked
from assignor_core.planner.replication_factor import lists_with_factor
from assignor_core.reassignment_file import ReplicaLists
from tests.core.planner.cases import cluster, clusters

NO_POLICY = PlannerPolicy()


def placed(state: ClusterState) -> dict[PartitionKey, tuple[int, ...]]:
    return {(row.topic, row.partition): row.replicas for row in state.partitions}


@st.composite
def wishes(draw: st.DrawFn) -> tuple[ClusterState, ReplicaLists]:
    """A cluster, and lists for some of its partitions that it can have, of any length."""
    state = draw(clusters(reads=True))
    alive = [broker.broker_id for broker in state.brokers if broker.state is BrokerState.ALIVE]
    lists = {}
    for key in placed(state):
        if draw(st.booleans()):
            lists[key] = tuple(draw(st.permutations(alive))[: draw(st.integers(1, len(alive)))])
    return state, lists


@pytest.mark.long
@given(wishes())
@settings(max_examples=40, deadline=None)
def test_the_plan_brings_just_what_is_asked_for_and_says_what_it_costs(wish: tuple[ClusterState, ReplicaLists]) -> None:
    state, lists = wish
    plan = plan_as_asked(state, NO_POLICY, lists, "asked for")
    planned, before = {row.key for row in plan.movements}, placed(state)
    left_out = {key for key in lists if key not in planned and lists[key] != before[key]}
    assert not left_out or any("left out" in line for line in plan.problems)
    after = apply_to(state, plan)
    assert placed(after) == before | {key: lists[key] for key in planned}
    disk = {(row.topic, row.partition): float(row.load.disk_bytes) for row in state.partitions}  # type: ignore[arg-type]
    copied = {key: len(set(lists[key]) - set(before[key])) * disk[key] for key in planned}
    assert {row.key: row.bytes_to_move for row in plan.movements} == pytest.approx(copied)
    assert sum(wave.movements for wave in plan.waves) == len(plan.movements)
    arrays = cluster_arrays(after)
    bytes_out = broker_loads(arrays)[:, 1]
    assert list(plan.loads_after["bytes_out"].values()) == pytest.approx(bytes_out.tolist(), rel=1e-4)


def test_followers_keep_the_order_that_was_asked_for() -> None:
    plan = plan_as_asked(cluster((1, 2, 3)), NO_POLICY, {("t", 0): (1, 3, 2)}, "asked for")
    assert [(row.new_replicas, row.bytes_to_move, row.kind) for row in plan.movements] == [((1, 3, 2), 0.0, "leader")]


def test_a_leader_sends_more_with_each_follower() -> None:
    """Bytes out of the leader are what consumers read and what it sends to followers: 20 and 10 for each of them."""
    plan = plan_as_asked(cluster((1,)), NO_POLICY, {("t", 0): (1, 2, 3)}, "asked for")
    assert (plan.loads_before["bytes_out"][1], plan.loads_after["bytes_out"][1]) == (20.0, 40.0)
    assert plan.lower_bound == {}, "what holds of one number of replicas holds of no other"


def test_what_the_cluster_would_break_is_said() -> None:
    brokers = tuple(Broker(broker, rack) for broker, rack in ((1, "a"), (2, "b"), (3, "a"), (4, "b")))
    policy = PlannerPolicy(excluded_topics=frozenset({"t"}), excluded_brokers=frozenset({3}))
    plan = plan_as_asked(cluster((1, 2), brokers=brokers), policy, {("t", 0): (1, 3)}, "asked for")
    assert plan.problems == (
        "changes what planner.excluded_topics keeps from moving: t",
        "puts replicas on brokers that are excluded: 3",
        "1 partition has more replicas in one rack than the racks make necessary: t-0",
    )


def test_a_broker_without_room_on_its_disks_is_named() -> None:
    brokers = (Broker(1), Broker(2, disk_room_bytes=1_500.0), Broker(3))
    lists = {("t", 0): (1, 2), ("t", 1): (1, 2)}
    plan = plan_as_asked(cluster((1,), (1,), brokers=brokers), NO_POLICY, lists, "asked for")
    assert plan.problems == ("broker 2 gets 2.0 kB, and its disks have room for 1.5 kB",)


@pytest.mark.parametrize("wanted", [(1, 3), (2, 3), (1, 2), (1, 3, 2)])
def test_what_fits_into_no_wave_leaves_the_other_lists_as_they_were_asked_for(wanted: tuple[int, ...]) -> None:
    brokers = (*(Broker(broker) for broker in (1, 2, 3)), Broker(4, capacity=Capacity(disk_bytes=10.0)))
    state = cluster((1, 2, 3), (1, 2), brokers=brokers)
    plan = plan_as_asked(state, NO_POLICY, {("t", 0): wanted, ("t", 1): (1, 4)}, "asked for")
    assert [(row.key, row.new_replicas) for row in plan.movements] == [(("t", 0), wanted)]
    assert plan.problems[0].startswith("1 movement left out: in waves of")


def test_new_replicas_that_have_nothing_to_copy_from_are_named() -> None:
    brokers = (Broker(1), Broker(2), Broker(3, state=BrokerState.DEAD))
    state = cluster((3,), (3, 1), brokers=brokers)
    plan = plan_as_asked(state, NO_POLICY, {("t", 0): (3, 1), ("t", 1): (1, 2)}, "asked for")
    assert plan.problems == ("1 partition has no replica in sync to copy from: t-0",)


def test_a_broker_above_its_capacity_is_named() -> None:
    small = Capacity(bytes_in_per_sec=15.0)
    brokers = (Broker(1), Broker(2, capacity=small), Broker(3))
    plan = plan_as_asked(cluster((1,), (1,), brokers=brokers), NO_POLICY, {("t", 0): (2,), ("t", 1): (2,)}, "asked for")
    assert plan.problems == ("above the capacity or the replicas that a broker may have: broker 2",)


@pytest.mark.parametrize(
    ("lists", "problem"),
    [
        ({("u", 0): (1,)}, "u-0: is not in the cluster: there is no such topic"),
        ({("t", 7): (1,)}, "t-7: is not in the cluster: it has no such partition, or that has no leader"),
        ({("t", 0): (9,)}, "t-0: found broker 9, allowed are 1, 2, 3, 4"),
        ({("t", 0): (4,)}, "t-0: new replica on broker 4, which is draining"),
    ],
)
def test_what_the_cluster_can_not_have_is_refused(lists: ReplicaLists, problem: str) -> None:
    brokers = (Broker(1), Broker(2), Broker(3), Broker(4, state=BrokerState.DRAINING))
    with pytest.raises(InputError) as refused:
        plan_as_asked(cluster((1, 2), brokers=brokers), NO_POLICY, lists, "asked for")
    assert str(refused.value) == problem


def spread(state: ClusterState, replicas: tuple[int, ...]) -> int:
    """Sum of the squares of replicas by rack: the smaller, the better they are spread."""
    racks = {broker.broker_id: broker.rack or f"own {broker.broker_id}" for broker in state.brokers}
    return sum(count * count for count in Counter(racks[broker] for broker in replicas).values())


@pytest.mark.long
@given(clusters(), st.integers(1, 5))
def test_a_factor_adds_or_takes_just_what_it_needs(state: ClusterState, factor: int) -> None:
    alive = {broker.broker_id for broker in state.brokers if broker.state is BrokerState.ALIVE}
    bounded = any(broker.disk_room_bytes is not None or broker.capacity.disk_bytes for broker in state.brokers)
    before = placed(state)
    try:
        lists = lists_with_factor(state, NO_POLICY, {"t0": factor, "t1": factor}, {})
    except InputError:
        assert bounded or any(len(alive | set(row)) < factor for row in before.values())
        return
    concerned = {key for key, row in before.items() if key[0] != "t2" and len(row) != factor}
    assert lists.keys() == concerned
    for key, replicas in lists.items():
        old = before[key]
        assert len(set(replicas)) == factor
        if factor > len(old):
            assert replicas[: len(old)] == old
            new = set(replicas) - set(old)
            assert new <= alive
            if not bounded:
                others = combinations(sorted(alive - set(old)), factor - len(old))
                assert spread(state, replicas) == min(spread(state, (*old, *some)) for some in others)
        else:
            assert replicas == tuple(broker for broker in old if broker in replicas)
            assert replicas[0] == old[0] or old[0] not in alive
            assert len(alive & set(replicas)) == min(factor, len(alive & set(old))), "what is not alive goes first"


def test_who_is_out_of_sync_goes_first_and_then_the_crowded_rack() -> None:
    brokers = tuple(Broker(broker, rack) for broker, rack in ((1, "a"), (2, "b"), (3, "b"), (4, "c")))
    state = cluster((1, 2, 3, 4), brokers=brokers)
    all_in_sync, one_out = {("t", 0): {1, 2, 3, 4}}, {("t", 0): {1, 2, 3}}
    assert lists_with_factor(state, NO_POLICY, {"t": 3}, one_out) == {("t", 0): (1, 2, 3)}
    assert lists_with_factor(state, NO_POLICY, {"t": 3}, all_in_sync)["t", 0] in ((1, 2, 4), (1, 3, 4))


def test_with_its_leader_draining_a_partition_keeps_the_replica_that_is_in_sync() -> None:
    brokers = (Broker(1, state=BrokerState.DRAINING), Broker(2), Broker(3))
    state = cluster((1, 2, 3), brokers=brokers)
    assert lists_with_factor(state, NO_POLICY, {"t": 1}, {("t", 0): {1, 3}}) == {("t", 0): (3,)}


def test_new_replicas_go_where_least_is() -> None:
    """The partitions of brokers 1 and 2 are heavy; what is added goes to 3 and 4, as evenly as it can."""
    lists = lists_with_factor(cluster((1,), (2,), (1,), (2,)), NO_POLICY, {"t": 2}, {})
    assert Counter(row[1] for row in lists.values()) == {3: 2, 4: 2}


def test_too_few_brokers_or_no_room_is_said_in_words() -> None:
    with pytest.raises(InputError, match="replication factor 5 needs 5 brokers, 4 may take replicas: add brokers"):
        lists_with_factor(cluster((1, 2)), NO_POLICY, {"t": 5}, {})
    full = (Broker(1), *(Broker(broker, disk_room_bytes=10.0) for broker in (2, 3)))
    with pytest.raises(InputError, match=r"none of 2 brokers has room for a replica of 1\.0 kB"):
        lists_with_factor(cluster((1,), brokers=full), NO_POLICY, {"t": 2}, {})
