"""What `rebalancer what-if` costs by the size of the cluster, over generated hours: seconds, CPU, memory.

make bench-what-if
make bench-what-if ARGS="--brokers 30 --partitions 6000 --hours 48"
make bench-what-if ARGS="--pareto 1.2 --hours 24"

At the size given and at a third of it the command runs as people run it, in a process of its own, for brokers that are
added, with a picture. Traffic follows the day, each topic at its own hour; few partitions take much of it.
"""

import argparse
import json
import os
import resource
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from assignor_core.load import Floats
from streaming.settings import HOUR_MS
from tests.benchmarks.bench_control import run_command
from tests.benchmarks.generated import (
    CLUSTER,
    NOW_MS,
    PARTITIONS_PER_TOPIC,
    RACKS,
    WINDOW_MS,
    GeneratedCluster,
    Size,
    append_rows,
    window_columns,
)

BROKERS, PARTITIONS, HOURS = 100, 20_000, 168
SMALLER = 3
ADDED_PART = 10
"""Of so many brokers one is added."""
END_MS = NOW_MS // HOUR_MS * HOUR_MS
PARETO = 2.0
"""Of the distribution of loads: the lower, the more do few partitions take. With 1.2 some take more than a broker
should, and no plan mends that.
"""
RATE_MIN_BYTES_PER_SEC = 10_000.0
DAY_SWING, HOUR_NOISE, WINDOW_NOISE = 0.4, 0.10, 0.06
KEPT_S = 3_600
"""Seconds of writes that a log holds."""


class Load:
    """Bytes/s in by hour and partition, and of the brokers that lead them."""

    def __init__(self, size: Size, hours: int, pareto: float = PARETO) -> None:
        self.size, self.hours = size, hours
        self.cluster = GeneratedCluster(size)
        self._random = np.random.default_rng(20_261_126)
        count = len(self.cluster.partitions)
        mean = (self._random.pareto(pareto, count) + 1) * RATE_MIN_BYTES_PER_SEC
        phase = np.repeat(self._random.uniform(0, 24, len(size.topics)), PARTITIONS_PER_TOPIC)
        day = 1 + DAY_SWING * np.sin(2 * np.pi * (np.arange(hours)[:, None] - phase) / 24)
        self.by_hour: Floats = mean * day * self._random.lognormal(0, HOUR_NOISE, (hours, count))
        self._leaders = np.array([row.leader for row in self.cluster.partitions.values()])

    def hour_rows(self, hour: int) -> dict[str, Any]:
        """One hour of `partition_load_hourly`."""
        topics, partitions = zip(*self.cluster.partitions, strict=True)
        start_ms = END_MS - (self.hours - hour) * HOUR_MS
        return {
            "kafka_cluster": CLUSTER, "period_start": start_ms * 1000, "period_end": (start_ms + HOUR_MS) * 1000,
            "topic": list(topics), "partition": np.array(partitions), "bytes_in_per_sec": self.by_hour[hour],
            "bytes_out_per_sec": 2 * self.by_hour[hour], "covered_ms": HOUR_MS, "window_count": HOUR_MS // WINDOW_MS,
            "updated_at": (start_ms + HOUR_MS) * 1000,
        }  # fmt: skip

    def windows_of_brokers(self, hour: int) -> dict[str, Any]:
        """Rows of `broker_load` for all windows of an hour."""
        count, windows = self.size.brokers, HOUR_MS // WINDOW_MS
        led = np.bincount(self._leaders, self.by_hour[hour], count)
        bytes_in = np.tile(led, windows) * self._random.lognormal(0, WINDOW_NOISE, count * windows)
        start_ms = END_MS - (self.hours - hour) * HOUR_MS
        starts = np.repeat(start_ms + np.arange(windows) * WINDOW_MS, count)
        brokers = np.tile(np.arange(count), windows)
        return {
            **window_columns(start_ms), "window_start": starts * 1000, "window_end": (starts + WINDOW_MS) * 1000,
            "first_event_time_ms": starts, "last_event_time_ms": starts + WINDOW_MS - 10_000, "broker": brokers,
            "rack": [f"rack-{broker % RACKS}" for broker in brokers], "bytes_in_per_sec": bytes_in,
            "bytes_out_per_sec": 2 * bytes_in, "replication_bytes_in_per_sec": 2 * bytes_in,
            "log_dir_used_bytes": np.full(len(brokers), 10**12), "log_dir_usable_bytes": np.full(len(brokers), 10**13),
        }  # fmt: skip

    def newest_window(self) -> dict[str, Any]:
        """Rows of `partition_load` for the last window: who holds what, and how large it is."""
        rows = [
            (number, broker, *key, "leader" if broker == row.leader else "follower")
            for number, (key, row) in enumerate(self.cluster.partitions.items())
            for broker in row.replicas
        ]
        numbers, brokers, topics, partitions, roles = zip(*rows, strict=True)
        rate = self.by_hour[-1][np.array(numbers)]
        return {
            **window_columns(END_MS - WINDOW_MS), "broker": np.array(brokers), "topic": list(topics),
            "partition": np.array(partitions), "role": list(roles), "bytes_in_per_sec": rate,
            "size_bytes": (self.by_hour.mean(axis=0)[np.array(numbers)] * KEPT_S).astype(np.int64),
        }  # fmt: skip


