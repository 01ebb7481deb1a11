"""The notebook of docs/notebooks, its code cells run in order: DuckDB and Spark give the same five answers."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.runtime.jars import PROJECT_ROOT
from tests.pipeline.test_windows import session
from tests.serve.synthetic import NOW_MS, Synthetic, skewed_cluster

__all__ = ["session"]  # the fixture

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
