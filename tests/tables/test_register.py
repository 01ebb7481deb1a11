"""`rebalancer tables register`: statements for a catalog, as the tables' logs describe them, executed by Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import tables
from streaming.cli import run
from streaming.contract import GROUP_LAG, MOVEMENT, TABLES
from tests.pipeline.test_windows import session
from tests.serve.synthetic import NOW_MS, Synthetic, skewed_cluster

__all__ = ["session"]  # the fixture


def registered(root: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert run(["tables", "register", "--set", f"storage.tables={root}", *options]) == 0
    return capsys.readouterr().out


def test_each_table_has_a_statement_and_those_without_rows_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for table in (GROUP_LAG, MOVEMENT):
        tables.create_table(str(tmp_path), table.name)
    text = registered(tmp_path, capsys, "--catalog", "unity", "--schema", "kafka", "--location", "s3a://bucket/tables/")
    assert text.startswith("CREATE SCHEMA IF NOT EXISTS unity.kafka;\n")
    assert text.count("CREATE TABLE IF NOT EXISTS unity.kafka.") == 2
    assert "LOCATION 's3a://bucket/tables/group_lag';" in text
    assert "PARTITIONED BY (is_final)\n" in text
    assert "  `old_replicas` ARRAY<INT>" in text
    assert text.count(": nothing has been written to it yet\n") == len(TABLES) - 2


@pytest.mark.parametrize("options", [("--schema", "a.b"), ("--schema", "x; DROP TABLE y"), ("--catalog", "1")])
def test_a_name_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, str]
) -> None:
    tables.create_table(str(tmp_path), GROUP_LAG.name)
    assert run(["tables", "register", "--set", f"storage.tables={tmp_path}", *options]) == 2
    assert f"{options[0]} {options[1]}: allowed are" in capsys.readouterr().err


def test_a_folder_without_tables_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tables", "register", "--set", f"storage.tables={tmp_path}"]) == 2
    assert "no tables in" in capsys.readouterr().err


@pytest.mark.spark
def test_spark_takes_the_statements_twice_shows_the_comments_and_writes_nothing(
    session: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "tables"
    skewed_cluster(Synthetic(str(root)), NOW_MS)
    for name in TABLES:
        tables.create_table(str(root), name)
    versions = {name: version(root, name) for name in TABLES}
    # A database lies below the session's warehouse; this one is removed again.
    schema = f"register_{tmp_path.name.replace('-', '_')}"
    text = registered(root, capsys, "--schema", schema)
    place = f"CREATE SCHEMA {schema} LOCATION '{(tmp_path / 'warehouse').as_uri()}'"
    session.sql(place)
    try:
        for _ in range(2):
            for statement in filter(str.strip, text.split(";\n")):
                session.sql(statement)
        for name, table in TABLES.items():
            shown = session.catalog.listColumns(f"{schema}.{name}")
            assert [(column.name, column.description) for column in shown] == [
                (column.name, column.comment) for column in table.columns
            ]
            assert session.table(f"{schema}.{name}").count() == len(tables.read(str(root), name))
    finally:
        session.sql(f"DROP SCHEMA {schema} CASCADE")
    assert {name: version(root, name) for name in TABLES} == versions


def version(root: Path, name: str) -> int:
    delta = tables.open_table(str(root), name)
    assert delta is not None
    return delta.version()
