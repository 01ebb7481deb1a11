"""The judge of stories takes whatever control may write."""

from collections.abc import Iterator
from typing import Any

import pytest

from assignor_core.execution.events import Event
from streaming.control.journal import TABLES_WRITTEN
from streaming.tables import utc
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.monitor import Monitor
from tests.simulation.world import World, settings_of
from tests.tables_in_memory import in_memory


@pytest.fixture
def world() -> Iterator[World]:
    world = World(SimulatedCluster.of({1: None, 2: None, 3: None}, cluster_id="c"), settings_of(in_memory("monitor")))
    yield world
    world.end()


@pytest.mark.parametrize("table", ["lease", *TABLES_WRITTEN])
def test_a_table_may_be_replaced_by_nothing(world: World, table: str) -> None:
    """Control does so where it has nothing to keep, as of load that recurs before a day is over."""
    monitor = Monitor(world, undisturbed=True)
    world.store.write(table, (), lambda _row: True, transaction_id="test", transaction_version=1)
    assert world.store.tables[table].version == 1
    assert not monitor.broken


def row(sequence: int, event: Event, execution_id: str = "e-1") -> dict[str, Any]:
    return {
        "execution_id": execution_id, "sequence": sequence, "plan_id": "p", "kafka_cluster": "simulated", "owner": "o",
        "event_time": utc(sequence), "event": event.value, "detail": event.value, "movements_total": 1,
        "movements_done": 0, "bytes_total": 1, "bytes_moved": 0,
    }  # fmt: skip


def test_each_row_of_a_write_is_judged(world: World) -> None:
    """What a row before the last one shows is no longer to be seen when the write is over."""
    monitor = Monitor(world, undisturbed=True)
    twice = [row(0, Event.APPROVED), row(1, Event.STARTED), row(1, Event.STARTED), row(2, Event.DONE)]
    world.store.write("execution", twice, None, transaction_id="test", transaction_version=1)
    assert [broken.invariant for broken in monitor.broken] == ["4 begun once"]


def test_each_row_is_judged_by_the_execution_as_it_was_then(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monitor, seen = Monitor(world, undisturbed=True), []
    judge = Monitor._judge_automatic

    def noted(self: Monitor, execution_id: str) -> None:
        seen.append((execution_id, self.executions()[0].last_event))
        judge(self, execution_id)

    monkeypatch.setattr(Monitor, "_judge_automatic", noted)
    events = [Event.APPROVED, Event.STARTED, Event.DONE, Event.MEASURED]
    rows = [row(number, event) for number, event in enumerate(events)]
    world.store.write("execution", rows, None, transaction_id="test", transaction_version=1)
    assert seen == [("e-1", event) for event in events]
    assert not monitor.broken


def test_a_row_that_stays_when_others_are_deleted_is_judged_once(world: World) -> None:
    monitor = Monitor(world, undisturbed=True)
    rows = [row(0, Event.REFUSED, "e-0"), row(0, Event.APPROVED), row(1, Event.STARTED)]
    world.store.write("execution", rows, None, transaction_id="test", transaction_version=1)
    assert world.store.delete("execution", lambda row: row["execution_id"] == "e-0") == 1
    world.store.write("execution", [row(2, Event.DONE)], None, transaction_id="test", transaction_version=2)
    assert not monitor.broken
    assert {known.execution_id: known.last_event for known in monitor.executions()} == {
        "e-0": Event.REFUSED, "e-1": Event.DONE,
    }  # fmt: skip
