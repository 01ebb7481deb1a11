"""Which version a package has, and the form of the changelog that goes with it."""

import re
import sys
from typing import Any

import pytest

from tests.deploy.objects import ROOT, script_at

KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="module")
def dist() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "release" / "dist.py")


@pytest.mark.parametrize(
    ("tags", "changelog", "problem"),
    [
        (["v1.2.3"], "## [1.2.4] - 2026-01-31", "no section like '## [1.2.3]"),
        (["v1.2.3"], "## [1.2.3]", "no section like '## [1.2.3]"),
        (["v1.2.3", "v1.2.4"], "", "the tags of 2 versions: 1.2.3, 1.2.4"),
    ],
)
def test_a_tag_without_a_section_of_the_changelog_is_refused(
    dist: dict[str, Any], tags: list[str], changelog: str, problem: str
) -> None:
    with pytest.raises(dist["NotReleasable"], match=re.escape(problem)):
        dist["version_of"]("1.0.0", "abcdef0", tags, changelog)


def test_the_version_is_that_of_the_tag_or_names_the_commit(dist: dict[str, Any]) -> None:
    assert dist["version_of"]("1.2.0", "abcdef0", ["rehearsal"], "") == "1.2.0.dev0+gabcdef0"
    assert dist["version_of"]("1.2.0", "abcdef0", ["v1.3.0"], "## [1.3.0] - 2026-01-31\n") == "1.3.0"


def test_the_changelog_has_the_headings_of_keep_a_changelog() -> None:
    page = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert versions[0] == "[Unreleased]" or re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", versions[0])
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", version) for version in versions[1:])
    for version in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", version, re.MULTILINE)
        assert len(set(kinds)) == len(kinds)
        assert set(kinds) <= KINDS
    assert "<<<<" not in page


@pytest.mark.long
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the page lists what is installed for Python 3.11")
def test_the_page_of_licences_has_all_that_is_installed_and_none_is_unknown() -> None:
    script = script_at(ROOT / "deploy" / "release" / "licences.py")
    assert script["page"]() == script["PAGE"].read_text(encoding="utf-8"), "run `make licences`"
    assert script["UNKNOWN"] not in script["licences"]().values()
