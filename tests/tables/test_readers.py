"""Other readers than the product: what the tables ask of them, and that those that are installed read all rows."""

import pytest
from deltalake import DeltaTable

from streaming import tables
from streaming.commands.sql import run_query
from streaming.contract import TABLES
from streaming.pipeline.delta_tables import create_window_table
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
