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
from streaming.serve.run import Server
from streaming.serve.snapshot import Snapshot
from streaming.settings import Settings
from tests.serve.signed import PASSWORD, Signed
from tests.serve.synthetic import settings_for
from tests.serve.test_page_in_browser import chromium, page
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
def closed_url(snapshots: list[Snapshot], tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(accounts.COST, "n", 2)  # nobody guesses passwords here
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
    page.get_by_label("Name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.locator("#clusters tbody tr").first.wait_for()
    page.get_by_role("link", name="east", exact=True).click()
    page.get_by_text("cluster east · mode").wait_for()
