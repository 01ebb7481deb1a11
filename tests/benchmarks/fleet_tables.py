"""The rows of `bench_fleet` for what reads tables: from a window to a plan, snapshots, scrapes, commands."""

from tests.benchmarks import bench_control
from tests.benchmarks.fleet_measuring import Figures
from tests.benchmarks.generated import Size
from tests.fleet.synthetic import FleetSize

KEYS = {
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
    figures = bench_control.measured(Size(size.brokers, size.partitions, size.groups), tuple(KEYS))
    return {name: figures[part][key] for part, names in KEYS.items() for key, name in names.items()}
