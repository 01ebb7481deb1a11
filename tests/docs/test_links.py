"""What a page links or names exists: files, anchors, commands with their options, settings, targets of make."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from streaming.cli import COMMANDS, rebalancer
from streaming.config import flatten
from streaming.settings import Settings
from tests.docs.prose import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`]+)`")
NEW_OR_OLD = {"CHANGELOG.md"}
"""Pages that may name what is no more."""
OTHERS = frozenset({"log.dirs", "trigger.py", "control.plan"})
"""What looks like a setting of ours: a setting of Kafka, a file, a key of /api/status."""
VALUES = re.compile(r"(?:collect|control|serve|storage)\.(?:settings|replicas|shards|size)")
"""Values of the chart besides the settings."""
TAKE_ANY_OPTION = frozenset({"-h", "--help"})


def prose(text: str) -> str:
    """The page without fenced blocks."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of the headings, as code hosts make them."""
    made: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE):
        shown = LINK.sub(lambda match: match.group().partition("](")[0], heading)
        anchor = re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")
        made.append(f"{anchor}-{made.count(anchor)}" if anchor in made else anchor)
    return frozenset(made)


def broken(page: Path, target: str) -> bool:
    """Leads to a file of the repository, or an anchor, that is not there."""
    if re.match(r"[a-z]+:", target):
        return False
    address, _, anchor = target.partition("#")
    file = (page.parent / address).resolve() if address else page
    return not file.exists() or (file.suffix == ".md" and bool(anchor) and anchor not in anchors(file))


@pytest.mark.parametrize("name", NAMES)
def test_every_link_and_anchor_is_there(name: str) -> None:
    page = ROOT / name
    targets = LINK.findall(INLINE.sub("`code`", prose(page.read_text(encoding="utf-8"))))
    assert [target for target in targets if broken(page, target)] == []


def test_a_link_or_anchor_that_is_not_there_is_noticed() -> None:
    page = ROOT / "README.md"
    assert not broken(page, "docs/concepts.md#bound")
    assert not broken(page, "https://kafka.apache.org/none")
    assert broken(page, "docs/none.md")
    assert broken(page, "docs/concepts.md#none")
    assert broken(page, "#none")


def code(text: str) -> Iterator[str]:
    """What stands in code: inline, line breaks undone, and each line of a block, continued lines as one."""
    for match in INLINE.findall(prose(text)):
        yield " ".join(match.split())
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith(("    ", "rebalancer ")):
            yield line.strip()


def command_lines(text: str) -> Iterator[list[str]]:
    """The words after `rebalancer` of each command line, without comments, pipes and what is between quotes."""
    for line in code(text):
        for part in re.split(r"[|;&]+", re.sub(r"\"[^\"]*\"|'[^']*'", "TEXT", line).partition(" #")[0]):
            words = part.split()
            if len(words) > 1 and words[0] == "rebalancer" and re.fullmatch(r"[a-z-]+", words[1]):
                yield words[1:]


@cache
def options_of(name: str) -> frozenset[str]:
    with click.Context(rebalancer) as context:
        command = rebalancer.get_command(context, name)
    assert command is not None
    own = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return frozenset(own | {option for one in below for parameter in one.params for option in parameter.opts})


@pytest.mark.parametrize("name", sorted(set(NAMES) - NEW_OR_OLD))
def test_every_command_and_option_is_there(name: str) -> None:
    for words in command_lines((ROOT / name).read_text(encoding="utf-8")):
        assert words[0] in COMMANDS or words[0].startswith("-"), f"rebalancer {' '.join(words)}"
        if words[0] in COMMANDS:
            given = {word.partition("=")[0].rstrip(".,:)]") for word in words[1:] if word.startswith("--")}
            assert given - options_of(words[0]) - TAKE_ANY_OPTION == set(), f"rebalancer {' '.join(words)}"


@pytest.mark.parametrize("name", sorted(set(NAMES) - NEW_OR_OLD))
def test_every_setting_is_there(name: str) -> None:
    known = set(flatten(Settings()))
    sections = {setting.partition(".")[0] for setting in known}
    named = {
        match.group(1)
        for text in code((ROOT / name).read_text(encoding="utf-8"))
        for match in re.finditer(r"(?:^|--(?:set|policy) \"?)([a-z]+\.[a-z][a-z_]*)(?=$|[ :=,])", text)
        if match.group(1).partition(".")[0] in sections
    }
    assert {text for text in named - known - OTHERS if not VALUES.fullmatch(text)} == set()


@pytest.mark.parametrize("name", sorted(set(NAMES) - NEW_OR_OLD))
def test_every_target_of_make_is_there(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    benchmarks = (file.stem.replace("_", "-") for file in (ROOT / "tests" / "benchmarks").glob("bench_*.py"))
    targets.update(benchmarks)
    named = {
        match.group(1)
        for text in code((ROOT / name).read_text(encoding="utf-8"))
        if (match := re.match(r"make ([a-z-]+)(?=$| )", text))
    }
    assert named - targets == set()
