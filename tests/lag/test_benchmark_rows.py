"""Rows of the benchmark of lag fit the table as it is: a column that is new must not end the benchmark."""

from streaming.contract import TABLES
from streaming.tables import arrow_schema
from tests.benchmarks.bench_lag import windows_of


def test_rows_have_all_columns_of_the_table() -> None:
    rows = windows_of(2, 3, 2)
    assert rows.schema == arrow_schema(TABLES["group_lag"])
    assert rows.num_rows == 2 * 3 * 2
    assert set(rows["group_type"].to_pylist()) == {"classic"}
