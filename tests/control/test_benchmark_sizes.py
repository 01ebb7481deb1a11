"""The sizes at which the benchmark of control runs, down to three brokers."""

import pytest

from tests.benchmarks.bench_control import sizes_of
from tests.benchmarks.generated import GeneratedCluster, Size, plan_of


def test_one_size_is_compared_with_a_tenth_of_it() -> None:
    assert sizes_of([100], None, None) == [Size(10, 10_000, 1_000), Size(100, 100_000, 10_000)]
    assert sizes_of([9], None, None) == [Size(3, 3_000, 300), Size(9, 9_000, 900)]
    assert sizes_of([3], None, None) == [Size(3, 3_000, 300)]


def test_several_sizes_are_those_given() -> None:
    assert sizes_of([9, 3, 6], 1_800, 90) == [Size(3, 600, 30), Size(6, 1_200, 60), Size(9, 1_800, 90)]


@pytest.mark.parametrize("brokers", [3, 4, 9])
def test_movements_of_few_brokers_name_each_broker_once(brokers: int) -> None:
    plan = plan_of(GeneratedCluster(Size(brokers, 500, 0)), 100)
    assert len(plan.movements) == 100
    for movement in plan.movements:
        assert len(set(movement.new_replicas)) == 3
        assert movement.new_replicas != movement.old_replicas
