"""The judge of stories takes whatever control may write."""

from collections.abc import Iterator

import pytest

from assignor_core.simulated_cluster import SimulatedCluster
from streaming.control.journal import TABLES_WRITTEN
from streaming.settings import Settings
from tests.simulation.monitor import Monitor
from tests.simulation.world import World


@pytest.fixture
def world() -> Iterator[World]:
    settings = Settings.model_validate(
        {"kafka": {"cluster_name": "simulated"}, "storage": {"tables": "memory:monitor"}}
    )
    world = World(SimulatedCluster.of({1: None, 2: None, 3: None}, cluster_id="c"), settings)
    yield world
    world.end()


@pytest.mark.parametrize("table", ["lease", *TABLES_WRITTEN])
def test_a_table_may_be_replaced_by_nothing(world: World, table: str) -> None:
    """Control does so where it has nothing to keep, as of load that recurs before a day is over."""
    monitor = Monitor(world, undisturbed=True)
    world.store.write(table, (), lambda _row: True, transaction_id="test", transaction_version=1)
    assert world.store.tables[table].version == 1
    assert not monitor.broken
