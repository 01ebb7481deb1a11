"""`rebalancer status --groups` on real Delta tables."""

import json
from pathlib import Path

import pytest

from streaming import cli, tables
from streaming.commands import status as status_command
from streaming.pipeline.group_events import GroupEventKeeper
from streaming.settings import PipelineSettings, Settings
from streaming.tables import TableReader
from streaming.views.group_history import read_group_past, read_group_pasts
from streaming.views.group_memberships import read_group_standings
from tests.simulate.group_windows import START_MS, WINDOW_MS, member, window


def compare(root: Path) -> None:
    """What the pipeline does with windows that have closed."""
    GroupEventKeeper(str(root), "main", PipelineSettings(window_ms=WINDOW_MS)).keep()


def status(root: Path, *options: str) -> int:
    return cli.run(["status", "--groups", "--set", f"storage.tables={root}", *options])


def test_groups_that_rebalance_are_named_with_what_would_help(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for number in range(5):
        window(tmp_path, number, "restless", {0: member("a", 0), 1: member("b", number)})
        window(tmp_path, number, "calm", {0: member("c", 0), 1: member("c", 0)})
    compare(tmp_path)
    capsys.readouterr()
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


def settings_of(root: Path) -> Settings:
    return Settings.model_validate({"kafka": {"cluster_name": "main"}, "storage": {"tables": str(root)}})


def test_all_groups_are_shown_as_each_is_by_its_own_windows(tmp_path: Path) -> None:
    """Of all, events are those that the pipeline has kept; of one, they are told from its windows."""
    for number in range(5):
        window(tmp_path, number, "restless", {0: member("a", 0), 1: member("b", number)})
        window(tmp_path, number, "growing", {partition: member("c", partition) for partition in range(number + 1)})
        window(tmp_path, number, "calm", {0: member("d", 0), 1: None})
    compare(tmp_path)
    reader, settings = TableReader(str(tmp_path)), settings_of(tmp_path)
    pasts = read_group_pasts(reader, settings)
    assert [past.group for past in pasts] == ["growing", "restless", "calm"]
    assert pasts == [read_group_past(reader, settings, past.group, partitions=2) for past in pasts]


def test_windows_before_the_newest_are_not_read_of_all_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Six hours of them were millions of rows."""
    for number in range(6):
        window(tmp_path, number, "restless", {0: member("a", number)})
    compare(tmp_path)
    capsys.readouterr()
    oldest_first = files_of(tmp_path)
    for number in range(3):
        (old,) = (tmp_path / "group_lag").rglob(oldest_first[number])
        old.unlink()
    assert status(tmp_path, "--json") == 0
    (restless,) = json.loads(capsys.readouterr().out)
    assert (restless["rebalances"], restless["members"]) == (5, 1)


def files_of(root: Path) -> list[str]:
    """Names of the files of `group_lag`, those of the oldest window first."""
    delta = tables.open_table(str(root), "group_lag")
    assert delta is not None
    files = tables.file_statistics(delta, "window_start").sort_by("least")
    return [path.rsplit("/", 1)[-1] for path in files["path"].to_pylist()]


def test_a_group_that_is_gone_is_shown_while_its_rebalances_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    window(tmp_path, 0, "gone", {0: member("a", 0)})
    window(tmp_path, 1, "gone", {0: member("a", 0), 1: member("b", 0)})
    for number in range(6):
        window(tmp_path, number, "calm", {0: member("c", 0)})
    compare(tmp_path)
    capsys.readouterr()
    assert status(tmp_path, "--json") == 0
    gone, calm = json.loads(capsys.readouterr().out)
    assert (gone["group"], gone["rebalances"], gone["state"], gone["members"]) == ("gone", 1, "Stable", 2)
    assert calm["rebalances"] == 0


def test_a_terminal_shows_those_with_most_rebalances(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_command, "GROUPS_SHOWN", 1)
    for number in range(2):
        window(tmp_path, number, "calm", {0: member("a", 0)})
        window(tmp_path, number, "restless", {0: member("a", number)})
    compare(tmp_path)
    assert status(tmp_path) == 0
    shown = capsys.readouterr().out
    assert "1 of 2 groups, those with most rebalances; --json has all" in shown
    assert "calm" not in shown


def test_rebalances_that_an_earlier_release_has_kept_have_the_names_of_member_ids(tmp_path: Path) -> None:
    for number in range(4):
        window(tmp_path, number, "restless", {0: member("a", 0), 1: member("b", number)})
    compare(tmp_path)
    table = tables.open_table(str(tmp_path), "group_event")
    assert table is not None
    table.update({"names_in_json": "null", "names_out_json": "null", "partitions_owned": "null"})
    (past,) = read_group_pasts(TableReader(str(tmp_path)), settings_of(tmp_path))
    assert (past.advice.flapping, past.advice.restarts, past.advice.moved_ratio) == ((("b", 3),), 3, None)


def test_members_are_those_of_the_newest_sample_of_each_group(tmp_path: Path) -> None:
    window(tmp_path, 0, "older", {0: member("a", 0), 1: member("b", 0), 2: None})
    window(tmp_path, 1, "older", {0: member("a", 0), 1: member("a", 0), 2: None})
    window(tmp_path, 2, "newer", dict.fromkeys(range(3)))
    found = read_group_standings(TableReader(str(tmp_path)), "main", window_ms=WINDOW_MS)
    assert {name: (one.state, one.members) for name, one in found.items()} == {
        "older": ("Stable", 1), "newer": ("Stable", None),
    }  # fmt: skip
