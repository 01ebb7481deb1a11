"""Pages of groups, decisions and acts in a real browser: the way there, names as text, and a connection that is lost.

Skipped without Chromium on the path or without Playwright (`deploy/extras/browser-tests.lock`).
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.cases import founding
from tests.serve.served import Served
from tests.serve.signed import Signed
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster
from tests.serve.test_page_in_browser import SCRIPT_NAME, Site, chromium, give_password, now_ms, page, sign_in
from tests.waiting import until

__all__ = ["chromium", "page"]
pytestmark = pytest.mark.long

OWN_EVENTS = """
window.streams = [];
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 1;
  constructor() { super(); streams.push(this); }
  close() { this.readyState = 2; }
};
"""
"""Streams whose events a test sends itself."""


@pytest.fixture
def site(tmp_path: Path, root: str) -> Iterator[Site]:
    """A cluster that has everything, as it is now, and a group whose name is a script."""
    synthetic, now = Synthetic(root), now_ms()
    skewed_cluster(synthetic, now)
    synthetic.group_lag(now - now % 60_000 - 2 * 60_000, [(SCRIPT_NAME, "topic-B", 0, 5_000, 9_000)])
    synthetic.group_event(now - 600_000, SCRIPT_NAME, cause=SCRIPT_NAME, members_in_json=f'["{SCRIPT_NAME}"]')
    with Site(Signed(tmp_path, root)) as made:
        yield made


def fits(page: Any) -> bool:
    fitting: bool = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    return fitting


def scripted_cluster(synthetic: Synthetic, now: int) -> None:
    """Cluster, rack, topic, group, member, client id and every text of control are a script."""
    start_ms, plan_id = now - now % WINDOW_MS - 3 * WINDOW_MS, "a" * 64
    for window_ms in (start_ms, start_ms + WINDOW_MS):
        synthetic.broker_load(window_ms, {1: 4e6, 2: 1e6}, rack=SCRIPT_NAME)
        synthetic.partition_load(window_ms, [(1, SCRIPT_NAME, 0, "leader", 4e6)])
        of_members = {"client_id": SCRIPT_NAME, "member_id": SCRIPT_NAME, "group_state": SCRIPT_NAME}
        synthetic.group_lag(window_ms, [(SCRIPT_NAME, "orders", 0, 5_000, 9_000)], **of_members)
    synthetic.decision(now - 60_000, "plan", SCRIPT_NAME, detail=SCRIPT_NAME, plan_id=plan_id, mode=SCRIPT_NAME)
    synthetic.plan(now - 60_000, plan_id)
    synthetic.movements(now - 60_000, [(SCRIPT_NAME, 0, [1], [2])], plan_id)
    for sequence, event in enumerate(("approved", "started", "progress")):
        synthetic.event(now - 30_000, sequence, event, detail=SCRIPT_NAME)


def test_script_in_each_name_is_text_on_each_page(page: Any, tmp_path: Path, root: str) -> None:
    scripted_cluster(Synthetic(root, cluster=SCRIPT_NAME), now_ms())
    served = Served(tmp_path, root)
    kafka = served.settings.kafka.model_copy(update={"cluster_name": SCRIPT_NAME})
    served.settings = served.settings.model_copy(update={"kafka": kafka})
    name = quote(SCRIPT_NAME, safe="")
    with Site(served) as site:
        for address, part in (
            ("overview", "#cluster"), ("overview", "#hot"), ("overview", "#groups"), ("overview", "#execution"),
            ("groups", "#view-body"), (f"group={name}", "#view-body ul, #view-body table"), ("broker=1", "#view-body"),
            (f"topic={name}", "#view-body"), (f"partition={name}%2F0", "#view-body"), ("decisions", "#view-body"),
            ("executions", "#view-body"), ("execution=e-1", "#view-body"), ("plan=" + "a" * 64, "#plan-movements"),
        ):  # fmt: skip
            page.goto(f"{site.url}#{address}")
            page.locator(part).get_by_text(SCRIPT_NAME).first.wait_for()
            assert page.locator("img").count() == 0, address
            assert page.title() != "1", address


@pytest.mark.parametrize("width", [390, 1280])
def test_from_the_overview_to_a_group_to_decisions_to_acts(page: Any, site: Site, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    sign_in(page, site, "ada")
    page.locator("#groups").get_by_role("link", name="billing").click()
    page.get_by_role("heading", name="Consumer group billing").wait_for()
    view = page.locator("#view")
    view.get_by_role("img", name="Lag of the worst partitions").wait_for()
    view.get_by_role("img", name="Rebalances: 1").wait_for()
    view.get_by_text("18 of 30 partitions").wait_for()
    assert not page.locator("#brokers").is_visible()
    assert fits(page)

    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Groups").click()
    view.get_by_role("link", name=SCRIPT_NAME).click()
    page.get_by_role("heading", name=f"Consumer group {SCRIPT_NAME}").wait_for()
    view.get_by_text(f"+ {SCRIPT_NAME}").wait_for()
    assert view.locator("img").count() == 0, "a name is text"

    pages.get_by_role("link", name="Decisions").click()
    view.get_by_text("6 partitions are being reassigned").wait_for()
    assert pages.get_by_role("link", name="Decisions").get_attribute("aria-current") == "page"
    assert fits(page)
    view.get_by_role("link", name="plan", exact=True).click()
    page.get_by_role("heading", name="What the planner saw").wait_for()
    brokers = view.get_by_role("region", name="Brokers")
    brokers.get_by_text("6.1 MB/s").wait_for()
    assert brokers.locator("tbody tr").count() == 3
    assert brokers.locator("i.over").count() == 1, "only broker 1 is over the threshold"
    assert view.get_by_role("region", name="What the plan promises").count() == 1
    assert pages.get_by_role("link", name="Decisions").get_attribute("aria-current") == "page"
    assert fits(page)
    view.get_by_role("region", name="Before it").get_by_role("link", name="balanced").click()
    view.get_by_text("No plan came of it.").wait_for()
    pages.get_by_role("link", name="Audit").click()
    view.get_by_text("Nobody has asked for an act").wait_for()
    pages.get_by_role("link", name="Overview").click()
    page.locator("#brokers").wait_for()
    assert not view.is_visible()


def test_from_the_overview_to_a_broker_to_a_partition_to_its_topic(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.get_by_role("button", name="disk").click()
    page.get_by_text("ceiling: the fullest broker is at 11 %").wait_for()
    page.locator("#brokers").get_by_role("link", name="3").click()
    page.get_by_role("heading", name="Broker 3").wait_for()
    view = page.locator("#view")
    view.get_by_role("img", name="Bytes per second, 1 hour: at most").wait_for()
    page.get_by_role("link", name="Overview").click()
    page.locator("#hot").get_by_role("link", name="topic-A-0").click()
    page.get_by_role("heading", name="Partition topic-A-0").wait_for()
    view.get_by_role("link", name="topic-A", exact=True).click()
    page.get_by_role("heading", name="Topic topic-A").wait_for()
    view.get_by_role("link", name="topic-A-29").wait_for()
    assert fits(page)


def test_what_moved_leads_to_its_execution_and_plan_and_back(page: Any, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(site.url + "#group=billing")
    view = page.locator("#view")
    view.get_by_role("region", name="Topics").get_by_role("link", name="topic-A", exact=True).click()
    page.get_by_role("heading", name="Topic topic-A").wait_for()
    groups, moves = (view.get_by_role("region", name=name) for name in ("Consumer groups", "Movements"))
    groups.get_by_role("link", name="billing").wait_for()
    assert moves.locator("tbody tr").count() == 10, "of 12, of both executions of the plan"
    moves.get_by_role("link", name="topic-A-3").first.click()
    page.get_by_role("heading", name="Partition topic-A-3").wait_for()
    moves.get_by_text("broker 1 is over the mean of bytes in").first.wait_for()
    moves.get_by_text("broker 1 over 1.3 in 3 of the last 3 windows").first.wait_for()
    assert moves.locator("tbody tr").count() == 2
    assert fits(page)
    view.get_by_role("link", name="1", exact=True).first.click()
    page.get_by_role("heading", name="Broker 1").wait_for()
    hottest = view.get_by_role("region", name="Hottest partitions that it leads")
    hottest.get_by_role("link", name="topic-A-0").wait_for()
    view.get_by_role("link", name="size", exact=True).click()
    view.locator(".choices a[aria-current]", has_text="size").wait_for()
    moves.get_by_role("link", name="e-1").first.click()
    page.get_by_role("heading", name="Execution e-1").wait_for()
    view.get_by_text("4 of 6 movements made").wait_for()
    assert fits(page)
    view.get_by_role("link", name="a" * 12).click()
    page.locator("#plan-look").get_by_role("link", name="What the execution did").click()
    page.get_by_role("heading", name="Execution e-1").wait_for()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Executions").click()
    view.get_by_role("link", name="e-0").wait_for()
    assert fits(page)


def test_an_execution_shows_waves_brokers_and_movements_and_can_be_aborted_there(page: Any, site: Site) -> None:
    sign_in(page, site, "ada")
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(site.url + "#execution=e-1")
    view = page.locator("#view")
    waves, receivers, moves = (
        view.get_by_role("region", name=name) for name in ("Waves", "Brokers that receive replicas", "Movements")
    )
    waves.get_by_text("4 of 4").wait_for()
    assert receivers.locator("tbody tr").count() == 1
    assert moves.locator("tbody tr").count() == 6
    assert fits(page)
    view.get_by_role("link", name="waiting 1").click()
    view.locator(".choices a[aria-current]", has_text="waiting 1").wait_for()
    until("the one that waits", lambda: moves.locator("tbody tr").count() == 1)
    moves.get_by_role("link", name="topic-A-5").wait_for()
    view.get_by_role("button", name="Abort…").click()
    view.get_by_label("to abort").fill("abort")
    page.keyboard.press("Enter")
    view.get_by_text("is asked to stop").wait_for()
    Synthetic(site.served.settings.storage.tables, _commits=1_000).event(
        now_ms(), 4, "aborted", movements_done=4, movements_made=[]
    )
    view.get_by_role("link", name="not made 2").click()
    moves.get_by_role("link", name="topic-A-4").wait_for()
    assert moves.locator("tbody tr").count() == 2
    assert view.get_by_role("button", name="Abort…").count() == 0
    page.get_by_role("link", name="Groups").click()
    page.get_by_role("heading", name="Consumer groups, worst first").wait_for()
    assert page.locator("#view-act").is_hidden()


def test_a_plan_whose_row_is_none_says_so(page: Any, site: Site) -> None:
    Synthetic(site.served.settings.storage.tables, _commits=100).plan(now_ms(), "b" * 64, plan_json="{")
    page.goto(f"{site.url}#plan={'b' * 64}")
    page.locator("#plan-head").get_by_text("what is kept of it is no plan").wait_for()
    assert page.locator("#plan-act button").count() == 0


def test_a_lost_connection_is_shown_and_figures_of_before_are_not_taken_for_new(page: Any, site: Site) -> None:
    page.goto(site.url + "#groups")
    page.locator("#view").get_by_role("link", name="billing").wait_for()
    page.route("**/api/**", lambda route: route.abort())
    page.get_by_text("No connection to serve. Figures are of").wait_for()
    page.get_by_text("serve does not answer: these figures are of").wait_for()
    page.locator("#view-body.old").wait_for()
    page.unroute("**/api/**")
    page.locator("#view-body:not(.old)").wait_for()
    page.locator("#lost").wait_for(state="hidden")


@pytest.mark.parametrize("has_stream", [True, False])
def test_a_new_decision_is_shown_with_a_stream_of_events_and_without(page: Any, site: Site, has_stream: bool) -> None:
    if not has_stream:
        page.route("**/api/v1/events", lambda route: route.abort())
    with page.expect_request("**/api/v1/events"):
        page.goto(site.url)
    page.locator("#decision").get_by_text("6 partitions are being reassigned").wait_for()
    tables = Synthetic(site.served.settings.storage.tables, _commits=100)
    tables.decision(now_ms(), detail="a decision that has just been made")
    page.locator("#decision").get_by_text("a decision that has just been made").wait_for()


def test_with_a_stream_figures_are_read_at_its_events_alone(page: Any, site: Site) -> None:
    page.clock.install()
    page.add_init_script(OWN_EVENTS)
    page.goto(site.url)
    page.locator("#brokers table").wait_for()
    page.evaluate("streams[0].dispatchEvent(new Event('open'))")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.run_for(8_000)
    assert not [url for url in asked if url.endswith("/api/status")], "figures change their ages alone"
    with page.expect_request("**/api/status"):
        page.evaluate("streams[0].dispatchEvent(new Event('status'))")
    with page.expect_request("**/api/status"):
        page.evaluate("streams[0].dispatchEvent(new Event('error'))")
        page.clock.run_for(2_000)


def test_figures_are_grey_once_serve_has_ended(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.locator("#brokers table").wait_for()
    site.stop()
    page.locator("#overview.old").wait_for()
    page.get_by_text("No connection to serve. Figures are of").wait_for()


def test_acts_want_a_session_and_an_unknown_group_is_said_in_words(page: Any, site: Site) -> None:
    page.goto(site.url + "#audit")
    page.get_by_text("This page needs a session. Sign in with name and password at the top of the page.").wait_for()
    assert page.get_by_text("Bearer").count() == 0, "that is for programs"
    assert page.locator("#view-body table").count() == 0
    page.goto(site.url + "#group=no%2Fsuch")
    page.get_by_text("group 'no/such' is not in the newest windows").wait_for()


@pytest.mark.parametrize("address", ["topic=%3Cb%3Ex", "group=no%2Fsuch", "audit"])
def test_what_is_refused_is_not_asked_again_at_each_event(page: Any, site: Site, address: str) -> None:
    page.add_init_script(OWN_EVENTS)
    page.goto(f"{site.url}#{address}")
    page.get_by_role("button", name="Sign in").wait_for()
    page.wait_for_load_state("networkidle")
    page.locator("#view-body [role=alert]").wait_for()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in range(3):
        with page.expect_response("**/api/status"):
            page.evaluate("streams[0].dispatchEvent(new Event('status'))")
    page.set_viewport_size({"width": 800, "height": 800})
    with page.expect_response("**/api/status"):
        page.evaluate("streams[0].dispatchEvent(new Event('status'))")
    assert {url for url in asked if not url.endswith("/api/status")} == set()
    page.goto(f"{site.url}#groups")
    page.locator("#view-body").get_by_role("link", name="billing").wait_for()
    page.go_back()
    page.locator("#view-body [role=alert]").wait_for()
    if address == "audit":
        give_password(page)
        page.get_by_text("Nobody has asked for an act").wait_for()


@pytest.mark.parametrize("name", ["foo", "foo/", "foo/x", "foo%2Fbar%2F1"])
def test_what_is_no_partition_is_not_called_one(page: Any, site: Site, name: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site.url}#partition={name}")
    page.get_by_text("This address names no partition").wait_for()
    assert page.locator("#view-title").inner_text().startswith("No partition: foo")
    assert not [url for url in asked if "/partitions" in url]


@pytest.mark.parametrize(
    ("address", "marked"), [("", "Overview"), ("#no-such-page", "Overview"), ("#groups", "Groups")]
)
def test_the_page_that_is_shown_first_is_marked(page: Any, site: Site, address: str, marked: str) -> None:
    page.goto(site.url + address)
    page.locator("nav a[aria-current=page]").wait_for()
    assert page.locator("nav a[aria-current=page]").all_inner_texts() == [marked]


CUT_TABLES = """() => [...document.querySelectorAll("table")].map(table => table.parentElement)
    .filter(box => box.checkVisibility() && box.scrollWidth > box.clientWidth).map(box => box.innerText.slice(0, 80))"""
"""What stands in tables that their box cuts at the side."""


@pytest.mark.parametrize("width", [320, 400])
def test_on_a_narrow_screen_no_table_is_cut(page: Any, site: Site, width: int) -> None:
    """Nothing shows that a table would move sideways, and a figure without its unit is another one."""
    long = "measured: max/mean measured " + "as-promised-" * 20
    Synthetic(site.served.settings.storage.tables, _commits=100).event(now_ms(), 4, "progress", detail=long)
    plan_id = site.keep(propose(founding(), PlannerPolicy(throttle_bytes_per_sec=1_000.0)))
    page.set_viewport_size({"width": width, "height": 900})
    for address, part in (
        (f"plan={plan_id}", "#plan-movements table"), ("topic=topic-A", "#view-body table"),
        ("group=billing", "#view-body table"), ("broker=1", "#view-body table"), ("execution=e-1", "#view-body table"),
        ("decisions", "#view-body table"), ("executions", "#view-body table"),
    ):  # fmt: skip
        page.goto(f"{site.url}#{address}")
        page.locator(part).first.wait_for()
        assert page.evaluate(CUT_TABLES) == [], address
        assert fits(page), address
    page.goto(f"{site.url}#overview")
    page.locator("#execution").get_by_text(long).last.wait_for()
    assert page.evaluate(CUT_TABLES) == []
    whole = "cell => cell.scrollWidth <= cell.clientWidth && getComputedStyle(cell).textOverflow !== 'ellipsis'"
    assert all(cell.evaluate(whole) for cell in page.locator("#execution td").all())


@pytest.mark.parametrize("width", [400, 1280])
def test_each_execution_in_view_is_marked_beside_the_line_of_skew(page: Any, site: Site, width: int) -> None:
    synthetic, now = Synthetic(site.served.settings.storage.tables, _commits=100), now_ms()
    for execution_id, ago_ms in (("e-2", 450_000), ("e-3", 330_000)):
        for sequence, event in enumerate(("approved", "started", "done")):
            event_ms = now - ago_ms + 30_000 * sequence
            synthetic.event(event_ms, sequence, event, execution_id=execution_id, plan_id="b" * 64)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(site.url)
    page.locator("#brokers").get_by_role("link", name=re.compile("^[23] executions")).wait_for()
    chart = page.locator("#brokers svg")
    marked = {title.text_content() for title in chart.locator("rect title").all()}
    assert marked - {"execution e-1"} == {"execution e-2", "execution e-3"}, "e-0 ended long before, e-1 may be later"
    inside = "svg => [...svg.querySelectorAll('text, rect')].every(one => one.getBBox().x >= 0)"
    assert chart.evaluate(inside)
    texts = chart.evaluate("svg => [...svg.querySelectorAll('text')].map(one => one.textContent)")
    assert all(re.fullmatch(r"[\d.:]+", text) for text in texts), "words would cover the line"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for _ in range(2):
        with page.expect_response("**/api/status"):
            page.evaluate("document.dispatchEvent(new CustomEvent('session', { detail: null }))")
    assert not [url for url in asked if "/executions" in url], "they are as they were"


def test_an_act_that_has_changed_nothing_is_not_green(page: Any, site: Site) -> None:
    states = {"undrained": 200, "not_drained": 200, "already_ended": 409}
    of_all = {
        "event_ms": NOW_MS,
        "actor": "ada",
        "signed_in_by": "password",
        "role": "operator",
        "remote_address": "::1",
    }
    items = [
        {**of_all, "action": "undrain", "target": "3", "state": state, "status": status, "detail": state}
        for state, status in states.items()
    ]
    page.route("**/api/v1/audit**", lambda route: route.fulfill(json={"items": items, "next_cursor": None}))
    page.goto(site.url + "#audit")
    page.get_by_text("not drained", exact=True).wait_for()
    shown = page.locator("#view-body td:nth-child(8) span")
    assert [shown.nth(row).get_attribute("class") for row in range(3)] == ["good", "soft", "bad"]


def test_on_a_narrow_screen_a_partition_of_a_group_takes_five_lines(page: Any, site: Site) -> None:
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(site.url + "#group=billing")
    rows = page.get_by_role("region", name="Partitions").locator("tbody tr")
    rows.first.wait_for()
    shown = [cell.is_visible() for cell in rows.first.locator("td").all()]
    assert (len(shown), sum(shown)) == (9, 5), "what `why` says in words is not said again"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
