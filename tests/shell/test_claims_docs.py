"""What docs/execution.md and docs/security.md claim: each part names the tests that hold it, or its bench."""

import re
from pathlib import Path

import pytest

from tests.simulation import monitor

ROOT = Path(__file__).parents[2]
PAGES = ("execution", "security")
NAMED = re.compile(r"`(tests/[\w./]+?)`")
INVARIANT = re.compile(r"invariants? (\d+)(?: and (\d+))?")


def text_of(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text()


PLAIN = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "measurements").glob("*.md")])


@pytest.mark.parametrize("page", [path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in PLAIN])
def test_tests_that_a_page_names_are_there(page: str) -> None:
    assert [path for path in NAMED.findall(text_of(page)) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_each_section_and_each_paragraph_with_a_title_names_its_tests(page: str) -> None:
    sections = re.split(r"^##+ ", text_of(page), flags=re.M)[1:]
    titled = [part for part in re.split(r"\n\n(?=\*\*|#)", text_of(page)) if part.startswith("**")]
    unnamed = [part for part in (*sections, *titled) if not NAMED.search(part) and not INVARIANT.search(part)]
    figures = "What it costs producers"  # it names its bench
    assert [part for part in unnamed if not part.startswith(figures)] == []


@pytest.mark.parametrize("page", PAGES)
def test_invariants_that_a_page_names_are_judged(page: str) -> None:
    numbers = {number for pair in INVARIANT.findall(text_of(page)) for number in pair if number}
    assert all(f"\n{number}. " in (monitor.__doc__ or "") for number in numbers)
