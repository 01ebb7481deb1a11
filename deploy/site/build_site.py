"""The documentation as a site: `make docs`, which is `python deploy/site/build_site.py`, into build/site.

Pages are those of docs and the pages of the repository's root. Settings and commands are written from the code. Two
things change on the way. Links that leave the pages become links into a repository, if its address is given
(`--repository-url`), and else plain text. Lists get the indents that Python-Markdown wants, which is stricter than
what shows the same pages beside the code. mkdocs builds strictly: a link or anchor that leads nowhere fails.
"""

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import click

from streaming.cli import COMMANDS, rebalancer
from streaming.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build"
MOVED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""Pages of the repository's root, and what they are called on the site."""
SETTINGS_INTRODUCTION = """\
A file needs only what it changes; unknown keys are refused. Later ones win: defaults, the file (`--config` or
`REBALANCER_CONFIG`), the environment (`REBALANCER_SECTION__KEY`, two underscores), flags (`--set section.key=value`).
`rebalancer config` shows what holds and where it came from."""
COMMANDS_INTRODUCTION = """\
Exit codes: 0 done; 1 failed; 2 wrong use or bad input, nothing changed; 3 refused for safety. An error is one line on
standard error."""
INDENT = 4
FENCE = re.compile(r" *(```|~~~)")
ITEM = re.compile(r"( *)([-*+]|\d{1,9}[.)])( +)(?=\S)")
TABLE_RULE = re.compile(r" *\|? *:?-+:? *\|[-| :]*$")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
SENTENCE = re.compile(r"\w[^|\n]*[.:]$")
"""A first paragraph that can stand behind a page's title: no table, no picture, no list."""
WHOLE = "documentation.md"
HELP_WIDTH = 100
TIMEOUT_S = 600


def sources() -> dict[str, str]:
    """Name on the site by path in the repository, of every file that is copied."""
    listed = sorted((ROOT / "docs").rglob("*"))
    files = {path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix() for path in listed}
    return MOVED | {path: name for path, name in files.items() if (ROOT / path).is_file()}


