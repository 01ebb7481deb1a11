"""docs/decisions: each decision has its three sections, its date and a row in the index."""

import re
from datetime import date
from pathlib import Path

import pytest

from streaming.runtime.jars import PROJECT_ROOT

DECISIONS = PROJECT_ROOT / "docs" / "decisions"
PAGES = sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")
INDEX = (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines()
SECTIONS = ("Context", "Decision", "Consequences")


def made_on(page: Path) -> date:
    """Date of the decision, the third line of its page."""
    return date.fromisoformat(page.read_text(encoding="utf-8").splitlines()[2].removeprefix("Date: "))


def row(page: Path) -> str:
    """The page's row in the index, as it has to be."""
    number = page.name[:4]
    title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix(f"# {number} ")
    return f"| [{number}]({page.name}) | {made_on(page)} | {title} |"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_a_context_a_decision_and_consequences(page: Path) -> None:
    heading, *sections = re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert heading.startswith(f"# {page.name[:4]} ")
    parts = [section.partition("\n") for section in sections]
    assert tuple(title for title, _, _ in parts) == SECTIONS
    assert all(text.strip() for _, _, text in parts)


def test_the_index_holds_every_decision_in_order() -> None:
    assert [line for line in INDEX if line.startswith("| [")] == [row(page) for page in PAGES]


def test_numbers_are_used_once_and_follow_the_dates() -> None:
    numbers = [int(page.name[:4]) for page in PAGES]
    assert sorted(set(numbers)) == numbers
    assert sorted(PAGES, key=made_on) == PAGES


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_a_decision_links_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert (DECISIONS / target).exists(), target
