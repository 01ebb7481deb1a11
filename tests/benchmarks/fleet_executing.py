"""The executor's rows of `bench_fleet`: a large plan carried out, with all that is asked of brokers and decoded."""

import cProfile
import pstats
import resource
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import click

from assignor_core.execution.events import Event
from assignor_core.live import LiveCluster
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.cluster_snapshot import ExecutionSnapshot, SnapshotAge
from streaming.control.executor import Executor
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.sweeping import Sweeper
from streaming.control.wiring import executor_of, journal_of
from streaming.settings import Settings
from tests.benchmarks.fleet_measuring import Cost, Figures, measured
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess, freeze_broker, resume_broker
from tests.fleet.synthetic import FleetSize, synthetic_fleet

MOVEMENTS, MOVEMENTS_PER_BROKER = 3_000, 30
MOVEMENTS_PER_WAVE = 500
PATIENCE_MS = 120_000
"""For each answer of brokers that share the cores with others."""
TIMEOUT_MS = 15_000
"""The default, for answers while a broker hangs."""
HUNG_MS = 120_000
"""So long a broker hangs, once a third of the plan is made."""
START_MS = 1_795_236_000_000
BYTES = 12e6
USERS_TOPICS = "orders-"
TICK_MS = 1_000
TICKS_MAX = 5_000
SWEEP_MS = 30_000
PERCENTILE = 0.99
PROFILE_LINES = 45
KINDS_SHOWN = 8


def execute(
    size: FleetSize, *, repeats: int, trouble: bool = True, profile: bool = False, movements: int = MOVEMENTS
) -> Figures:
    """Carry out a plan, a tick a second. It has 30 movements a broker, but no more than `movements`, and half of the
    partitions. `repeats` changes nothing.

    With `trouble` all replicas go back then, while one broker hangs for two minutes.
    """
    with FleetProcess(partial(synthetic_fleet, size)) as fleet, tempfile.TemporaryDirectory() as home:
        fleet.run(take_whole_steps)
        movements = min(movements, MOVEMENTS_PER_BROKER * size.brokers, size.partitions // 2)
        figures = _all_is_well(fleet, _settings(fleet, home, PATIENCE_MS), movements, profile=profile)
        if trouble:
            figures |= _one_broker_hangs(fleet, _settings(fleet, home, TIMEOUT_MS), movements, size.brokers)
    return figures | {"control_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def take_whole_steps(fleet: Fleet) -> None:
    """Copies end with a tick: a step of its own for each costs a pass over all partitions."""
    fleet.contents.shortest_step_ms = TICK_MS


def _settings(fleet: FleetProcess, home: str, request_timeout_ms: int) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {
                "cluster_name": "fleet",
                "bootstrap_servers": fleet.bootstrap_servers,
                "request_timeout_ms": request_timeout_ms,
            },
            "storage": {"tables": f"{home}/tables"},
        }
    )


def _all_is_well(fleet: FleetProcess, settings: Settings, movements: int, *, profile: bool) -> Figures:
    admin = admin_client(settings.kafka)
    cluster = Cluster(admin, kafka_cluster_id="fleet")
    live, described = measured(fleet, cluster.describe)
    _, sized = measured(fleet, cluster.log_dirs)
    plan = _plan(live, movements)
    run = PlanRun(fleet, cluster, settings, journal_of(settings), plan, START_MS)
    begun = run.begin(live)
    run.until_ended(profile=profile)
    run.tell()
    assert run.record.execution.last_event is Event.DONE, run.record.execution.last.detail
    made = made_of(cluster.describe(), plan)
    admin.close()
    return {
        "movements": len(plan.movements),
        "movements_made": made,
        "describe_s": described.wall_s,
        "describe_cpu_s": described.cpu_s,
        "log_dirs_s": sized.wall_s,
        "log_dirs_cpu_s": sized.cpu_s,
        "begin_s": begun.wall_s,
        "begin_cpu_s": begun.cpu_s,
        **run.figures(),
    }


def _one_broker_hangs(fleet: FleetProcess, settings: Settings, movements: int, broker: int) -> Figures:
    """The way back of the same plan. The broker is alive in metadata until its session ends, and returns later."""
    admin = admin_client(settings.kafka)
    cluster = Cluster(admin, kafka_cluster_id="fleet")
    live = cluster.describe()
    plan = _plan(live, movements, back=True)
    run = PlanRun(fleet, cluster, settings, journal_of(settings), plan, START_MS + 86_400_000)
    run.begin(live)
    hanging = Hanging(broker, len(plan.movements) // 3, HUNG_MS)
    run.until_ended(hanging)
    run.tell()
    for text, count in run.failed_ticks.items():
        click.echo(f"{count} ticks failed: {text}")
    for row in run.record.execution.events:
        if hanging.since_ms is not None and row.at_ms >= hanging.since_ms - TICK_MS:
            click.echo(f"{(row.at_ms - hanging.since_ms) / 1000:6.0f} s after it hung: {row.event}, {row.detail}")
    hanging.end(fleet, run.now_ms)
    run.swept()
    hung = run.costs_while_hung
    after = cluster.describe()
    left = fleet.run(_left)
    admin.close()
    return {
        "hung_ticks": len(hung),
        "hung_tick_cpu_s": sum(cost.cpu_s for cost in hung) / len(hung),
        "hung_tick_s_max": max(cost.wall_s for cost in hung),
        "hung_ticks_failed": run.failed_ticks.total(),
        "hung_run_tick_cpu_s": run.figures()["tick_cpu_s"],
        "hung_movements_made": made_of(after, plan),
        **{f"hung_{name}": value for name, value in left.items()},
    }


def _left(fleet: Fleet) -> dict[str, float]:
    """What the cluster has lost, and what an execution that has ended must not leave."""
    partitions = [row for _, row in fleet.contents.partitions()]
    topics = fleet.contents.topics.values()
    return {
        "lost_bytes": sum(row.lost_bytes for row in partitions),
        "under_replicated": sum(len(row.isr) < len(row.replicas) for row in partitions),
        "throttles_left": len(fleet.contents.throttle_rates) + sum(bool(row.throttled_replicas) for row in topics),
    }


def _plan(live: LiveCluster, movements: int, *, back: bool = False) -> Plan:
    """The last replica of partitions all over the cluster goes to the next broker that has none of them, or `back`."""
    keys = sorted(key for key in live.partitions if key[0].startswith(USERS_TOPICS))
    brokers = sorted(live.broker_racks, reverse=back)
    made = []
    for number, key in enumerate(keys[:: max(1, len(keys) // movements)][:movements]):
        old = live.partitions[key].replicas
        following = (brokers[(brokers.index(old[-1]) + step) % len(brokers)] for step in range(1, len(brokers)))
        new = next(broker for broker in following if broker not in old)
        made.append(Movement(*key, old, (*old[:-1], new), BYTES, wave=number // MOVEMENTS_PER_WAVE))
    skew: dict[str, Any] = {
        "bytes_in": {"max_over_mean": 2.0},
        "bytes_out": {},
        "disk": {},
        "leaders": {},
        "replicas": {},
    }
    return Plan("fleet", tuple(made), skew, skew)


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
        """One tick of control's loop: reads whether somebody asks to stop; the next tick tries again what failed."""
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
