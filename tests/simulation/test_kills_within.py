"""Control is killed at every call out while it relieves a full log dir within its broker; brokers die meanwhile, too.

Whatever is struck, in the end the log dir is relieved, no rate and no copy is left, and no log dir was filled above its
reserve on the way.
"""

import pytest

from assignor_core.execution.life_cycle import Execution
from tests.simulated_cluster import LogDir, SimulatedBroker, SimulatedCluster
from tests.simulated_cluster.replication import used_bytes
from tests.simulated_cluster.state import Replica
from tests.simulation.control import SimulatedControl, Watcher
from tests.simulation.roles import StruckStory, supervise
from tests.simulation.world import Blow, Interruption

MB = 1_000_000
DISK = 100 * MB
REPLICA = 9 * MB
RATE = 2 * MB
RESERVE = 0.10
MINUTE_MS = 60_000
END_MS = 60 * MINUTE_MS


class Noted(Watcher):
    """Notes how a control ends by itself, which it must not."""

    def __init__(self) -> None:
        self.crashes: list[str] = []

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


class Within(StruckStory):
    """Mode `apply` until the log dir was relieved; the broker may die, too, while it copies."""

    def __init__(self, strikes: dict[int, Interruption], *, broker_dies: bool = False) -> None:
        control = {"mode": "apply", "log_dir_throttle_bytes_per_sec": RATE, "throttle_min_bytes_per_sec": RATE}
        super().__init__(full_cluster(), strikes, control=control)
        self.noted, self.broker_died = Noted(), False
        if broker_dies:
            self.world.plan(0, self.others, self._kill_broker_while_it_copies)

    def _kill_broker_while_it_copies(self) -> None:
        cluster = self.world.cluster
        if any(copy.future is not None for copy in self._copies()):
            self.broker_died = True
            cluster.kill_broker(1)
            cluster.plan(30_000, lambda: cluster.restart_broker(1))
        else:
            self.world.plan(1_000, self.others, self._kill_broker_while_it_copies)

    def calls(self) -> int:
        """Call outs of the story, which is played and judged."""
        with self:
            supervise(self.world, self.noted, self.others)
            contents = self.world.cluster.contents
            while contents.now_ms < END_MS and not any(row.ended for row in self._executions()):
                self.world.write_window()
                for _ in range(12):
                    self.world.pass_time(5_000)
                    assert used_bytes(contents)[1, 1] <= (1 - RESERVE) * DISK, "copies never touch the reserve"
            self.world.pass_time(2 * MINUTE_MS)
            self._judge()
            return self.world.calls

    def _judge(self) -> None:
        contents = self.world.cluster.contents
        (execution,) = self._executions()
        assert self.noted.crashes == [], self.trace
        assert execution.done_ms is not None, f"{execution.last.detail}\n{self.trace}"
        assert used_bytes(contents)[1, 0] <= 0.80 * DISK + MB
        assert all(copy.future is None for copy in self._copies()), self.trace
        assert contents.log_dir_rates == {}, self.trace
        assert sum(row.copies[1].log_dir == 1 for _, row in contents.partitions()) == 2
        assert all(row.lost_bytes == 0 and set(row.isr) == {1, 2} for _, row in contents.partitions()), self.trace

    def _copies(self) -> list[Replica]:
        return [copy for _, row in self.world.cluster.contents.partitions() for copy in row.copies.values()]

    def _executions(self) -> list[Execution]:
        return self.journal.executions(now_ms=self.world.now_ms)


@pytest.mark.long
@pytest.mark.parametrize("blow", [Blow.KILL_BEFORE, Blow.KILL_AFTER])
def test_a_kill_at_any_call_out_changes_no_result(blow: Blow) -> None:
    """Each kill at a call of its own, the next process at once."""
    calls = Within({}).calls()
    for call in range(1, calls + 1, max(1, calls // 40)):
        Within({call: Interruption(blow, 100)}).calls()


@pytest.mark.parametrize("every", [10, pytest.param(25, marks=pytest.mark.long)])
def test_many_kills_only_take_longer(every: int) -> None:
    Within(dict.fromkeys(range(every, 12 * every, every), Interruption(Blow.KILL_AFTER, 5_000))).calls()


@pytest.mark.parametrize("call", [20, 40, 60])
def test_the_broker_dies_too(call: int) -> None:
    story = Within({call: Interruption(Blow.KILL_AFTER, 8_000)}, broker_dies=True)
    story.calls()
    assert story.broker_died
