"""Small clusters that a reader can check by head, what the search sees of them, and a strategy for any others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from assignor_core.load import NO_BROKER, Ints, broker_loads, cluster_arrays, in_rack
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.failover import zones_of
from assignor_core.planner.placement import Placement
from assignor_core.planner.policy import BrokerSet
from assignor_core.planner.problem import Search, problem_of
from assignor_core.resources import Resource

if TYPE_CHECKING:
    from assignor_core.planner.rounds import Case, RoundOutcome


def founding(rate_a: float = 3.0, rate_b: float = 1.0) -> ClusterState:
    """The skew this product began with: A 15/7/8 and B 5/13/12 partitions on brokers 1, 2, 3; replication factor 1."""
    partitions = []
    for topic, rate, counts in (("topic-A", rate_a, (15, 7, 8)), ("topic-B", rate_b, (5, 13, 12))):
        brokers = [broker for broker, count in zip((1, 2, 3), counts, strict=True) for _ in range(count)]
        load = PartitionLoad(rate, rate, rate * 100)
        partitions += [Partition(topic, number, (broker,), load) for number, broker in enumerate(brokers)]
    return ClusterState("founding", 0, tuple(Broker(broker) for broker in (1, 2, 3)), tuple(partitions))


def cluster(
    *replicas: tuple[int, ...],
    brokers: tuple[Broker, ...] = (),
    loads: tuple[float, ...] = (),
) -> ClusterState:
    """Topic t with these replica lists; brokers 1 to 4 without racks and equal loads where not given."""
    loads = loads or (10.0,) * len(replicas)
    partitions = tuple(
        Partition("t", number, placed, PartitionLoad(load, 2 * load, 100 * load))
        for number, (placed, load) in enumerate(zip(replicas, loads, strict=True))
    )
    return ClusterState("small", 0, brokers or tuple(Broker(broker) for broker in (1, 2, 3, 4)), partitions)


def state_of(*replicas: tuple[int, ...], brokers: int = 2, racks: str = "", loads: tuple[float, ...] = ()) -> Search:
    """What a search sees of `cluster(*replicas)` on brokers 1 to `brokers`, or one for each letter of `racks`."""
    racked = tuple(Broker(broker, rack) for broker, rack in enumerate(racks, start=1))
    plain = tuple(Broker(broker) for broker in range(1, brokers + 1))
    return search_of(cluster(*replicas, brokers=racked or plain, loads=loads))


def search_of(state: ClusterState, policy: PlannerPolicy | None = None) -> Search:
    """A search over `state` that has not begun."""
    arrays, policy = cluster_arrays(state), policy or PlannerPolicy()
    placement = Placement(arrays, zones_of(arrays, policy))
    return Search(problem_of(arrays, policy, placement), placement)


def case_of(search: Search) -> "Case":
    """The search with its targets and walls, as its rounds begin."""
    # Machine code: who only wants a cluster should not wait for it.
    from assignor_core.planner.round_task import task_of
    from assignor_core.planner.rounds import Case
    from assignor_core.planner.targets import targets_of
    from assignor_core.planner.tuning import TUNING

    targets = targets_of(search.problem, search.placement)
    return Case(search, task_of(search, targets, TUNING), targets, TUNING)


def all_outcomes(case: "Case") -> "Iterator[RoundOutcome]":
    """What every placement comes to that has as many replicas of each partition, racks not looked at."""
    from assignor_core.planner.rounds import Rounds

    brokers, counts = range(len(case.task.racks)), (case.start.rows != NO_BROKER).sum(axis=1).tolist()
    for rows in placements([[*permutations(brokers, count)] for count in counts]):
        yield Rounds(case, case.task, rows).outcome()


def placements(ways: Sequence[Sequence[tuple[int, ...]]]) -> Iterator[Ints]:
    """Every choice of one of the `ways` to place each partition, as rows of broker indices."""
    width = max((len(row) for rows in ways for row in rows), default=0)
    for chosen in product(*ways):
        yield np.array([(*row, *[NO_BROKER] * (width - len(row))) for row in chosen], dtype=np.int32)


def are_reads_divided(search: Search) -> bool:
    """Whether some rack reads a partition that has two replicas there."""
    placement, racks = search.placement, search.problem.arrays.racks
    if placement.in_racks is None:
        return False
    reads = placement.in_racks.reads
    count = in_rack(placement.replicas[reads.partitions[reads.rows]], reads.racks, racks).sum(axis=1)
    return bool((count > 1).any())


def racked(racks: str, **states: BrokerState) -> tuple[Broker, ...]:
    """A broker for each letter, which is its rack; `states` are by "b" and the broker's id."""
    return tuple(
        Broker(number, rack, states.get(f"b{number}", BrokerState.ALIVE)) for number, rack in enumerate(racks, start=1)
    )


