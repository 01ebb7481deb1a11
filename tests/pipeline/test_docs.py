"""docs/tables.md has the schemas and every query there is; docs/pipeline.md has every format of other tools."""

import re
from pathlib import Path
from textwrap import wrap
from typing import get_args

import pytest

from streaming.config import flatten
from streaming.contract import TABLES, Table
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings import ForeignFormat, Settings

DOCS = PROJECT_ROOT / "docs"
RETENTION = "How long rows stay"
LINE_CHARACTERS_MAX = 150
PAGE = (DOCS / "tables.md").read_text(encoding="utf-8")
ON_ONE_LINE = " ".join(PAGE.split())


def section(table: Table) -> str:
    """The page's section on one table, as it has to be."""
    lines = [
        f"## {table.name}",
        "",
        *wrap(f"{table.comment}. Key: {', '.join(f'`{name}`' for name in table.key)}.", LINE_CHARACTERS_MAX),
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
    assert sorted(titles) == sorted([*TABLES, "Questions", RETENTION])


def test_the_retention_of_every_table_stands_there_with_its_default() -> None:
    rows = [line.split("|")[1:4] for line in PAGE.partition(f"## {RETENTION}")[2].split("\n\n")[1].splitlines()[2:]]
    assert {name for tables, _, _ in rows for name in re.findall(r"`(\w+)`", tables)} == set(TABLES)
    defaults = flatten(Settings())
    days = {"days": 86_400_000, "years": 365 * 86_400_000}
    stated = {setting.strip(" `"): default.split() for _, setting, default in rows if "none" not in setting}
    assert {name: int(number) * days[unit] for name, (number, unit) in stated.items()} == {
        name: defaults[name] for name in defaults if name.endswith("retention_ms") and not name.startswith("topics.")
    }


@pytest.mark.parametrize("file", sorted((DOCS / "queries").glob("*.sql")), ids=lambda file: file.stem)
def test_each_query_is_listed_with_its_question(file: Path) -> None:
    question = file.read_text(encoding="utf-8").splitlines()[0].removeprefix("-- ")
    assert f"](queries/{file.name}): {question}" in ON_ONE_LINE


def test_each_format_of_other_tools_stands_on_the_page_of_the_pipeline_once() -> None:
    page = (DOCS / "pipeline.md").read_text(encoding="utf-8")
    table = page.partition("| format | what of it is used |\n")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == get_args(ForeignFormat)
