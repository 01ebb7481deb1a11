"""What control and serve cost by the size of the cluster, without brokers: CPU, memory and what is asked of Kafka.

make bench-control
make bench-control ARGS="--brokers 3 --brokers 6 --brokers 9 --part plan"
make bench-control ARGS="--brokers 100 --part executor"

Each part runs in a process of its own, at each of the sizes given, and at a tenth of it where one is given. Brokers are
not part of it: requests are counted, and what their answers would take to decode is left out.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import structlog
import yaml

from assignor_core.execution.events import Event
from assignor_core.live_plans import planning
from assignor_core.plan import Plan
from assignor_core.planner import propose
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import decider_of, executor_of, journal_of
from streaming.runtime import processes
from streaming.runtime.own_process import ARROW_POOL
from streaming.serve.metrics import Exposition, Form
from streaming.serve.snapshot import SnapshotReader
from streaming.settings import Settings
from tests.benchmarks import generated
from tests.benchmarks.generated import CLUSTER, NOW_MS, WINDOW_MS, GeneratedCluster, Size
from tests.benchmarks.scraping import peak_rss_mib, scraped

SMALLER = 10
BROKERS_MIN = 3
"""As many as a partition has replicas."""
PARTITIONS_PER_BROKER, GROUPS_PER_BROKER = 1_000, 100
MOVEMENTS = 3_000
LOAD_WINDOWS = 5
LAG_WINDOWS = 31
RUNS = 5
"""Of each command; the median counts."""
TICKS_MAX = 5_000
GROUP = "group-00008"
"""One that hangs."""
SCRAPED_S, SCRAPED_CHANGES = 30.0, 2
Figures = dict[str, float]


def executor_part(settings: Settings, size: Size) -> Figures:
    """A plan from its start to its end, one tick a second; CPU without what the generated cluster itself takes."""
    cluster, journal = GeneratedCluster(size), journal_of(settings)
    plan = generated.plan_of(cluster, min(MOVEMENTS, size.partitions // 2))
    proposed = ProposedPlan(plan, Observed.of(plan, cluster.describe()))
    kept = journal.write_plan(proposed, decision=None, now_ms=NOW_MS)
    record = ExecutionRecord(journal.approve(kept, "a benchmark", now_ms=NOW_MS))
    executor = executor_of(cluster, journal, settings)
    cpu_s = []
    executor.begin(record, kept, now_ms=NOW_MS)
    cluster.requests.clear()
    cluster.partitions_described = cluster.brokers_asked_for_log_dirs = cluster.replicas_shown = 0
    for tick in range(1, TICKS_MAX):
        before_s, own_s = time.process_time(), cluster.own_cpu_s
        journal.open_executions(now_ms=NOW_MS + tick * 1_000)
        ended = executor.tick(record, plan, now_ms=NOW_MS + tick * 1_000)
        cpu_s.append(time.process_time() - before_s - (cluster.own_cpu_s - own_s))
        if ended:
            break
        cluster.advance()
    assert record.execution.last_event is Event.DONE, record.execution.last
    ticks, slowest = len(cpu_s), sorted(cpu_s)
    return {
        "ticks": ticks,
        "tick_cpu_s": sum(cpu_s) / ticks,
        "tick_cpu_s_p99": slowest[int(0.99 * ticks)],
        "requests_per_tick": sum(cluster.requests.values()) / ticks,
        "partitions_described_per_tick": cluster.partitions_described / ticks,
        "log_dir_requests_per_tick": cluster.brokers_asked_for_log_dirs / ticks,
        "replicas_shown_per_tick": cluster.replicas_shown / ticks,
        "events": len(record.execution.events),
    }


def plan_part(settings: Settings, size: Size) -> Figures:
    """CPU from the newest window to the plan on file, the planner's own apart."""
    cluster, journal = GeneratedCluster(size), journal_of(settings)
    journal.make_tables()
    decider = decider_of(cluster, journal, settings)
    planner_s = planner_cpu_s = 0.0

    def timed(*arguments: Any) -> Plan:
        nonlocal planner_s, planner_cpu_s
        made: Plan
        began_s = time.perf_counter()
        seconds, made = _cpu(lambda: propose(*arguments))
        planner_s += time.perf_counter() - began_s
        planner_cpu_s += seconds
        return made

    began_s = time.perf_counter()
    with mock.patch.object(planning, "propose", timed):
        cpu_s, proposed = _cpu(lambda: decider.tick(now_ms=NOW_MS + settings.pipeline.watermark_ms))
    took_s = time.perf_counter() - began_s
    written = journal.last_decision()
    assert written is not None
    assert written["plan_id"], written["detail"]
    return {
        "planner_s": planner_s,
        "planner_cpu_s": planner_cpu_s,
        "window_to_plan_s": took_s - planner_s - cluster.own_cpu_s,
        "window_to_plan_cpu_s": cpu_s - planner_cpu_s - cluster.own_cpu_s,
        "movements": len(journal.plan(written["plan_id"]).plan.movements),
        "may_act": float(proposed is not None),
    }


