"""Control is killed at every call out while it relieves a full log dir within its broker; brokers die meanwhile, too.

Whatever is struck, in the end the log dir is relieved, no rate and no copy is left, and no log dir was filled above its
reserve on the way.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

import pytest

from assignor_core.execution.life_cycle import Execution
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.simulated_cluster import LogDir, SimulatedBroker, SimulatedCluster
from tests.simulated_cluster.replication import used_bytes
from tests.simulation.control import Change, SimulatedControl
from tests.simulation.world import Actor, Blow, Interruption, World
from tests.tables_in_memory import in_memory

MB = 1_000_000
DISK = 100 * MB
REPLICA = 9 * MB
RATE = 2 * MB
RESERVE = 0.10
MINUTE_MS = 60_000
END_MS = 60 * MINUTE_MS


@dataclass
class Noted:
    """Notes how a control ends by itself, which it must not."""

    crashes: list[str] = field(default_factory=list)
    broker_died: bool = False

    def asked(self, who: SimulatedControl, topics: Collection[str] | None) -> None:
        """A look."""

    def looked_at_disks(self, who: SimulatedControl) -> None:
        """A look at log dirs."""

    def changing(self, who: SimulatedControl, change: Change) -> None:
        """A change that is about to be carried out."""

    def arriving_late(self, who: SimulatedControl, change: Change) -> None:
        """One that was given up."""

    def changed(self, who: SimulatedControl) -> None:
        """It has come back."""

    def crashed(self, who: SimulatedControl, reason: str) -> None:
        self.crashes.append(f"{who.name}: {reason}")


def full_cluster() -> SimulatedCluster:
    """Broker 1 with ten replicas of 9 MB in the first of its two log dirs; broker 2 follows."""
    brokers = [SimulatedBroker(row, None, [LogDir(DISK), LogDir(DISK)], 100 * MB, 50 * MB) for row in (1, 2)]
    cluster = SimulatedCluster("c", brokers)
    cluster.create_topic("t", dict.fromkeys(range(10), (1, 2)), size_bytes=REPLICA, bytes_in_per_sec=100)
    for _, row in cluster.contents.partitions():
        row.copies[1].log_dir = 0
    return cluster


def carried_out(kills: dict[int, Interruption], *, broker_dies: bool = False) -> tuple[World, Noted]:
    """Mode `apply` until the log dir was relieved, with these blows at call outs."""
    cluster = full_cluster()
    settings = Settings.model_validate(
        {
            "kafka": {"cluster_name": "simulated"},
            "storage": {"tables": in_memory("kills-within")},
            "control": {
                "mode": "apply", "log_dir_throttle_bytes_per_sec": RATE, "throttle_min_bytes_per_sec": RATE,
            },
        }
    )  # fmt: skip
    world, noted = World(cluster, settings), Noted()
    world.interruptions = kills
    journal_of(settings).make_tables()
    others = Actor("others")
    names = iter(range(1, 1_000))

    def start() -> None:
        control = SimulatedControl(f"control {next(names)}", world, noted)
        control.replaced = lambda ended: world.plan(ended.restart_ms, others, start)
        control.start()

    world.plan(0, others, start)

    def kill_broker_while_it_copies() -> None:
        copies = (copy for _, row in cluster.contents.partitions() for copy in row.copies.values())
        if any(copy.future is not None for copy in copies):
            noted.broker_died = True
            cluster.kill_broker(1)
            cluster.plan(30_000, lambda: cluster.restart_broker(1))
        else:
            world.plan(1_000, others, kill_broker_while_it_copies)

    if broker_dies:
        world.plan(0, others, kill_broker_while_it_copies)
    while cluster.now_ms < END_MS and not any(row.ended for row in executions(world)):
        world.write_window()
        for _ in range(12):
            world.pass_time(5_000)
            filled = used_bytes(cluster.contents)
            assert filled[1, 1] <= (1 - RESERVE) * DISK, "copies never touch the reserve"
    world.pass_time(2 * MINUTE_MS)
    return world, noted


def executions(world: World) -> list[Execution]:
    return journal_of(world.settings).executions(now_ms=world.now_ms)


def judge(world: World, noted: Noted) -> None:
    trace = "\n".join(world.trace[-60:])
    contents = world.cluster.contents
    (execution,) = executions(world)
    assert noted.crashes == [], trace
    assert execution.done_ms is not None, f"{execution.last.detail}\n{trace}"
    assert used_bytes(contents)[1, 0] <= 0.80 * DISK + MB
    copies = [copy for _, row in contents.partitions() for copy in row.copies.values()]
    assert all(copy.future is None for copy in copies), trace
    assert contents.log_dir_rates == {}, trace
    assert sum(copy.log_dir == 1 for _, row in contents.partitions() for copy in [row.copies[1]]) == 2
    assert all(row.lost_bytes == 0 and set(row.isr) == {1, 2} for _, row in contents.partitions()), trace


def calls_of_an_undisturbed_execution() -> int:
    world, noted = carried_out({})
    try:
        judge(world, noted)
        return world.calls
    finally:
        world.end()


@pytest.mark.long
@pytest.mark.parametrize("blow", [Blow.KILL_BEFORE, Blow.KILL_AFTER])
def test_a_kill_at_any_call_out_changes_no_result(blow: Blow) -> None:
    """Each kill at a call of its own, the next process at once."""
    calls = calls_of_an_undisturbed_execution()
    for call in range(1, calls + 1, max(1, calls // 40)):
        world, noted = carried_out({call: Interruption(blow, 100)})
        try:
            judge(world, noted)
        finally:
            world.end()


@pytest.mark.parametrize("every", [10, 25])
def test_many_kills_only_take_longer(every: int) -> None:
    blows = {call: Interruption(Blow.KILL_AFTER, 5_000) for call in range(every, 12 * every, every)}
    world, noted = carried_out(blows)
    try:
        judge(world, noted)
    finally:
        world.end()


@pytest.mark.parametrize("call", [20, 40, 60])
def test_the_broker_dies_too(call: int) -> None:
    world, noted = carried_out({call: Interruption(Blow.KILL_AFTER, 8_000)}, broker_dies=True)
    try:
        judge(world, noted)
        assert noted.broker_died
    finally:
        world.end()
