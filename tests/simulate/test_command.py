"""`rebalancer simulate` as it is called, and the pictures."""

import json
from pathlib import Path

import pytest

from assignor_core.group.simulation import simulate
from streaming import cli
from streaming.simulate.scenario_file import load_scenarios
from streaming.simulate.timeline import timeline_of
from tests.core.group.scenarios import random_scenario
from tests.simulate.test_files import SHIPPED, SMALL, written

STORY = SMALL + "events: [{at_s: 60, restart: {member: c-1, down_s: 8}}]\n"
VARIANTS = "variants: {eager: {}, static: {members: {static: true}}}\n"


def test_text_for_people_names_the_variants_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.run(["simulate", str(written(tmp_path, STORY + VARIANTS))]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Small"
    (names,) = [line.split() for line in lines if line.split()[:1] == ["eager"] and "static" in line]
    assert names == ["eager", "static"]
    assert ["rebalances", "2", "0"] in [line.split() for line in lines]


def test_json_holds_every_rebalance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", str(written(tmp_path, STORY + VARIANTS)), "--json"]) == 0
    eager, static = json.loads(capsys.readouterr().out)["variants"]
    assert [one["cause"] for one in eager["rebalances"][1:]] == ["c-1 leaves", "c-1 starts"]
    assert eager["rebalances"][1]["revoked"] == 2
    assert eager["totals"]["rebalances"] == 2
    assert (static["totals"]["rebalances"], static["totals"]["idle_longest_ms"] > 8_000) == (0, True)


def test_json_and_trace_of_the_consumer_protocol_have_its_epochs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STORY + "variants: {consumer: {members: {protocol: consumer}}}\n"
    assert cli.run(["simulate", str(written(tmp_path, text)), "--json"]) == 0
    (consumer,) = json.loads(capsys.readouterr().out)["variants"]
    epochs = [(one["cause"], one["generation_id_before"], one["generation_id"]) for one in consumer["rebalances"][1:]]
    assert epochs == [("c-1 leaves", 3, 4), ("c-1 joins", 4, 5)]
    assert cli.run(["simulate", str(written(tmp_path, text)), "--trace"]) == 0
    trace = capsys.readouterr().out
    assert "group is Assigning, epoch 4: c-1 leaves" in trace
    assert "c-0 is at epoch 4, UNREVOKED_PARTITIONS t-0 t-1" in trace


def test_the_trace_is_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for _ in range(2):
        assert cli.run(["simulate", str(written(tmp_path, STORY)), "--trace"]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "c-1 stopped" in texts[0]


@pytest.mark.long
def test_page_and_picture_are_written_whole_and_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, pictures = tmp_path / "page.html", (tmp_path / "1.png", tmp_path / "2.png")
    for picture in pictures:
        story = str(written(tmp_path, STORY + VARIANTS))
        assert cli.run(["simulate", story, "--png", str(picture), "--html", str(page)]) == 0
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    text = page.read_text(encoding="utf-8")
    assert "data:image/png;base64," in text
    assert "c-1 leaves" in text
    assert "http" not in text.partition("base64,")[0], "the page needs nothing from elsewhere"
    assert not list(tmp_path.glob(".*.part"))


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["simulate", str(written(tmp_path, SMALL + "colour: red"))]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    story = str(written(tmp_path, STORY))
    assert cli.run(["simulate", story, "--png", str(tmp_path / "none" / "picture.png")]) == 2
    assert "--png" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_hatched_time_is_the_idle_time_of_the_figures(file: Path) -> None:
    for variant in load_scenarios(file):
        run = simulate(variant.scenario)
        from_ms = run.rebalances[0].ended_ms
        assert from_ms is not None
        bars = timeline_of(run, run.end_ms).bars
        hatched_ms = sum(bar.end_ms - max(bar.start_ms, from_ms) for bar in bars if bar.idle and bar.end_ms > from_ms)
        never_read_ms = run.totals.idle_partition_ms - hatched_ms
        grown = any("partitions" in entry.detail and entry.what.name == "TOPIC" for entry in run.trace)
        assert (never_read_ms > 0) if grown else (never_read_ms == 0), "a partition nobody had read has no row"


@pytest.mark.long
def test_no_two_bars_of_a_row_cover_each_other() -> None:
    for seed in range(60):
        run = simulate(random_scenario(seed))
        places: dict[tuple[str, int], int] = {}
        for bar in timeline_of(run, run.end_ms).bars:
            assert bar.start_ms >= places.get((bar.member, bar.slot), 0)
            places[bar.member, bar.slot] = bar.end_ms


def test_a_picture_that_begins_later_leaves_no_room_for_what_was_before() -> None:
    """The first member of a group of the consumer protocol has all partitions for a moment."""
    (file,) = [file for file in SHIPPED if file.stem == "rolling-restart"]
    (variant,) = [one for one in load_scenarios(file) if one.name == "consumer protocol"]
    run = simulate(variant.scenario)
    shown = timeline_of(run, run.end_ms, variant.show_from_ms)
    assert (timeline_of(run, run.end_ms).slots, shown.slots) == (40, 5)
    assert len(set(shown.first_reader.values())) == 10
    assert min(bar.start_ms for bar in shown.bars) == variant.show_from_ms
