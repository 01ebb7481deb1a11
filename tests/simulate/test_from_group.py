"""`rebalancer simulate --group`: a group of the user's own, out of real tables."""

import json
from pathlib import Path

import pytest

from streaming import cli
from streaming.simulate.scenario_file import load_scenarios
from tests.simulate.group_windows import member, window


def simulate(root: Path, *options: str) -> int:
    return cli.run(["simulate", "--set", f"storage.tables={root}", *options])


def test_a_group_is_restarted_three_ways_and_its_scenario_can_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, scenario = tmp_path / "tables", tmp_path / "billing.yaml"
    window(tables, 0, "billing", {0: member("gone", 0), 1: member("gone", 0)})
    window(tables, 1, "billing", {number: member("abc"[number % 3], 0) for number in range(6)})
    assert simulate(tables, "--group", "billing", "--json", "--out", str(scenario)) == 0
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
    assert simulate(tmp_path, "--group", "billing", "--json", "--out", str(scenario)) == 0
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
    assert simulate(tmp_path, *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_without_tables_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(tmp_path / "none", "--group", "billing") == 2
    assert "no window of group_lag" in capsys.readouterr().err
