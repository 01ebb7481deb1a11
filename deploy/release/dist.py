"""Wheel and sdist of the commit that is checked out: `python deploy/release/dist.py [FOLDER]`, by default into `dist`.

Two builds of one commit are equal byte for byte: times are the commit's (SOURCE_DATE_EPOCH), owners and modes fixed. A
commit with a tag like v1.2.3 has that version, and needs a section of it in CHANGELOG.md. Any other commit has the
version of pyproject.toml with its own id (1.2.3.dev0+g1234567). Nothing is fetched: setuptools is in the lock.
"""

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.compile(r'^version = "([^"]+)"$', re.MULTILINE)
TAG = re.compile(r"v(\d+\.\d+\.\d+)")
BUILD = "from setuptools import build_meta as b; b.build_wheel({0!r}); b.build_sdist({0!r})"
TIMEOUT_S = 600
SMALL_MODE, PROGRAM_MODE = 0o644, 0o755
SHARED_UMASK = 0o022
"""Modes of files that setuptools makes, whatever the umask of who builds."""


class NotReleasable(Exception):
    """The commit can't become a package; the message is one line."""


def version_of(fallback: str, commit: str, tags: list[str], changelog: str) -> str:
    """Version of the package. Raises NotReleasable for two versions at once, or one that the changelog does not have.

    >>> version_of("1.2.0", "1234567", [], "")
    '1.2.0.dev0+g1234567'
    >>> version_of("1.2.0", "1234567", ["v1.3.0", "old"], "## [1.3.0] - 2026-01-31")
    '1.3.0'
    """
    tagged = [match.group(1) for match in map(TAG.fullmatch, tags) if match]
    if not tagged:
        return f"{fallback}.dev0+g{commit}"
    if len(tagged) > 1:
        raise NotReleasable(f"the commit has the tags of {len(tagged)} versions: {', '.join(sorted(tagged))}")
    if not re.search(rf"^## \[{re.escape(tagged[0])}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise NotReleasable(f"CHANGELOG.md has no section like '## [{tagged[0]}] - 2026-01-31'")
    return tagged[0]


def build(tree: Path, version: str, epoch_s: int, folder: Path) -> list[Path]:
    """Build `tree`, which is changed for it; returns wheel and sdist. `epoch_s` is the time of all files in them."""
    project = tree / "pyproject.toml"
    project.write_text(VERSION.sub(f'version = "{version}"', project.read_text(encoding="utf-8"), count=1))
    _settle(tree)
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as made:
        command = [sys.executable, "-c", BUILD.format(made)]
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            umask=SHARED_UMASK,
        )  # fmt: skip
        if done.returncode:
            raise NotReleasable(f"setuptools: {(done.stderr.splitlines() or ['failed'])[-1]}")
        results = []
        for package in sorted(Path(made).iterdir()):
            content = package.read_bytes()
            results.append(folder / package.name)
            results[-1].write_bytes(_even(content, epoch_s) if package.name.endswith(".tar.gz") else content)
    return results


def _settle(tree: Path) -> None:
    """Files in the place of links, and modes that no umask changes."""
    for path in sorted(tree.rglob("*")):
        if path.is_dir():
            path.chmod(PROGRAM_MODE)
            continue
        program = os.access(path, os.X_OK)
        if path.is_symlink():
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
        path.chmod(PROGRAM_MODE if program else SMALL_MODE)


def _even(archive: bytes, epoch_s: int) -> bytes:
    """The same .tar.gz with sorted members, one time, and nobody as owner: setuptools does not do it for sdists."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda row: row.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch_s) as stream:
        stream.write(plain.getvalue())
    return packed.getvalue()


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise NotReleasable(f"git {arguments[0]} fails in {ROOT}: a package is built of a commit") from None


def main(folder: Path) -> int:
    """Build HEAD into `folder`; what is not committed is left out. Returns the exit code."""
    try:
        commit, time_s = _git("log", "-1", "--format=%h %ct").decode().split()
        tags = _git("tag", "--points-at", "HEAD").decode().split()
        with tempfile.TemporaryDirectory() as scratch:
            tree = Path(scratch) / "tree"
            with tarfile.open(fileobj=io.BytesIO(_git("archive", "HEAD"))) as archive:
                archive.extractall(tree, filter="tar")
            (fallback,) = VERSION.findall((tree / "pyproject.toml").read_text(encoding="utf-8"))[:1]
            changelog = (tree / "CHANGELOG.md").read_text(encoding="utf-8")
            for package in build(tree, version_of(fallback, commit, tags, changelog), int(time_s), folder):
                print(package)
    except NotReleasable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "dist"))
