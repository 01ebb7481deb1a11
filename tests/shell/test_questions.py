"""Queries of docs/queries whose answer depends on more than the tables' form; `tests/pipeline/test_queries.py` runs all
in two engines.
"""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from streaming import tables
from streaming.commands.sql import CAPACITIES as CAPACITIES_VIEW
from streaming.commands.sql import VIEWS, Source, query_clusters, run_query, tables_named
from streaming.contract import TABLES
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings.deciding import CapacitySettings
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster

QUERIES = sorted((PROJECT_ROOT / "docs" / "queries").glob("*.sql"))


def text_of(name: str) -> str:
    (file,) = (PROJECT_ROOT / "docs" / "queries").glob(f"*_{name}.sql")
    return file.read_text(encoding="utf-8")


def answer(root: Path, name: str) -> list[tuple[object, ...]]:
    return run_query(text_of(name), str(root))[1]


def test_a_partition_whose_leader_moves_in_the_last_window_counts_once(tmp_path: Path) -> None:
    made = Synthetic(str(tmp_path))
    made.partition_load(NOW_MS, [(1, "t", 0, "leader", 1.0)], size_bytes=1_000)
    made.partition_load(NOW_MS + WINDOW_MS, [(1, "t", 0, "leader", 1.0), (2, "t", 0, "leader", 1.0)], size_bytes=3_000)
    assert answer(tmp_path, "topics_that_grew") == [("test", "t", 2_000, 3_000)]


def test_a_window_of_which_part_has_come_does_not_make_topics_shrink_or_groups_catch_up(tmp_path: Path) -> None:
    """A look at the brokers may come in two batches; until the second, the newest window lacks partitions."""
    made = Synthetic(str(tmp_path))
    leaders = [(1, "t", partition, "leader", 1.0) for partition in range(4)]
    with made.together():
        for window, size in enumerate((1_000, 3_000)):
            start_ms = NOW_MS + window * WINDOW_MS
            made.partition_load(start_ms, leaders, size_bytes=size)
            made.group_lag(start_ms, [("g", "t", partition, 0, size) for partition in range(4)])
        open_ms = NOW_MS + 2 * WINDOW_MS
        made.partition_load(open_ms, leaders[:1], size_bytes=3_000, is_final=False)
        made.group_lag(open_ms, [("g", "t", 0, 0, 3_000)], is_final=False)
    assert answer(tmp_path, "topics_that_grew") == [("test", "t", 8_000, 12_000)]
    assert answer(tmp_path, "groups_that_fell_behind") == [("test", "g", 4_000, 12_000)]


def tables_of(query: str) -> set[str]:
    """The product's tables that a query reads."""
    with duckdb.connect() as connection:
        return set(tables_named(query, VIEWS, connection) or ()) & TABLES.keys()


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_each_query_keeps_clusters_apart_and_leaves_open_windows_out(file: Path) -> None:
    query = file.read_text(encoding="utf-8")
    columns = {name for table in tables_of(query) for name in TABLES[table].column_names()}
    assert tables_of(query)
    assert ("is_final" in query) == ("is_final" in columns)
    assert "kafka_cluster" in query


CAPACITIES = {broker: CapacitySettings(bytes_in_per_sec=1e6) for broker in (1, 2, 3)}
IN_ROLLUPS_ALONE = ("11", "17")
"""Queries over hours and days, which the tables of these tests don't have."""


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
@pytest.mark.parametrize("shared", [True, False], ids=["in the same tables", "in a folder of its own"])
def test_a_second_cluster_changes_no_row_of_the_first(tmp_path: Path, file: Path, *, shared: bool) -> None:
    query = file.read_text(encoding="utf-8")
    read = tables_of(query)
    if shared and (
        CAPACITIES_VIEW in query or any("kafka_cluster" not in TABLES[name].column_names() for name in read)
    ):
        pytest.skip("capacities, and rows without a cluster, are of the folder's cluster")
    sources = {
        "test": Source(str(tmp_path / "test"), "test", CAPACITIES),
        "second": Source(str(tmp_path / ("test" if shared else "second")), "second", CAPACITIES),
    }
    answers = []
    for count, (cluster, source) in enumerate(sources.items(), 1):
        skewed_cluster(Synthetic(source.root, cluster), NOW_MS)
        for table in read:
            tables.create_table(source.root, table)
        asked = {each.root: each for each in [*sources.values()][:count]}
        columns, rows = query_clusters(query, [*asked.values()])
        assert columns[0] == "kafka_cluster"
        answers.append([row for row in rows if row[0] == "test"])
    if "LIMIT" in query:  # those of the second cluster take places, too
        answers[0] = answers[0][: len(answers[1])]
    assert len({row[0] for row in rows}) == (0 if file.stem.startswith(IN_ROLLUPS_ALONE) else 2)
    assert [[pytest.approx(value) if isinstance(value, float) else value for value in row] for row in answers[0]] == [
        list(row) for row in answers[1]
    ]


