"""`rebalancer sql`: which tables and versions a query reads, its errors, and the queries of docs/queries."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming import tables
from streaming.cli import run
from streaming.commands.sql import CAPACITIES as CAPACITIES_VIEW
from streaming.commands.sql import VIEWS, Source, query_clusters, run_query, tables_named
from streaming.contract import TABLES
from streaming.errors import TableUnavailable, UsageProblem
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings.deciding import CapacitySettings
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster

DAYS_KEPT = 8
COUNT = "SELECT count(*) FROM broker_load"


@pytest.fixture(scope="module")
def made_today(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """broker_load and group_lag; only to be copied."""
    folder = tmp_path_factory.mktemp("made")
    made = Synthetic(str(folder))
    for window in range(3):
        made.broker_load(NOW_MS + window * WINDOW_MS, {1: 1.0})
    delta = tables.open_table(str(folder), "broker_load")
    assert delta is not None
    delta.create_checkpoint()
    made.broker_load(NOW_MS + 3 * WINDOW_MS, {1: 1.0})
    made.group_lag(NOW_MS, [("g", "t", 0, 1, 2)])
    return folder


@pytest.fixture
def root(tmp_path: Path, made_today: Path) -> str:
    """broker_load, made ten days ago, whose log of the first two days was cleaned away; group_lag made today."""
    shutil.copytree(made_today, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "broker_load" / "_delta_log"
    for version, days in enumerate((10, 9, 9, DAYS_KEPT)):
        aged_s = time.time() - days * 86_400
        os.utime(log / f"{version:020d}.json", (aged_s, aged_s))
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    return str(tmp_path)


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


@pytest.mark.long
def test_the_version_of_that_time_is_asked(root: str) -> None:
    assert run_query(COUNT, root)[1] == [(4,)]
    assert run_query(COUNT, root, days_ago(DAYS_KEPT - 1))[1] == [(3,)]


def test_a_time_before_the_oldest_version_that_is_kept_is_refused(root: str) -> None:
    oldest = days_ago(DAYS_KEPT).strftime("%Y-%m-%d")
    with pytest.raises(
        UsageProblem, match=f"--at: the oldest version of table broker_load that is kept is of {oldest}"
    ):
        run_query(COUNT, root, days_ago(DAYS_KEPT + 1))


@pytest.mark.parametrize("time_text", ["2999-01-01", "2999-01-01T00:00:00+09:00"])
def test_a_time_in_the_future_is_refused(root: str, time_text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", COUNT, "--tables-dir", root, "--at", time_text]) == 2
    assert capsys.readouterr().err == f"error: --at {time_text}: allowed is a time in the past\n"


@pytest.mark.long
@pytest.mark.parametrize("zone", ["Asia/Seoul", "America/Los_Angeles"])
def test_times_are_utc_in_any_time_zone_of_the_machine(made_today: Path, zone: str) -> None:
    moment = f"{datetime.fromtimestamp(NOW_MS / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    query = f"SELECT min(window_start) AS first, count(*) FROM broker_load WHERE window_start >= '{moment}'"  # noqa: S608
    command = [sys.executable, "-m", "streaming", "sql", query, "--tables-dir", str(made_today), "--format", "csv"]
    shown = subprocess.run(command, env={**os.environ, "TZ": zone}, capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[1] == f"{moment},4"


def test_tables_and_columns_are_listed_for_programs_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sql", "--tables", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert listed.keys() == TABLES.keys()
    column = next(row for row in listed["broker_load"]["columns"] if row["name"] == "window_start")
    assert (column["type"], bool(column["comment"])) == ("timestamp", True)
    assert run(["sql", "--tables", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["table"] for row in rows} == TABLES.keys()


def test_a_table_that_was_made_later_held_nothing_then(root: str) -> None:
    assert run_query("SELECT count(*) FROM group_lag", root, days_ago(DAYS_KEPT + 1))[1] == [(0,)]


@pytest.mark.long
@pytest.mark.parametrize(
    "query",
    [
        COUNT,
        "SELECT count(*) FROM main.Broker_Load",
        f"WITH seen AS ({COUNT}) SELECT * FROM seen",  # noqa: S608 - names of our own
        "WITH broker_load AS (FROM broker_load) SELECT count(*) FROM broker_load",
        "SELECT count(*) FROM broker_load JOIN broker_load AS other USING (broker, window_start)",
        "SELECT (SELECT count(*) FROM broker_load) FROM range(1)",
    ],
)
def test_a_table_that_is_not_named_is_not_opened(root: str, query: str) -> None:
    _break_log(root, "group_lag")
    assert run_query(query, root)[1] == [(4,)]
    with pytest.raises(TableUnavailable, match="group_lag"):
        run_query("SELECT count(*) FROM group_lag", root)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM query_table('broker_load'), (SELECT 1 FROM group_lag LIMIT 1)",
        "SELECT 4 FROM (SHOW TABLES), (SELECT 1 FROM group_lag LIMIT 1) WHERE name = 'broker_load'",
        "SELECT 4 FROM duckdb_views(), (SELECT 1 FROM group_lag LIMIT 1) WHERE view_name = 'broker_load'",
        "SELECT 4 FROM information_schema.tables, group_lag WHERE table_name = 'broker_load' LIMIT 1",
        "SELECT count(*) FROM (PIVOT broker_load ON broker IN (1) USING max(bytes_in_per_sec) GROUP BY window_start)",
    ],
)
def test_a_query_may_read_tables_that_it_does_not_name(root: str, query: str) -> None:
    assert run_query(query, root)[1] == [(4,)]


@pytest.mark.parametrize("missing", ["broker_loads", "partition_load"])
def test_a_table_that_is_not_there_is_named_in_the_error_with_one_like_it(root: str, missing: str) -> None:
    with pytest.raises(UsageProblem, match=f"Table with name {missing} does not exist"):
        run_query(f"SELECT * FROM {missing}, group_lag", root)  # noqa: S608 - names of our own


@pytest.mark.parametrize(
    ("query", "help_of_duckdb"),
    [
        ("SELECT brokr FROM broker_load", 'Candidate bindings: "broker"'),
        ("SELECT * FRM broker_load", 'syntax error at or near "broker_load" LINE 1: SELECT * FRM broker_load'),
    ],
)
def test_an_error_in_a_query_is_one_line_with_all_that_duckdb_says(root: str, query: str, help_of_duckdb: str) -> None:
    with pytest.raises(UsageProblem) as raised:
        run_query(query, root)
    assert (help_of_duckdb in str(raised.value), "\n" in str(raised.value)) == (True, False)


def test_a_query_of_no_table_is_refused_where_there_are_none(tmp_path: Path) -> None:
    for query in ("SELECT 1", COUNT):
        with pytest.raises(UsageProblem, match="no tables in"):
            run_query(query, str(tmp_path))


def _break_log(root: str, name: str) -> None:
    for entry in (Path(root) / name / "_delta_log").iterdir():
        entry.write_text("no log of Delta")


@pytest.mark.long
@pytest.mark.parametrize("before", [[], ["--format", "csv"]], ids=["alone", "after an option"])
def test_a_query_may_begin_with_a_comment_as_those_of_files_do(
    before: list[str], root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for query in ("-- why\nSELECT 1 AS one", "--why\nSELECT 1 AS one"):
        assert run(["sql", *before, query, "--tables-dir", root]) == 0
        assert "one" in capsys.readouterr().out
    assert run(["sql", "--formatt", "csv", "SELECT 1"]) == 2
    assert "No such option '--formatt'" in capsys.readouterr().err


def test_a_time_of_which_data_files_are_removed_is_refused_in_these_words(root: str) -> None:
    """Upkeep removes files that were replaced, and entries of the log stay longer."""
    for file in (Path(root) / "broker_load").glob("is_final=*/*.parquet"):
        file.unlink()
    with pytest.raises(UsageProblem, match="--at: data files of table broker_load at that time are removed"):
        run_query("SELECT sum(bytes_in_per_sec) FROM broker_load", root, days_ago(DAYS_KEPT - 1))
    with pytest.raises(UsageProblem, match="brokr"):
        run_query("SELECT brokr FROM group_lag", root, days_ago(0))


@pytest.mark.long
def test_a_table_that_is_not_made_yet_is_named_with_its_place(root: str) -> None:
    """DuckDB's own help is another name of its catalog, such as pg_description."""
    problem = f"sql: Table with name audit does not exist in {root}: nothing has been written to it yet"
    for query in ("SELECT * FROM audit", "SELECT actor FROM Main.AUDIT JOIN broker_load ON true"):
        with pytest.raises(UsageProblem) as raised:
            run_query(query, root)
        assert str(raised.value).lower() == problem.lower()
    assert run_query("WITH audit AS (SELECT 1 AS one) SELECT one FROM audit", root)[1] == [(1,)]


