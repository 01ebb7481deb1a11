"""Other seats for heavy partitions: light ones make room, no rule is broken, and all of it can be undone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assignor_core.load import NO_BROKER
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.seating import EFFORT_PART, is_within_capacities, make_room, seat_heavy
from tests.core.planner.cases import cluster, clusters, search_of

LIGHT = 10


def two_heavy_on_one() -> ClusterState:
    """Broker 1 holds two heavy partitions, broker 2 somewhat less in light ones."""
    replicas = [(1,), (1,), *[(2,)] * LIGHT]
    return cluster(*replicas, brokers=(Broker(1), Broker(2)), loads=(14.0, 14.0, *[2.0] * LIGHT))


def test_a_heavy_partition_goes_where_only_light_ones_are_and_these_make_room() -> None:
    search = search_of(two_heavy_on_one())
    assert seat_heavy(search, search.problem.limit)
    make_room(search)
    heavy, light = search.placement.replicas[:2, 0], search.placement.replicas[2:, 0]
    assert sorted(heavy.tolist()) == [0, 1]
    assert sorted(np.bincount(light).tolist()) == [LIGHT // 2, LIGHT // 2]


def test_of_unequal_brokers_only_large_ones_seat_heavy_partitions() -> None:
    """Brokers 1 and 2 carry twice as much as 3 to 6, and all the light ones; heavy ones fill 3 and 4 twice over."""
    sizes = (2.0, 2.0, 1.0, 1.0, 1.0, 1.0)
    brokers = tuple(Broker(n, capacity=Capacity(30 * s, 60 * s, 3e3 * s)) for n, s in enumerate(sizes, start=1))
    replicas = [(3,), (4,), *[(1,)] * 14, *[(2,)] * 14]
    search = search_of(cluster(*replicas, brokers=brokers, loads=(14.0, 14.0, *[1.0] * 28)))
    assert seat_heavy(search, search.problem.limit)
    make_room(search)
    assert sorted(search.placement.replicas[:2, 0].tolist()) == [0, 1]
    assert np.isin(search.placement.replicas[2:, 0], (0, 1)).sum() <= 4


def test_where_no_partition_is_heavy_nothing_moves() -> None:
    search = search_of(cluster(*[(1,)] * 40, brokers=(Broker(1), Broker(2))))
    assert not seat_heavy(search, search.problem.limit)
    assert search.journal == []


def test_a_search_that_has_spent_its_effort_has_some_left_for_seats() -> None:
    search = search_of(two_heavy_on_one())
    spent = search.effort.candidates_max
    search.effort.look(spent)
    assert seat_heavy(search, search.problem.limit)
    make_room(search)
    assert spent < search.effort.candidates <= spent + spent // EFFORT_PART


def test_capacities_are_looked_at_in_the_end() -> None:
    """A broker may stay above a capacity, and not get further above it."""
    state = two_heavy_on_one()
    small = tuple(Broker(broker, capacity=Capacity(29.0, 1000.0, 1e6)) for broker in (1, 2))
    search = search_of(ClusterState("small", 0, small, state.partitions))
    assert is_within_capacities(search.problem, search.placement)
    search.placement.move(2, 0, 0)
    assert not is_within_capacities(search.problem, search.placement)


@given(clusters(reads=True), st.sampled_from([PlannerPolicy(), PlannerPolicy(leaders_only=True)]))
@settings(max_examples=60, deadline=None)
def test_seats_keep_racks_and_can_be_undone_bit_by_bit(state: ClusterState, policy: PlannerPolicy) -> None:
    search = search_of(state, policy)
    placement, problem = search.placement, search.problem
    before, replicas = placement.loads.copy(), placement.replicas.copy()
    crowding = problem.crowding(replicas)
    seat_heavy(search, search.problem.limit)
    make_room(search)
    assert (problem.crowding(placement.replicas) <= crowding).all()
    taken = placement.replicas[(placement.replicas != replicas) & (placement.replicas != NO_BROKER)]
    states = {broker.broker_id: broker.state for broker in state.brokers}
    for broker in set(taken.tolist()):
        held_before = (replicas == broker).sum()
        is_new = (placement.replicas == broker).sum() > held_before
        assert not is_new or states[placement.arrays.broker_ids[broker]] is BrokerState.ALIVE
    if policy.leaders_only:
        assert (np.sort(placement.replicas) == np.sort(replicas)).all()
    search.undo_to(0)
    assert (placement.loads == before).all()
    assert (placement.replicas == replicas).all()
