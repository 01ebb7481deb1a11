"""Pages, settings, help, alerts, metrics, messages and docstrings are plain English, by numbers."""

from collections.abc import Mapping

import pytest

from tests.docs.draw import EACH, WORDS_MIN, all_sentences, draw
from tests.docs.messages import docstrings, files, messages
from tests.docs.prose import LINE_CHARACTERS_MAX, ROOT, SENTENCE_WORDS_MAX, faults, faults_of, pages, words
from tests.docs.texts import texts

WORDS_MAX = 75_000
MESSAGE_WORDS_MAX = 30
FRAGMENTS = ("The same", "Those ", "Of ", "As ", "Its ", "So long", "Where ")
"""Beginnings that go on from a sentence which the reader does not see."""


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


@pytest.fixture(scope="module")
def all_texts() -> Mapping[str, str]:
    return texts()


def test_texts_are_plain_english(all_texts: Mapping[str, str]) -> None:
    assert {place: faults_of(text) for place, text in all_texts.items() if faults_of(text)} == {}


def test_each_setting_is_described_by_whole_sentences(all_texts: Mapping[str, str]) -> None:
    """Whoever reads a setting alone, in a schema or in a file, knows what it does."""
    settings = {place: text for place, text in all_texts.items() if place.startswith("setting ")}
    fragments = (*FRAGMENTS, "Better ", "With ")
    assert {place for place, text in settings.items() if not text.endswith(".") or text.startswith(fragments)} == set()


def test_each_kind_of_text_is_read(all_texts: Mapping[str, str]) -> None:
    expected = {
        "setting kafka.cluster_name", "command rebalancer token create", "command rebalancer plan --json",
        "alert RebalancerAbsent summary", "metric rebalancer_skew_breached",
    }  # fmt: skip
    assert expected <= set(all_texts)


@pytest.mark.long
def test_messages_and_docstrings_are_plain_english() -> None:
    """What is printed has sentences of 30 words at most; a docstring stands alone, on hover or in `help`."""
    faulty = []
    for file in files():
        place, source = file.relative_to(ROOT), file.read_text(encoding="utf-8")
        for line, text in messages(source):
            faulty += [f"{place}:{line}: {fault}" for fault in faults_of(text, words_max=MESSAGE_WORDS_MAX)]
        faulty += [f"{place}:{line}: {text}" for line, text in docstrings(source) if text.startswith(FRAGMENTS)]
    assert faulty == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ('raise E(f"{name} " "tells why")', "line 1: 'tells': write"),
        ("click.echo('a' + ' says b')", "line 1: 'says': write"),
        (f"raise E('{' w' * 31}')", "31 words"),
        ("echo('Fine.\\nIt tells why.')", "line 1: 'tells': write"),
    ],
)
def test_a_message_with_a_fault(source: str, fault: str) -> None:
    found = [one for _, text in messages(source) for one in faults_of(text, words_max=MESSAGE_WORDS_MAX)]
    assert [one for one in found if one.startswith(fault)]


def test_what_nobody_reads_is_no_message_and_a_docstring_is_found() -> None:
    source = 'def f():\n    """Its leader says."""\n    log.info("says")\n    x = "tells"'
    assert list(messages(source)) == []
    assert list(docstrings(source)) == [(2, "Its leader says.")]


@pytest.mark.long
def test_sentences_are_drawn_by_seed_whole_and_of_each_kind_of_text() -> None:
    found = all_sentences()
    every = [sentence for of_kind in found.values() for _, sentence in of_kind]
    assert min(words(one) for one in every) >= WORDS_MIN
    assert not [one for one in every if "\n" in one or ">>>" in one]
    assert [one for one in every if "'rebalancer check'" in one], "code is shown as it is"
    assert draw(found, 1) == draw(found, 1) != draw(found, 2)
    kinds = {one: kind for kind, of_kind in found.items() for one in of_kind}
    drawn = [kinds[one] for one in draw(found, 1)]
    assert {kind: drawn.count(kind) for kind in found} == dict.fromkeys(("page", "docstring", "text", "message"), EACH)
    assert all(len({sentence for _, sentence in of_kind}) == len(of_kind) for of_kind in found.values())