def with_room(state: ClusterState, times: float) -> ClusterState:
    """`state` with brokers that can send so many times the mean of the bytes out."""
    arrays = cluster_arrays(state)
    sent = float(broker_loads(arrays)[:, arrays.columns.of(Resource.BYTES_OUT)[0]].sum())
    capacity = Capacity(bytes_out_per_sec=max(1.0, times * sent / len(state.brokers)))
    return replace(state, brokers=tuple(replace(broker, capacity=capacity) for broker in state.brokers))


READERS = ((), (), (), (("r0", 0.5),), (("r0", 0.25), ("r1", 0.5)), (("r1", 0.125), ("r9", 0.5)))
"""Consumers that followers serve: mostly none; no broker stands in the last rack."""


@st.composite
def clusters(draw: st.DrawFn, *, all_alive: bool = False, reads: bool = False) -> ClusterState:
    """Any sound cluster of a few brokers, with and without racks, capacities and leaving brokers.

    With `reads` followers serve some consumers of some partitions.
    """
    count = draw(st.integers(2, 7))
    racks = draw(st.sampled_from((None, 2, 3)))
    with_capacity = draw(st.booleans())
    brokers = []
    for broker in range(count):
        states = [BrokerState.ALIVE] if all_alive or broker < 2 else list(BrokerState)
        size = draw(st.sampled_from((1.0, 2.0)))
        capacity = Capacity(1e6 * size, 1e7 * size, 1e6 * size) if with_capacity else Capacity()
        rack = None if racks is None else f"r{draw(st.integers(0, racks - 1))}"
        room = draw(st.sampled_from((None, None, 0.0, 300.0, 2000.0)))
        brokers.append(Broker(broker * 10, rack, draw(st.sampled_from(states)), capacity, room))
    ids = [broker.broker_id for broker in brokers]
    figure = st.integers(0, 1000).map(float)
    partitions = []
    for number in range(draw(st.integers(0, 25))):
        factor = draw(st.integers(1, min(3, count)))
        placed = tuple(draw(st.permutations(ids))[:factor])
        load = PartitionLoad(draw(figure), draw(figure), draw(figure))
        readers = draw(st.sampled_from(READERS)) if reads else ()
        partitions.append(Partition(f"t{number % 3}", number, placed, load, reader_racks=readers))
    return ClusterState("any", 0, tuple(brokers), tuple(partitions))


@st.composite
def sets_of(draw: st.DrawFn, state: ClusterState) -> tuple[BrokerSet, ...]:
    """One or two sets, by ids or by racks, for some topics of `state`."""
    ids = [row.broker_id for row in state.brokers]
    racks = sorted({row.rack for row in state.brokers if row.rack is not None})
    found = []
    for _ in range(draw(st.integers(1, 2))):
        topics = frozenset(draw(st.sets(st.sampled_from(("t0", "t1", "t2")), min_size=1, max_size=2)))
        is_by_rack = bool(racks) and draw(st.booleans())
        if is_by_rack:
            found.append(BrokerSet(topics, racks=frozenset(draw(st.sets(st.sampled_from(racks), min_size=1)))))
        else:
            found.append(BrokerSet(topics, brokers=frozenset(draw(st.sets(st.sampled_from(ids), min_size=1)))))
    return tuple(found)