def two_clusters(folder: Path) -> list[Source]:
    """Two clusters in folders of their own; east has capacities, west has what its brokers report of their disks."""
    capacities = {
        1: CapacitySettings(bytes_in_per_sec=10e6, disk_bytes=4e9),
        2: CapacitySettings(bytes_in_per_sec=10e6),
    }
    return [Source(str(folder / "east"), "east", capacities), Source(str(folder / "west"), "west")]


def test_brokers_near_their_capacity_are_found_in_all_clusters(tmp_path: Path) -> None:
    sources = two_clusters(tmp_path)
    east, west = (Synthetic(source.root, source.kafka_cluster or "") for source in sources)
    east.broker_load(NOW_MS - WINDOW_MS, {2: 9.9e6})  # before; now it is low
    east.broker_load(NOW_MS, {1: 7e6}, replication_bytes_in_per_sec=2e6, log_dir_used_bytes=3_600_000_000)
    east.broker_load(NOW_MS, {2: 8e6}, replication_bytes_in_per_sec=None)
    east.broker_load(NOW_MS + WINDOW_MS, {2: 10e6}, is_final=False)
    west.broker_load(NOW_MS, {1: 9.9e6}, log_dir_used_bytes=85, log_dir_usable_bytes=15)
    west.broker_load(NOW_MS, {2: 9.9e6}, log_dir_used_bytes=79, log_dir_usable_bytes=21)
    _, rows = query_clusters(text_of("brokers_near_their_capacity"), sources)
    assert [row[:4] for row in rows] == [
        ("east", 1, "bytes_in", pytest.approx(0.9)),
        ("east", 1, "disk", pytest.approx(0.9)),
        ("west", 1, "disk", pytest.approx(0.85)),
    ]


def test_what_plans_copied_and_brought_is_by_cluster_and_month_and_only_of_executions_that_ended(
    tmp_path: Path,
) -> None:
    sources = two_clusters(tmp_path)
    for source in sources:
        tables.create_table(source.root, "execution")
    east = Synthetic(sources[0].root, "east")
    east.measured_plan(1, NOW_MS, factor=1.0)
    east.measured_plan(2, NOW_MS + WINDOW_MS, factor=None)
    east.event(NOW_MS, 0, "approved", execution_id="runs", bytes_moved=5)
    _, rows = query_clusters(text_of("what_plans_copied_and_brought"), sources)
    month = datetime(2026, 11, 1, tzinfo=UTC).replace(tzinfo=None)
    approx = pytest.approx
    assert rows == [("east", month, 2, 12, 246_000_000, 1, approx(1.45), approx(1.02), approx(1.02))]


def test_clusters_with_most_room_come_first_by_their_fullest_broker_in_its_highest_hour(tmp_path: Path) -> None:
    sources = two_clusters(tmp_path)
    for source, loads, used in zip(sources, ([(1, 1e6), (1, 6e6), (2, 2e6)], [(1, 9e6)]), (2, 3), strict=True):
        made = Synthetic(source.root, source.kafka_cluster or "")
        for hour, (broker, rate) in enumerate(loads):
            made.broker_hour(NOW_MS + hour * 3_600_000, broker, rate, used=used, usable=10 - used)
    long_ago_ms = NOW_MS - 40 * 86_400_000
    Synthetic(sources[0].root, "east").broker_hour(long_ago_ms, 1, 10e6, used=9, usable=1)
    _, rows = query_clusters(text_of("over_provisioned_clusters"), sources)
    assert rows == [("west", "disk", 1, pytest.approx(0.3)), ("east", "bytes_in", 1, pytest.approx(0.6))]