def test_a_column_that_an_earlier_release_did_not_write_is_null(tmp_path: Path) -> None:
    new = {"wave", "old_log_dir", "new_log_dir"}
    fields = [field for field in tables.row_schema(TABLES["movement"]) if field.name not in new]
    newer = [pa.field("of_tomorrow", pa.timestamp("us", tz="UTC"))]
    row = {
        "plan_id": "p", "sequence": 3, "created_at": days_ago(0), "topic": "t", "partition": 0, "kind": "replica",
        "old_replicas": [1], "new_replicas": [2], "bytes_to_move": 1, "reason": "", "of_tomorrow": tables.utc(NOW_MS),
    }  # fmt: skip
    write_deltalake(tmp_path / "movement", pa.Table.from_pylist([row], pa.schema([*fields, *newer])))
    query = "SELECT sequence, wave, old_log_dir, of_tomorrow FROM movement WHERE wave IS NULL"
    assert run_query(query, str(tmp_path))[1] == [(3, None, None, tables.utc(NOW_MS).replace(tzinfo=None))]
    columns = {name: kind for name, kind, *_ in run_query("DESCRIBE movement", str(tmp_path))[1]}
    assert columns.keys() == {*TABLES["movement"].column_names(), "of_tomorrow", "kafka_cluster"}
    assert (columns["wave"], columns["new_log_dir"]) == ("INTEGER", "VARCHAR")


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