def serve_part(settings: Settings, size: Size) -> Figures:
    """The first snapshot, one after a new window, one where nothing has changed; and the metrics of it."""
    reader = SnapshotReader(settings)
    first_s, snapshot = _cpu(lambda: reader.read(NOW_MS))
    first_metrics_s, exposition = _cpu(lambda: Exposition(snapshot, settings))
    generated.write_next_window(settings.storage.tables, size)
    began_s = time.perf_counter()
    changed_s, snapshot = _cpu(lambda: reader.read(NOW_MS + WINDOW_MS))
    took_s = time.perf_counter() - began_s
    metrics_s, _ = _cpu(lambda: exposition.update(snapshot))
    unchanged_s, _ = _cpu(lambda: reader.read(NOW_MS + WINDOW_MS))
    body = exposition.answer(Form.of("text/plain;version=0.0.4"))
    assert not snapshot.failures, snapshot.failures
    return {
        "first_snapshot_cpu_s": first_s + first_metrics_s,
        "snapshot_s": took_s,
        "snapshot_cpu_s": changed_s,
        "metrics_cpu_s": metrics_s,
        "unchanged_snapshot_cpu_s": unchanged_s,
        "series": float(sum(not line.startswith(b"#") for line in body.splitlines())),
        "exposition_mb": len(body) / 1e6,
    }


def scrape_part(settings: Settings, size: Size) -> Figures:
    """Four scrapers on a serve process of its own, while a window comes in the middle and one at the end."""
    tables, port = settings.storage.tables, processes.free_port()

    def write(number: int) -> None:
        # Later windows than those of the part `serve`, in a process that takes no time of the scrapers.
        command = f"from {generated.__name__} import *; write_next_window({tables!r}, {size!r}, {number + 1})"
        subprocess.run([sys.executable, "-c", command], check=True)

    config = _config(settings, serve={"port": port})
    return scraped(config, port, seconds=SCRAPED_S, change=write, changes=SCRAPED_CHANGES)


def commands_part(settings: Settings, _size: Size) -> Figures:
    """Seconds of commands as people run them: by the clock, and of CPU, medians of five runs in turns."""
    config = _config(settings)
    commands = {
        "version": ["--version"],
        "status": ["status", "--json"],
        "status_groups": ["status", "--groups"],
        "lag": ["lag"],
        "lag_group": ["lag", "--group", GROUP],
        "sql": ["sql", "SELECT broker, avg(bytes_in_per_sec) FROM broker_load GROUP BY broker"],
    }
    taken: dict[str, list[float]] = {}
    for _ in range(RUNS):
        for name, arguments in commands.items():
            wall_s, cpu_s, _ = run_command([*arguments, *([] if name == "version" else ["--config", str(config)])])
            taken.setdefault(f"{name}_s", []).append(wall_s)
            taken.setdefault(f"{name}_cpu_s", []).append(cpu_s)
    return {name: statistics.median(values) for name, values in taken.items()}


def run_command(arguments: list[str]) -> tuple[float, float, str]:
    """Seconds of a process of its own, Python's start included: by the clock, and of CPU; and what it printed."""
    began_s, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "streaming", *arguments]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began_s, cpu_s, printed


def _config(settings: Settings, **sections: Any) -> Path:
    config = Path(settings.storage.tables).parent / "rebalancer.yaml"
    known = {"kafka": {"cluster_name": CLUSTER}, "storage": {"tables": settings.storage.tables}}
    config.write_text(yaml.safe_dump(known | sections))
    return config


PARTS: dict[str, Callable[[Settings, Size], Figures]] = {
    "executor": executor_part, "plan": plan_part, "serve": serve_part, "scrape": scrape_part,
    "commands": commands_part,
}  # fmt: skip


