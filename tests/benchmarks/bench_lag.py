"""One evaluation of many groups: verdicts, reasons and memory, on windows as the tables hold them.

python -m tests.benchmarks.bench_lag --groups 2000 --partitions 50
"""

import resource
import time

import click
import numpy as np
import pyarrow as pa

from streaming import tables
from streaming.lag import COLUMNS, judge
from streaming.schemas import TABLES
from streaming.serve.groups import verdicts_by_group
from streaming.settings import Settings
from tests.serve.synthetic import NOW_MS, WINDOW_MS


def windows_of(groups: int, partitions: int, windows: int) -> pa.Table:
    """Rows of `group_lag`: a third of the groups keeps up, a third falls behind, a third is stuck."""
    schema = tables.arrow_schema(TABLES["group_lag"])
    keys = groups * partitions
    window = np.repeat(np.arange(windows), keys)
    group = np.tile(np.repeat(np.arange(groups), partitions), windows)
    end = 1_000 * (window + 1)
    committed = np.select([group % 3 == 0, group % 3 == 1], [end, end // 2], 500)
    start_ms = NOW_MS + window * WINDOW_MS
    columns = {
        "group_id": np.char.add("group-", np.arange(groups).astype(str))[group],
        "topic": np.full(keys * windows, "orders"),
        "partition": np.tile(np.arange(partitions), groups * windows).astype(np.int32),
        "committed_offset": committed, "committed_offset_first": committed - np.where(committed == 500, 0, 400),
        "log_end_offset": end, "log_end_offset_first": end - 800, "lag_records": end - committed,
        "log_start_offset": np.zeros(keys * windows, dtype=np.int64),
        "group_state": np.full(keys * windows, "Stable"), "member_id": np.full(keys * windows, "m"),
        "client_id": np.full(keys * windows, "c"), "window_start": start_ms * 1000,
        "first_event_time_ms": start_ms, "last_event_time_ms": start_ms + 50_000,
    }  # fmt: skip
    return pa.table([pa.array(columns[name]).cast(schema.field(name).type) for name in COLUMNS], names=list(COLUMNS))


@click.command()
@click.option("--groups", default=2_000)
@click.option("--partitions", default=50)
@click.option("--windows", default=30, help="History read: 30 windows of a minute in production.")
def main(groups: int, partitions: int, windows: int) -> None:
    """Print seconds and megabytes."""
    rows = windows_of(groups, partitions, windows)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    picture = judge(rows, Settings())
    judged = time.perf_counter()
    assert picture is not None
    verdicts = verdicts_by_group(picture)
    told = time.perf_counter()
    used_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb
    counts = {status: sum(row.status == status for row in verdicts) for status in ("ok", "warn", "stall")}
    click.echo(f"{rows.num_rows:,} rows, {groups:,} groups x {partitions} partitions x {windows} windows: {counts}")
    click.echo(f"verdicts {judged - began:.2f} s, groups and reasons {told - judged:.2f} s, {used_mb:,.0f} MB more")


if __name__ == "__main__":
    main()
