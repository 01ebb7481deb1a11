"""A month of a pipeline's tables within minutes: the writer of windows, its upkeep, hours, days and retention.

python -m tests.benchmarks.bench_month --days 30

Batches are written as the pipeline's driver writes them, one a window, and all jobs of the upkeep run each
`UPKEEP_EVERY` windows by the clock of the windows, in the same thread. Afterwards windows, hours, days and rebalances
are counted again: none may be missing, doubled or of another value. Files of each table are counted after each run of
the upkeep. It starts neither Spark nor a broker.
"""

import argparse
import json
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

from streaming import tables
from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, TABLES, Table
from streaming.pipeline.delta_tables import WindowTable, create_window_table
from streaming.pipeline.upkeep import UpkeepThread, jobs_of_pipeline
from streaming.settings import DAY_MS, HOUR_MS, PipelineSettings
from streaming.tables import definitions
from streaming.tables.upkeep import TIERS_BYTES
from tests.serve.synthetic import Synthetic
from tests.tables_in_memory import forget, in_memory

START_MS = 1_795_219_200_000
"""Midnight UTC."""
UPKEEP_EVERY = 15
"""Windows from one run of the upkeep to the next: the default interval at windows of a minute."""
REPLICATION = 3
CLUSTER = "test"


@dataclass(frozen=True, slots=True)
class Month:
    """What is written: so many days of windows of a cluster, whose rates follow the time of day."""

    days: int = 30
    window_ms: int = HOUR_MS // 2
    brokers: int = 30
    topics: int = 20
    partitions: int = 15
    """Partitions of each topic; each partition has three replicas."""
    groups: int = 10
    extra_hours: int = 2
    """After the last midnight, so that its day is over."""

    @property
    def windows(self) -> int:
        """Number of windows."""
        return (self.days * DAY_MS + self.extra_hours * HOUR_MS) // self.window_ms

    def start_ms(self, window: int) -> int:
        """When a window begins."""
        return START_MS + window * self.window_ms

    def factor(self, start_ms: int) -> float:
        """By how much all rates of a window are multiplied: from 1 at midnight to 2 at the next."""
        return 1.0 + (start_ms - START_MS) % DAY_MS / DAY_MS

    def mean_factor(self, period_ms: int, length_ms: int) -> float:
        """Mean of `factor` over the windows of a period."""
        starts = range(period_ms, period_ms + length_ms, self.window_ms)
        return sum(map(self.factor, starts)) / len(starts)


@dataclass(slots=True)
class Found:
    """What was seen while the month went by."""

    files: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Files of the newest version after each run of the upkeep, by table."""
    stored: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Data files in the folder, those of older versions too, at the end of each day."""
    over: list[str] = field(default_factory=list)
    """Tables that had more files than `files_max`."""
    rss_mib: list[int] = field(default_factory=list)
    """Memory at the end of each day."""
    batch_cpu_s: float = 0.0
    upkeep_cpu_s: float = 0.0


