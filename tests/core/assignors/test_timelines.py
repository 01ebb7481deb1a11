"""Groups of ours alone over random timelines: at rest every partition is read, by who subscribes to it."""

import random
from collections.abc import Callable

import pytest

from tests.core.assignors.timelines import Group, first_group, large_group, lead


@pytest.mark.parametrize("new_group", [first_group, large_group])
@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky", "cooperative-load-aware"])
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 40))])
def test_groups_come_to_rest_with_every_partition_read(
    new_group: Callable[..., Group], strategy: str, seed: int
) -> None:
    draws = random.Random(seed)
    group = new_group(draws, strategy, racks=seed % 2 == 1)
    for _ in range(8):
        assert group.settle([lead]) <= 5
        assert group.unread() == [], group.line_at_join()
        group.change(draws)
