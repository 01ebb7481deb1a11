"""Pictures of the pages are drawn from the present sources: each has a stamp of those that it was drawn from."""

import importlib.util
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from tests.docs.pictures import (
    BOARDS,
    DOCS,
    NO_SOURCES,
    PICTURES,
    Drawn,
    chunks,
    fingerprint,
    out_of_date,
    place,
    stamp_of,
    stamped,
)
from tests.docs.prose import ROOT


def test_each_picture_is_of_the_present_sources() -> None:
    """What this names must be drawn again, by the command beside it."""
    assert out_of_date() == {}


def test_every_picture_has_its_sources_or_is_drawn_by_hand() -> None:
    there = {file for folder in ("images", "pictures") for file in (DOCS / folder).iterdir()}
    assert there == {place(name) for name in PICTURES} | {DOCS / "images" / name for name in NO_SOURCES}
    assert sorted(BOARDS) == sorted(file.stem for file in (ROOT / "deploy/grafana/dashboards").glob("*.json"))


def test_another_source_and_a_picture_without_a_stamp_are_noticed(tmp_path: Path) -> None:
    for name, drawn in PICTURES.items():
        copied = place(name, tmp_path)
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(stamped(place(name).read_bytes(), fingerprint(drawn)))
        for pattern in drawn.sources:
            for file in ROOT.glob(pattern):
                copy = tmp_path / file.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
    assert out_of_date(tmp_path, tmp_path) == {}
    with (tmp_path / "deploy/grafana/dashboards/rebalancer-lag.json").open("a") as board:
        board.write(" ")
    (tmp_path / "conf/scenarios/rolling-restart.yaml").write_text("seed: 2\n")
    place("demo.png", tmp_path).write_bytes(drawing(tmp_path))
    with (tmp_path / "streaming/serve/page/audit.js").open("a") as script:
        script.write("\n")
    assert out_of_date(tmp_path, tmp_path) == {
        name: PICTURES[name].command
        for name in ("page-audit.png", "rebalancer-lag.png", "demo.png", "group-rolling-restart.png")
    }


def drawing(folder: Path) -> bytes:
    file = folder / "drawing.png"
    Figure(figsize=(1, 1)).savefig(file, metadata={"Software": "drawn"})
    return file.read_bytes()


def test_a_stamp_changes_nothing_else_and_replaces_the_one_before(tmp_path: Path) -> None:
    plain = drawing(tmp_path)
    once = stamped(plain, "1" * 64)
    again = stamped(once, "2" * 64)
    assert (stamp_of(plain), stamp_of(once), stamp_of(again)) == (None, "1" * 64, "2" * 64)
    assert [kind for kind, _ in chunks(again)] == [b"IHDR", b"tEXt", *[kind for kind, _ in chunks(plain)][1:]]
    (tmp_path / "again.png").write_bytes(again)
    assert (imread(tmp_path / "again.png") == imread(tmp_path / "drawing.png")).all()


def test_a_source_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"no/such\.py"):
        fingerprint(Drawn("make none", ("no/such.py",)))


@pytest.mark.parametrize("inches", [0.05, 0.6, 1.0, 9.0])
def test_a_label_keeps_to_its_room_and_loses_nothing(inches: float) -> None:
    spec = importlib.util.spec_from_file_location("panels", ROOT / "deploy" / "grafana" / "panels.py")
    assert spec
    assert spec.loader
    panels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(panels)
    label = "brokers with a throttle left"
    lines = panels.wrapped(label, inches).splitlines()
    assert "".join(lines).replace(" ", "") == label.replace(" ", "")
    assert max(map(len, lines)) <= max(1, inches / panels.CHARACTER_INCHES)
