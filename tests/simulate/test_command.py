"""`rebalancer simulate` as it is called, of a file or of a group in the tables, and the pictures."""

import json
from pathlib import Path

import pytest

from assignor_core.group.simulation import simulate
from streaming import cli
from streaming.simulate.scenario_file import load_scenarios
from streaming.simulate.timeline import timeline_of
from tests.core.group.scenarios import random_scenario
from tests.simulate.group_windows import member, window
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


@pytest.mark.long
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


def simulated(root: Path, *options: str) -> int:
    return cli.run(["simulate", "--set", f"storage.tables={root}", *options])


@pytest.mark.long
def test_a_group_is_restarted_three_ways_and_its_scenario_can_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, scenario = tmp_path / "tables", tmp_path / "billing.yaml"
    window(tables, 0, "billing", {0: member("gone", 0), 1: member("gone", 0)})
    window(tables, 1, "billing", {number: member("abc"[number % 3], 0) for number in range(6)})
    assert simulated(tables, "--group", "billing", "--json", "--out", str(scenario)) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["title"] == "Rolling restart of billing"
    rebalances = {variant["name"]: variant["totals"]["rebalances"] for variant in report["variants"]}
    assert rebalances == {"eager": 6, "cooperative": 6, "static": 0, "consumer protocol": 6}
    kept = load_scenarios(scenario)[0].scenario
    assert sorted(kept.processes) == ["a", "b", "c"]
    # 600 records within the 30 s between the first and the last sample.
    assert (kept.topics["t"].partitions, kept.topics["t"].records_per_sec) == (6, 20.0)


def test_members_with_one_client_id_are_numbered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    window(tmp_path, 0, "billing", {0: member("app", 0), 1: member("app", 1)})
    scenario = tmp_path / "billing.yaml"
    assert simulated(tmp_path, "--group", "billing", "--json", "--out", str(scenario)) == 0
    capsys.readouterr()
    assert sorted(load_scenarios(scenario)[0].scenario.processes) == ["member-0", "member-1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "needs a scenario file or --group NAME"),
        (("x.yaml", "--group", "billing"), "and not both"),
        (("--group", "biling"), "--group biling: not in the newest windows, which have billing, idle"),
        (("--group", "idle"), "--group idle: nobody owned its partitions"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    window(tmp_path, 0, "billing", {0: member("a", 0)})
    window(tmp_path, 0, "idle", {0: None})
    assert simulated(tmp_path, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_without_tables_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulated(tmp_path / "none", "--group", "billing") == 2
    assert "no window of group_lag" in capsys.readouterr().err
