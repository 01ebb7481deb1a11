"""docs/findings.md: every finding of the review stands there once, and the tests that it names are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "findings.md"
FINDINGS = tuple(str(number) for number in range(1, 26))
PARTS_OF_20 = tuple(f"20.{number}" for number in range(1, 14))
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows_below(heading: str) -> list[list[str]]:
    """Cells of the table of a section, without its head."""
    (section,) = (part for part in PAGE.read_text().split("\n## ") if part.startswith(f"{heading}\n"))
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


@cache
def names_in(file: str) -> frozenset[str]:
    """Functions of a file that pytest collects; none where there is no such file."""
    if not (ROOT / file).exists():
        return frozenset()
    functions = ast.parse((ROOT / file).read_text()).body
    return frozenset(row.name for row in functions if isinstance(row, ast.FunctionDef) and row.name.startswith("test_"))


def missing_in(text: str) -> Iterator[str]:
    """Tests that a text names and that are not there."""
    for file, name in NAMED.findall(text):
        if name not in names_in(file):
            yield f"{file}::{name}"


@pytest.mark.parametrize(("heading", "numbers"), [("The findings", FINDINGS), ("The parts of finding 20", PARTS_OF_20)])
def test_each_finding_stands_there_once_and_names_a_test(heading: str, numbers: tuple[str, ...]) -> None:
    rows = rows_below(heading)
    assert tuple(number for number, *_ in rows) == numbers
    assert [number for number, harm, tests in rows if not (harm and NAMED.search(tests))] == []


def test_every_test_that_the_page_names_is_there() -> None:
    assert list(missing_in(PAGE.read_text())) == []


@pytest.mark.parametrize("gone", ["tests/shell/test_findings_docs.py::test_of_nothing", "tests/gone.py::test_it"])
def test_a_test_that_is_gone_is_missed(gone: str) -> None:
    assert list(missing_in(f"`{gone}`, `tests/shell/test_findings_docs.py::test_a_test_that_is_gone_is_missed`")) == [
        gone
    ]
