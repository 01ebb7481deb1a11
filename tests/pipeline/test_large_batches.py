"""A batch too large for the driver: Spark divides its rows into parts, whose files are committed at once."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming import tables
from streaming.contract import BROKER_LOAD, GROUP_LAG, PARTITION_LOAD, Table
from streaming.pipeline import part_commits
from streaming.pipeline.delta_tables import WindowTable, create_window_table
from streaming.pipeline.part_commits import BatchSpan, on_driver, on_executors, part_column
from streaming.pipeline.part_files import parts_of
from tests.pipeline.test_delta_tables import START_MS, arrow, window
from tests.pipeline.test_windows import session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture

PARTS = 8


def at(number: int, broker: int, samples: int) -> dict[str, Any]:
    """A row of the window of that number, a minute each."""
    start = tables.utc(START_MS + number * 60_000)
    return window(broker, samples, window_start=start, window_end=start + timedelta(minutes=1))


BATCHES: tuple[tuple[pa.Table, int], ...] = (
    (arrow(at(0, 1, 3), at(1, 1, 3), at(1, 2, 5)), 0),
    (arrow(at(1, 1, 2), at(1, 2, 6), at(2, 1, 1)), 1),  # window 0 is closed by it, though it has no row of it
    (arrow(at(0, 1, 99), at(3, 1, 1)), 3),  # too late
)


@pytest.mark.parametrize("python_on_executors", [True, False])
def test_rows_of_all_parts_are_upserted_once_also_by_tasks_without_a_row(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_on_executors: bool
) -> None:
    monkeypatch.setattr(part_commits, "_parts", lambda _: PARTS)
    create_window_table(str(tmp_path), BROKER_LOAD)
    uri = tables.table_uri(str(tmp_path), "broker_load")
    table = WindowTable(uri, BROKER_LOAD, rows_max=0)
    gained: list[int | None] = []
    for number, (batch, closed) in enumerate(BATCHES):
        audit = {"is_final": False, "updated_at": tables.utc(START_MS), "batch_id": number, "query_id": "q"}
        rows = session.createDataFrame(batch.drop_columns(list(audit)))
        write = (on_executors if python_on_executors else on_driver)(rows, BROKER_LOAD)
        starts = batch["window_start"].to_pylist()
        span = BatchSpan(batch.num_rows, min(starts), max(starts))
        for _ in range(2):  # a batch that is repeated changes nothing
            passed = tables.utc(START_MS + closed * 60_000)
            gained.append(table.upsert_in_parts(write, span, audit, ("q", number), passed))
    assert gained == [11, None, 2, None, 1, None]
    stored = sorted(
        (row["window_start"], row["broker"], row["sample_count"], row["is_final"])
        for row in tables.read(str(tmp_path), "broker_load")
    )
    assert [row[2] for row in stored] == [3, 3, 6, 1, 1]
    assert [row[3] for row in stored] == [True, True, True, True, False]
    by_spark = session.read.format("delta").load(uri).where("sample_count = 6").select("broker", "is_final").collect()
    assert [tuple(row) for row in by_spark] == [(2, True)]  # another reader, which goes by our statistics


KEYS: tuple[tuple[Table, dict[str, list[Any]]], ...] = (
    (
        PARTITION_LOAD,
        {"broker": [1, 2, 3], "topic": ["t", "", "t\u00e4glich \U0001f600"], "partition": [0, 7, 999_999]},
    ),
    (BROKER_LOAD, {"broker": [0, 1, 2_147_483_647]}),
    (GROUP_LAG, {"group_id": ["g", "\u7fa4", "g-2"], "topic": ["a", "b", "c"], "partition": [0, 1, 2]}),
)


@pytest.mark.parametrize(("table", "columns"), KEYS, ids=lambda value: getattr(value, "name", ""))
def test_spark_and_arrow_count_parts_alike(session: SparkSession, table: Table, columns: dict[str, list[Any]]) -> None:
    kinds = tables.row_schema(table)
    given = columns | {"kafka_cluster": ["main", "\u00e9", "c"], "window_start": [tables.utc(START_MS)] * 3}
    rows = pa.table({name: pa.array(values, kinds.field(name).type) for name, values in given.items()})
    numbers = session.createDataFrame(rows).select(part_column(table, PARTS * 512)).toArrow()
    assert numbers[0].to_pylist() == parts_of(rows, table.key, PARTS * 512).tolist()
