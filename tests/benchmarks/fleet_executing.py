"""The executor's rows of `bench_fleet`: a large plan carried out, with all that is asked of brokers and decoded."""

import resource
import tempfile
from functools import partial
from typing import Any

import click

from assignor_core.execution.events import Event
from assignor_core.live import LiveCluster
from assignor_core.plan import Movement, Plan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.wiring import journal_of
from streaming.settings import Settings
from tests.benchmarks.fleet_measuring import Figures, measured
from tests.benchmarks.fleet_plan_run import TICK_MS, Hanging, PlanRun, made_of
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
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
