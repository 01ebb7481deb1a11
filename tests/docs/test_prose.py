"""Pages of the docs are plain English, by numbers."""

import pytest

from tests.docs.prose import LINE_CHARACTERS_MAX, ROOT, SENTENCE_WORDS_MAX, faults, pages

WORDS_MAX = 75_000


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_page_is_plain_english(name: str) -> None:
    assert faults(pages()[name].read_text(encoding="utf-8")) == []


def sentence(length: int) -> str:
    return " ".join(["w"] * length) + "."


SHORT = f"{sentence(9)} " * 3


@pytest.mark.parametrize(
    "page",
    [
        "",
        f"{SHORT}{sentence(SENTENCE_WORDS_MAX)}",
        f"{sentence(17)} {sentence(18)} {sentence(17)}",
        "x" * LINE_CHARACTERS_MAX,
        f"# {'w ' * 60}\n\n    {'tells ' * 60}\n    {'tells ' * 60}\n\n{SHORT}",
        f"```\n{'tells ' * 60}\n```\n\n| {'tells ' * 60} |\n|---|\n",
        "Control reads `says who tells` and `" + "w " * 30 + "`.",
        "".join(f"- {'w ' * 12}\n" for _ in range(5)),
        "".join(f"{number}. {'w ' * 12}\n" for number in range(5)),
        f"{'w ' * 20}? {'w ' * 20}! {SHORT}",
        "A table has a version, e.g. 12. The essay is a foretold word.",
        f"{'w ' * 20}\n\n{'w ' * 17}\n\n{'w ' * 17}",
    ],
    ids=str.split(
        "empty long-enough median line code fence-and-table inline list steps question parts-of-words paragraphs"
    ),
)
def test_a_page_without_faults(page: str) -> None:
    assert faults(page) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        (f"{SHORT}{sentence(SENTENCE_WORDS_MAX + 1)}", "line 1: a sentence of 36 words"),
        (f"{SHORT}\n\n- {SHORT}{'w ' * 18}\n  {'w ' * 18}", "line 3: a sentence of 36 words"),
        (f"{SHORT}\n\n{'[word](docs/a_page.md) ' * 6}\n{'w ' * 30}", "line 3: a sentence of 36 words"),
        (f"{SHORT}{'w ' * 20}(e.g. {'w ' * 15})", "line 1: a sentence of 36 words"),
        (f"{SHORT}{'w ' * 19}at most 30.\n\n{'w ' * 9}- {'w ' * 27}", "line 3: a sentence of 36 words"),
        (f"{SHORT}{'w ' * 20}(i.e. {'w ' * 15})", "line 1: a sentence of 36 words"),
        ("".join(f"{number}. {'w ' * 18}\n" for number in range(5)), "half of the sentences have 18 words or more"),
        (f"{sentence(18)} {sentence(18)} {sentence(17)}", "half of the sentences have 18 words or more"),
        (f"{SHORT}\n{'x' * (LINE_CHARACTERS_MAX + 1)}", "line 2: 161 characters, 160 at most"),
        (f"- {SHORT}\n    {'x' * (LINE_CHARACTERS_MAX - 3)}", "line 2: 161 characters, 160 at most"),
        ("The label tells the broker.", "line 1: 'tells': write"),
        ("A word.\n\n- A group comes\n  to rest.", "line 3: 'comes to rest': write"),
        ("```\ncode\n```\nThe log Says why.", "line 4: 'Says': write"),
        ("    code\n\nThe log says why.", "line 3: 'says': write"),
    ],
)
def test_a_page_with_a_fault(page: str, fault: str) -> None:
    assert [one for one in faults(page) if one.startswith(fault)], faults(page)


def test_all_pages_together_stay_within_what_people_read() -> None:
    """The plain count of `wc -w`, which takes bars of tables for words too."""
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in pages() if "/" not in name)]
    assert sum(len(file.read_text(encoding="utf-8").split()) for file in [*files, ROOT / "CHANGELOG.md"]) <= WORDS_MAX


def test_the_pages_are_those_of_the_root_and_of_docs() -> None:
    expected = {"README.md", "docs/lag.md", "docs/measurements/lag.md", "docs/runbooks/RebalancerAbsent.md"}
    assert expected <= set(pages())
    assert not [name for name in pages() if "decisions" in name]