@pytest.mark.long
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


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the cluster "test" alone, of a second one alone, and of both together."""
    folder = tmp_path_factory.mktemp("clusters")
    read = {table for file in QUERIES for table in tables_of(file.read_text(encoding="utf-8"))}
    for name, clusters in {"test": ["test"], "second": ["second"], "both": ["test", "second"]}.items():
        for cluster in clusters:
            skewed_cluster(Synthetic(str(folder / name), cluster), NOW_MS)
        for table in read:
            tables.create_table(str(folder / name), table)
    return folder


@pytest.mark.long
@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
@pytest.mark.parametrize("shared", [True, False], ids=["in the same tables", "in a folder of its own"])
def test_a_second_cluster_changes_no_row_of_the_first(filled: Path, file: Path, *, shared: bool) -> None:
    query = file.read_text(encoding="utf-8")
    unnamed = any("kafka_cluster" not in TABLES[name].column_names() for name in tables_of(query))
    if shared and (CAPACITIES_VIEW in query or unnamed):
        pytest.skip("capacities, and rows without a cluster, are of the folder's cluster")
    own, second, both = (Source(str(filled / name), name, CAPACITIES) for name in ("test", "second", "both"))
    answers = []
    for sources in ([own], [both] if shared else [own, second]):
        columns, rows = query_clusters(query, sources)
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
