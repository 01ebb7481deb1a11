"""The trigger over recorded windows: what the command tells of tables that a pipeline could have written."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from assignor_core.live import LiveCluster, LivePartition
from streaming import cli
from streaming.control.replaying import recorded_trace
from streaming.control.wiring import decider_of, journal_of, window_tables_of
from streaming.runtime import clocks
from streaming.settings import HOUR_MS, Settings
from streaming.views.broker_windows import capacities_of
from tests.control.test_deciding import DescribedCluster
from tests.control.windows import write_windows

WINDOW_MS = 60_000
SKEWED = [(1,), (1,), (1,), (2,), (3,)]
"""Broker 1 leads three of five partitions: 1.8 times the mean."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    content: dict[str, Any] = {"storage": {"tables": str(tmp_path / "tables")}, "trigger": {"resources": ["bytes_in"]}}
    (tmp_path / "settings.json").write_text(json.dumps(content))
    return Settings.model_validate(content)


def record(settings: Settings, *, windows: int) -> int:
    partitions = {("t", number): LivePartition(row, row[0], row) for number, row in enumerate(SKEWED)}
    end_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    live = LiveCluster("c", dict.fromkeys((1, 2, 3)), partitions)
    write_windows(settings, live, end_ms=end_ms, windows=windows)
    return end_ms


def backtest(tmp_path: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert cli.run(["backtest", "--config", str(tmp_path / "settings.json"), "--json", *arguments]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def windows_of_quarter(end_ms: int, now_ms: int) -> int:
    """How many of 30 windows up to `end_ms` began in the quarter of an hour before `now_ms`."""
    return sum(end_ms - index * WINDOW_MS >= now_ms - HOUR_MS // 4 for index in range(1, 31))


@pytest.mark.long
def test_settings_are_tried_on_the_same_past(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end_ms = record(settings, windows=30)
    shipped = backtest(tmp_path, capsys)
    assert (shipped["brokers"], shipped["windows"], shipped["triggers"], shipped["false_triggers"]) == (3, 30, 1, 0)
    # Until three windows were over and the plan took five more; of the 30, none after that.
    assert shipped["windows_in_skew"] == 8
    assert backtest(tmp_path, capsys, "--set", "trigger.enter_ratio=1.9")["triggers"] == 0
    # Plans that leave brokers at 1.6 mend no skew of 1.8, in as many windows.
    assert backtest(tmp_path, capsys, "--set", "planner.band=0.6")["windows_in_skew"] == 30
    # A slow machine may be minutes past the windows by now.
    before_ms = clocks.now_ms()
    tried = backtest(tmp_path, capsys, "--hours", "0.25")
    assert windows_of_quarter(end_ms, clocks.now_ms()) <= tried["windows"] <= windows_of_quarter(end_ms, before_ms)


def test_it_is_told_in_words_too(settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(settings, windows=10)
    assert cli.run(["backtest", "--config", str(tmp_path / "settings.json")]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "10 windows of 3 brokers, enter 1.3, exit 1.15, 3 of 5 windows, cooldown 10 min",
        "1 plan, 0 of them false: the skew would have passed by itself",
    ]


def test_loads_are_compared_by_capacity_where_it_is_known(settings: Settings) -> None:
    end_ms = record(settings, windows=2)
    content = settings.model_dump()
    content["planner"]["capacities"] = {
        1: {"bytes_in_per_sec": 3e6},
        2: {"bytes_in_per_sec": 1e6},
        3: {"bytes_in_per_sec": 1e6},
    }
    own = Settings.model_validate(content)
    capacities = capacities_of(own.planner)
    since_ms = end_ms - 2 * WINDOW_MS
    trace = recorded_trace(window_tables_of(own), own.trigger.resources, capacities, since_ms=since_ms)
    assert trace.loads["bytes_in"][0] == pytest.approx([5e6 / 3] * 3)


@pytest.mark.long
def test_the_decisions_of_that_time_are_made_again(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end_ms = record(settings, windows=10)
    partitions = {("t", number): LivePartition(row, row[0], row) for number, row in enumerate(SKEWED)}
    cluster = DescribedCluster(LiveCluster("c", dict.fromkeys((1, 2, 3)), partitions))
    now_ms = end_ms + settings.pipeline.watermark_ms
    decider_of(cluster, journal_of(settings), settings).tick(now_ms=now_ms)
    capsys.readouterr()  # what the decision logs
    report = backtest(tmp_path, capsys, "--decisions")
    assert report == {"decisions": 1, "same": 1, "different": []}
    other = backtest(tmp_path, capsys, "--decisions", "--set", "trigger.enter_ratio=1.9")
    assert (other["same"], len(other["different"])) == (0, 1)
    assert [other["different"][0][name] for name in ("reason_then", "reason_now")] == ["skewed", "balanced"]
    command = ["backtest", "--config", str(tmp_path / "settings.json"), "--decisions"]
    assert cli.run([*command, "--set", "trigger.enter_ratio=1.9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1 decision, 0 of them are the same now"
    assert "at most 1.9 allowed" in lines[-1]


def test_without_decisions_the_answer_says_so(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(settings, windows=3)
    assert cli.run(["backtest", "--config", str(tmp_path / "settings.json"), "--decisions"]) == 1
    assert capsys.readouterr().err.startswith("error: --decisions: found none in that time in ")


def test_without_windows_the_answer_says_so(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["backtest", "--config", str(tmp_path / "settings.json"), "--hours", "2"]) == 1
    assert capsys.readouterr().err.startswith("error: --hours 2: found no closed window in ")


@pytest.mark.long
def test_load_is_made_up_before_there_is_a_history(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generated = ("--generate", "steps", "--hours", "24")
    first = backtest(tmp_path, capsys, *generated)
    assert (first["brokers"], first["windows"], first["triggers"], first["false_triggers"]) == (6, 1440, 3, 0)
    assert backtest(tmp_path, capsys, *generated, "--seed", "1", "--noise", "0.06") == first
    assert backtest(tmp_path, capsys, *generated, "--seed", "2") != first
    assert backtest(tmp_path, capsys, *generated, "--set", "trigger.enter_ratio=3")["triggers"] == 0
    planned = backtest(tmp_path, capsys, "--plans", "--generate", "steps", "--hours", "4")
    assert len(planned["policies"][0]["plans"]) >= 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--generate", "none"), "error: scenario 'none': unknown, allowed are diurnal, "),
        (("--seed", "2"), "error: --seed: goes with --generate only"),
        (("--noise", "0.1"), "error: --noise: goes with --generate only"),
        (("--generate", "steps", "--decisions"), "error: --generate and --decisions can't go together"),
        (("--generate", "steps", "--hours", "9999"), "error: --hours 9999: allowed with --generate are at most 1344"),
        (
            ("--generate", "steps", "--set", "pipeline.window_ms=30000"),
            "error: pipeline.window_ms: found 30000, allowed with --generate is 60000",
        ),
    ],
)
def test_what_does_not_go_with_generated_load_is_refused(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str
) -> None:
    assert cli.run(["backtest", "--config", str(tmp_path / "settings.json"), *arguments]) == 2
    assert capsys.readouterr().err.startswith(error)
