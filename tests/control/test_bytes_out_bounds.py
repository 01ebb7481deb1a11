"""Without counters of brokers: decisions on bytes out whose sums have bounds, from the tables to the decision's row.

Each of four brokers takes in as much as each other one, and consumers read six times as much of broker 1. It leads a
partition `unread` for which no group commits, as the others do.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from assignor_core.live import LiveCluster, LivePartition, PartitionKey
from assignor_core.resources import Resource
from streaming import tables
from streaming.control.deciding import BytesOutBounds
from streaming.control.windows import ClosedWindows
from streaming.control.wiring import decider_of, journal_of, window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, DescribedCluster, last
from tests.control.windows import RATE, write_windows

BROKERS = (1, 2, 3, 4)
OF_EACH = 4
HOUR_S = 3600


def settings_of(root: str, **trigger: Any) -> Settings:
    return Settings.model_validate({
        "storage": {"tables": root},
        "pipeline": {"window_ms": 10_000, "watermark_ms": 1_000},
        "trigger": {
            "resources": ["bytes_out"], "windows_over": 2, "windows_considered": 3, "placement_reasons": [], **trigger
        },
        "planner": {"windows": 3},
    })  # fmt: skip


@pytest.fixture
def cluster() -> DescribedCluster:
    read = {
        ("read", OF_EACH * (broker - 1) + number): LivePartition(
            (broker, broker % 4 + 1), broker, (broker, broker % 4 + 1)
        )
        for broker in BROKERS
        for number in range(OF_EACH)
    }
    unread = {("unread", broker): LivePartition((broker,), broker, (broker,)) for broker in BROKERS}
    return DescribedCluster(LiveCluster("c", dict.fromkeys(BROKERS), read | unread))


def write(settings: Settings, cluster: DescribedCluster, *, unread: float, size_bytes: int = 1_000) -> None:
    """Windows in which `unread` bytes/s are written to each partition that nobody commits for."""
    keys = cluster.live.partitions.keys()
    rates = {key: RATE if key[0] == "read" else unread for key in keys}
    read: dict[PartitionKey, float | None] = {
        key: (6 if key[1] < OF_EACH else 1) * RATE if key[0] == "read" else None for key in keys
    }
    write_windows(settings, cluster.live, end_ms=NOON_MS, rates=rates, read=read, size_bytes=size_bytes)


def decided(settings: Settings, cluster: DescribedCluster) -> Mapping[str, Any]:
    decider_of(cluster, journal_of(settings), settings).tick(now_ms=NOON_MS)
    return last(settings)


@pytest.mark.long
def test_a_small_unknown_part_does_not_hide_a_skew_and_the_plan_rests_on_what_is_known(
    tables_in_memory: str, cluster: DescribedCluster
) -> None:
    settings = settings_of(tables_in_memory)
    write(settings, cluster, unread=100.0)
    row = decided(settings, cluster)
    assert (row["verdict"], row["reason"], row["resource"]) == ("plan", "skewed", "bytes_out")
    assert row["detail"].startswith("bytes_out max/mean at least 2.6")
    plan = journal_of(settings).plan(row["plan_id"]).plan
    assert plan.loads_before[Resource.BYTES_OUT][1] - plan.loads_before[Resource.BYTES_OUT][2] == 5 * OF_EACH * RATE


def test_a_large_unknown_part_leaves_it_unknown_whether_there_is_skew(
    tables_in_memory: str, cluster: DescribedCluster
) -> None:
    settings = settings_of(tables_in_memory)
    write(settings, cluster, unread=3 * RATE)
    row = decided(settings, cluster)
    assert (row["verdict"], row["reason"], row["plan_id"]) == ("hold", "balanced", None)
    assert "; unknown if bytes_out is skewed: broker " in row["detail"]


def test_a_log_that_may_be_read_again_counts_with_its_size(tables_in_memory: str, cluster: DescribedCluster) -> None:
    settings = settings_of(tables_in_memory)
    write(settings, cluster, unread=100.0, size_bytes=int(3 * RATE) * HOUR_S)
    assert "; unknown if bytes_out is skewed: broker " in decided(settings, cluster)["detail"]


def test_how_many_readers_are_assumed_is_a_setting(tables_in_memory: str, cluster: DescribedCluster) -> None:
    """With 0 nobody reads what no group commits; without a bound bytes out are not judged."""
    nobody, unbounded = (settings_of(tables_in_memory, readers_without_commits_max=most) for most in (0, None))
    write(nobody, cluster, unread=3 * RATE)
    assert decided(unbounded, cluster)["max_over_mean"] == 1.0
    windows = ClosedWindows(window_tables_of(nobody)).newest(now_ms=NOON_MS)
    (newest,) = BytesOutBounds(window_tables_of(nobody)).added(windows[-1:])
    least = {broker: OF_EACH * RATE * (6 if broker == 1 else 1) for broker in BROKERS}
    assert newest.bounds[Resource.BYTES_OUT] == {broker: (read, read) for broker, read in least.items()}


def test_a_partition_with_unknown_figures_leaves_its_broker_without_a_bound(
    tables_in_memory: str, cluster: DescribedCluster
) -> None:
    """What broker 2 takes in for one partition, and the size of one log of broker 3, are unknown."""
    settings = settings_of(tables_in_memory)
    write(settings, cluster, unread=100.0)
    rows = tables.read(tables_in_memory, "partition_load")
    for row in rows:
        if row["topic"] == "unread":
            row["window_start"], row["window_end"] = row["window_end"], tables.utc(NOON_MS + 10_000)
            row["bytes_in_per_sec"] = None if row["broker"] == 2 else row["bytes_in_per_sec"]
            row["size_bytes"] = None if row["broker"] == 3 else row["size_bytes"]
            row["remote_records"] = 5 if row["broker"] == 4 else None
    newest = tables.to_ms(max(row["window_start"] for row in rows))
    totals = [row for row in tables.read(tables_in_memory, "broker_load") if tables.to_ms(row["window_end"]) == NOON_MS]
    totals = [{**row, "window_start": tables.utc(newest), "window_end": tables.utc(newest + 10_000)} for row in totals]
    rows = [row for row in rows if tables.to_ms(row["window_start"]) == newest]
    for name, added in (("partition_load", rows), ("broker_load", totals)):
        tables.append(tables_in_memory, name, added, transaction_id="more", transaction_version=1)
    window_tables = window_tables_of(settings)
    windows = ClosedWindows(window_tables).newest(now_ms=newest + 10_000)
    assert windows[-1].start_ms == newest
    (window,) = BytesOutBounds(window_tables).added(windows[-1:])
    assert window.bounds[Resource.BYTES_OUT].keys() == {1}


def test_where_some_brokers_know_their_replication_traffic_bounds_do_not_compare(
    tables_in_memory: str, cluster: DescribedCluster
) -> None:
    settings = settings_of(tables_in_memory)
    write(settings, cluster, unread=100.0)
    window_tables = window_tables_of(settings)
    assert ClosedWindows(window_tables).newest(now_ms=NOON_MS)[-1].reads_unknown == set(BROKERS)
    rows = [row for row in tables.read(tables_in_memory, "broker_load") if tables.to_ms(row["window_end"]) == NOON_MS]
    known = {"bytes_out_per_sec": 5.0, "replication_bytes_out_per_sec": 5.0}
    start, end = tables.utc(NOON_MS), tables.utc(NOON_MS + 10_000)
    rows = [{**row, "window_start": start, "window_end": end, **(known if row["broker"] == 1 else {})} for row in rows]
    tables.append(tables_in_memory, "broker_load", rows, transaction_id="more", transaction_version=1)
    newest = ClosedWindows(window_tables).newest(now_ms=NOON_MS + 10_000)[-1]
    assert (newest.start_ms, newest.reads_unknown) == (NOON_MS, frozenset())


def test_each_window_is_read_once(
    tables_in_memory: str, cluster: DescribedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tables_in_memory)
    write(settings, cluster, unread=100.0)
    window_tables = window_tables_of(settings)
    windows, bounds = ClosedWindows(window_tables).newest(now_ms=NOON_MS), BytesOutBounds(window_tables)
    first = bounds.added(windows)
    monkeypatch.delattr("tests.tables_in_memory.MemoryReader.arrow")
    assert bounds.added(windows[-1:]) == first[-1:]
