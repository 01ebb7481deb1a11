"""What pages rest on is there: the tests that they name, the findings of the review, and decisions in their form."""

import ast
import re
from collections.abc import Iterator
from datetime import date
from functools import cache
from pathlib import Path

import pytest

from tests.docs.prose import ROOT
from tests.simulation import monitor

DOCS = ROOT / "docs"
PLAIN = sorted([*DOCS.glob("*.md"), *(DOCS / "measurements").glob("*.md")])
CLAIMS = ("execution", "security")
"""Pages of which each part names the tests that hold it, or its bench."""
NAMED = re.compile(r"`(tests/[\w./]+?)(?:::(\w+))?`")
INVARIANT = re.compile(r"invariants? (\d+)(?: and (\d+))?")
FINDINGS = {
    "The findings": tuple(str(number) for number in range(1, 26)),
    "The parts of finding 20": tuple(f"20.{number}" for number in range(1, 14)),
}
DECISIONS = sorted(path for path in (DOCS / "decisions").glob("*.md") if path.name != "README.md")
SECTIONS = ("Context", "Decision", "Consequences")


@cache
def names_in(file: Path) -> frozenset[str]:
    """Functions of a file that pytest collects; none where there is no such file."""
    functions = ast.parse(file.read_text(encoding="utf-8")).body if file.exists() else ()
    return frozenset(row.name for row in functions if isinstance(row, ast.FunctionDef) and row.name.startswith("test_"))


def missing_in(text: str) -> Iterator[str]:
    """Tests, and files of tests, that a text names and that are not there."""
    for file, name in NAMED.findall(text):
        if not (ROOT / file).exists() or (name and name not in names_in(ROOT / file)):
            yield f"{file}::{name}" if name else file


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.stem)
def test_tests_that_a_page_names_are_there(page: Path) -> None:
    assert list(missing_in(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("gone", ["tests/docs/test_evidence.py::test_of_nothing", "tests/gone.py::test_it", "tests/a"])
def test_a_test_that_is_gone_is_missed(gone: str) -> None:
    assert list(missing_in(f"`{gone}`, `tests/docs/test_evidence.py::test_a_test_that_is_gone_is_missed`")) == [gone]


@pytest.mark.parametrize("page", CLAIMS)
def test_each_part_of_a_page_names_its_tests_or_an_invariant_that_is_judged(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    sections = re.split(r"^##+ ", text, flags=re.M)[1:]
    titled = [part for part in re.split(r"\n\n(?=\*\*|#)", text) if part.startswith("**")]
    unnamed = [part for part in (*sections, *titled) if not NAMED.search(part) and not INVARIANT.search(part)]
    figures = "What it costs producers"  # it names its bench
    assert [part for part in unnamed if not part.startswith(figures)] == []
    numbers = {number for pair in INVARIANT.findall(text) for number in pair if number}
    assert all(f"\n{number}. " in (monitor.__doc__ or "") for number in numbers)


@pytest.mark.parametrize("heading", FINDINGS)
def test_each_finding_stands_there_once_and_names_a_test(heading: str) -> None:
    page = (DOCS / "findings.md").read_text(encoding="utf-8")
    (section,) = (part for part in page.split("\n## ") if part.startswith(f"{heading}\n"))
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    assert tuple(number for number, *_ in rows) == FINDINGS[heading]
    assert [number for number, harm, tests in rows if not (harm and "::" in tests and NAMED.search(tests))] == []


def made_on(page: Path) -> date:
    """Date of the decision, the third line of its page."""
    return date.fromisoformat(page.read_text(encoding="utf-8").splitlines()[2].removeprefix("Date: "))


def row(page: Path) -> str:
    """The page's row in the index, as it has to be."""
    number = page.name[:4]
    title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {number} ")
    return f"| [{number}]({page.name}) | {made_on(page)} | {title} |"


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_a_context_a_decision_and_consequences(page: Path) -> None:
    heading, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert heading.startswith(f"# {page.name[:4]} ")
    parts = [section.partition("\n") for section in sections]
    assert tuple(title for title, _, _ in parts) == SECTIONS
    assert all(text.strip() for _, _, text in parts)


def test_the_index_has_every_decision_once_in_the_order_of_numbers_and_dates() -> None:
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in index if line.startswith("| [")] == [row(page) for page in DECISIONS]
    numbers = [int(page.name[:4]) for page in DECISIONS]
    assert sorted(set(numbers)) == numbers
    assert sorted(DECISIONS, key=made_on) == DECISIONS
