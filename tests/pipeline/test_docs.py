"""docs/tables.md says what the schemas say, and lists every query there is."""

from pathlib import Path

import pytest

from streaming.contract import TABLES, Table
from streaming.runtime.jars import PROJECT_ROOT

DOCS = PROJECT_ROOT / "docs"
PAGE = (DOCS / "tables.md").read_text(encoding="utf-8")


def section(table: Table) -> str:
    """The page's section on one table, as it has to be."""
    lines = [
        f"## {table.name}",
        "",
        f"{table.comment}. Key: {', '.join(f'`{name}`' for name in table.key)}.",
        "",
        "| column | type | null | meaning |",
        "|---|---|---|---|",
    ]
    for column in table.columns:
        null = "yes" if column.nullable else "no"
        lines.append(f"| `{column.name}` | {column.type} | {null} | {column.comment} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_each_table_stands_there_as_it_is(table: Table) -> None:
    assert section(table) in PAGE


def test_no_table_stands_there_that_is_not() -> None:
    titles = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    assert sorted(titles) == sorted([*TABLES, "Questions"])


@pytest.mark.parametrize("file", sorted((DOCS / "queries").glob("*.sql")), ids=lambda file: file.stem)
def test_each_query_is_listed_with_its_question(file: Path) -> None:
    question = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("-- ")
    assert f"](queries/{file.name}): {question}" in PAGE
