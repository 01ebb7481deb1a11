"""Executions on a simulated cluster, tick by tick: what tests of all kinds of movements share."""

from typing import Any

from assignor_core.execution.events import Event
from assignor_core.execution.life_cycle import Execution
from assignor_core.execution.seen_movements import seen_movements
from assignor_core.plan import Movement, Plan
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import executor_of, journal_of
from streaming.errors import AnotherCluster, ClusterRequestFailed, ClusterUnreachable, LogDirMovesRefused
from streaming.settings import Settings
from tests.control.noted_cluster import NOON_MS, SKEW, stored
from tests.simulated_cluster import ClientErrors, SimulatedClient, SimulatedCluster

MB = 1_000_000
TICK_MS = 1_000
TICKS_MAX = 2_000
ERRORS = ClientErrors(
    ClusterRequestFailed, ClusterUnreachable, another_cluster=AnotherCluster, log_dir_moves_refused=LogDirMovesRefused
)


class Carried:
    """An execution of `plan`, which is approved, and the process that carries it out."""

    def __init__(
        self,
        settings: Settings,
        cluster: SimulatedCluster,
        plan: Plan,
        *,
        in_windows_only: bool = False,
        client: SimulatedClient | None = None,
    ) -> None:
        self.settings, self.cluster, self.plan = settings, cluster, plan
        self.client = client or SimulatedClient(cluster, errors=ERRORS)
        self.journal = journal_of(settings)
        self.journal.make_tables()
        self.approved = stored(self.journal, plan, live=self.client.describe())
        execution = self.journal.approve(self.approved, "a test", now_ms=NOON_MS, in_windows_only=in_windows_only)
        self.record = ExecutionRecord(execution)
        self.executor = self.new_executor()
        self.step_ms = TICK_MS
        self.set_back_ms = 0
        """By how much the wall clock was set back."""

    def new_executor(self) -> Executor[Any]:
        return executor_of(self.client, self.journal, self.settings)

    @property
    def now_ms(self) -> int:
        return NOON_MS + self.cluster.now_ms - self.set_back_ms

    @property
    def kept(self) -> Execution:
        """The execution as the journal holds it."""
        return self.journal.execution(self.record.execution.execution_id)

    @property
    def last_detail(self) -> str:
        return self.record.execution.last.detail

    def lists(self) -> dict[str, str]:
        """Lists of throttled replicas of the topic t by setting, as the controller keeps them."""
        return self.cluster.contents.topics["t"].throttled_replicas

    def begin(self) -> bool:
        return self.executor.begin(self.record, self.approved, now_ms=self.now_ms)

    def tick(self) -> bool:
        """One tick, and the time until the next; True once it has ended."""
        try:
            return self.executor.tick(self.record, self.plan, now_ms=self.now_ms)
        finally:
            self.cluster.advance(self.step_ms)

    def ticks(self, count: int) -> None:
        """Makes `count` ticks, after none of which the execution has ended."""
        assert not any(self.tick() for _ in range(count))

    def to_the_end(self) -> list[Event]:
        """Tick until it has ended; returns its events, which the journal holds, too."""
        assert any(self.tick() for _ in range(TICKS_MAX)), self.record.execution.last
        assert self.kept.events == self.record.execution.events
        return [event.event for event in self.kept.events]

    def request_abort(self) -> None:
        """A person asks for it, and the next process hears of it."""
        self.journal.request_abort(self.record.execution, "a person", now_ms=self.now_ms)
        self.be_killed()

    def be_killed(self) -> None:
        """All that the next process has is the journal and the cluster."""
        self.journal = journal_of(self.settings)
        [execution] = self.journal.open_executions(now_ms=self.now_ms)
        self.record = ExecutionRecord(execution)
        self.restart(self.settings)

    def restart(self, settings: Settings) -> None:
        """Another process goes on, with these settings."""
        self.settings = settings
        self.executor = self.new_executor()
        self.executor.resume(self.approved)


class BothMoved(Carried):
    """An execution that has begun; it moves both partitions from broker 1 to 2, if no other plan is given."""

    def __init__(
        self, settings: Settings, cluster: SimulatedCluster, plan: Plan | None = None, *, in_windows_only: bool = False
    ) -> None:
        moves = tuple(Movement("t", number, (1,), (2,), 5.0 * MB) for number in (0, 1))
        super().__init__(settings, cluster, plan or Plan("c", moves, SKEW, SKEW), in_windows_only=in_windows_only)
        assert self.begin()

    def states(self) -> list[str]:
        """The states of both movements that the journal shows."""
        seen = seen_movements(self.record.execution)
        return [str(seen.state(place)) for place in range(2)]

    def placed(self) -> list[tuple[int, ...]]:
        assert self.client.throttle_rates() == {}
        assert self.client.throttled_replicas(["t"]) == {}
        assert not self.client.describe().reassigning()
        return [row.replicas for _, row in sorted(self.client.describe().partitions.items())]
