"""The rival of the planner's benchmark is Kafka's own placement by count, and its figures are right."""

from collections import Counter

from tests.benchmarks.models import Kind, generate
from tests.benchmarks.rivals import by_count_figures, placed_by_count

KIND = Kind(12, 400, racks=4, brokers_draining=1, brokers_new=1)


def test_placed_by_count_is_even_in_count_and_leaves_brokers_that_must_end_empty() -> None:
    state = generate(KIND, 3)
    placed = placed_by_count(state, 3)
    leaving = {broker.broker_id for broker in state.brokers if broker.state.value != "alive"}
    rack_of = {broker.broker_id: broker.rack for broker in state.brokers}
    replicas = Counter(broker for partition in placed.partitions for broker in partition.replicas)
    assert leaving.isdisjoint(replicas)
    assert [(p.topic, p.partition, p.load) for p in placed.partitions] == [
        (p.topic, p.partition, p.load) for p in sorted(state.partitions, key=lambda p: (p.topic, p.partition))
    ]
    assert all(len({rack_of[broker] for broker in p.replicas}) == len(p.replicas) for p in placed.partitions)
    assert max(replicas.values()) < 1.3 * min(replicas.values())


def test_bytes_that_a_placement_by_count_copies_are_those_of_replicas_on_new_brokers() -> None:
    state = generate(KIND, 4)
    before = {(p.topic, p.partition): set(p.replicas) for p in state.partitions}
    copied = total = 0.0
    for p in placed_by_count(state, 4).partitions:
        assert isinstance(p.load.disk_bytes, float)
        copied += len(set(p.replicas) - before[p.topic, p.partition]) * p.load.disk_bytes
        total += len(p.replicas) * p.load.disk_bytes
    assert abs(by_count_figures(state, 4, ("disk",))["by_count_moved"] - copied / total) < 1e-9
