"""Plans of partitions that followers serve: their loads follow the replicas' racks, and only repair leaves a rack."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from assignor_core.load import broker_loads, cluster_arrays
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad, ReaderRacks
from assignor_core.plan import apply_to
from assignor_core.planner import propose
from assignor_core.planner.placement import Placement
from assignor_core.planner.repair import repair
from assignor_core.resources import Resource
from tests.core.planner.cases import clusters, search_of
from tests.core.planner.invariants import HARD_RULES, bytes_out_by_broker

THIRDS: ReaderRacks = (("a", 0.25), ("b", 0.25), ("c", 0.5))


@pytest.mark.long
@given(clusters(reads=True))
@settings(max_examples=60, deadline=None)
def test_arrays_have_the_bytes_out_of_the_pure_function(cluster: ClusterState) -> None:
    arrays = cluster_arrays(cluster)
    column = arrays.columns.of(Resource.BYTES_OUT)[0]
    loads = dict(zip(arrays.broker_ids, broker_loads(arrays)[:, column].tolist(), strict=True))
    assert loads == pytest.approx(bytes_out_by_broker(cluster), abs=1e-6)


@pytest.mark.long
@given(clusters(reads=True))
@settings(max_examples=40, deadline=None)
def test_balance_moves_no_replica_that_followers_stand_in_for_out_of_its_rack(cluster: ClusterState) -> None:
    plan = propose(cluster)
    arrays = cluster_arrays(cluster)
    assert (arrays.rack_reads is None) == (Placement(arrays).in_racks is None)
    if arrays.rack_reads is None:
        return
    bound = {arrays.partitions[row] for row in arrays.rack_reads.partitions.tolist()}
    keys = {(row.topic, row.partition) for row in bound}
    racks = {broker.broker_id: broker.rack or broker.broker_id for broker in cluster.brokers}
    for movement in plan.movements:
        if (movement.topic, movement.partition) in keys and not movement.reason.startswith(HARD_RULES):
            counts = [Counter(racks[b] for b in row) for row in (movement.old_replicas, movement.new_replicas)]
            assert counts[0] == counts[1], movement


def of_racks(racks: str, *partitions: Partition, draining: int | None = None) -> ClusterState:
    """Brokers 1, 2, ... in these racks."""
    state = {True: BrokerState.DRAINING, False: BrokerState.ALIVE}
    brokers = tuple(Broker(number, rack, state[number == draining]) for number, rack in enumerate(racks, start=1))
    return ClusterState("c", 0, brokers, partitions)


def test_a_new_leader_takes_only_what_no_rack_reads_from_a_replica_of_its_own() -> None:
    read = Partition("t", 0, (1, 2, 3), PartitionLoad(1.0, 100.0, 1.0), reader_racks=(("a", 0.5), ("b", 0.25)))
    cluster = of_racks("abc", read)
    assert bytes_out_by_broker(cluster) == {1: 2 + 75.0, 2: 25.0, 3: 0.0}
    placement = Placement(cluster_arrays(cluster))
    placement.take(np.array([[1, 0, 2]]))
    out = placement.arrays.columns.of(Resource.BYTES_OUT)[0]
    assert (placement.loads / placement.scale)[:, out].round(6).tolist() == [50.0, 2 + 50.0, 0.0]


def test_a_rack_is_relieved_by_moves_within_it() -> None:
    """Brokers 4 to 6 are empty; each takes half of what the broker of its rack holds, and what is read there."""
    even: ReaderRacks = (("a", 0.25), ("b", 0.25), ("c", 0.25))
    partitions = [
        Partition("t", number, row, PartitionLoad(10.0, 100.0, 10.0), reader_racks=even)
        for number, row in enumerate([(1, 2, 3), (2, 3, 1), (3, 1, 2)] * 4)
    ]
    cluster = of_racks("abcabc", *partitions)
    plan = propose(cluster)
    after = apply_to(cluster, plan)
    assert Counter(broker for row in after.partitions for broker in row.replicas) == dict.fromkeys(range(1, 7), 6)
    assert plan.loads_after[Resource.BYTES_OUT] == dict.fromkeys(range(1, 7), 240.0)
    assert all(len({"abcabc"[broker - 1] for broker in row.replicas}) == 3 for row in after.partitions)


def test_a_rack_that_is_left_reads_from_the_leader() -> None:
    """Broker 3 is the only one of rack c, and must end empty: what rack c reads goes to the leader then."""
    read = Partition("t", 0, (1, 3), PartitionLoad(1.0, 100.0, 1.0), reader_racks=THIRDS)
    cluster = of_racks("abc", read, draining=3)
    plan = propose(cluster)
    (after,) = apply_to(cluster, plan).partitions
    assert after.replicas == (1, 2)
    assert plan.loads_before[Resource.BYTES_OUT] == {1: 1 + 50.0, 2: 0.0, 3: 50.0}
    assert plan.loads_after[Resource.BYTES_OUT] == {1: 1 + 75.0, 2: 25.0, 3: 0.0}


def limited(cluster: ClusterState, **bytes_out: float) -> ClusterState:
    """With a capacity of bytes out for each broker: 1,000 B/s, or its own."""
    rows = [
        replace(row, capacity=Capacity(bytes_out_per_sec=bytes_out.get(f"of_{row.broker_id}", 1000.0)))
        for row in cluster.brokers
    ]
    return replace(cluster, brokers=tuple(rows))


MOST_IN_C: ReaderRacks = (("c", 0.9),)


def replicas_after(cluster: ClusterState) -> set[int]:
    plan = propose(cluster)
    (after,) = apply_to(cluster, plan).partitions
    assert plan.loads_after[Resource.BYTES_OUT] == pytest.approx(bytes_out_by_broker(apply_to(cluster, plan)))
    return set(after.replicas)


@pytest.mark.long
def test_a_broker_is_emptied_only_onto_one_that_can_serve_its_rack() -> None:
    read = Partition("t", 0, (1, 2), PartitionLoad(1.0, 100.0, 10.0), reader_racks=MOST_IN_C)
    assert replicas_after(limited(of_racks("abcd", read, draining=2), of_3=50.0)) == {1, 4}
    assert replicas_after(limited(of_racks("abcd", read, draining=2), of_3=90.0, of_4=0.5)) in [{1, 3}, {1, 4}]
    assert replicas_after(limited(of_racks("abc", read, draining=2), of_3=50.0)) == {1, 2}, "no room: it stays"
    assert replicas_after(limited(of_racks("abc", read, draining=2), of_3=90.0)) == {1, 3}


@pytest.mark.long
def test_the_leader_must_have_room_for_what_a_rack_reads_that_is_left() -> None:
    read = Partition("t", 0, (1, 2), PartitionLoad(1.0, 100.0, 10.0), reader_racks=(("b", 0.9),))
    # The rack of broker 2 has another broker, which serves it on; brokers 3 and 5 would leave it to the leader.
    cluster = of_racks("abcbd", read, draining=2)
    assert replicas_after(limited(cluster, of_1=50.0)) == {1, 4}
    alone = limited(of_racks("abcd", read, draining=2), of_1=50.0)
    assert replicas_after(alone) == {1, 2}, "no room: it stays"
    # A dead broker serves nobody: the leader carries all of it already, and the replica is re-created.
    dead = tuple(replace(row, state=BrokerState.DEAD) if row.broker_id == 2 else row for row in alone.brokers)
    assert replicas_after(replace(alone, brokers=dead)) in [{1, 3}, {1, 4}]


def test_racks_are_spread_onto_brokers_that_can_serve_them() -> None:
    read = Partition("t", 0, (1, 2), PartitionLoad(1.0, 100.0, 10.0), reader_racks=MOST_IN_C)
    assert replicas_after(limited(of_racks("aacd", read), of_3=50.0)) in [{1, 4}, {2, 4}]


@pytest.mark.long
@given(clusters(reads=True))
@settings(max_examples=60, deadline=None)
def test_repair_keeps_capacities_whatever_replicas_serve_then(cluster: ClusterState) -> None:
    """No broker that is above a capacity afterwards carries more than before, but for what dead brokers' racks read."""
    search = search_of(cluster)
    placement, problem = search.placement, search.problem
    repair(search)
    more = placement.loads > placement.original_loads + 1e-9
    over = placement.loads > problem.ceiling + 1e-9
    if not problem.arrays.dead.any():
        assert not (more & over).any()
