"""The table `group_event`, kept from windows of `group_lag` on real Delta tables, without Spark."""

import re
from pathlib import Path

import pytest

from streaming import tables
from streaming.commands.sql import run_query
from streaming.errors import TableUnavailable
from streaming.pipeline.group_events import LOOK_BACK_WINDOWS, GroupEventKeeper
from streaming.settings import PipelineSettings
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


def test_the_query_of_the_documentation_counts_them(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "groups.md").read_text(encoding="utf-8")
    (query,) = re.findall(r'rebalancer sql "(.*)"', text)
    for number in range(3):
        window(tmp_path, number, "billing", pair(number))
    keeper_of(tmp_path).keep()
    assert run_query(query, str(tmp_path))[1] == [("billing", "members restarted", 2, 0)]
