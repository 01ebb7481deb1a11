"""How the base image gets its digest. No registry is asked: a script stands in for the container engine."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.image_steps import DOCKERFILE
from tests.deploy.objects import ROOT, script_at

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
