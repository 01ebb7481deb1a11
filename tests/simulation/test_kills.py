"""Control is killed at every call out of an execution of which Kafka refuses a part: what it counts begins anew.

Three waves. One movement of the first is refused for good, one of the second and one election for a reason that might
pass. A process that starts knows nothing of refusals: it asks once more, at most as often as the one before, and ends
up where that one would have.
"""

from collections import Counter

import pytest

from assignor_core.execution import accounting
from assignor_core.live import PartitionKey
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.simulated_cluster import SimulatedCluster
from tests.simulation.control import Change, SimulatedControl
from tests.simulation.monitor import Monitor
from tests.simulation.world import Actor, Blow, Interruption, World
from tests.tables_in_memory import in_memory

pytestmark = pytest.mark.long

FOR_GOOD, FOR_LONG = ("t", 1), ("t", 3)
MOVED = (("t", 0), ("t", 2), ("t", 4), ("t", 5))
HOUR_MS = 3_600_000
TRIES = 6
BYTES = 150_000_000
"""Of each partition: its copy takes some seconds with the throttle."""
LONG_BYTES = 30 * BYTES
"""With these it takes longer than until the next process goes on."""


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty tries would be as many turns that are alike."""
    monkeypatch.setattr(accounting, "TRIES_MAX", TRIES)


class Counting(Monitor):
    """Counts what each process asks for, by partition."""

    def __post_init__(self) -> None:
        self.asked_for: Counter[tuple[str, PartitionKey]] = Counter()
        super().__post_init__()

    def changing(self, who: SimulatedControl, change: Change) -> None:
        self.asked_for.update((who.name, key) for key, target in change.targets.items() if target is not None)
        super().changing(who, change)


def carried_out(kills: dict[int, int], copied_bytes: int = BYTES) -> tuple[Counting, World, int]:
    """The story with kills at these call outs, each with the ms until the next process starts; how many started."""
    cluster = SimulatedCluster.of({1: None, 2: None, 3: None}, cluster_id="c")
    cluster.create_topic("t", dict.fromkeys(range(6), (1, 2)))
    for _, row in cluster.contents.partitions():
        row.end_bytes = copied_bytes
    cluster.advance(600_000)
    settings = Settings.model_validate(
        {
            "kafka": {"cluster_name": "simulated"},
            "storage": {"tables": in_memory("kills")},
            "control": {"mode": "observe"},
        }
    )
    world = World(cluster, settings)
    monitor = Counting(world, undisturbed=True)
    monitor.touched.add(FOR_LONG)  # the monitor takes it for one that has to be made
    world.client_faults.refused |= {FOR_GOOD: "PolicyViolationError", FOR_LONG: "UnknownError"}
    world.interruptions = {call: Interruption(Blow.KILL_AFTER, wait_ms) for call, wait_ms in kills.items()}
    movements = tuple(Movement("t", number, (1, 2), (3, 2), 1.0, wave=number // 2) for number in range(6))
    plan, journal = Plan("c", movements), journal_of(settings)
    journal.make_tables()
    proposed = ProposedPlan(plan, Observed.of(plan, world.look()))
    kept = journal.write_plan(proposed, decision=None, now_ms=world.now_ms)
    journal.approve(kept, "a person", now_ms=world.now_ms)
    others, started = Actor("others"), 0

    def start() -> None:
        nonlocal started
        started += 1
        control = SimulatedControl(f"control {started}", world, monitor)
        control.replaced = lambda ended: world.plan(ended.restart_ms, others, start)
        control.start()

    world.plan(0, others, start)
    while not all(row.ended for row in monitor.executions()) and cluster.now_ms < 2 * HOUR_MS:
        world.pass_time(5_000)
    world.pass_time(30_000)
    return monitor, world, started


def judge(monitor: Counting, world: World, started: int) -> None:
    monitor.judge_end()
    assert not monitor.broken, "\n".join([*world.trace[-60:], *map(str, monitor.broken)])
    (execution,) = monitor.executions()
    assert execution.done_ms is not None, execution.last.detail
    for key in MOVED:
        row = world.cluster.contents.partition(key)
        assert row is not None
        assert (row.replicas, row.leader) == ((3, 2), 3)
    for name, key in monitor.asked_for:
        assert monitor.asked_for[name, key] <= (1 if key == FOR_GOOD else TRIES), (name, key)
    assert len({name for name, _ in monitor.asked_for}) <= started


def calls_of_an_undisturbed_execution() -> int:
    monitor, world, started = carried_out({})
    try:
        judge(monitor, world, started)
        return world.calls
    finally:
        world.end()


@pytest.mark.parametrize("first", range(4))
def test_a_kill_at_any_call_out_changes_no_result(first: int) -> None:
    """Each kill at a call of its own, the next process at once."""
    for call in range(first + 1, calls_of_an_undisturbed_execution() + 1, 4):
        monitor, world, started = carried_out({call: 100})
        try:
            judge(monitor, world, started)
        finally:
            world.end()


def test_what_was_skipped_is_not_asked_for_again_while_a_later_wave_copies() -> None:
    for call in range(200, 1_000, 100):
        monitor, world, started = carried_out({call: 100}, LONG_BYTES)
        try:
            judge(monitor, world, started)
        finally:
            world.end()


@pytest.mark.parametrize("every", [30, 50, 80])
def test_many_kills_only_take_longer(every: int) -> None:
    monitor, world, started = carried_out(dict.fromkeys(range(every, 12 * every, every), 5_000))
    try:
        judge(monitor, world, started)
        assert started > 3
    finally:
        world.end()
