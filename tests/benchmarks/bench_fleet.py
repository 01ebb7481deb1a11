"""The product on fleets of growing size: what each role costs on the wire, with brokers that cost nothing of their own.

make bench-fleet
make bench-fleet ARGS="--brokers 10 --partitions 10000 --groups 1000"
make bench-fleet ARGS="--brokers 10 --profile"
make bench-fleet ARGS="--brokers 300 --part collect --no-trouble --shards 3"
make bench-fleet ARGS="--brokers 6 --partitions 1200 --groups 60 --soak 20"

Brokers run in a process of their own (`tests/fleet`): CPU and memory are those of the product's process alone. The
input topics are on the fleet too. Each size prints one JSON object; the last line is that of the last size.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

import click
import structlog

from tests.benchmarks import bench_control
from tests.benchmarks.fleet_collecting import collect
from tests.benchmarks.fleet_executing import MOVEMENTS, execute
from tests.benchmarks.fleet_measuring import Figures
from tests.benchmarks.fleet_pipeline import INTERVAL_S, TRIGGER_S, keep_up
from tests.benchmarks.fleet_soak import has_grown, soak
from tests.benchmarks.generated import Size
from tests.fleet.synthetic import FleetSize

Part = Callable[..., Figures]
OF_TABLES = {
    "plan": {"window_to_plan_s": "plan_build_s", "window_to_plan_cpu_s": "plan_build_cpu_s", "planner_s": "plan_s",
             "planner_cpu_s": "plan_cpu_s", "peak_rss_mib": "control_rss_mib"},
    "serve": {"first_snapshot_cpu_s": "first_snapshot_cpu_s", "snapshot_s": "snapshot_s",
              "snapshot_cpu_s": "snapshot_cpu_s", "metrics_cpu_s": "metrics_cpu_s"},
    "scrape": {"scrape_p50_ms": "scrape_p50_ms", "scrape_p99_ms": "scrape_p99_ms", "serve_rss_mib": "serve_rss_mib"},
    "commands": {"status_s": "status_s", "status_cpu_s": "status_cpu_s", "lag_s": "lag_s", "lag_cpu_s": "lag_cpu_s",
                 "status_groups_s": "status_groups_s", "status_groups_cpu_s": "status_groups_cpu_s",
                 "lag_group_s": "lag_group_s", "lag_group_cpu_s": "lag_group_cpu_s", "peak_rss_mib": "commands_rss_mib",
                 "sql_s": "sql_s", "sql_cpu_s": "sql_cpu_s"},
}  # fmt: skip
"""Part and figure of `bench_control`: the name of it here."""


def read_tables(size: FleetSize, *, repeats: int, trouble: bool = True, profile: bool = False) -> Figures:
    """Figures over generated tables of a fleet of this size: half an hour of lag, five windows of load.

    Groups read one topic of 50 partitions each, whatever else the size has; the arguments change nothing.
    """
    figures = bench_control.measured(Size(size.brokers, size.partitions, size.groups), tuple(OF_TABLES))
    return {name: figures[part][key] for part, names in OF_TABLES.items() for key, name in names.items()}


PARTS: Mapping[str, Part] = {"collect": collect, "execute": execute, "tables": read_tables, "pipeline": keep_up}
WITHOUT_JVM = ("collect", "execute", "tables")
PARTITIONS_PER_BROKER, GROUPS_PER_BROKER = 1_000, 100
AT_MOST = frozenset({"control_rss_mib"})
NOT_COMPARED = frozenset({"brokers", "partitions", "replicas", "groups", "group_partitions", "load_average"})


def measure(size: FleetSize, parts: Mapping[str, Part], *, repeats: int, trouble: bool, profile: bool) -> Figures:
    """All figures of one size; each part in a fresh process, so that its memory is its own."""
    figures: Figures = {
        "brokers": size.brokers,
        "partitions": size.partitions,
        "replicas": size.partitions * size.replication_factor,
        "groups": size.groups,
        "group_partitions": size.group_partitions,
    }
    for part, run in parts.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_without_logs) as pool:
            of_part = pool.submit(run, size, repeats=repeats, trouble=trouble, profile=profile).result()
        # Two parts measure control: what it takes is the greater.
        figures |= of_part | {name: max(figures.get(name, 0.0), of_part[name]) for name in AT_MOST & of_part.keys()}
        click.echo(f"{part}: measured, load average {os.getloadavg()[0]:.1f}")
    return figures | {"load_average": round(os.getloadavg()[0], 1)}


def _without_logs() -> None:
    """A look at a broker that hangs warns of each of its parts; here its records are counted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def _print(figures: Mapping[str, float], before: Mapping[str, float] | None) -> None:
    """One line for each figure, with its growth since the size before."""
    for name, value in figures.items():
        grown = ""
        if before and before.get(name) and name not in NOT_COMPARED:
            grown = f"  x {value / before[name]:.1f}"
        click.echo(f"{name:26} {value:>14,.2f}{grown}")


@click.command()
@click.option("--brokers", multiple=True, type=int, default=(10, 100), show_default=True, help="Sizes, in order.")
@click.option("--partitions", type=int, help="Of all topics; a thousand a broker unless given.")
@click.option("--groups", type=int, help="Of 50 partitions each; a hundred a broker unless given.")
@click.option("--part", "parts", multiple=True, type=click.Choice(tuple(PARTS)), default=WITHOUT_JVM, show_default=True)
@click.option("--repeats", default=3, show_default=True, help="Looks to take the mean of.")
@click.option("--trouble/--no-trouble", default=True, help="Look at refused requests and a hung broker, too.")
@click.option("--shards", default=1, show_default=True, help="Collectors that share the cluster; one is measured.")
@click.option("--movements", default=MOVEMENTS, show_default=True, help="Of the plan at most; 30 a broker.")
@click.option(
    "--interval", "interval_s", default=INTERVAL_S, show_default=True, help="Seconds between looks: pipeline."
)
@click.option("--trigger", "trigger_s", default=TRIGGER_S, show_default=True, help="Seconds between batches: pipeline.")
@click.option("--soak", "soak_minutes", type=float, help="Instead: so many minutes on a fleet that changes, by memory.")
@click.option("--profile", is_flag=True, help="Print what the CPU of one look, or of the ticks of a plan, went to.")
def main(
    brokers: tuple[int, ...], partitions: int | None, groups: int | None, parts: tuple[str, ...], *, repeats: int,
    trouble: bool,
    profile: bool,
    shards: int,
    movements: int,
    interval_s: float,
    trigger_s: float,
    soak_minutes: float | None,
) -> None:  # fmt: skip
    """Print figures of each size, and their growth from one size to the next. A soak ends with 1 if memory grows."""
    before: Figures | None = None
    given: dict[str, dict[str, float]] = {
        "collect": {"shards": shards},
        "execute": {"movements": movements},
        "pipeline": {"interval_s": interval_s, "trigger_s": trigger_s},
    }
    runs = {name: partial(PARTS[name], **given.get(name, {})) for name in parts}
    for count in brokers:
        size = FleetSize(
            count,
            partitions or count * PARTITIONS_PER_BROKER,
            count * GROUPS_PER_BROKER if groups is None else groups,
        )
        click.echo(f"\n{size.brokers} brokers")
        if soak_minutes is not None:
            figures = soak(size, soak_minutes)
            click.echo(json.dumps(figures))
            if has_grown(figures):
                raise SystemExit(1)
            continue
        figures = measure(size, runs, repeats=repeats, trouble=trouble, profile=profile)
        _print(figures, before)
        click.echo(json.dumps(figures))
        before = figures


if __name__ == "__main__":
    main()
