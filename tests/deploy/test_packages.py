"""What `make dist` builds: the same bytes each time, and packages that need no repository round them."""

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.objects import ROOT, script_at

pytestmark = pytest.mark.long

EPOCH_S = 1_795_000_000
TIMEOUT_S = 600
BUILT = ("streaming", "assignor_core", "conf")
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "requirements.lock")


@pytest.fixture(scope="module")
def dist() -> dict[str, Any]:
    return script_at(ROOT / "deploy" / "release" / "dist.py")


def tree_at(folder: Path) -> Path:
    """What a build needs of the repository, as it lies there."""
    for name in BUILT:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy2(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def built(dist: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheel and sdist."""
    tree, folder = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    packages: list[Path] = dist["build"](tree_at(tree), "9.8.7", EPOCH_S, folder)
    return packages


def test_two_builds_are_equal_byte_for_byte(
    dist: dict[str, Any], built: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder, another hour, another time zone, another umask, and files that only their owner may read."""
    tree = tree_at(tmp_path)
    for path in tree.rglob("*.py"):
        path.chmod(0o600)
        os.utime(path, (EPOCH_S + 7_000, EPOCH_S + 7_000))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        again = dist["build"](tree, "9.8.7", EPOCH_S, tmp_path / "again")
    finally:
        os.umask(before)
    assert [path.name for path in again] == [path.name for path in built]
    assert len(built) == 2
    for first, second in zip(built, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def installed(package: Path, folder: Path) -> Path:
    """Folder with what pip makes of the package; its dependencies are those of this environment."""
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-index",
        "--no-build-isolation", "--no-compile", "--target", str(folder), str(package),
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=TIMEOUT_S, cwd=folder.parent)
    return folder


def answer(installation: Path, *arguments: str) -> str:
    """What a Python prints that finds our packages there alone."""
    environment = {**os.environ, "PYTHONPATH": str(installation)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, env=environment, cwd=installation.parent, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    return done.stdout


def test_an_installed_wheel_has_all_that_commands_and_the_demo_read(built: list[Path], tmp_path: Path) -> None:
    (wheel,) = [path for path in built if path.suffix == ".whl"]
    there = installed(wheel, tmp_path / "there")
    assert "demo" in answer(there, "-m", "streaming", "--help")
    assert "--records" in answer(there, "-m", "streaming", "demo", "--help")
    assert answer(there, "-m", "streaming", "--version").strip().endswith("9.8.7")
    code = (
        "from streaming.runtime import jars; from streaming.demo import brokers; "
        "print(jars.IVY_MANIFEST, jars.CHECKSUMS, brokers.JMX_RULES)"
    )
    for path, source in zip(
        map(Path, answer(there, "-c", code).split()),
        ("conf/ivy.xml", "conf/jars.sha256", "deploy/jmx/kafka-broker.yaml"),
        strict=True,
    ):
        assert path.is_relative_to(there)
        assert not path.is_symlink()
        assert path.read_bytes() == (ROOT / source).read_bytes()


def test_an_sdist_makes_the_same_package(dist: dict[str, Any], built: list[Path], tmp_path: Path) -> None:
    (sdist,) = [path for path in built if path.name.endswith(".tar.gz")]
    with tarfile.open(sdist) as archive:
        assert {(member.uid, member.uname, member.mtime) for member in archive} == {(0, "", EPOCH_S)}
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    packages = dist["build"](tree, "9.8.7", EPOCH_S, tmp_path / "again")
    (wheel,) = [path for path in packages if path.suffix == ".whl"]
    assert wheel.read_bytes() in [path.read_bytes() for path in built]


def test_no_file_of_the_packages_is_left_out(built: list[Path]) -> None:
    (sdist,) = [path for path in built if path.name.endswith(".tar.gz")]
    with tarfile.open(sdist) as archive:
        packed = {"/".join(Path(name).parts[1:]) for name in archive.getnames()}
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", *BUILT], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(listed) > 100
    assert {name for name in listed if (ROOT / name).exists()} <= packed
