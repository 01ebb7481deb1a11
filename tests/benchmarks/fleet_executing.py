"""The executor's rows of `bench_fleet`: its ticks over a large plan, with all that is asked of brokers and decoded."""

import cProfile
import pstats
import resource
import tempfile
from functools import partial
from typing import Any

from assignor_core.live import LiveCluster
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.executor import Executor
from streaming.control.looks import Look
from streaming.control.records import ExecutionRecord
from streaming.control.wiring import executor_of, journal_of
from streaming.settings import Settings
from tests.benchmarks.fleet_measuring import Cost, Figures, measured
from tests.fleet.fleet import Fleet
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet

MOVEMENTS = 3_000
MOVEMENTS_PER_WAVE = 500
TICKS_PER_REPEAT = 20
"""Each tick asks about the same partitions."""
TICK_MS = 1_000
PATIENCE_MS = 120_000
"""For each answer of brokers that share the cores with others."""
START_MS = 1_795_236_000_000
BYTES = 12e6
USERS_TOPICS = "orders-"
PROFILE_LINES = 45


def execute(size: FleetSize, *, repeats: int, trouble: bool = True, profile: bool = False) -> Figures:
    """Begin a plan of 3,000 movements, or of half of the partitions, and carry it on for some ticks, one a second."""
    with FleetProcess(partial(synthetic_fleet, size)) as fleet, tempfile.TemporaryDirectory() as home:
        settings = Settings.model_validate(
            {
                "kafka": {
                    "cluster_name": "fleet",
                    "bootstrap_servers": fleet.bootstrap_servers,
                    "request_timeout_ms": PATIENCE_MS,
                },
                "storage": {"tables": f"{home}/tables"},
            }
        )
        admin = admin_client(settings.kafka)
        cluster = Cluster(admin, kafka_cluster_id="fleet")
        live, described = measured(fleet, cluster.describe)
        _, sized = measured(fleet, cluster.log_dirs)
        plan = _plan(live, min(MOVEMENTS, size.partitions // 2))
        figures: Figures = {
            "movements": len(plan.movements),
            "describe_s": described.wall_s,
            "describe_cpu_s": described.cpu_s,
            "log_dirs_s": sized.wall_s,
            "log_dirs_cpu_s": sized.cpu_s,
            **_ticks(fleet, cluster, settings, plan, live, repeats * TICKS_PER_REPEAT, profile=profile),
            "control_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        admin.close()
    return figures


def _ticks(
    fleet: FleetProcess, cluster: Cluster, settings: Settings, plan: Plan, live: LiveCluster,
    ticks_max: int, *, profile: bool,
) -> Figures:  # fmt: skip
    journal = journal_of(settings)
    journal.write_plan(ProposedPlan(plan, Observed.of(plan, live)), decision=None, now_ms=START_MS)
    kept = journal.plan(plan.plan_id)
    record = ExecutionRecord(journal.approve(kept, "a benchmark", now_ms=START_MS))
    executor = executor_of(cluster, journal, settings)
    _, begun = measured(fleet, lambda: executor.begin(record, kept, now_ms=START_MS))
    costs = _until_ended(fleet, executor, record, plan, ticks_max, profile=profile)
    ticks = len(costs)
    return {
        "begin_s": begun.wall_s,
        "begin_cpu_s": begun.cpu_s,
        "ticks": ticks,
        "tick_s": sum(cost.wall_s for cost in costs) / ticks,
        "tick_cpu_s": sum(cost.cpu_s for cost in costs) / ticks,
        "tick_cpu_s_max": max(cost.cpu_s for cost in costs),
        "requests_per_tick": sum(cost.requests.total() for cost in costs) / ticks,
        "fleet_cpu_s_per_tick": sum(cost.fleet_cpu_s for cost in costs) / ticks,
        "movements_made": _made(cluster.describe(), plan),
    }


def _until_ended(
    fleet: FleetProcess, executor: Executor[Look], record: Any, plan: Plan, ticks_max: int, *, profile: bool
) -> list[Cost]:
    costs: list[Cost] = []
    profiler = cProfile.Profile()
    for tick in range(1, ticks_max + 1):
        now_ms = START_MS + tick * TICK_MS
        if profile:
            profiler.enable()
        ended, cost = measured(fleet, partial(executor.tick, record, plan, now_ms=now_ms))
        profiler.disable()
        costs.append(cost)
        if ended:
            break
        fleet.run(Fleet.advance, TICK_MS)
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(PROFILE_LINES)
    return costs


def _plan(live: LiveCluster, movements: int) -> Plan:
    """The last replica of partitions all over the cluster goes to the next broker that has none of them."""
    keys = sorted(key for key in live.partitions if key[0].startswith(USERS_TOPICS))
    brokers = sorted(live.broker_racks)
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


def _made(live: LiveCluster, plan: Plan) -> int:
    return sum(live.partitions[row.topic, row.partition].replicas == row.new_replicas for row in plan.movements)
