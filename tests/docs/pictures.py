"""Which sources each picture of docs/images and docs/pictures was drawn from, as a stamp in the picture.

    .venv/bin/python -m tests.docs.pictures           # what must be drawn again, and by which command
    .venv/bin/python -m tests.docs.pictures NAME ...  # stamp pictures that were drawn from the present sources

A stamp is the SHA-256 of the sources, in a tEXt chunk of the PNG. `make boards-pictures` and `make page-pictures` stamp
what they draw. Stamp by hand only what a command has just drawn: a stamp on an older picture hides that it is out of
date.
"""

import hashlib
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.prose import ROOT

DOCS = ROOT / "docs"
KEYWORD = b"Sources-SHA256"
SIGNATURE = b"\x89PNG\r\n\x1a\n"
NO_SOURCES = frozenset({"concept-bound.svg", "concept-lease.svg", "concept-load.svg", "concept-skew.svg",
                        "concept-verdict.svg", "concept-window.svg"})  # fmt: skip
"""Drawn by hand: the file is its own source."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A picture of a command: the command, and patterns of the files that decide what it looks like."""

    command: str
    sources: tuple[str, ...]
    folder: str = "images"
    """Where it lies, below docs."""


DEMO = "make boards-pictures"
SIMULATE = (
    ".venv/bin/rebalancer simulate conf/scenarios/rolling-restart.yaml --png docs/images/group-rolling-restart.png"
    " && .venv/bin/python -m tests.docs.pictures group-rolling-restart.png"
)


def _board(name: str) -> Drawn:
    drawing = ("deploy/grafana/panels.py", "deploy/grafana/pictures.py")
    return Drawn(DEMO, (f"deploy/grafana/dashboards/{name}.json", *drawing))


PAGE = tuple(
    f"streaming/serve/page/{name}"
    for name in ("page.html", "head.html", "account.html", "page.css", "elements.js", "units.js")
)


def _page(*scripts: str) -> Drawn:
    own = tuple(f"streaming/serve/page/{script}.js" for script in scripts)
    return Drawn("make page-pictures", (*PAGE, *own, "tests/serve/page_pictures.py"), "pictures")


BOARDS = ("rebalancer-balance", "rebalancer-broker", "rebalancer-health", "rebalancer-lag", "rebalancer-rebalances")
PAGES: Mapping[str, Drawn] = {
    f"page-{name}.png": _page(*scripts)
    for name, scripts in {
        "overview": ("overview", "execution", "plot", "resources"),
        "plan": ("plan", "acting", "resources"),
        "groups": ("views", "groups"),
        "group": ("views", "groups", "plot"),
        "broker": ("views", "load", "plot"),
        "topic": ("views", "load", "plot"),
        "partition": ("views", "load", "plot"),
        "decisions": ("views", "decisions", "decision"),
        "decision": ("views", "decision"),
        "executions": ("views", "executions"),
        "execution": ("views", "executions"),
        "audit": ("views", "audit"),
    }.items()
}
PICTURES: Mapping[str, Drawn] = {
    **PAGES,
    **{f"{name}.png": _board(name) for name in BOARDS},
    "demo.png": Drawn(DEMO, ("streaming/demo/report.py",)),
    "group-rolling-restart.png": Drawn(
        SIMULATE,
        (
            "conf/scenarios/rolling-restart.yaml", "streaming/simulate/plot.py", "streaming/simulate/timeline.py",
            "assignor_core/group/**/*.py",
        ),
    ),
}  # fmt: skip


def fingerprint(drawn: Drawn, root: Path = ROOT) -> str:
    """SHA-256, in hex, of the names and the content of the sources. A pattern without a file is an error."""
    digest = hashlib.sha256()
    for pattern in drawn.sources:
        files = sorted(root.glob(pattern))
        if not files:
            raise FileNotFoundError(f"{pattern}: no file of this name")
        for file in files:
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and content of each chunk of a PNG."""
    if not png.startswith(SIGNATURE):
        raise ValueError("not a PNG")
    at = len(SIGNATURE)
    while at < len(png):
        length = int.from_bytes(png[at : at + 4])
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


def stamp_of(png: bytes) -> str | None:
    """The stamp of a picture, or None if it has none."""
    for kind, content in chunks(png):
        keyword, _, text = content.partition(b"\0")
        if kind == b"tEXt" and keyword == KEYWORD:
            return text.decode("latin-1")
    return None


def stamped(png: bytes, stamp: str) -> bytes:
    """The same picture with this stamp and no other, behind the header."""
    kept = [
        (kind, content)
        for kind, content in chunks(png)
        if not (kind == b"tEXt" and content.partition(b"\0")[0] == KEYWORD)
    ]
    kept.insert(1, (b"tEXt", KEYWORD + b"\0" + stamp.encode("latin-1")))
    return SIGNATURE + b"".join(
        len(content).to_bytes(4) + kind + content + zlib.crc32(kind + content).to_bytes(4) for kind, content in kept
    )


def stamp(file: Path) -> None:
    """Stamp a picture that was just drawn, whose name is that of a picture of the docs."""
    file.write_bytes(stamped(file.read_bytes(), fingerprint(PICTURES[file.name])))


def place(name: str, docs: Path = DOCS) -> Path:
    """Where the picture of this name lies."""
    return docs / PICTURES[name].folder / name


def out_of_date(docs: Path = DOCS, root: Path = ROOT) -> dict[str, str]:
    """The command that draws it, of each picture that is not stamped with the present sources."""
    return {
        name: drawn.command
        for name, drawn in PICTURES.items()
        if stamp_of(place(name, docs).read_bytes()) != fingerprint(drawn, root)
    }


def main(names: list[str]) -> int:
    """The command lines above."""
    for name in names:
        stamp(place(name))
    for name, command in out_of_date().items():
        print(f"{name} was drawn from other sources: {command}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
