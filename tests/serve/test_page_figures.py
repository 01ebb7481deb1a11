"""Figures of the overview beside those of `/api/status`: what is old or unknown is not shown as what is now.

Skipped without Chromium on the path or without Playwright (`deploy/extras/browser-tests.lock`).
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streaming.settings import Settings
from tests.serve.served import Served
from tests.serve.synthetic import WINDOW_MS, Synthetic
from tests.serve.test_page_in_browser import Site, chromium, now_ms, page

__all__ = ["chromium", "page"]
pytestmark = pytest.mark.long

Show = Callable[..., Site]


@pytest.fixture
def shown(page: Any, tmp_path: Path, root: str) -> Iterator[Show]:
    """Opens the overview of a site with these settings over the tables of `root`."""
    with contextlib.ExitStack() as opened:

        def show(**sections: Any) -> Site:
            served = Served(tmp_path, root)
            served.settings = Settings.model_validate(served.settings.model_dump() | sections)
            site = opened.enter_context(Site(served))
            page.goto(site.url)
            page.locator("#brokers table").wait_for()
            return site

        yield show


def start_ms() -> int:
    return now_ms() // WINDOW_MS * WINDOW_MS - 3 * WINDOW_MS


@pytest.mark.parametrize("is_under_way", [False, True])
def test_a_control_that_is_silent_is_not_called_balanced(page: Any, root: str, shown: Show, is_under_way: bool) -> None:
    synthetic = Synthetic(root)
    synthetic.broker_load(start_ms(), {1: 9e6, 2: 1e6, 3: 1e6})
    synthetic.decision(now_ms() - 3 * 86_400_000)
    if is_under_way:
        synthetic.event(now_ms() - 3 * 86_400_000, 0, "approved")
        synthetic.event(now_ms() - 3 * 86_400_000, 1, "started")
    shown()
    expected = "control silent, last decision 3 days ago"
    assert page.locator("#verdict").inner_text() == (f"rebalancing · {expected}" if is_under_way else expected)
    assert page.locator("#verdict .good").count() == 0


def test_a_control_that_decides_is_not_called_silent(page: Any, root: str, shown: Show) -> None:
    synthetic = Synthetic(root)
    synthetic.broker_load(start_ms(), {1: 1e6, 2: 1e6})
    synthetic.decision(start_ms() + WINDOW_MS + 10_000)
    shown()
    assert page.locator("#verdict").inner_text() == "balanced"


def test_a_load_of_which_a_part_is_unknown_is_unknown(page: Any, root: str, shown: Show) -> None:
    """As in skew and in `rebalancer status`: broker 3 does not know what it replicates."""
    synthetic, start = Synthetic(root), start_ms()
    synthetic.broker_load(start, {1: 1e6, 2: 3e6})
    synthetic.broker_load(start, {3: 5e6}, replication_bytes_in_per_sec=None, replication_bytes_out_per_sec=None)
    shown()
    rows = page.locator("#brokers tbody tr").all()
    assert [tuple(row.locator("td").all_inner_texts()[3:6]) for row in rows] == [
        ("-50 %", "1.0 MB/s", "2.0 MB/s"), ("+50 %", "3.0 MB/s", "6.0 MB/s"), ("\N{EN DASH}",) * 3,
    ]  # fmt: skip
    assert "mean 2.0 MB/s" in page.locator("#brokers .legend").first.inner_text()


def test_bytes_out_that_nobody_knows_are_shown_with_their_bounds(page: Any, root: str, shown: Show) -> None:
    """Groups commit a part of what is read from each broker; the log size of one partition of broker 3 is unknown."""
    synthetic, start = Synthetic(root), start_ms()
    unknown = {"bytes_out_per_sec": None, "replication_bytes_out_per_sec": None}
    synthetic.broker_load(start, {1: 1e6, 2: 1e6, 3: 1e6}, **unknown)
    synthetic.partition_load(start, [(number, "read", number, "leader", 9e5) for number in (1, 2, 3)])
    unread: dict[str, Any] = {"bytes_out_per_sec": None, "size_bytes": 36_000_000}
    synthetic.partition_load(start, [(number, "unread", number, "leader", 1e5) for number in (1, 2)], **unread)
    synthetic.partition_load(start, [(3, "unread", 3, "leader", 1e5)], **unread | {"size_bytes": None})
    shown()
    rows = page.locator("#brokers tbody tr").all()
    assert [row.locator("td").all_inner_texts()[5] for row in rows] == [
        "900 kB/s to 2.0 MB/s", "900 kB/s to 2.0 MB/s", "≥ 900 kB/s",
    ]  # fmt: skip


def test_where_capacities_are_set_each_bar_has_the_even_share_of_its_own(page: Any, root: str, shown: Show) -> None:
    Synthetic(root).broker_load(start_ms(), {1: 6e6, 2: 3e6, 3: 3e6})
    shown(planner={"capacities": {n: {"bytes_in_per_sec": 1e9 if n == 1 else 5e8} for n in (1, 2, 3)}})
    marks = page.locator("#brokers tbody .bar > b:not(.band)").evaluate_all("all => all.map(b => b.style.left)")
    bars = page.locator("#brokers tbody .bar > i.main").evaluate_all("all => all.map(b => b.style.width)")
    assert marks == bars, "each has just its share"
    legend = page.locator("#brokers .legend").first.inner_text()
    assert "even share of its capacity" in legend
    assert "mean" not in legend


def test_skew_of_others_is_shown_where_that_of_bytes_in_is_unknown(page: Any, root: str, shown: Show) -> None:
    Synthetic(root).broker_load(start_ms(), {1: None, 2: None})
    shown()
    assert page.locator("#skew .big").inner_text() == "unknown"
    assert page.locator("#skew tbody tr").all_inner_texts() == ["disk\t1.00\t0.00\tshown only"]


@pytest.mark.parametrize("off_ms", [-7_200_000, 7_200_000])
def test_ages_and_histories_are_by_the_clock_of_serve(page: Any, root: str, shown: Show, off_ms: int) -> None:
    synthetic, start = Synthetic(root), start_ms()
    for number in range(2):
        synthetic.broker_load(start + number * WINDOW_MS, {1: 1e6, 2: 1e6})
    synthetic.decision(now_ms() - 10_000)
    page.clock.install(time=(now_ms() + off_ms) / 1000)
    site = shown()
    assert page.locator("#verdict").inner_text() == "balanced"
    assert re.search(r"ended ([1-9][0-9]? s|[1-4] min) ago", page.locator("#age").inner_text())
    for _ in range(2):  # the second answers are not modified
        page.goto(f"{site.url}#broker=1")
        page.locator("#view-body svg").first.wait_for()
        page.reload()
    page.locator("#view-body svg").first.wait_for()


def test_an_execution_that_is_paused_is_not_green(page: Any, root: str, shown: Show) -> None:
    synthetic = Synthetic(root)
    synthetic.broker_load(start_ms(), {1: 1e6, 2: 1e6})
    for sequence, event in enumerate(("approved", "started", "submitted", "paused")):
        synthetic.event(now_ms() - 10_000 + sequence, sequence, event)
    shown()
    badge = page.locator("#execution .badge")
    assert (badge.inner_text(), badge.get_attribute("class")) == ("paused", "badge warn")


def test_long_names_leave_figures_on_the_screen(page: Any, root: str, shown: Show) -> None:
    synthetic, topic = Synthetic(root), "t" * 249
    synthetic.broker_load(start_ms(), {1: 1e6, 2: 1e6})
    synthetic.partition_load(start_ms(), [(1, topic, 0, "leader", 1e6)])
    synthetic.group_lag(start_ms(), [("g" * 200, topic, 0, 10, 9_000)])
    site = shown()
    verdict = page.locator("#groups td").nth(1)
    section = page.locator("#groups").bounding_box()
    assert verdict.bounding_box()["x"] < section["x"] + section["width"] / 2
    page.goto(f"{site.url}#groups")
    table = page.locator("#view-body .scroll")
    table.wait_for()
    assert table.evaluate("it => it.scrollWidth <= it.clientWidth")
