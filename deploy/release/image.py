"""The image on a base that is held by its digest: `python deploy/release/image.py pin`, then `build TAG`.

`pin` asks the engine which digest the base image of the Dockerfile has now, and writes it behind the tag. `build`
refuses a base without a digest: a tag can be moved to another image. ENGINE names the command, docker by default.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "compose" / "Dockerfile"
BASE = re.compile(r"^ARG PYTHON_IMAGE=(?P<name>[\w./:-]+?)(?P<digest>@sha256:[0-9a-f]{64})?$", re.MULTILINE)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class NotPinned(Exception):
    """The base image has no digest, or none can be learnt; the message is one line."""


def base_of(dockerfile: str) -> tuple[str, str | None]:
    """Name with tag, and digest, of the base image; raises NotPinned where the file does not name it so.

    >>> base_of("ARG PYTHON_IMAGE=python:3.11.9-slim-bookworm")
    ('python:3.11.9-slim-bookworm', None)
    """
    named = BASE.search(dockerfile)
    if named is None:
        raise NotPinned("the Dockerfile has no line like ARG PYTHON_IMAGE=NAME:TAG@sha256:DIGEST")
    return named["name"], named["digest"][1:] if named["digest"] else None


def pinned(dockerfile: str, digest: str) -> str:
    """The Dockerfile with this digest behind the tag of its base image; raises NotPinned for what is no digest."""
    if not DIGEST.fullmatch(digest):
        raise NotPinned(f"{digest!r} is no digest: sha256: and 64 hexadecimal digits")
    name, _ = base_of(dockerfile)
    return BASE.sub(f"ARG PYTHON_IMAGE={name}@{digest}", dockerfile, count=1)


def pin(engine: str, file: Path) -> str:
    """Write the digest that the base image has now into the file; returns the whole name. Raises NotPinned."""
    text = file.read_text(encoding="utf-8")
    name, _ = base_of(text)
    # The digest of the list of all processors, so that one pin holds for amd64 and arm64.
    command = [engine, "buildx", "imagetools", "inspect", name, "--format", "{{.Manifest.Digest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotPinned(f"{engine}: {error.strerror}") from None
    if done.returncode:
        raise NotPinned(f"{engine} can't look up {name}: {(done.stderr.strip().splitlines() or ['no reason'])[-1]}")
    digest = done.stdout.strip()
    file.write_text(pinned(text, digest), encoding="utf-8")
    return f"{name}@{digest}"


def build(engine: str, file: Path, tag: str) -> int:
    """Build the image; the engine's exit code. Raises NotPinned."""
    name, digest = base_of(file.read_text(encoding="utf-8"))
    if digest is None:
        raise NotPinned(f"the base image {name} has no digest: run `make image-pin` and commit what it changes")
    return subprocess.run([engine, "build", "--file", str(file), "--tag", tag, str(ROOT)], check=False).returncode


def main(arguments: Sequence[str], engine: str, file: Path = DOCKERFILE) -> int:
    """0 done, 1 the engine failed, 2 wrong use, 3 refused."""
    try:
        if arguments == ["pin"]:
            print(pin(engine, file))
            return 0
        if len(arguments) == 2 and arguments[0] == "build":
            return min(build(engine, file, arguments[1]), 1)
    except NotPinned as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    print("usage: image.py pin | build TAG", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ.get("ENGINE", "docker")))
