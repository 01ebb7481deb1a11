"""docs/tables.md has the schemas and every query there is; docs/pipeline.md has every format of other tools.

`python -m tests.pipeline.test_docs` writes the schemas there.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import wrap
from typing import get_args

import pytest

from assignor_core.resources import Resource
from streaming.config import flatten
from streaming.contract import TABLES, Column, Table
from streaming.runtime.jars import PROJECT_ROOT
from streaming.settings import ForeignFormat, Settings

DOCS = PROJECT_ROOT / "docs"
RETENTION = "How long rows stay"
SHARED = "Columns of several tables"
BEGIN, END = "<!-- tables: from streaming/contract -->\n", "<!-- end of tables -->\n"
LINE_CHARACTERS_MAX = 150
ONCE = re.compile(r"(?:; null (?:where|for|if) (?:unknown|none)|, (?:UTC|bytes/s|records/s|bytes|ms|ratio))(?=[;:,]|$)")
"""What the page has once, of all columns, or what the name of a column shows: its unit."""
SUMMARY = "Columns of the windows in `{windows}`: {names}."
"""The line of a table of hours or days that names the columns which it has of its windows."""
RULE = (
    "A table of hours or days has columns of its windows, too. Rates are means over the windows, and `..._max` is the "
    "highest. `..._first` is as at the start, other columns as at the end."
)
TABLES_OF_A_SHARED_COLUMN_MIN = 3
RESOURCES = tuple(resource.value for resource in Resource)
OF_A_RESOURCE = re.compile(rf"(?P<resource>{'|'.join(RESOURCES)})(?P<rest>_max_over_mean.*|_lower_bound|_headroom.*)")
PAGE = (DOCS / "tables.md").read_text(encoding="utf-8")
ON_ONE_LINE = " ".join(PAGE.split())


def shared_columns() -> dict[str, list[Column]]:
    """Columns that are equal in several tables: by group, of all window tables or all tables of hours and days."""
    holders: dict[Column, set[str]] = {}
    for table in TABLES.values():
        for column in table.columns:
            holders.setdefault(column, set()).add(table.name)
    shared = {
        column: names
        for column, names in holders.items()
        if len(names) >= TABLES_OF_A_SHARED_COLUMN_MIN and not column.nullable
    }
    groups = {"window columns": "window_end", "period columns": "period_end"}
    of_group = {group: holders[next(row for row in shared if row.name == name)] for group, name in groups.items()}
    result = {group: [row for row, held in shared.items() if held == names] for group, names in of_group.items()}
    return {"": [row for row, held in shared.items() if held not in of_group.values()], **result}


def rows(columns: Iterable[Column]) -> list[str]:
    """A Markdown table of columns; columns that differ by their resource alone are one row."""
    lines = ["| column and type | meaning |", "|---|---|"]
    merged: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        found = OF_A_RESOURCE.fullmatch(column.name)
        name = f"{{RESOURCES}}{found['rest']}" if found else column.name
        comment = column.comment.removeprefix(f"{found['resource']}: ") if found else column.comment
        kind = f"{column.type}{'?' if column.nullable else ''}"
        merged.setdefault((name, f"{kind} | {ONCE.sub('', comment)}"), []).extend([found["resource"]] if found else [])
    for (name, rest), resources in merged.items():
        lines.append(f"| `{name.replace('RESOURCES', ','.join(resources))}` {rest} |")
    return lines


def summarised(table: Table) -> Table | None:
    """The table of windows that a table of hours or days is made of; None of any other table."""
    return TABLES.get(re.sub("_(hourly|daily)$", "", table.name)) if "period_start" in table.column_names() else None


def section(table: Table) -> str:
    """The page's section on one table, as it has to be."""
    key = f"Key: {', '.join(f'`{name}`' for name in table.key)}."
    shared = shared_columns()
    own = [column for column in table.columns if not any(column in columns for columns in shared.values())]
    windows = summarised(table)
    of_windows = [column.name for column in own if windows and column.name in windows.column_names()]
    own = [column for column in own if column.name not in of_windows]
    alone = [f"`{row.name}`" for row in shared[""] if row in table.columns and row.name not in table.key]
    groups = [f"the {group}" for group, columns in shared.items() if group and columns[-1] in table.columns]
    also = [f"Also {', '.join([*groups, *alone])}."] if groups or alone else []
    twin = next(other for other in TABLES.values() if other.columns == table.columns)
    if of_windows and windows:
        also.append(SUMMARY.format(windows=windows.name, names=", ".join(f"`{name}`" for name in of_windows)))
    if twin is not table:
        own, also = [], [f"Columns: those of `{twin.name}`."]
    lines = [f"## {table.name}", "", *wrap(" ".join([f"{table.comment}.", key, *also]), LINE_CHARACTERS_MAX), ""]
    return "\n".join(lines + ([*rows(own), ""] if own else []))


def generated() -> str:
    """All that the page has between the two marks."""
    lines = ["", f"## {SHARED}", "", "A column of a key that a table's section does not describe is one of these.", ""]
    for group, columns in shared_columns().items():
        lines += [*([f"The {group}:", ""] if group else []), *rows(columns), ""]
    return "\n".join([*lines, *wrap(RULE, LINE_CHARACTERS_MAX), "", *(section(table) for table in TABLES.values()), ""])


def test_the_tables_are_those_of_the_contract() -> None:
    _, begin, rest = PAGE.partition(BEGIN)
    assert begin
    assert rest.partition(END)[0] == generated(), "python -m tests.pipeline.test_docs writes it"


def test_every_column_of_a_table_stands_there() -> None:
    """Also a column that several tables share, or that is one row with the columns of other resources."""
    shared = PAGE.partition(f"## {SHARED}\n")[2].partition("\n## ")[0]
    for table in TABLES.values():
        twin = re.search(r"Columns: those of `(\w+)`", section(table))
        text = section(TABLES[twin[1]] if twin else table) + shared
        named = set(re.findall(r"^\| `(\w+)` ", text, re.MULTILINE))
        named.update(
            re.findall(r"`(\w+)`", " ".join(text.split()).partition("Columns of the windows in ")[2].split(".")[0])
        )
        for resources, rest in re.findall(r"^\| `{([\w,]+)}(\w+)` ", text, re.MULTILINE):
            named.update(f"{resource}{rest}" for resource in resources.split(","))
        assert {column.name for column in table.columns} - named == set(), table.name


def test_no_table_stands_there_that_is_not() -> None:
    titles = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    assert sorted(titles) == sorted([*TABLES, "Questions", RETENTION, SHARED])


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


if __name__ == "__main__":
    head, begin, after = PAGE.partition(BEGIN)
    (DOCS / "tables.md").write_text(head + begin + generated() + END + after.partition(END)[2], encoding="utf-8")