def _cpu(action: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.process_time()
    result = action()
    return time.process_time() - began_s, result


def settings_for(tables: str) -> Settings:
    """Mode propose, everything else as it is by default."""
    return Settings.model_validate({"kafka": {"cluster_name": CLUSTER}, "storage": {"tables": tables}})


def run_part(name: str, tables: str, size: Size) -> Figures:
    """One part in this process, with its memory."""
    structlog.configure(processors=[lambda *_: (_ for _ in ()).throw(structlog.DropEvent)])
    figures = PARTS[name](settings_for(tables), size)
    if name == "commands":
        return figures | {"peak_rss_mib": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}
    # Not what `getrusage` has of this process: that counts what its parent held, which has written the tables.
    return figures | {"peak_rss_mib": peak_rss_mib(os.getpid())}


def measured(size: Size, parts: Sequence[str], lag_windows: int = LAG_WINDOWS) -> dict[str, Figures]:
    """Figures of each part at this size."""
    sizes = [f"--{name}={getattr(size, name)}" for name in ("brokers", "partitions", "groups")]
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        tables = f"{folder}/tables"
        if set(parts) - {"executor"}:
            generated.write_windows(
                tables, size, GeneratedCluster(size), load_windows=LOAD_WINDOWS, lag_windows=lag_windows
            )
        for part in parts:
            command = [sys.executable, "-m", "tests.benchmarks.bench_control", *sizes, "--part", part, "--in", tables]
            # Control sets it for itself (`give_memory_back`); here pyarrow is imported at once.
            environment = os.environ | {ARROW_POOL: "system"} if part in ("executor", "plan") else os.environ
            answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            figures[part] = json.loads(answer.splitlines()[-1])
    return figures


def report(sizes: Sequence[Size], figures: Sequence[dict[str, Figures]]) -> None:
    """A row for each figure, with its growth from the first size to the last; the last line is one JSON object."""
    print(f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}")
    print(f"{'':42}" + "".join(f" {size.brokers:>7} brokers" for size in sizes) + "   growth")
    for part, last in figures[-1].items():
        for name, value in last.items():
            first = figures[0][part][name]
            growth = f"x {value / first:.1f}" if first else ""
            values = "".join(f" {of_size[part][name]:>15,.3f}" for of_size in figures)
            print(f"{part:>9} {name:32}{values}   {growth}")
    print(json.dumps({str(size.brokers): of_size for size, of_size in zip(sizes, figures, strict=True)}))


def sizes_of(brokers: Sequence[int], partitions: int | None, groups: int | None) -> list[Size]:
    """The sizes asked for, smallest first; of one size also a tenth of it, with a tenth of what is given.

    >>> [(size.brokers, size.partitions, size.groups) for size in sizes_of([40], 20_000, None)]
    [(4, 2000, 400), (40, 20000, 4000)]
    """
    counts = sorted(set(brokers))
    if len(counts) == 1 and counts[0] > BROKERS_MIN:
        counts.insert(0, max(BROKERS_MIN, counts[0] // SMALLER))
    largest = counts[-1]
    return [
        Size(
            count,
            PARTITIONS_PER_BROKER * count if partitions is None else partitions * count // largest,
            GROUPS_PER_BROKER * count if groups is None else groups * count // largest,
        )
        for count in counts
    ]


def main() -> None:
    """Measure at some sizes, or (with --in) one part in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, action="append", help="of each size; default: 100")
    parser.add_argument("--partitions", type=int, default=None, help="of the largest size; default: 1,000 a broker")
    parser.add_argument("--groups", type=int, default=None, help="of the largest size; default: 100 a broker")
    parser.add_argument("--lag-windows", type=int, default=LAG_WINDOWS)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--in", dest="tables", help=argparse.SUPPRESS)
    options = parser.parse_args()
    brokers = options.brokers or [100]
    if min(brokers) < BROKERS_MIN:
        parser.error(f"--brokers: {BROKERS_MIN} at least, as partitions have so many replicas")
    sizes = sizes_of(brokers, options.partitions, options.groups)
    parts = options.part or list(PARTS)
    if options.tables:
        print(json.dumps(run_part(parts[0], options.tables, sizes[-1])))
        return
    report(sizes, [measured(size, parts, options.lag_windows) for size in sizes])


if __name__ == "__main__":
    main()
