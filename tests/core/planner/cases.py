"""Small clusters that a reader can check by head, what the search sees of them, and a strategy for any others."""

from hypothesis import strategies as st

from assignor_core.load import cluster_arrays
from assignor_core.model import Broker, BrokerState, Capacity, ClusterState, Partition, PartitionLoad
from assignor_core.planner import PlannerPolicy
from assignor_core.planner.failover import zones_of
from assignor_core.planner.placement import Placement
from assignor_core.planner.problem import Search, problem_of


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
