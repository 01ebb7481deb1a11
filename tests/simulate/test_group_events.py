"""Rebalances on real Delta tables, without Spark: the table `group_event`, and `rebalancer status --groups`."""

import json
import re
from pathlib import Path

import pytest

from streaming import cli, tables
from streaming.commands import status as status_command
from streaming.commands.sql import run_query
from streaming.errors import TableUnavailable
from streaming.pipeline.group_events import LOOK_BACK_WINDOWS, GroupEventKeeper
from streaming.settings import PipelineSettings, Settings
from streaming.tables import TableReader
from streaming.views.group_history import read_group_past, read_group_pasts
from streaming.views.group_memberships import read_group_standings
from tests.simulate.group_windows import START_MS, WINDOW_MS, member, window


def keeper_of(root: Path) -> GroupEventKeeper:
    return GroupEventKeeper(str(root), "main", PipelineSettings(window_ms=WINDOW_MS))


def kept(root: Path) -> list[tuple[int, str, str]]:
    rows = tables.read(str(root), "group_event")
    events = [
        ((tables.to_ms(row["window_start"]) - START_MS) // WINDOW_MS, row["group_id"], row["cause"]) for row in rows
    ]
    return sorted(events)


def pair(number: int) -> dict[int, str | None]:
    """Two members, the second of them in its so-manyeth process."""
    return {0: member("a", 0), 1: member("b", number)}


@pytest.mark.long
def test_each_rebalance_is_written_once_whoever_looks_how_often(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path)
    for number in range(3):
        window(tmp_path, number, "billing", pair(number))
        window(tmp_path, number, "calm", pair(0))
    assert keeper.keep() == 2
    assert keeper.keep() == 0, "nothing new"
    expected = [(1, "billing", "members restarted"), (2, "billing", "members restarted")]
    assert kept(tmp_path) == expected
    assert keeper_of(tmp_path).keep() == 0, "another process, the same windows"
    window(tmp_path, 3, "billing", {0: member("a", 0), 1: member("a", 0)})
    assert keeper_of(tmp_path).keep() == 1
    assert kept(tmp_path) == [*expected, (3, "billing", "members left")]


def test_windows_that_can_still_change_wait(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path)
    window(tmp_path, 0, "billing", pair(0))
    window(tmp_path, 1, "billing", pair(1), final=False)
    assert keeper.keep() == 0
    changed = tables.open_table(str(tmp_path), "group_lag")
    assert changed is not None
    changed.delete("not is_final")
    window(tmp_path, 1, "billing", pair(1))
    assert keeper.keep() == 1


@pytest.mark.long
def test_a_cluster_whose_windows_are_ahead_makes_no_other_one_miss_rebalances(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path)
    for number in range(4):
        window(tmp_path, number + 1, "billing", pair(0), cluster="ahead")
        window(tmp_path, number, "billing", pair(number))
        keeper.keep()
    assert [number for number, _, _ in kept(tmp_path)] == [1, 2, 3]


def test_a_group_that_was_away_is_compared_with_what_it_was(tmp_path: Path) -> None:
    keeper = keeper_of(tmp_path)
    window(tmp_path, 0, "billing", pair(0))
    assert keeper.keep() == 0
    window(tmp_path, 7, "billing", {0: member("a", 0), 1: member("c", 0)})
    assert keeper.keep() == 1
    (row,) = tables.read(str(tmp_path), "group_event")
    assert (row["cause"], row["partitions_moved"], row["members"]) == ("members joined and left", 1, 2)
    assert (row["after_ms"], row["until_ms"]) == (START_MS + 30_000, START_MS + 7 * WINDOW_MS + 30_000)
    assert (row["members_in_json"], row["members_out_json"]) == (f'["{member("c", 0)}"]', f'["{member("b", 0)}"]')


@pytest.mark.long
def test_a_group_that_was_away_for_too_long_begins_anew(tmp_path: Path) -> None:
    """As it does for a process that was started meanwhile; and what was seen of it is kept in memory no longer."""
    keeper = keeper_of(tmp_path)
    window(tmp_path, 0, "billing", pair(0))
    assert keeper.keep() == 0
    window(tmp_path, LOOK_BACK_WINDOWS + 1, "billing", pair(1))
    assert keeper.keep() == 0
    window(tmp_path, LOOK_BACK_WINDOWS + 2, "billing", pair(2))
    assert keeper.keep() == 1


def test_without_windows_nothing_is_kept_and_nothing_breaks(tmp_path: Path) -> None:
    assert keeper_of(tmp_path).keep() == 0
    assert tables.open_table(str(tmp_path), "group_event") is None


def test_a_table_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "group_lag").mkdir()
    (tmp_path / "group_lag" / "_delta_log").mkdir()
    (tmp_path / "group_lag" / "_delta_log" / f"{0:020d}.json").write_text("{broken")
    with pytest.raises(TableUnavailable, match="group_lag"):
        keeper_of(tmp_path).keep()


@pytest.mark.long
def test_the_query_of_the_documentation_counts_them(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "groups.md").read_text(encoding="utf-8")
    (query,) = re.findall(r'rebalancer sql "(.*)"', text)
    for number in range(3):
        window(tmp_path, number, "billing", pair(number))
    keeper_of(tmp_path).keep()
    assert run_query(query, str(tmp_path))[1] == [("billing", "members restarted", 2, 0)]


def compare(root: Path) -> None:
    """What the pipeline does with windows that have closed."""
    GroupEventKeeper(str(root), "main", PipelineSettings(window_ms=WINDOW_MS)).keep()


def status(root: Path, *options: str) -> int:
    return cli.run(["status", "--groups", "--set", f"storage.tables={root}", *options])


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
