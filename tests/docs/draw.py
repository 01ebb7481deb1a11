"""Sentences drawn by seed, to be read alone: five each of pages, docstrings, messages and texts of settings and help.

`.venv/bin/python -m tests.docs.draw SEED` prints twenty. Whoever must read one of them twice rewrites it and its like.
"""

import random
import re
import sys
from collections.abc import Iterable, Iterator

from tests.docs.messages import docstrings, files, messages
from tests.docs.prose import ROOT, Line, pages, prose_lines, sentences, words
from tests.docs.texts import texts

EACH = 5
WORDS_MIN = 4
"""Shorter ones are names and values."""

EXAMPLE = re.compile(r"^ *>>>.*?(?:\n *\n|\Z)", re.MULTILINE | re.DOTALL)
"""What a docstring shows to be run, with the result: up to the next empty line."""

Sentences = dict[str, list[tuple[str, str]]]
"""Place and sentence, by kind of text."""


def all_sentences() -> Sentences:
    sources = {"page": _of_pages(), "docstring": _of_docstrings(), "text": texts().items(), "message": _of_messages()}
    return {kind: _sentences(found) for kind, found in sources.items()}


def _sentences(found: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Each sentence once, with the first of its places: `--set` is an option of most commands."""
    places: dict[str, str] = {}
    for place, text in found:
        for sentence in _whole(text):
            if words(sentence) >= WORDS_MIN:
                places.setdefault(sentence, place)
    return [(place, sentence) for sentence, place in places.items()]


def draw(found: Sentences, seed: int) -> list[tuple[str, str]]:
    """Equal for equal sentences and seed; each kind counts as much as any other, however many sentences it has."""
    lots = random.Random(seed)
    return [drawn for kind in sorted(found) for drawn in lots.sample(found[kind], min(EACH, len(found[kind])))]


def _whole(text: str) -> list[str]:
    """Sentences of a text, each on one line, with their code (which `sentences` would leave out)."""
    plain = " ".join(text.split()).replace("`", "'")
    return sentences([Line(1, plain)])


def _of_pages() -> Iterator[tuple[str, str]]:
    for name, file in pages().items():
        for block in prose_lines(file.read_text(encoding="utf-8")):
            yield f"{name}:{block[0].number}", "\n".join(line.text for line in block)


def _of_docstrings() -> Iterator[tuple[str, str]]:
    for file in files():
        for line, text in docstrings(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(ROOT)}:{line}", EXAMPLE.sub("", text)


def _of_messages() -> Iterator[tuple[str, str]]:
    for file in files():
        for line, text in messages(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(ROOT)}:{line}", text


if __name__ == "__main__":
    for place, sentence in draw(all_sentences(), int(sys.argv[1])):
        print(f"{place}\n    {sentence}")
