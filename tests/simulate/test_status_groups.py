"""`rebalancer status --groups` on real Delta tables."""

import json
from pathlib import Path

import pytest

from streaming import cli, tables
from tests.simulate.group_windows import START_MS, WINDOW_MS, member, window


def status(root: Path, *options: str) -> int:
    return cli.run(["status", "--groups", "--set", f"storage.tables={root}", *options])


def test_groups_that_rebalance_are_named_with_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for number in range(5):
        window(tmp_path, number, "restless", {0: member("a", 0), 1: member("b", number)})
        window(tmp_path, number, "calm", {0: member("c", 0), 1: member("c", 0)})
    assert status(tmp_path, "--json") == 0
    restless, calm = json.loads(capsys.readouterr().out)
    assert (restless["group"], restless["rebalances"], restless["flapping"]) == ("restless", 4, {"b": 4})
    assert restless["events"][0] == {
        "after_ms": START_MS + 30_000, "until_ms": START_MS + WINDOW_MS + 30_000, "cause": "members restarted",
        "rebalances": 1, "members_in": [member("b", 1)], "members_out": [member("b", 0)], "restarted": ["b"],
        "partitions_moved": 0, "partitions_unowned": 0,
    }  # fmt: skip
    assert (calm["rebalances"], calm["members"], calm["hints"]) == (0, 1, [])
    assert status(tmp_path) == 0
    shown = capsys.readouterr().out
    assert "restless: 4 of 4 rebalances were members that came back" in shown
    assert "calm:" not in shown


def test_without_windows_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables.create_table(str(tmp_path), "group_lag")
    assert status(tmp_path) == 0
    assert "no window of group_lag" in capsys.readouterr().out
