"""Other readers than the product: what the tables ask of them, and that those that are installed read all rows."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from streaming import tables
from streaming.commands.sql import run_query
from streaming.contract import TABLES
from streaming.pipeline.delta_tables import create_window_table
from streaming.runtime.jars import PROJECT_ROOT
from tests.serve.synthetic import NOW_MS, Synthetic, skewed_cluster

WINDOW_TABLES = ("partition_load", "broker_load", "group_lag")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Every table, as the product makes it, most of them with rows."""
    folder = str(tmp_path_factory.mktemp("tables"))
    for name, table in TABLES.items():
        if name in WINDOW_TABLES:
            create_window_table(folder, table)
        tables.create_table(folder, name)
    skewed_cluster(Synthetic(folder), NOW_MS)
    return folder


def opened(root: str, name: str) -> DeltaTable:
    return tables.opened(tables.table_uri(root, name))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_asks_no_feature_of_its_readers(root: str, name: str) -> None:
    """Version 1 is the first one there was: no deletion vectors, no mapped columns."""
    protocol = opened(root, name).protocol()
    assert protocol.min_reader_version == 1
    assert not protocol.reader_features


@pytest.mark.parametrize("name", TABLES)
def test_duckdb_pandas_and_arrow_read_the_same_rows(root: str, name: str) -> None:
    rows = len(tables.read(root, name))
    assert run_query(f"SELECT count(*) FROM {name}", root)[1] == [(rows,)]  # noqa: S608 - a name of our own
    delta = opened(root, name)
    assert delta.to_pyarrow_table().num_rows == rows
    frame = delta.to_pandas()
    assert (len(frame), list(frame.columns)) == (rows, list(TABLES[name].column_names()))


def test_the_snippet_for_several_clusters_reads_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A glob over Parquet files would also read rows that a later version has replaced."""
    clusters = tmp_path / "data" / "tables" / "clusters"
    for name, rate in (("east", 1.0), ("eu-west", 3.0)):
        folder = str(clusters / name)
        create_window_table(folder, TABLES["broker_load"])
        made = Synthetic(folder, name)
        made.broker_load(NOW_MS, {1: 9.0})
        tables.delete(folder, "broker_load", tables.equal("broker", 1))
        made.broker_load(NOW_MS, {2: rate})
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    page = (PROJECT_ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    exec(page.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102 - our own page
    broker_load = names["of_all_clusters"]("broker_load")
    query = "SELECT kafka_cluster, bytes_in_per_sec FROM broker_load ORDER BY ALL"
    assert broker_load.schema.names == list(TABLES["broker_load"].column_names())
    assert duckdb.execute(query).fetchall() == [("east", 1.0), ("eu-west", 3.0)]
    files = clusters / "east" / "broker_load" / "**" / "*.parquet"
    assert duckdb.execute(f"SELECT count(*) FROM read_parquet('{files}')").fetchall() == [(2,)]  # noqa: S608
