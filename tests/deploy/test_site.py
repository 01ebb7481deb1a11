"""The documentation as a site: it builds strictly, and reads from a folder without a network."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from streaming.cli import COMMANDS
from streaming.config import flatten
from streaming.settings import Settings
from tests.deploy.objects import ROOT, script_at

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
"""Attributes whose targets a browser fetches by itself."""
FOREIGN_CSS = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])(?:https?:)?//""")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "site" / "build_site.py")


class Targets(HTMLParser):
    """(tag, target) of all that a page loads or links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the one attribute that counts."""
        target = dict(attrs).get(LOADED.get(tag, "href"))
        if target and (tag in LOADED or tag == "a"):
            self.found.append((tag, target))


@pytest.fixture(scope="module")
def site(script: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages as they are built, strictly."""
    pytest.importorskip("material", reason="deploy/extras/docs.lock is not installed")
    folder = tmp_path_factory.mktemp("site")
    assert script["build"](folder, folder / "site") == 0
    return folder / "site"


def targets(site: Path) -> Iterator[tuple[Path, str, str]]:
    for page in sorted(site.rglob("*.html")):
        for tag, target in Targets(page.read_text(encoding="utf-8")).found:
            yield page, tag, target


@pytest.mark.long
@pytest.mark.parametrize(("link", "code"), [("#part", 0), ("#none", 1), ("none.md", 1)])
def test_a_link_that_leads_nowhere_fails(script: dict[str, Any], tmp_path: Path, link: str, code: int) -> None:
    pytest.importorskip("material", reason="deploy/extras/docs.lock is not installed")
    pages, settings = tmp_path / "pages", tmp_path / "mkdocs.yml"
    pages.mkdir()
    (pages / "index.md").write_text(f"# A page\n\n[a link]({link})\n\n## Part\n")
    settings.write_text(script["settings_of_mkdocs"](pages, tmp_path / "site").partition("\nnav:")[0])
    assert script["run_mkdocs"](settings) == code


def test_a_page_that_the_site_does_not_name_comes_last(script: dict[str, Any], tmp_path: Path) -> None:
    for name in ("index.md", "unnamed.md"):
        (tmp_path / name).touch()
    assert script["settings_of_mkdocs"](tmp_path, tmp_path).endswith('\n  - More: ["unnamed.md"]\n')


def test_each_page_of_figures_is_in_the_navigation_and_on_their_first_page() -> None:
    navigation = (ROOT / "deploy" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    first = (ROOT / "docs" / "measurements" / "README.md").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs" / "measurements").glob("*.md")}
    assert {name for name in pages if f" measurements/{name}\n" not in navigation} == set()
    assert {name for name in pages - {"README.md"} if f"]({name})" not in first} == set()


@pytest.mark.long
def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = [(page.name, target) for page, tag, target in targets(site) if tag in LOADED]
    assert len(loaded) > 100
    foreign = {(page, target) for page, target in loaded if urlsplit(target).netloc}
    assert foreign == set()
    assert [path.name for path in site.rglob("*.css") if FOREIGN_CSS.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.long
def test_every_link_between_pages_leads_to_a_file(site: Path) -> None:
    for page, _, target in targets(site):
        parts = urlsplit(target)
        if page.name != "404.html" and not parts.scheme and parts.path:
            assert (page.parent / unquote(parts.path)).exists(), f"{page.name}: {target}"


@pytest.mark.long
def test_search_needs_no_server(site: Path) -> None:
    assert (site / "search" / "search_index.js").read_text(encoding="utf-8").startswith("var __index = ")
    scripts = [target for page, tag, target in targets(site) if page.name == "index.html" and tag == "script"]
    assert any(target.endswith("assets/iframe-worker.js") for target in scripts)


def test_links_that_leave_the_pages_become_text_or_lead_into_the_repository(script: dict[str, Any]) -> None:
    names = {"docs/a.md": "a.md", "docs/b/README.md": "b/README.md"}
    text = "[one](../conf/x.yaml), [two](b), [three](b/README.md#part), [four](https://kafka.apache.org), ![p](a.md)"
    kept = "[two](b/README.md), [three](b/README.md#part), [four](https://kafka.apache.org), ![p](a.md)"
    assert script["with_links"](text, "docs/a.md", names, None) == f"one, {kept}"
    linked = script["with_links"](text, "docs/a.md", names, "https://code.example/blob/main/")
    assert linked == f"[one](https://code.example/blob/main/conf/x.yaml), {kept}"


def test_code_keeps_its_brackets(script: dict[str, Any]) -> None:
    text = "```\n[a](../b)\n- c\n```"
    assert script["with_indents"](script["with_links"](text, "docs/a.md", {}, None)) == text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("Do:\n1. One\n   more\n   - two\n2. Three", "Do:\n\n1. One\n    more\n\n    - two\n2. Three"),
        ("1. A\n\n       code\n\n   text", "1. A\n\n        code\n\n    text"),
        ("1. A\n\n   b\n2. C\n3. D", "1. A\n\n    b\n\n2. C\n3. D"),
        ("- a\n  b\n\nc", "- a\n    b\n\nc"),
        ("- a\nb", "- a\n    b"),
        ("of\n2026. Then", "of\n2026. Then"),
        ("text\n| a | b |\n|---|---|\n| 1 | 2 |", "text\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        ("- a\n\n  ```\n  x\n    y\n  ```", "- a\n\n    ```\n    x\n      y\n    ```"),
        ("    code\n    - no list", "    code\n    - no list"),
    ],
)
def test_lists_get_the_indents_that_the_site_needs(script: dict[str, Any], written: str, expected: str) -> None:
    assert script["with_indents"](written) == expected


@pytest.mark.long
def test_every_setting_and_every_command_has_its_place(script: dict[str, Any]) -> None:
    page = script["settings_page"]()
    assert [name for name in flatten(Settings()) if f"| `{name}` |" not in page] == []
    assert [name for name in COMMANDS if f"\n## {name}\n" not in script["commands_page"]()] == []


@pytest.mark.parametrize("extra", ["docs", "api-tests"])
def test_what_both_locks_hold_has_one_version(extra: str) -> None:
    """An extra is installed beside the product: another version would change what everything else runs with."""
    locks = [ROOT / "deploy" / "extras" / f"{extra}.lock", ROOT / "requirements.lock"]
    own, product = (dict(re.findall(r"^([\w.-]+)==([^ ;]+)", path.read_text(), re.MULTILINE)) for path in locks)
    assert {name for name in own.keys() & product.keys() if own[name] != product[name]} == set()


@pytest.mark.long
def test_programs_find_every_page_in_an_index_and_in_one_file(site: Path) -> None:
    index, whole = ((site / name).read_text(encoding="utf-8") for name in ("llms.txt", "documentation.md"))
    assert index.startswith("# Kafka load rebalancer\n\n> ")
    linked = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE)
    begun = re.findall(r"^<!-- [\w./-]+\.md -->$", whole, re.MULTILINE)
    assert len(linked) == len(set(linked)) == len(begun)
    assert [address for address in linked if not (site / address).exists()] == []
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")} - {"404.html"}
    assert pages - set(linked) == set()
    assert "# The load planner" in whole
