"""The plain English of our pages, as numbers: how long sentences and lines are, and which words a page must not have.

`.venv/bin/python -m tests.docs.prose docs/lag.md` prints every fault of a page with its line.
"""

import re
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SENTENCE_WORDS_MAX = 35
MEDIAN_WORDS_BELOW = 18
LINE_CHARACTERS_MAX = 160

AVOIDED = {
    r"tells?|telling|told": "shows, reports, prints; a cause is distinguished from another",
    r"says?|saying|said": "shows, reports, states",
    r"heeds?|heeded|heeding": "follows, respects",
    r"finds": "detects, reads, returns",
    r"(?:comes?|came|coming) to rest": "becomes stable, stops",
    r"(?:goes|go|went) (?:its|their) ways?": "continues",
    r"sees? to": "name the act: installs, removes",
    r"(?:he|she|they|those) who": "name the role: the operator",
    r"stood still": "did not change, did not commit",
    r"misfits?": "rejected records, bad records",
    r"honest": "valid, correct",
    r"for itself": "on its own, separately",
    r"mends?|mended|mending": "fixes, repairs; a library is patched",
    r"(?:made|make|makes|making) (?:\w+ )?anew": "re-creates, makes again",
}
"""Words with another word in their place. Each is an ordinary word that our pages used in a sense of their own."""
PATTERNS = {re.compile(rf"\b(?:{words})\b", re.IGNORECASE): instead for words, instead in AVOIDED.items()}

BLOCK_START = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
END_OF_SENTENCE = re.compile(r"(?<=[.!?])(?<!\be\.g\.)(?<!\bi\.e\.)[)*_\"]*\s+")


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str


def prose_lines(page: str) -> Iterator[list[Line]]:
    """The paragraphs and list items of a page, without code blocks, tables and headings."""
    block: list[Line] = []
    is_fenced = is_code = False
    was_blank = True
    for number, text in enumerate(page.splitlines(), start=1):
        fence = text.lstrip().startswith("```")
        is_fenced ^= fence
        is_code = text.startswith("    ") and (was_blank or is_code)
        was_blank = not text.strip()
        is_prose = not (fence or is_fenced or is_code or was_blank or text.lstrip().startswith(("|", "#")))
        if block and (not is_prose or BLOCK_START.match(text)):
            yield block
            block = []
        if is_prose:
            block.append(Line(number, text))
    if block:
        yield block


def sentences(block: list[Line]) -> list[str]:
    """The sentences of a paragraph; inline code counts as one word, the address of a link as none."""
    text = BLOCK_START.sub("", " ".join(line.text.strip() for line in block), count=1)
    text = re.sub(r"`[^`]*`", "Code", text)
    return [sentence for sentence in END_OF_SENTENCE.split(text) if words(sentence)]


def words(sentence: str) -> int:
    return sum(any(character.isalnum() for character in word) for word in sentence.split())


def faults(page: str) -> list[str]:
    """Every rule of plain English that a page breaks, with the line; empty if it keeps all."""
    blocks = list(prose_lines(page))
    result: list[str] = []
    lengths: list[int] = []
    for block in blocks:
        for sentence in sentences(block):
            lengths.append(words(sentence))
            if lengths[-1] > SENTENCE_WORDS_MAX:
                result.append(f"line {block[0].number}: a sentence of {lengths[-1]} words: {sentence[:60].strip()}")
        long = [line for line in block if len(line.text) > LINE_CHARACTERS_MAX]
        result.extend(
            f"line {line.number}: {len(line.text)} characters, {LINE_CHARACTERS_MAX} at most" for line in long
        )
        result.extend(avoided_words(block))
    if lengths and (median := statistics.median(lengths)) >= MEDIAN_WORDS_BELOW:
        result.append(f"half of the sentences have {median:g} words or more")
    return result


def faults_of(text: str, *, words_max: int = SENTENCE_WORDS_MAX) -> list[str]:
    """Sentences of a text outside of pages that are too long, and words that have another in their place."""
    block = [Line(1, line) for line in text.splitlines()]
    long = [f"{words(one)} words: {one[:70]}" for one in sentences(block) if words(one) > words_max]
    return long + list(avoided_words(block))


def avoided_words(block: list[Line]) -> Iterator[str]:
    text = re.sub(r"`[^`]*`", "Code", " ".join(line.text.strip() for line in block))
    for pattern, instead in PATTERNS.items():
        for found in pattern.finditer(text):
            yield f"line {block[0].number}: {found.group()!r}: write {instead}"


def pages() -> dict[str, Path]:
    """The pages with rules: three of the root, those of docs without decisions, and each runbook."""
    names = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
    names += [f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md")]
    names += [f"docs/measurements/{file.name}" for file in (ROOT / "docs" / "measurements").glob("*.md")]
    names += [f"docs/runbooks/{file.name}" for file in (ROOT / "docs" / "runbooks").glob("Rebalancer*.md")]
    return {name: ROOT / name for name in sorted(names)}


if __name__ == "__main__":
    for name in sys.argv[1:] or pages():
        for fault in faults(Path(name).read_text(encoding="utf-8")):
            print(f"{name}: {fault}")
