"""A batch too large for one commit of the driver: window by window, as on an object store, as by MERGE."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from streaming import tables
from streaming.contract import BROKER_LOAD
from streaming.pipeline.delta_tables import (
    create_window_table,
    finalize_spark,
    shaped,
    upsert_by_window,
    upsert_spark,
)
from tests.pipeline.test_delta_tables import START_MS, arrow, window
from tests.pipeline.test_windows import session

pytestmark = pytest.mark.spark

__all__ = ["session"]  # the fixture


def at(number: int, broker: int, samples: int) -> dict[str, Any]:
    """A row of the window of that number, a minute each."""
    start = tables.utc(START_MS + number * 60_000)
    return window(broker, samples, window_start=start, window_end=start + timedelta(minutes=1))


BATCHES: tuple[tuple[pa.Table, int], ...] = (
    (arrow(at(0, 1, 3), at(1, 1, 3), at(1, 2, 5)), 0),
    (arrow(at(1, 1, 2), at(1, 2, 6), at(2, 1, 1)), 1),  # window 0 is closed by it, though it has no row of it
    (arrow(at(0, 1, 99), at(3, 1, 1)), 3),  # too late
)


def test_by_window_the_rows_are_those_of_merge(session: SparkSession, tmp_path: Path) -> None:
    stored = []
    for way in ("merge", "by_window"):
        root = str(tmp_path / way)
        create_window_table(root, BROKER_LOAD)
        uri = tables.table_uri(root, "broker_load")
        DeltaTable(uri).alter.add_columns([Field("of_a_newer_release", PrimitiveType("double"))])
        for number, (batch, closed) in enumerate(BATCHES):
            watermark = tables.utc(START_MS + closed * 60_000)
            rows = shaped(session.createDataFrame(batch), BROKER_LOAD)
            for _ in range(2):  # a batch that is repeated changes nothing
                if way == "merge":
                    upsert_spark(rows, uri, BROKER_LOAD, ("q", number), batch["window_start"][0].as_py())
                    finalize_spark(session, uri, watermark)
                else:
                    upsert_by_window(rows, uri, BROKER_LOAD, ("q", number), watermark)
        stored.append(
            sorted(
                (row["window_start"], row["broker"], row["sample_count"], row["is_final"])
                for row in tables.read(root, "broker_load")
            )
        )
    assert stored[0] == stored[1]
    assert [row[2] for row in stored[1]] == [3, 3, 6, 1, 1]
    assert [row[3] for row in stored[1]] == [True, True, True, True, False]
