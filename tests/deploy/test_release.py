"""Scripts of deploy/release: which version a package has, what an audit reports, how the base image gets its digest."""

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.image_steps import DOCKERFILE
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


SOUND = {"name": "numpy", "version": "2.4.1", "vulns": []}
WEAK = {"name": "idna", "version": "3.1", "vulns": [{"id": "PYSEC-2024-60", "fix_versions": ["3.7"]}]}
SKIPPED = {"name": "six", "skip_reason": "Dependency not found on PyPI and could not be audited: six (1.17.0)"}


@pytest.fixture(scope="module")
def audit() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "release" / "audit.py")


@pytest.mark.parametrize(
    ("dependencies", "code", "line"),
    [
        ([SOUND], 0, "1 of 1 packages audited, 0 known weaknesses"),
        ([SOUND, WEAK], 1, "idna 3.1: PYSEC-2024-60, fixed in 3.7"),
        ([SKIPPED, WEAK], 1, "1 of 2 packages audited, 1 known weaknesses"),
        ([SOUND, SKIPPED], 3, "1 of 2 packages audited, 0 known weaknesses"),
        ([SKIPPED] * 7, 3, "not audited: 2 more"),
        ([], 3, "0 of 0 packages audited, 0 known weaknesses"),
    ],
)
def test_packages_that_were_not_audited_do_not_pass_for_sound(
    audit: dict[str, Any], dependencies: list[dict[str, Any]], code: int, line: str
) -> None:
    seen, lines = audit["outcome"](dependencies)
    assert seen == code
    assert line in lines


@pytest.mark.parametrize(("prints", "code"), [('{"dependencies": []}', 3), ("", 3)])
def test_a_tool_that_reports_nothing_fails_the_audit(
    audit: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], prints: str, code: int
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\nprintf '%s' '{prints}'\n")
    tool.chmod(0o755)
    assert audit["main"]([str(tool)]) == code
    assert "requirements.lock: " in capsys.readouterr().out


DIGEST = f"sha256:{'0123456789abcdef' * 4}"
ENGINE = """#!/bin/sh
echo "$@" >> "$0.calls"
case "$1 $4" in
  "buildx python:"*) printf '%s\\n' "{answer}";;
  build*) exit {code};;
  *) echo "no such image" >&2; exit 1;;
esac
"""


@pytest.fixture(scope="module")
def image() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "release" / "image.py")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(DOCKERFILE, tmp_path / "Dockerfile"))


def engine(folder: Path, *, answer: str = DIGEST, code: int = 0) -> str:
    path = folder / "engine"
    path.write_text(ENGINE.format(answer=answer, code=code))
    path.chmod(0o755)
    return str(path)


def calls(folder: Path) -> list[str]:
    return (folder / "engine.calls").read_text().splitlines()


def test_the_digest_of_now_is_written_behind_the_tag_and_again(
    image: dict[str, Any], file: Path, tmp_path: Path
) -> None:
    before = file.read_text()
    name, _ = image["base_of"](before)
    assert image["main"](["pin"], engine(tmp_path), file) == 0
    assert image["base_of"](file.read_text()) == (name, DIGEST)
    assert calls(tmp_path) == [f"buildx imagetools inspect {name} --format {{{{.Manifest.Digest}}}}"]
    newer = DIGEST.replace("0", "f")
    assert image["main"](["pin"], engine(tmp_path, answer=newer), file) == 0
    assert file.read_text() == before.replace(f"={name}", f"={name}@{newer}", 1)


def test_an_image_on_a_base_without_a_digest_is_not_built(
    image: dict[str, Any], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace(f"@{image['base_of'](file.read_text())[1]}", ""))
    assert image["main"](["build", "mine:1"], engine(tmp_path), file) == 3
    assert "has no digest: run `make image-pin`" in capsys.readouterr().err
    assert not (tmp_path / "engine.calls").exists()


@pytest.mark.parametrize(("code", "result"), [(0, 0), (125, 1)])
def test_an_image_on_a_held_base_is_built_from_the_root(
    image: dict[str, Any], file: Path, tmp_path: Path, code: int, result: int
) -> None:
    file.write_text(image["pinned"](file.read_text(), DIGEST))
    assert image["main"](["build", "mine:1"], engine(tmp_path, code=code), file) == result
    assert calls(tmp_path) == [f"build --file {file} --tag mine:1 {ROOT}"]


@pytest.mark.parametrize("answer", ["", "latest", DIGEST[:-1], f"{DIGEST}\\nmore"])
def test_what_is_no_digest_changes_nothing(
    image: dict[str, Any], file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    before = file.read_text()
    assert image["main"](["pin"], engine(tmp_path, answer=answer), file) == 3
    assert "is no digest" in capsys.readouterr().err
    assert file.read_text() == before


@pytest.mark.parametrize("command", ["false", "no-such-engine"])
def test_an_engine_that_fails_or_is_not_there_is_one_line(
    image: dict[str, Any], file: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert image["main"](["pin"], command, file) == 3
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_other_words_are_wrong_use(image: dict[str, Any], file: Path) -> None:
    assert image["main"](["build"], "false", file) == 2
