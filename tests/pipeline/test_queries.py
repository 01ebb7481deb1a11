"""The queries of docs/queries and the notebook, in DuckDB and in Spark over the same tables: the same rows."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from streaming import tables
from streaming.commands.sql import CAPACITIES as CAPACITIES_VIEW
from streaming.commands.sql import Source, query_clusters
from streaming.contract import BROKER_LOAD, TABLES
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings.deciding import CapacitySettings
from tests.pipeline.table_upkeep import TableUpkeep
from tests.pipeline.test_windows import session
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for, skewed_cluster

__all__ = ["session"]  # the fixture

CLUSTERS = ("test", "second")
SOURCE_CLUSTER = CLUSTERS[0]
"""The cluster to which the folder belongs."""
CAPACITIES = {1: CapacitySettings(bytes_in_per_sec=1.1e6, bytes_out_per_sec=9e9, disk_bytes=5e9)}
QUERIES = sorted((PROJECT_ROOT / "docs" / "queries").glob("*.sql"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A day's worth of every table, in small, of two clusters with brokers, topics and groups of the same names."""
    folder = str(tmp_path_factory.mktemp("tables"))
    for factor, cluster in enumerate(CLUSTERS, 1):
        write_cluster(Synthetic(folder, cluster), factor)
    TableUpkeep(folder, BROKER_LOAD, settings_for(Path(folder)).pipeline).run_if_due(now_ms=NOW_MS)
    for name in TABLES:
        tables.create_table(folder, name)
    return folder


def write_cluster(made: Synthetic, factor: int) -> None:
    """Rows of every table that a query reads; loads are `factor` times as high, and open windows have higher ones."""
    for index in range(3):
        start_ms = NOW_MS + index * WINDOW_MS
        made.broker_load(start_ms, {1: factor * 5.8e6 + index, 2: factor * 2.5e6, 3: None})
        write_partitions(made, start_ms, factor * (index + 1))
        made.batch_row(start_ms)
        reason = "balanced" if index else "warming_up"
        made.decision(start_ms + WINDOW_MS, reason=reason, window_end=tables.utc(start_ms + WINDOW_MS))
    open_ms = NOW_MS + 3 * WINDOW_MS
    made.broker_load(open_ms, {1: factor * 5.8e9}, is_final=False)
    write_partitions(made, open_ms, 9_000, is_final=False)
    plan_id = f"{factor:064d}"
    window = {"window_start": tables.utc(NOW_MS + WINDOW_MS), "window_end": tables.utc(NOW_MS + 2 * WINDOW_MS)}
    made.rejected(NOW_MS, ["not_json", "not_json", "future"])
    made.plan(NOW_MS, plan_id, **window)
    made.movements(NOW_MS, [("topic-A", 0, [1, 2], [2, 3]), ("topic-A", 1, [2, 3], [3, 2])], plan_id)
    for sequence, event in enumerate(("approved", "started", "done")):
        made.event(NOW_MS + sequence * WINDOW_MS, sequence, event, plan_id=plan_id)
    made.broker_load(NOW_MS + 86_400_000, {1: 1e6})  # the day before is over, and made


def write_partitions(made: Synthetic, start_ms: int, factor: int, *, is_final: bool = True) -> None:
    """One window of partitions and groups."""
    rates = [(1, "topic-A", 0, "leader", 3e6 * factor), (2, "topic-A", 1, "leader", 1e6), (2, "t", 0, "leader", 5.0)]
    made.partition_load(start_ms, rates, is_final=is_final)
    lags = [("slow", "topic-A", 0, 10, 100 * factor), ("even", "topic-A", 0, 9, 10)]
    made.group_lag(start_ms, lags, is_final=is_final)


@pytest.fixture(scope="module")
def with_views(session: SparkSession, root: str) -> SparkSession:
    """A session that knows the tables by their names, and what `rebalancer sql` adds to them."""
    for name in TABLES:
        frame = session.read.format("delta").load(tables.table_uri(root, name))
        if "kafka_cluster" not in frame.columns:
            frame = frame.withColumn("kafka_cluster", lit(SOURCE_CLUSTER))
        frame.createOrReplaceTempView(name)
    types = "kafka_cluster string, broker int, bytes_in_per_sec double, bytes_out_per_sec double, disk_bytes double"
    rows = [(SOURCE_CLUSTER, broker, *given.model_dump().values()) for broker, given in CAPACITIES.items()]
    session.createDataFrame(rows, types).createOrReplaceTempView(CAPACITIES_VIEW)
    return session


def test_there_are_ten_and_more() -> None:
    assert len(QUERIES) > 10


@pytest.mark.spark
@pytest.mark.parametrize("file", QUERIES, ids=lambda file: file.stem)
def test_both_engines_answer_alike(with_views: SparkSession, root: str, file: Path) -> None:
    query = file.read_text()
    columns, rows = query_clusters(query, [Source(root, SOURCE_CLUSTER, CAPACITIES)])
    by_spark = with_views.sql(query)
    assert by_spark.columns == columns
    assert [comparable(as_utc(row)) for row in by_spark.collect()] == [comparable(row) for row in rows]
    assert rows


def as_utc(row: Any) -> list[Any]:
    """PySpark's times have no zone and are local; DuckDB's have none and are UTC."""
    return [value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value for value in row]


def comparable(row: Any) -> list[Any]:
    """Sums of figures may differ in the last bit."""
    return [pytest.approx(value) if isinstance(value, float) else value for value in row]


NOTEBOOK = PROJECT_ROOT / "docs" / "notebooks" / "five_questions.ipynb"


def code_cells() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_holds_no_results_and_questions_that_are_there() -> None:
    content = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in content["cells"])
    asked = [cell.removeprefix('ask("').removesuffix('")') for cell in code_cells() if cell.startswith("ask(")]
    assert len(asked) == 5
    assert all((PROJECT_ROOT / "docs" / "queries" / name).exists() for name in asked)


@pytest.mark.spark
def test_duckdb_and_spark_answer_alike(session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The session is there, so the notebook takes it, and nothing is fetched."""
    skewed_cluster(Synthetic(str(tmp_path)), NOW_MS)
    monkeypatch.setenv("REBALANCER_TABLES", str(tmp_path))
    monkeypatch.chdir(PROJECT_ROOT)
    names: dict[str, Any] = {}
    for cell in code_cells():
        exec(compile(cell, NOTEBOOK.name, "exec"), names)  # noqa: S102 - our own notebook
    assert names["spark"] is session
    assert len(names["answers"]) == 5
    for question, (by_duckdb, by_spark) in names["answers"].items():
        assert list(by_duckdb.columns) == list(by_spark.columns)
        assert len(by_duckdb) == len(by_spark) > 0, question
        assert [nearly(row) for row in without_times(by_duckdb)] == without_times(by_spark), question


def without_times(answer: Any) -> list[list[Any]]:
    """Rows of figures and texts alone: PySpark gives times of the machine's zone."""
    kept = [name for name in answer.columns if not name.endswith("_at")]
    rows: list[list[Any]] = answer[kept].astype(object).where(answer[kept].notna(), None).values.tolist()
    return rows


def nearly(row: list[Any]) -> list[Any]:
    """Sums of figures may differ in the last bit."""
    return [pytest.approx(value) if isinstance(value, float) else value for value in row]
