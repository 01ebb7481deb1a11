"""Queries of docs/queries whose answer depends on more than the tables' form; `tests/pipeline/test_queries.py` runs all
in two engines.
"""

from pathlib import Path

import duckdb
import pytest

from streaming import tables
from streaming.commands.sql import run_query, tables_named
from streaming.contract import TABLES
from streaming.runtime.jars import PROJECT_ROOT
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster

QUERIES = sorted((PROJECT_ROOT / "docs" / "queries").glob("*.sql"))


def answer(root: Path, name: str) -> list[tuple[object, ...]]:
    (file,) = (PROJECT_ROOT / "docs" / "queries").glob(f"*_{name}.sql")
    return run_query(file.read_text(encoding="utf-8"), str(root))[1]


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
        return set(tables_named(query, TABLES.keys(), connection) or ())


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_each_query_keeps_clusters_apart_and_leaves_open_windows_out(file: Path) -> None:
    query = file.read_text(encoding="utf-8")
    columns = {name for table in tables_of(query) for name in TABLES[table].column_names()}
    assert ("is_final" in query) == ("is_final" in columns)
    assert ("kafka_cluster" in query) == ("kafka_cluster" in columns)


@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_a_second_cluster_in_the_same_tables_changes_no_row_of_the_first(tmp_path: Path, file: Path) -> None:
    query = file.read_text(encoding="utf-8")
    answers = []
    for name, clusters in (("alone", ("test",)), ("both", ("test", "second"))):
        root = str(tmp_path / name)
        for cluster in clusters:
            skewed_cluster(Synthetic(root, cluster), NOW_MS)
        for table in tables_of(query):
            tables.create_table(root, table)
        columns, rows = run_query(query, root)
        of_first = [row for row in rows if "kafka_cluster" not in columns or row[0] == "test"]
        answers.append(of_first)
    if "kafka_cluster" in columns:
        assert [
            [pytest.approx(value) if isinstance(value, float) else value for value in row] for row in answers[0]
        ] == [list(row) for row in answers[1]]
        assert answers[0] or file.stem.startswith("11")
