"""One plan carried out on a fleet from its beginning to its end, and what each tick of it costs."""

import cProfile
import pstats
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from assignor_core.live import LiveCluster
from assignor_core.plan import Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.cluster_snapshot import ExecutionSnapshot, SnapshotAge
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.sweeping import Sweeper
from streaming.control.wiring import executor_of
from streaming.settings import Settings
from tests.benchmarks.fleet_measuring import Cost, Figures, measured
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess, freeze_broker, resume_broker

TICK_MS = 1_000
TICKS_MAX = 5_000
SWEEP_MS = 30_000
PERCENTILE = 0.99
PROFILE_LINES = 45
KINDS_SHOWN = 8


@dataclass(slots=True)
class Hanging:
    """One broker that hangs for a while, once so many movements are made."""

    broker: int
    after_movements: int
    for_ms: int
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_now(self) -> bool:
        """Whether the broker hangs."""
        return self.since_ms is not None and self.until_ms is None

    def take_turn(self, fleet: FleetProcess, movements_made: int, now_ms: int) -> None:
        """Freeze the broker, or let it go on, where it is time."""
        if self.since_ms is None and movements_made >= self.after_movements:
            fleet.run(freeze_broker, self.broker)
            self.since_ms = now_ms
        elif self.since_ms is not None and now_ms - self.since_ms >= self.for_ms:
            self.end(fleet, now_ms)

    def end(self, fleet: FleetProcess, now_ms: int) -> None:
        """Let the broker go on, if it hangs."""
        if self.is_now:
            fleet.run(resume_broker, self.broker)
            self.until_ms = now_ms


@dataclass(slots=True)
class PlanRun:
    """Begins at `begin`; `until_ended` does the rest. Time of the brokers passes between two ticks only."""

    fleet: FleetProcess
    cluster: Cluster
    settings: Settings
    journal: Journal
    plan: Plan
    now_ms: int
    record: ExecutionRecord = field(init=False)
    executor: Executor[ExecutionSnapshot] = field(init=False)
    costs: list[Cost] = field(default_factory=list)
    costs_while_hung: list[Cost] = field(default_factory=list)
    failed_ticks: Counter[str] = field(default_factory=Counter)
    """Errors after which control tries again at its next tick."""

    def begin(self, live: LiveCluster) -> Cost:
        """Write and approve the plan, and let the executor take it up."""
        proposed = ProposedPlan(self.plan, Observed.of(self.plan, live))
        kept = self.journal.write_plan(proposed, decision=None, now_ms=self.now_ms)
        self.record = ExecutionRecord(self.journal.approve(kept, "a benchmark", now_ms=self.now_ms))
        self.executor = executor_of(self.cluster, self.journal, self.settings)
        begun, cost = measured(self.fleet, lambda: self.executor.begin(self.record, kept, now_ms=self.now_ms))
        assert begun, self.record.execution.last.detail
        return cost

    def until_ended(self, hanging: Hanging | None = None, *, profile: bool = False) -> None:
        """Tick until the executor ends the execution."""
        profiler = cProfile.Profile()
        for _ in range(TICKS_MAX):
            self.now_ms += TICK_MS
            if profile:
                profiler.enable()
            ended, cost = measured(self.fleet, self._tick)
            profiler.disable()
            is_hung = hanging is not None and hanging.is_now
            (self.costs_while_hung if is_hung else self.costs).append(cost)
            if ended:
                break
            # What a tick waits for a broker that hangs passes on the others, too.
            waited_ms = round(1000 * cost.wall_s) if is_hung else 0
            self.now_ms += max(0, waited_ms - TICK_MS)
            self.fleet.run(Fleet.advance, max(TICK_MS, waited_ms))
            if hanging is not None:
                hanging.take_turn(self.fleet, self.record.execution.last.figures.movements_done, self.now_ms)
        if profile:
            pstats.Stats(profiler).sort_stats("cumulative").print_stats(PROFILE_LINES)

    def swept(self) -> None:
        """After the end: what a broker that was away has kept of the throttle is removed, once it is back."""
        sweeper = Sweeper(self.cluster, self.journal, SnapshotAge())
        for _ in range(TICKS_MAX):
            self.fleet.run(Fleet.advance, SWEEP_MS)
            self.now_ms += SWEEP_MS
            if not self.record.execution.owes or sweeper.sweep(self.record, now_ms=self.now_ms):
                return

    def figures(self) -> Figures:
        """Means and extremes of the ticks in which no broker hung."""
        costs = self.costs
        return {
            "ticks": len(costs),
            "tick_s": sum(cost.wall_s for cost in costs) / len(costs),
            "tick_cpu_s": sum(cost.cpu_s for cost in costs) / len(costs),
            "tick_cpu_s_p99": sorted(cost.cpu_s for cost in costs)[int(PERCENTILE * len(costs))],
            "tick_cpu_s_max": max(cost.cpu_s for cost in costs),
            "requests_per_tick": requests_of(costs).total() / len(costs),
            "fleet_cpu_s_per_tick": sum(cost.fleet_cpu_s for cost in costs) / len(costs),
            "events": len(self.record.execution.events),
        }

    def tell(self) -> None:
        """Print what was asked of brokers, and how the execution ended."""
        costs = [*self.costs, *self.costs_while_hung]
        kinds = ", ".join(
            f"{name} {count / len(costs):.1f}" for name, count in requests_of(costs).most_common(KINDS_SHOWN)
        )
        click.echo(f"requests a tick: {kinds}")
        click.echo(f"end: {self.record.execution.last_event}, {self.record.execution.last.detail}")

    def _tick(self) -> bool:
        """As the loop of control takes it: it looks whether somebody asks to stop, and tries again what failed."""
        try:
            self.journal.open_executions(now_ms=self.now_ms)
            return self.executor.tick(self.record, self.plan, now_ms=self.now_ms)
        except RETRIED_ERRORS as error:
            self.failed_ticks[f"{type(error).__name__}: {error}"] += 1
            return False


def requests_of(costs: Sequence[Cost]) -> Counter[str]:
    """By name, of all these ticks."""
    return sum((cost.requests for cost in costs), Counter())


def made_of(live: LiveCluster, plan: Plan) -> int:
    """Movements of the plan that the cluster shows as made."""
    return sum(live.partitions[row.topic, row.partition].replicas == row.new_replicas for row in plan.movements)
