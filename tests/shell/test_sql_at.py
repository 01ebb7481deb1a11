"""`rebalancer sql --at`: the version of that time, and a refusal where none so old is kept."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from streaming import tables
from streaming.commands.sql import run_query
from streaming.errors import UsageProblem
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic

DAYS_KEPT = 8
COUNT = "SELECT count(*) FROM broker_load"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """broker_load, made ten days ago, whose log of the first two days was cleaned away; group_lag made today."""
    made = Synthetic(str(tmp_path))
    for window in range(3):
        made.broker_load(NOW_MS + window * WINDOW_MS, {1: 1.0})
    delta = tables.open_table(str(tmp_path), "broker_load")
    assert delta is not None
    delta.create_checkpoint()
    made.broker_load(NOW_MS + 3 * WINDOW_MS, {1: 1.0})
    log = tmp_path / "broker_load" / "_delta_log"
    for version, days in enumerate((10, 9, 9, DAYS_KEPT)):
        aged_s = time.time() - days * 86_400
        os.utime(log / f"{version:020d}.json", (aged_s, aged_s))
    for version in range(3):
        (log / f"{version:020d}.json").unlink()
    made.group_lag(NOW_MS, [("g", "t", 0, 1, 2)])
    return str(tmp_path)


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def test_the_version_of_that_time_is_asked(root: str) -> None:
    assert run_query(COUNT, root)[1] == [(4,)]
    assert run_query(COUNT, root, days_ago(DAYS_KEPT - 1))[1] == [(3,)]


def test_a_time_before_the_oldest_version_that_is_kept_is_refused(root: str) -> None:
    oldest = days_ago(DAYS_KEPT).strftime("%Y-%m-%d")
    with pytest.raises(
        UsageProblem, match=f"--at: the oldest version of table broker_load that is kept is of {oldest}"
    ):
        run_query(COUNT, root, days_ago(DAYS_KEPT + 1))


def test_a_table_that_was_made_later_held_nothing_then(root: str) -> None:
    assert run_query("SELECT count(*) FROM group_lag", root, days_ago(DAYS_KEPT + 1))[1] == [(0,)]