def with_links(text: str, path: str, names: dict[str, str], repository_url: str | None) -> str:
    """The page of `path` with links that work where it lies on the site.

    >>> with_links("[a](a.md#x), [b](../conf/b.yaml)", "docs/c.md", {"docs/a.md": "a.md", "docs/c.md": "c.md"}, None)
    '[a](a.md#x), b'
    """

    def replaced(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        address, anchor, fragment = target.partition("#")
        if not address or re.match(r"[a-z]+:", address):
            return match.group()
        found = os.path.normpath(PurePosixPath(path).parent / address)
        name = names.get(found) or names.get(f"{found}/README.md")
        if name is not None:
            return f"{picture}[{label}]({os.path.relpath(name, PurePosixPath(names[path]).parent)}{anchor}{fragment})"
        return f"[{label}]({repository_url.rstrip('/')}/{found}{anchor}{fragment})" if repository_url else label

    return "\n".join(line if fenced else LINK.sub(replaced, line) for line, fenced in _fenced(text.split("\n")))


def _fenced(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is part of a fenced block."""
    inside = False
    for line in lines:
        fence = bool(FENCE.match(line))
        yield line, inside or fence
        inside ^= fence


def with_indents(text: str) -> str:
    """The page with an empty line before each list and table, and four blanks a level in lists.

    >>> with_indents("Do:\\n1. One\\n   more\\n   - two")
    'Do:\\n\\n1. One\\n    more\\n\\n    - two'
    """
    written: list[str] = []
    offsets: list[int] = []
    has_parts = False
    lines = text.split("\n")
    for number, (line, fenced) in enumerate(_fenced(lines)):
        if not line.strip():
            written.append("")
            has_parts = True
            continue
        indent, after_blank = len(line) - len(line.lstrip()), not written or not written[-1]
        item = None if fenced else ITEM.match(line)
        was = len(offsets)
        while offsets and indent < offsets[-1] and (after_blank or item or not _continues(line)):
            offsets.pop()
        if item and indent - (offsets[-1] if offsets else 0) < INDENT and _may_begin(item, was, after_blank):
            if not after_blank and (was <= len(offsets) or has_parts):
                written.append("")
            written.append(" " * INDENT * len(offsets) + f"{item.group(2)} {line[item.end() :]}")
            offsets.append(item.end())
            has_parts = False
            continue
        if not (fenced or after_blank) and number + 1 < len(lines) and TABLE_RULE.match(lines[number + 1]):
            written.append("")
        cut = min(indent, offsets[-1]) if offsets else 0
        written.append(" " * INDENT * len(offsets) + line[cut:])
    return "\n".join(written)


def _continues(line: str) -> bool:
    """Is text that may go on a paragraph although it is not indented like it."""
    return not re.match(r" *(#|\||>|```|~~~|!\[)", line)


def _may_begin(item: re.Match[str], depth: int, after_blank: bool) -> bool:
    """A number other than 1 in the middle of a paragraph is no list."""
    return after_blank or depth > 0 or item.group(2) in ("-", "*", "+", "1.", "1)")


def settings_page() -> str:
    """Every setting, as Markdown."""
    schema = Settings.model_json_schema()
    parts = [
        "# Settings",
        SETTINGS_INTRODUCTION,
    ]
    for section, reference in schema["properties"].items():
        fields = schema["$defs"][reference["$ref"].rpartition("/")[2]]
        rows = [_setting(f"{section}.{key}", field) for key, field in fields["properties"].items()]
        table = "\n".join(("| setting | default | meaning |", "|---|---|---|", *rows))
        parts += [f"## {section}", fields.get("description", ""), table]
    return "\n\n".join(part for part in parts if part) + "\n"


def _setting(name: str, field: dict[str, Any]) -> str:
    default = json.dumps(field.get("default"), ensure_ascii=False)
    cells = (f"`{name}`", f"`{default}`", html.escape(field.get("description", ""), quote=False))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def commands_page() -> str:
    """Every command with its help, as Markdown."""
    parts = [
        "# Commands",
        COMMANDS_INTRODUCTION,
    ]
    for name in COMMANDS:
        with click.Context(rebalancer, info_name="rebalancer", max_content_width=HELP_WIDTH) as above:
            command = rebalancer.get_command(above, name)
            assert command is not None
            context = click.Context(command, above, name, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH)
            parts.append(f"## {name}\n\n```text\n{command.get_help(context)}\n```")
    return "\n\n".join(parts) + "\n"


def write_pages(folder: Path, repository_url: str | None = None) -> None:
    """All that mkdocs reads, into an empty folder."""
    names = sources()
    for path, name in names.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".md"):
            text = (ROOT / path).read_text(encoding="utf-8")
            target.write_text(with_indents(with_links(text, path, names, repository_url)), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / path, target)
    (folder / "settings.md").write_text(settings_page(), encoding="utf-8")
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")


def settings_of_mkdocs(pages: Path, site: Path) -> str:
    """mkdocs.yml with its folders, all runbooks and decisions, and at the end the pages that it does not name."""
    text = (HERE / "mkdocs.yml").read_text(encoding="utf-8")
    for name in ("runbooks", "decisions"):
        listed = sorted((pages / name).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
        text = text.replace(f"{{{name}}}", json.dumps([f"{name}/{page.name}" for page in listed]))
    # After a space: a page of figures may have the same name.
    unnamed = [page.name for page in sorted(pages.glob("*.md")) if not re.search(rf" {page.name}$", text, re.MULTILINE)]
    if unnamed:
        text += f"  - More: {json.dumps(unnamed)}\n"
    for name, path in (("pages", pages), ("site", site), ("theme", HERE / "theme")):
        text = text.replace(f"{{{name}}}", str(path))
    return text


def in_order(settings_text: str) -> Iterator[tuple[str, list[str]]]:
    """Each section of the navigation and its pages, in their order.

    >>> list(in_order("nav:\n  - Start:\n      - index.md\n      - First hour: start.md\n  - More: [\"a.md\"]"))
    [('Start', ['index.md', 'start.md']), ('More', ['a.md'])]
    """
    navigation = re.sub(r" +#.*", "", re.split(r"^nav:\n", settings_text, flags=re.MULTILINE)[-1])
    for section in re.split(r"^  - ", navigation, flags=re.MULTILINE)[1:]:
        title, _, pages = section.partition(":")
        yield title, re.findall(r"[\w./-]+\.md", pages)


def write_for_programs(pages: Path, settings_text: str, site: Path) -> None:
    """All pages as one Markdown file and an index of them, as llmstxt.org has it: for readers that are programs."""
    whole, index = [], []
    for section, names in in_order(settings_text):
        index.append(f"\n## {section}\n")
        for name in names:
            text = (pages / name).read_text(encoding="utf-8").strip()
            whole.append(f"<!-- {name} -->\n\n{text}\n")
            title, _, rest = text.partition("\n")
            first = re.sub(r"\s+", " ", rest.strip().partition("\n\n")[0])
            address = name.replace("README.md", "index.md").removesuffix(".md") + ".html"
            index.append(f"- [{title.lstrip('# ')}]({address})" + (f": {first}" if SENTENCE.match(first) else ""))
    introduction = (pages / "index.md").read_text(encoding="utf-8").strip().split("\n\n")
    head = f"{introduction[0]}\n\n> {' '.join(introduction[1].split())}\n\nAll pages in one file: [{WHOLE}]({WHOLE})\n"
    (site / "llms.txt").write_text(head + "\n".join(index) + "\n", encoding="utf-8")
    (site / WHOLE).write_text("\n".join(whole), encoding="utf-8")


def run_mkdocs(own_settings: Path) -> int:
    """Exit code of a strict build. Not with --quiet: it counts only the warnings that it prints."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--config-file", str(own_settings)]
    no_advertising = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, env=no_advertising, check=False, timeout=TIMEOUT_S).returncode


def build(work: Path, site: Path, repository_url: str | None = None) -> int:
    """Exit code of mkdocs. `work` takes what it reads, and `site` the pages; what was there is replaced."""
    pages, own_settings = work / "pages", work / "mkdocs.yml"
    shutil.rmtree(pages, ignore_errors=True)
    write_pages(pages, repository_url)
    own_settings.write_text(settings_of_mkdocs(pages, site), encoding="utf-8")
    code = run_mkdocs(own_settings)
    if code == 0:
        write_for_programs(pages, own_settings.read_text(encoding="utf-8"), site)
    return code


def main() -> int:
    """The site of this tree."""
    arguments = argparse.ArgumentParser(description="The documentation as a site, into build/site")
    arguments.add_argument("--repository-url", help="what paths of linked code are put after; none: no links to code")
    BUILD.mkdir(exist_ok=True)
    code = build(BUILD, BUILD / "site", arguments.parse_args().repository_url)
    if code == 0:
        sys.stdout.write(f"{BUILD / 'site' / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
