"""What followers serve, as plans read it of the tables: bytes/s of followers, and the racks of groups' members."""

import pytest

from assignor_core.live import LiveCluster, LivePartition
from assignor_core.live_plans.measured_loads import NO_FOLLOWERS, FollowerLoads
from assignor_core.resources import Resource
from streaming import tables
from streaming.control.planning import follower_loads, propose_live
from streaming.control.windows import closed_windows
from streaming.control.wiring import window_tables_of
from streaming.settings import Settings
from tests.control.test_deciding import NOON_MS, DescribedCluster
from tests.control.windows import window_columns, write_lag, write_windows

WINDOW_MS = 10_000
READ, LED = ("read", 0), ("led", 0)
WINDOWS = 3
SERVED = (30.0, 0.0, 60.0)
"""By broker 2 in each window."""


@pytest.fixture
def settings(tables_in_memory: str) -> Settings:
    return Settings.model_validate(
        {"storage": {"tables": tables_in_memory}, "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000}}
    )


def cluster() -> DescribedCluster:
    partitions = {key: LivePartition((1, 2), 1, (1, 2)) for key in (READ, LED)}
    return DescribedCluster(LiveCluster("c", {1: "a", 2: "b", 3: "b"}, partitions))


def write_followers(settings: Settings) -> None:
    rows = [
        {
            **window_columns(settings.kafka.cluster_name, NOON_MS - (WINDOWS - index) * WINDOW_MS, WINDOW_MS),
            "broker": 2, "topic": topic, "partition": 0, "role": "follower", "bytes_in_per_sec": 1e6,
            "bytes_out_per_sec": rate, "size_bytes": 1_000,
        }
        for index, served in enumerate(SERVED)
        for topic, rate in (("read", served), ("led", None))
    ]  # fmt: skip
    tables.append(
        settings.storage.tables, "partition_load", rows, transaction_id="followers", transaction_version=NOON_MS
    )


def test_a_cluster_whose_followers_serve_nobody_has_none(settings: Settings) -> None:
    write_windows(settings, cluster().live, end_ms=NOON_MS, windows=WINDOWS)
    window_tables = window_tables_of(settings)
    windows = closed_windows(window_tables, now_ms=NOON_MS)
    assert follower_loads(window_tables, windows) is NO_FOLLOWERS


def test_followers_have_their_mean_and_readers_their_racks(settings: Settings) -> None:
    """Of windows in which nobody read from a follower the mean knows, too; a group without a rack is named by None."""
    write_windows(settings, cluster().live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    window_tables = window_tables_of(settings)
    windows = closed_windows(window_tables, now_ms=NOON_MS)
    assert follower_loads(window_tables, windows) == FollowerLoads({READ: {2: 30.0}})
    write_lag(settings, "g", READ, end_ms=NOON_MS, consumed_per_window=101, windows=WINDOWS)
    write_lag(settings, "near", READ, end_ms=NOON_MS, consumed_per_window=51, windows=WINDOWS, rack_id="b")
    write_lag(settings, "g", LED, end_ms=NOON_MS, consumed_per_window=11, windows=WINDOWS, rack_id="b")
    assert follower_loads(window_tables, windows) == FollowerLoads({READ: {2: 30.0}}, {READ: {None: 300.0, "b": 150.0}})


@pytest.mark.parametrize("mixed", [0, 1, 2])
def test_a_replica_that_led_within_a_window_served_nobody_as_a_follower(settings: Settings, mixed: int) -> None:
    """After a leader changed, the window's row is of a follower and has the bytes of both roles."""
    write_windows(settings, cluster().live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    rows = [
        {
            **window_columns(settings.kafka.cluster_name, NOON_MS - (WINDOWS - index) * WINDOW_MS, WINDOW_MS),
            "broker": 2, "topic": topic, "partition": 1, "role": "follower", "bytes_in_per_sec": 1e6,
            "bytes_out_per_sec": 70.0, "messages_in_per_sec": 5.0 if index == mixed else None, "size_bytes": 1_000,
        }
        for topic, indexes in (("read", range(WINDOWS)), ("led", (mixed,)))
        for index in indexes
    ]  # fmt: skip
    tables.append(settings.storage.tables, "partition_load", rows, transaction_id="m", transaction_version=NOON_MS)
    window_tables = window_tables_of(settings)
    loads = follower_loads(window_tables, closed_windows(window_tables, now_ms=NOON_MS))
    followed = {READ: {2: 30.0}, ("read", 1): {2: 70.0}}
    if mixed == WINDOWS - 1:
        del followed["read", 1]
    assert loads == FollowerLoads(followed)


@pytest.mark.parametrize(
    ("first", "newest", "read"),
    [(100, 10**17, 1_900.0), (10**17, 10**17, None), (10**17, 1_500, 500.0), (100, 600, 500.0)],
)
def test_a_commit_beyond_the_end_of_the_log_reads_to_that_end(
    settings: Settings, first: int, newest: int, read: float | None
) -> None:
    write_windows(settings, cluster().live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    row = {
        **window_columns(settings.kafka.cluster_name, NOON_MS - WINDOW_MS, WINDOW_MS),
        "group_id": "g", "topic": READ[0], "partition": READ[1], "rack_id": "b",
        "committed_offset_first": first, "committed_offset": newest,
        "log_end_offset_first": 1_000, "log_end_offset": 2_000,
    }  # fmt: skip
    tables.append(settings.storage.tables, "group_lag", [row], transaction_id="lag", transaction_version=NOON_MS)
    window_tables = window_tables_of(settings)
    loads = follower_loads(window_tables, closed_windows(window_tables, now_ms=NOON_MS))
    assert loads == FollowerLoads({READ: {2: 30.0}}, {READ: {"b": read}} if read is not None else {})


def test_a_plan_has_the_bytes_out_of_each_replica(settings: Settings) -> None:
    """Leaders send nothing to consumers here, and 1 MB/s of each partition to its follower. Broker 2 is emptied, and
    broker 3 leads one partition then; rack b goes on reading from its own replica."""
    described = cluster()
    write_windows(settings, described.live, end_ms=NOON_MS, windows=WINDOWS)
    write_followers(settings)
    plan = propose_live(
        described, described.live, window_tables_of(settings), settings.planner, now_ms=NOON_MS, drained=frozenset({2})
    ).plan
    assert plan.loads_before[Resource.BYTES_OUT] == {1: 2e6, 2: 30.0, 3: 0.0}
    assert plan.loads_after[Resource.BYTES_OUT] == {1: 1e6, 2: 0.0, 3: 1e6 + 30}
    assert plan.least_bytes == plan.bytes_to_move, "all that broker 2 holds is copied"
    assert "followers serve consumers of 1 partition: for balance their replicas stay in their racks" in plan.diagnosis
