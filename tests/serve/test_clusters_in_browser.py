"""The first page of several clusters in a real browser: rows, the way to one cluster and back, and who may read."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from streaming.runtime import accounts
from streaming.runtime.processes import free_port
from streaming.serve.api.load import GROUPS_SHOWN, SOUND
from streaming.serve.run import Server
from streaming.serve.snapshot import Snapshot
from streaming.settings import Settings
from tests.serve.signed import PASSWORD, Signed
from tests.serve.synthetic import NOW_MS, settings_for
from tests.serve.test_page_in_browser import chromium, give_password, page
from tests.serve.test_several_clusters import app_of_all, snapshots
from tests.waiting import until

pytestmark = pytest.mark.long
__all__ = ["chromium", "page", "snapshots"]  # the fixtures


def served(shown: list[Snapshot], settings: Settings) -> Iterator[str]:
    port = free_port()
    app = app_of_all(shown, settings)

    def close_streams() -> None:
        for of_cluster in app.clusters.values():
            of_cluster.state.events.close()

    server = Server(uvicorn.Config(app, port=port, log_config=None), close_streams)
    thread = threading.Thread(target=server.run)
    thread.start()
    until("the server has started", lambda: server.started)
    yield f"http://127.0.0.1:{port}/"
    server.should_exit = True
    thread.join()


@pytest.fixture
def url(snapshots: list[Snapshot], skewed_tables: str) -> Iterator[str]:
    yield from served(snapshots, settings_for(Path(skewed_tables).parent))


@pytest.fixture
def closed_url(snapshots: list[Snapshot], tmp_path: Path, root: str) -> Iterator[str]:
    settings = Signed(tmp_path, root).settings
    serve = settings.serve.model_copy(update={"reading": "signed_in"})
    yield from served(snapshots, settings.model_copy(update={"serve": serve}))


def test_all_clusters_are_shown_and_each_leads_to_its_page_and_back(page: Any, url: str) -> None:
    page.goto(url)
    rows = page.locator("#clusters tbody tr")
    rows.first.wait_for()
    assert [row.locator("td").first.inner_text() for row in rows.all()] == ["west", "east"]
    assert "can't be read" in rows.first.inner_text()
    page.get_by_role("link", name="east", exact=True).click()
    page.get_by_text("cluster east · mode").wait_for()
    page.get_by_role("link", name="All clusters").click()
    rows.first.wait_for()


def test_names_of_others_become_text(page: Any, skewed_snapshot: Snapshot, skewed_tables: str) -> None:
    decision = {**(skewed_snapshot.control.decision or {}), "verdict": "hold", "detail": "<img src=x onerror=alert(1)>"}
    control = replace(skewed_snapshot.control, decision=decision, plan=None, execution=None)
    shown = replace(skewed_snapshot, kafka_cluster="east", control=control)
    for address in served([shown], settings_for(Path(skewed_tables).parent)):
        page.goto(address)
        page.get_by_text("<img src=x").wait_for()
        assert page.locator("#clusters img").count() == 0


def test_who_signs_in_sees_the_clusters(page: Any, closed_url: str) -> None:
    page.goto(closed_url)
    page.get_by_text("Sign in to see the clusters.").wait_for()
    give_password(page)
    page.locator("#clusters tbody tr").first.wait_for()
    page.get_by_role("link", name="east", exact=True).click()
    page.get_by_text("cluster east · mode").wait_for()


def test_paused_clusters_and_those_without_data_are_shown_and_worst_groups_by_name(
    page: Any, snapshots: list[Snapshot], skewed_tables: str
) -> None:
    east, west = snapshots
    fresh = replace(west, kafka_cluster="fresh", failures={})
    paused = replace(fresh, kafka_cluster="halted", mode="paused")
    left = replace(east, kafka_cluster="left", read_at_ms=0)
    for address in served([east, west, fresh, paused, left], settings_for(Path(skewed_tables).parent)):
        page.goto(address)
        page.locator("#clusters tbody tr").first.wait_for()
        rows = {
            row.locator("td").first.inner_text(): row.inner_text() for row in page.locator("#clusters tbody tr").all()
        }
        assert rows.keys() == {"east", "west", "fresh", "halted", "left"}
        assert "can't be read" in rows["west"]
        assert "no data yet" in rows["fresh"]
        assert "paused" in rows["halted"]
        assert "serve no longer reads it" in rows["left"]
        worst = page.locator("#clusters tbody tr", has_text="east").locator("a[href*='#group=']")
        assert worst.all_inner_texts() == [row.group for row in bad_groups(east)]
        assert "bytes out 1.54" in rows["east"]


def bad_groups(snapshot: Snapshot) -> list[Any]:
    return [row for row in snapshot.groups.groups if row.status not in SOUND][:GROUPS_SHOWN]


def test_the_page_of_a_cluster_offers_acts_to_those_who_may_act_there(
    page: Any, snapshots: list[Snapshot], tmp_path: Path, root: str
) -> None:
    signed = Signed(tmp_path, root)
    roles = accounts.Roles.parsed(["east=operator", "west=viewer"])
    accounts.write_users(signed.users, [accounts.new_user("ada", roles, PASSWORD, now_ms=NOW_MS)])
    east = snapshots[0]
    shown = [east, replace(east, kafka_cluster="west"), replace(east, kafka_cluster="north")]
    for address in served(shown, signed.settings):
        page.goto(address)
        give_password(page)
        page.get_by_text("ada · operator of east, viewer of west").wait_for()
        for cluster, said in (
            ("east", "ada · operator"), ("west", "ada · viewer"), ("north", "ada · no role on this cluster"),
        ):  # fmt: skip
            page.goto(f"{address}clusters/{cluster}/")
            page.get_by_text(said, exact=True).wait_for()
            page.get_by_text(f"cluster {cluster} · mode").wait_for()
            offered = page.get_by_role("button", name="Make a plan").count()
            assert offered == (1 if cluster == "east" else 0), cluster
        page.locator("#plan-make").get_by_text("You have no role on this cluster").wait_for()