def write_history(root: str, load: Load) -> None:
    """A commit an hour and table, as the pipeline makes them of hours."""
    for hour in range(load.hours):
        append_rows(root, "partition_load_hourly", load.hour_rows(hour))
        append_rows(root, "broker_load", load.windows_of_brokers(hour))
    append_rows(root, "partition_load", load.newest_window())


def measured(size: Size, hours: int, pareto: float) -> dict[str, float]:
    """What one run of the command takes, Python's start included."""
    with tempfile.TemporaryDirectory() as folder:
        tables, config = f"{folder}/tables", Path(folder, "rebalancer.yaml")
        write_history(tables, Load(size, hours, pareto))
        config.write_text(yaml.safe_dump({"kafka": {"cluster_name": CLUSTER}, "storage": {"tables": tables}}))
        since = datetime.fromtimestamp((END_MS - hours * HOUR_MS) / 1000, UTC)
        took_s, cpu_s, printed = run_command([
            "what-if", "--config", str(config), "--json", f"--from={since:%Y-%m-%dT%H:%M}",
            f"--add-brokers={max(1, size.brokers // ADDED_PART)}", f"--png={folder}/picture.png",
        ])  # fmt: skip
    shown = json.loads(printed)
    return {
        "seconds": took_s,
        "cpu_s": cpu_s,
        "peak_rss_mib_so_far": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "hours": shown["hours"],
        "plans": len(shown["plans"]),
        "movements": sum(plan["movements"] for plan in shown["plans"]),
        "max_over_mean_at_the_end": shown["max_over_mean"]["bytes_in"][-1],
    }


def main() -> None:
    """Measure at a third of the size and at the size; the last line is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=BROKERS)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--hours", type=int, default=HOURS)
    parser.add_argument("--pareto", type=float, default=PARETO, help="shape of the loads; 1.2: few take most of it")
    options = parser.parse_args()
    least = SMALLER * RACKS
    if (
        options.brokers < least
        or options.partitions < SMALLER * PARTITIONS_PER_TOPIC
        or options.hours < 1
        or options.pareto <= 1
    ):
        parser.error(
            f"allowed are {least} brokers, {SMALLER * PARTITIONS_PER_TOPIC} partitions, 1 hour, or more; "
            "--pareto above 1"
        )
    sizes = [Size(options.brokers // part, options.partitions // part, groups=1) for part in (SMALLER, 1)]
    print(f"{time.strftime('%Y-%m-%d')}, load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    all_figures = {}
    for size in sizes:
        figures = measured(size, options.hours, options.pareto)
        all_figures[str(size.brokers)] = figures
        print(f"{size.brokers} brokers, {size.partitions} partitions, {options.hours} h: {figures}", flush=True)
    print(json.dumps(all_figures))


if __name__ == "__main__":
    main()