def files_max(size_bytes: int, commits: int) -> int:
    """The bound on the files of a table of this size, with so many commits since the upkeep ran: twenty files of each
    lower tier, two for each half of the largest, two of open windows.
    """
    return 20 * (len(TIERS_BYTES) - 1) + 2 * (size_bytes // (TIERS_BYTES[0] // 2) + 1) + commits + 2


def live_through(root: str, month: Month, settings: PipelineSettings) -> Found:
    """Write the month below `root`, with upkeep."""
    found, now_ms = Found(), START_MS
    writers = _writers(root, month)
    upkeep = UpkeepThread(jobs_of_pipeline(root, CLUSTER, settings), now_ms=lambda: now_ms, patience_s=0)
    reports = Synthetic(root, CLUSTER)
    for window in range(month.windows):
        now_ms = month.start_ms(window + 1)
        began_s = time.process_time()
        for write in writers:
            write(window)
        found.batch_cpu_s += time.process_time() - began_s
        if window % UPKEEP_EVERY == UPKEEP_EVERY - 1:
            reports.batch_row(now_ms)
            began_s = time.process_time()
            upkeep.run_due()
            found.upkeep_cpu_s += time.process_time() - began_s
            assert upkeep.failing() == (), f"in window {window}"
            _note_files(root, found)
        if now_ms % DAY_MS == 0:
            _note_day(root, found)
    now_ms += settings.maintenance_interval_ms
    upkeep.run_due()
    assert upkeep.failing() == ()
    return found


def _writers(root: str, month: Month) -> list[Callable[[int], None]]:
    made = in_memory("bench_month")
    forget(made)
    synthetic, rate = Synthetic(made, CLUSTER), rates(month)
    synthetic.broker_load(START_MS, {broker: rate("broker", broker) for broker in range(month.brokers)})
    synthetic.partition_load(
        START_MS,
        [
            ((topic * 7 + partition + replica) % month.brokers, f"topic-{topic:03}", partition,
             "follower" if replica else "leader", rate(f"topic-{topic:03}", partition))
            for topic in range(month.topics) for partition in range(month.partitions) for replica in range(REPLICATION)
        ],
    )  # fmt: skip
    synthetic.group_lag(
        START_MS, [(f"group-{group}", "topic-000", partition, 100, 107 + group)
                   for group in range(month.groups) for partition in range(month.partitions)],
    )  # fmt: skip
    return [_writer(root, table, month, made) for table in (PARTITION_LOAD, BROKER_LOAD, GROUP_LAG)]


def rates(month: Month) -> Callable[[str, int], float]:
    """Rates of brokers and partitions at midnight, another for each."""
    names = {"broker": 0} | {f"topic-{topic:03}": topic + 1 for topic in range(month.topics)}
    return lambda name, number: 1_000.0 * (names[name] + 1) + number


def _writer(root: str, table: Table, month: Month, made: str) -> Callable[[int], None]:
    """Writes one window after the other as the pipeline's driver does; each closes the one before."""
    create_window_table(root, table)
    template = pa.Table.from_pylist(tables.read(made, table.name), tables.row_schema(table))
    window_table = WindowTable(tables.table_uri(root, table.name), table, rows_max=500_000)
    changing = [name for name in ("bytes_in_per_sec", "bytes_out_per_sec") if name in template.column_names]

    def write(window: int) -> None:
        start_ms = month.start_ms(window)
        values: dict[str, Any] = {
            "window_start": tables.utc(start_ms), "window_end": tables.utc(start_ms + month.window_ms),
            "first_event_time_ms": start_ms, "last_event_time_ms": start_ms + month.window_ms - 1, "is_final": False,
            "batch_id": window, "updated_at": tables.utc(start_ms + month.window_ms),
        }  # fmt: skip
        if table is GROUP_LAG:  # all groups rebalance at each midnight
            values["generation_id"] = 1 + (start_ms - START_MS) // DAY_MS
        rows = _with(template, values)
        for name in changing:
            column = pa.array(template[name].to_numpy() * month.factor(start_ms))
            rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
        window_table.upsert(rows, ("q", window), tables.utc(start_ms))

    return write


def _with(rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    for name, value in values.items():
        kind = rows.schema.field(name)
        column = pa.repeat(pa.scalar(value, kind.type), rows.num_rows)
        rows = rows.set_column(rows.column_names.index(name), kind, column)
    return rows


def _note_files(root: str, found: Found) -> None:
    reader = tables.TableReader(root)
    for folder in Path(root).iterdir():
        state = reader.state(folder.name)
        if state is not None:
            found.files[folder.name].append(state.files)
            if state.files > files_max(state.size_bytes, 0):
                found.over.append(f"{folder.name}: {state.files} files of {state.size_bytes} bytes")


def _note_day(root: str, found: Found) -> None:
    found.rss_mib.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20)
    for folder in Path(root).iterdir():
        found.stored[folder.name].append(sum(1 for _ in folder.rglob("*.parquet")))


def recounted(root: str, month: Month, settings: PipelineSettings) -> list[str]:
    """What a recount shows to be missing, doubled or of another value; empty if nothing is."""
    problems = []
    rate = rates(month)
    end_ms = month.start_ms(month.windows)
    leaders, years_ms = month.topics * month.partitions, settings.rollup_retention_ms
    for name, length_ms, each, kept_ms in (
        ("broker_load_hourly", HOUR_MS, month.brokers, years_ms),
        ("broker_load_daily", DAY_MS, month.brokers, years_ms),
        ("partition_load_hourly", HOUR_MS, leaders, settings.partition_hours_retention_ms),
        ("partition_load_daily", DAY_MS, leaders * REPLICATION, years_ms),
        ("group_lag_daily", DAY_MS, month.groups * month.partitions, years_ms),
    ):
        made = tables.read_arrow(root, name)
        periods = [tables.to_ms(start) for start in made["period_start"].unique().to_pylist()]
        # The newest window's period is open, as its watermark has not passed it.
        expected = set(range(START_MS, end_ms - length_ms + 1 - settings.watermark_ms, length_ms))
        missing = {period for period in expected if period >= end_ms - kept_ms} - set(periods)
        if missing or not set(periods) <= expected:
            problems.append(f"{name}: {len(missing)} periods are missing, {len(set(periods) - expected)} too many")
        rows, keys = len(made), len(set(zip(*(made[key].to_pylist() for key in TABLES[name].key), strict=True)))
        if not rows == keys == each * len(periods):
            problems.append(f"{name}: {rows} rows of {keys} keys in {len(periods)} periods")
        if not set(made["window_count"].to_pylist()) <= {length_ms // month.window_ms}:
            problems.append(f"{name}: windows of a period were left out or counted twice")
        if "bytes_in_per_sec" in made.column_names:
            factors = {period: month.mean_factor(period, length_ms) for period in periods}
            times = [factors[tables.to_ms(start)] for start in made["period_start"].to_pylist()]
            of_topics = "topic" in made.column_names
            names = made["topic"].to_pylist() if of_topics else ["broker"] * rows
            numbers = made["partition" if of_topics else "broker"].to_pylist()
            wanted = [factor * rate(*place) for factor, *place in zip(times, names, numbers, strict=True)]
            if not np.allclose(made["bytes_in_per_sec"].to_numpy(), wanted, rtol=1e-12):
                problems.append(f"{name}: means differ from a recount")
    return problems + _windows_recounted(root, month, settings) + _events_recounted(root, month, settings)


def _windows_recounted(root: str, month: Month, settings: PipelineSettings) -> list[str]:
    problems = []
    replicas = month.topics * month.partitions * REPLICATION
    each = {"partition_load": replicas, "broker_load": month.brokers, "group_lag": month.groups * month.partitions}
    for name, rows in each.items():
        starts = tables.read_arrow(root, name, columns=["window_start"])["window_start"]
        counts = {tables.to_ms(item["values"].as_py()): item["counts"].as_py() for item in starts.value_counts()}
        if set(counts.values()) != {rows}:
            problems.append(f"{name}: windows with {set(counts.values())} rows instead of {rows}")
        newest_ms = month.start_ms(month.windows - 1)
        if sorted(counts) != list(range(min(counts), newest_ms + 1, month.window_ms)):
            problems.append(f"{name}: windows are missing")
        oldest_max_ms = max(START_MS, newest_ms - settings.retention_ms)
        if min(counts) > oldest_max_ms or min(counts) < oldest_max_ms - 2 * DAY_MS:
            problems.append(f"{name}: retention has left windows since {tables.utc(min(counts))}")
    return problems


def _events_recounted(root: str, month: Month, settings: PipelineSettings) -> list[str]:
    """Each group rebalances at each midnight; retention deletes the events of days as it deletes windows."""
    events = tables.read(root, "group_event", columns=["group_id", "window_start"])
    found = {(row["group_id"], tables.to_ms(row["window_start"])) for row in events}
    newest_ms = month.start_ms(month.windows - 2)
    midnights = range(START_MS + DAY_MS, newest_ms + 1, DAY_MS)
    must = {start for start in midnights if start >= newest_ms - settings.retention_ms}
    seen = {start for _, start in found}
    is_whole = len(found) == len(events) == month.groups * len(seen)
    return (
        [] if is_whole and must <= seen <= set(midnights) else [f"group_event: {len(events)} events, {len(found)} keys"]
    )


def main() -> None:
    """Write the month, count again and print what was seen as JSON; exit 1 if a bound or the recount is broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--window-minutes", type=int, default=30)
    parser.add_argument("--topics", type=int, default=20, help="of 45 replicas each")
    parser.add_argument("--retention-days", type=int, default=10)
    parser.add_argument("--replaced-kept-seconds", type=int, default=30, help="in the place of two days")
    options = parser.parse_args()
    month = Month(days=options.days, window_ms=options.window_minutes * 60_000, topics=options.topics)
    settings = PipelineSettings(
        window_ms=month.window_ms,
        maintenance_interval_ms=UPKEEP_EVERY * month.window_ms,
        retention_ms=options.retention_days * DAY_MS,
        partition_hours_retention_ms=options.retention_days * DAY_MS,
    )
    kept_s = options.replaced_kept_seconds
    kept = {
        "delta.deletedFileRetentionDuration": f"interval {kept_s} seconds",
        "delta.logRetentionDuration": f"interval {kept_s + 1} seconds",
    }
    with tempfile.TemporaryDirectory() as root, mock.patch.dict(definitions.CONFIGURATION, kept):
        found = live_through(root, month, settings)
        problems = [*recounted(root, month, settings), *found.over]
        sizes = {folder.name: tables.TableReader(root).state(folder.name) for folder in Path(root).iterdir()}
    print(
        json.dumps(
            {
                "windows": month.windows,
                "rows_of_a_window": month.topics * month.partitions * REPLICATION,
                "files_most": {name: max(counts) for name, counts in found.files.items()},
                "files_at_end": {name: counts[-1] for name, counts in found.files.items()},
                "stored_most": {name: max(counts) for name, counts in found.stored.items()},
                "mb_at_end": {name: round(state.size_bytes / 1e6, 1) for name, state in sizes.items() if state},
                "rss_mib_by_day": found.rss_mib,
                "batch_cpu_s": round(found.batch_cpu_s, 1),
                "upkeep_cpu_s": round(found.upkeep_cpu_s, 1),
                "problems": problems,
            }
        )
    )
    if problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
