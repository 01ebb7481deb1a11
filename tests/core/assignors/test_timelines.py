"""Cooperative groups of ours alone over random timelines: at rest every partition is read, by who subscribes to it."""

import random

import pytest

from tests.core.assignors.timelines import first_group, lead


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "cooperative-load-aware"])
@pytest.mark.parametrize("seed", range(40))
def test_groups_come_to_rest_with_every_partition_read(strategy: str, seed: int) -> None:
    draws = random.Random(seed)
    group = first_group(draws, strategy, racks=seed % 2 == 1)
    for _ in range(8):
        assert group.settle([lead]) <= 5
        assert group.unread() == [], group.line_at_join()
        group.change(draws)
