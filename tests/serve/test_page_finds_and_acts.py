"""The page in a real browser: what a search shows, the time of a list in the address, old figures, and acts on brokers.

Skipped without Chromium on the path or without Playwright (`deploy/extras/browser-tests.lock`).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from streaming.control.intents import note_intent
from streaming.serve.api.audit import ActOutcome
from streaming.views.intents import Intent
from tests.serve.asking import Acted
from tests.serve.signed import Signed
from tests.serve.synthetic import WINDOW_MS, Synthetic, skewed_cluster
from tests.serve.test_page_in_browser import Site, chromium, now_ms, page, sign_in
from tests.waiting import until

__all__ = ["chromium", "page"]
pytestmark = pytest.mark.long
PLAN_ID = "a" * 64


@dataclass
class NotedActions(Acted):
    """Acts that reach no cluster: the page's side of them alone is tested here."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def make_plan(self, *, now_ms: int) -> ActOutcome:
        self.asked.append(("plan",))
        return replace(super().make_plan(now_ms=now_ms), fields={"plan_id": PLAN_ID})

    def drain(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        self.asked.append(("drain", broker, carry_out))
        return replace(super().drain(broker, by, carry_out=carry_out, now_ms=now_ms), status=409)

    def add(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        self.asked.append(("add", broker, carry_out))
        return replace(super().add(broker, by, carry_out=carry_out, now_ms=now_ms), fields={"plan_id": PLAN_ID})

    def undrain(self, broker: int, by: str, *, now_ms: int) -> ActOutcome:
        self.asked.append(("undrain", broker))
        return super().undrain(broker, by, now_ms=now_ms)

    def demote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        self.asked.append(("demote", broker, carry_out))
        return super().demote(broker, by, carry_out=carry_out, now_ms=now_ms)

    def undemote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        self.asked.append(("undemote", broker, carry_out))
        return super().undemote(broker, by, carry_out=carry_out, now_ms=now_ms)


@pytest.fixture
def actions() -> NotedActions:
    return NotedActions()


@pytest.fixture
def site(tmp_path: Path, root: str, actions: NotedActions) -> Iterator[Site]:
    """A cluster that has everything, as it is now; broker 3 is noted for drain, and broker 2 for demote."""
    skewed_cluster(Synthetic(root), now_ms())
    note_intent(root, "test", 3, Intent.DRAIN, "a person", now_ms=now_ms())
    note_intent(root, "test", 2, Intent.DEMOTE, "a person", now_ms=now_ms())
    with Site(Signed(tmp_path, root), actions) as made:
        yield made


def act(section: Any, verb: str, typed: str, *, ticked: bool = False) -> None:
    """Open the form of an act, type what it asks for, and send it."""
    section.get_by_role("button", name=f"{verb}…").click()
    button = section.get_by_role("button", name=verb, exact=True)
    assert button.is_disabled(), "nothing is sent by a click alone"
    if ticked:
        section.get_by_role("checkbox").check()
    section.get_by_label("to ").last.fill(typed)
    button.click()


def test_a_plan_is_made_and_a_broker_drained_by_whoever_may(page: Any, site: Site, actions: NotedActions) -> None:
    sign_in(page, site, "ada")
    newest = page.locator("#plan-make")
    act(newest, "Make a plan", "plan")
    newest.get_by_text("Done: a plan was made").wait_for()
    newest.get_by_role("link", name="Look at the plan").click()
    page.locator("#plan-look").get_by_text(PLAN_ID).wait_for()
    page.goto(f"{site.url}#broker=1")
    view = page.locator("#view-act")
    act(view, "Drain", "broker 1", ticked=True)
    view.get_by_text("Refused: broker 1 by ada").wait_for()
    act(view, "Drain", "broker 1")
    view.get_by_text("Refused: broker 1 by ada").wait_for()  # an answer that comes later is shown elsewhere, by name
    page.goto(f"{site.url}#broker=3")
    page.locator("#view-body").get_by_text("it gets no replicas until the drain is ended").wait_for()
    assert view.get_by_text("Refused").count() == 0, "an answer stays with what it is of"
    act(view, "End drain", "broker 3")
    view.get_by_text("Done: broker 3").wait_for()
    assert actions.asked == [("plan",), ("drain", 1, True), ("drain", 1, False), ("undrain", 3)]


def test_a_broker_gets_its_share_beside_the_other_act_on_it(page: Any, site: Site, actions: NotedActions) -> None:
    """The two acts of a broker share one place: one form, one answer, and the other button stays."""
    sign_in(page, site, "ada")
    page.goto(f"{site.url}#broker=1")
    view = page.locator("#view-act")
    view.get_by_role("button", name="Add…").click()
    view.get_by_text("gives broker 1 its share").wait_for()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "Add…"
    act(view, "Add", "broker 1", ticked=True)
    view.get_by_text("Done: broker 1 by ada").wait_for()
    view.get_by_role("button", name="Drain…").wait_for()
    page.goto(f"{site.url}#broker=3")
    view.get_by_role("button", name="End drain…").wait_for()
    view.get_by_role("button", name="Add…").click()
    view.get_by_label("End the drain and approve the plan at once").wait_for()
    view.get_by_role("button", name="Cancel").click()
    act(view, "Add", "broker 3")
    view.get_by_text("Done: broker 3 by ada").wait_for()
    view.get_by_role("link", name="Look at the plan").click()
    page.locator("#plan-look").get_by_text(PLAN_ID).wait_for()
    assert actions.asked == [("add", 1, True), ("add", 3, False)]
    audited = [(row["action"], row["target"]) for row in site.served.acts() if row["stage"] == "ended"]
    assert audited == [("add", "1"), ("add", "3")]


def test_addresses_replicas_out_of_sync_and_lags_in_offsets_are_shown(page: Any, tmp_path: Path, root: str) -> None:
    synthetic, start_ms = Synthetic(root), now_ms() // WINDOW_MS * WINDOW_MS - 3 * WINDOW_MS
    with synthetic.together():
        synthetic.broker_load(start_ms, {1: 1e6, 2: 1e6}, address="kafka-1.example:9092")
        synthetic.partition_load(start_ms, [(1, "keys", 0, "leader", 1e6)], out_of_sync_replicas=2)
        synthetic.partition_load(start_ms, [(2, "events", 0, "leader", 1e6)], out_of_sync_replicas=0)
        synthetic.group_lag(start_ms, [("tables", "keys", 0, 5, 25)], cleanup_policy="compact")
        synthetic.group_lag(start_ms, [("readers", "events", 0, 5, 35)])
    view = page.locator("#view-body")

    with Site(Signed(tmp_path, root)) as site:

        def row(address: str, region: str, name: str) -> str:
            page.goto(f"{site.url}#{address}")
            cells = view.get_by_role("region", name=region).locator("tr", has=page.get_by_role("link", name=name))
            return str(cells.first.inner_text())

        page.goto(f"{site.url}#broker=1")
        view.get_by_text("kafka-1.example:9092").wait_for()
        assert row("topics", "Topics", "keys").split()[:5] == ["keys", "1", "1", "1", "1"]
        assert row("topics", "Topics", "events").split()[:5] == ["events", "1", "1", "1", "0"]
        assert "2" in row("topic=keys", "Partitions, hottest first", "keys-0").split()
        view.get_by_text("1 partition has a replica that is not in sync").wait_for()
        assert "20 offsets" in row("groups", "Consumer groups", "tables")
        assert "30 records" in row("groups", "Consumer groups", "readers")
        assert "offsets" not in row("group=tables", "Topics", "keys")
        view.get_by_role("columnheader", name="lag, offsets").first.wait_for()


def test_a_form_does_not_follow_to_another_page(page: Any, site: Site) -> None:
    sign_in(page, site, "ada")
    page.goto(f"{site.url}#broker=1")
    view = page.locator("#view-act")
    view.get_by_role("button", name="Drain…").click()
    view.get_by_text("every replica of broker 1").wait_for()
    page.goto(f"{site.url}#broker=2")
    view.get_by_role("button", name="Drain…").click()
    view.get_by_text("every replica of broker 2").wait_for()
    assert view.get_by_text("broker 1").count() == 0


def test_a_broker_is_demoted_and_its_demotion_ended(page: Any, site: Site, actions: NotedActions) -> None:
    sign_in(page, site, "ada")
    page.goto(f"{site.url}#broker=1")
    view = page.locator("#view-act")
    act(view, "Demote", "broker 1", ticked=True)
    view.get_by_text("Done: broker 1").wait_for()
    page.goto(f"{site.url}#broker=2")
    page.locator("#view-body").get_by_text("it leads nothing that another broker can lead").wait_for()
    assert view.get_by_role("button", name="Add…").count() == 0
    act(view, "End demotion", "broker 2")
    view.get_by_text("Done: broker 2").wait_for()
    assert actions.asked == [("demote", 1, True), ("undemote", 2, False)]


def test_a_viewer_is_offered_no_drain(page: Any, site: Site) -> None:
    sign_in(page, site, "vic")
    page.goto(f"{site.url}#broker=1")
    page.locator("#view-act").get_by_text(
        "does not act: to drain or add or demote, an operator or admin signs in"
    ).wait_for()
    assert page.locator("#view-act button").count() == 0


def test_a_search_leads_to_brokers_topics_and_groups(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.get_by_label("Search brokers, topics and groups").fill("TOPIC-b")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Search: TOPIC-b").wait_for()
    view = page.locator("#view-body")
    view.get_by_role("region", name="Topics").get_by_role("link", name="topic-B").wait_for()
    assert view.get_by_role("link", name="topic-A").count() == 0
    page.get_by_label("Search brokers, topics and groups").fill("3")
    page.keyboard.press("Enter")
    view.get_by_role("region", name="Brokers").get_by_role("link", name="3", exact=True).click()
    page.get_by_role("heading", name="Broker 3").wait_for()


def test_topics_are_searched_and_put_in_order_by_the_address(page: Any, site: Site) -> None:
    page.goto(f"{site.url}#topics")
    view = page.locator("#view-body")
    view.get_by_role("link", name="topic-A").wait_for()
    view.get_by_label("Name").fill("topic-b")
    page.keyboard.press("Enter")
    until("the search in the address", lambda: page.url.endswith("#topics&search=topic-b"))
    view.get_by_role("link", name="topic-A").wait_for(state="detached")
    view.get_by_role("link", name="size", exact=True).click()
    until("both in the address", lambda: page.url.endswith("#topics&search=topic-b&order=size"))
    view.get_by_role("link", name="topic-B").click()
    page.get_by_role("heading", name="Topic topic-B").wait_for()
    view.get_by_text("replication factor").wait_for()


def test_the_address_keeps_the_time_of_decisions(page: Any, site: Site) -> None:
    Synthetic(site.served.settings.storage.tables, _commits=100).decision(now_ms() - 86_400_000, detail="of yesterday")
    page.goto(f"{site.url}#decisions")
    view = page.locator("#view-body")
    view.get_by_text("of yesterday").wait_for()
    earlier = page.evaluate("new Date(Date.now() - 43200000 - 60000 * new Date().getTimezoneOffset()).toISOString()")
    view.get_by_label("From").fill(earlier[:16])
    page.keyboard.press("Enter")
    view.get_by_text("of yesterday").wait_for(state="detached")
    assert re.search(r"#decisions&from=\d{13}$", page.url)
    page.reload()
    view.locator("tbody tr").first.wait_for()
    assert view.get_by_label("From").input_value() == earlier[:16]
    assert view.get_by_text("of yesterday").count() == 0
    view.get_by_role("link", name="Show all").click()
    view.get_by_text("of yesterday").wait_for()


def test_old_figures_are_called_old_on_every_page(page: Any, tmp_path: Path, root: str) -> None:
    synthetic, old_ms = Synthetic(root), now_ms() // WINDOW_MS * WINDOW_MS - 3 * 3_600_000
    synthetic.broker_load(old_ms, {1: 1e6, 2: 1e6})
    with Site(Signed(tmp_path, root)) as site:
        for address in ("overview", "broker=1", "topics", "decisions"):
            page.goto(f"{site.url}#{address}")
            page.locator("#stale").get_by_text("Old figures: the newest closed window ended 3 h ago").wait_for()


def test_the_zone_of_times_is_shown(chromium: Any, site: Site) -> None:
    context = chromium.new_context(timezone_id="Asia/Kolkata")
    opened = context.new_page()
    opened.goto(site.url)
    opened.locator("#age").get_by_text("times in Asia/Calcutta (UTC+05:30)").or_(
        opened.locator("#age").get_by_text("times in Asia/Kolkata (UTC+05:30)")
    ).wait_for()
    context.close()
