"""A page that stays open: whoever reads or clicks while figures come is not disturbed, and what failed is asked again.

Skipped without Chromium on the path or without Playwright (`deploy/extras/browser-tests.lock`).
"""

import re
from pathlib import Path
from typing import Any

import pytest

from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.cases import founding
from tests.serve.signed import Signed
from tests.serve.synthetic import Synthetic, skewed_cluster
from tests.serve.test_page_in_browser import Site, chromium, now_ms, page, sign_in
from tests.serve.test_page_in_browser import skewed_site as site
from tests.serve.test_pages_in_browser import OWN_EVENTS

__all__ = ["chromium", "page", "site"]
pytestmark = pytest.mark.long

PRESSES = 20
"""Tries to press a button that moves meanwhile."""
PLAN = propose(founding(), PlannerPolicy(throttle_bytes_per_sec=1_000.0))


def look_with_a_stream(page: Any, url: str) -> None:
    """The page at `url`, whose stream of events is open: ages go on by its clock alone. Without a stream the page asks
    for figures again, and sets its clock, which a test has put forward, by the answer.
    """
    page.clock.install()
    page.add_init_script(OWN_EVENTS)
    page.goto(url)
    page.locator("#brokers table").wait_for(state="attached")
    page.evaluate("streams[0].dispatchEvent(new Event('open'))")


def let_time_go_by_until_changed(page: Any, place: Any, before: str) -> None:
    """An age is told in minutes where the page took minutes to come."""
    for _ in range(10):
        page.clock.run_for(8_000)
        if place.inner_text() != before:
            return
    raise AssertionError(f"still shown: {before}")


def test_focus_and_marked_text_stay_while_figures_change(page: Any, site: Site) -> None:
    look_with_a_stream(page, site.url)
    page.locator("#brokers a").nth(1).focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#brokers table'))")
    seen = "[document.activeElement.textContent, String(getSelection())]"
    before, age = page.evaluate(seen), page.locator("#decision .soft").first.inner_text()
    let_time_go_by_until_changed(page, page.locator("#decision .soft").first, age)
    assert page.evaluate(seen) == before
    assert before[0] == "2"


def test_what_could_not_be_read_is_announced_once(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.locator("#brokers table").wait_for()
    changes = page.evaluate("""async () => {
      const { showProblems } = await import("./overview.js");
      const failing = { failures: { load: "no such table" } }, seen = new MutationObserver(() => {});
      showProblems(failing);
      seen.observe(document.getElementById("problems"), { childList: true, subtree: true, characterData: true });
      showProblems(failing);
      return [seen.takeRecords().length, document.getElementById("problems").textContent];
    }""")
    assert changes[0] == 0
    assert "load: no such table" in changes[1]


def test_a_link_to_something_else_is_another_link(page: Any, site: Site) -> None:
    """A click that begins on one group must not end on another one that takes its row."""
    page.goto(f"{site.url}#groups")
    page.locator("#view-body table").wait_for()
    connected, focused = page.evaluate("""async () => {
      const { link, put } = await import("./elements.js");
      put("view-body", link("a", "group", "a"), link("b", "group", "b"));
      const first = document.querySelector("#view-body a");
      first.nextElementSibling.focus();
      put("view-body", link("b", "group", "b"), link("a", "group", "a"));
      return [first.isConnected, document.activeElement.textContent];
    }""")  # in one go: the page's own figures take the place of these links at its next look
    assert connected is False
    assert focused == "b"


def test_a_button_of_the_overview_is_there_at_once_after_a_look_at_another_page(page: Any, site: Site) -> None:
    sign_in(page, site, "ada")
    page.locator("#plan-make").get_by_role("button", name="Make a plan…").wait_for()
    is_there = page.evaluate("""async () => {
      for (const hash of ["topics", "overview"]) {
        const moved = new Promise(resolve => addEventListener("hashchange", resolve, { once: true }));
        location.hash = hash;
        await moved;
      }
      return document.querySelector("#plan-make button") !== null;
    }""")
    assert is_there


def test_the_first_click_after_a_while_is_not_lost(page: Any, site: Site) -> None:
    """It also asks for the session anew; the answer comes before the button is let go."""
    button = button_of_a_plan(page, site)

    def press_after_a_while() -> bool:
        page.clock.run_for(70_000)
        with page.expect_response("**/api/v1/session"):
            return press(page, button)

    assert any(press_after_a_while() for _ in range(PRESSES))
    page.evaluate("new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))")
    page.mouse.up()
    page.locator("#plan-act form").wait_for()


def test_what_is_pressed_stays_where_it_is_until_it_is_let_go(page: Any, site: Site) -> None:
    """Figures that come meanwhile show after the click, however much of the page they push down."""
    button = button_of_a_plan(page, site)
    assert any(press(page, button) for _ in range(PRESSES))

    def failing(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(
            response=answer, json={**answer.json(), "failures": {f"load of {i}": "no such table" for i in range(40)}}
        )

    page.route("**/api/status", failing)
    with page.expect_response("**/api/status"):
        page.evaluate("streams.at(-1).dispatchEvent(new Event('status'))")
    page.evaluate("new Promise(resolve => setTimeout(resolve, 500))")
    assert button.evaluate("button => button.matches(':hover')")
    page.mouse.up()
    page.locator("#plan-act form").wait_for()
    page.locator("#problems").get_by_text("load of 7").wait_for(state="attached")


def button_of_a_plan(page: Any, site: Site) -> Any:
    """The button that approves a plan, in view, on its page with a person signed in and the stream of events open."""
    plan_id = site.keep(PLAN)
    page.clock.install()
    page.add_init_script(OWN_EVENTS)
    sign_in(page, site, "ada", plan_id)
    button = page.locator("#plan-act").get_by_role("button", name="Approve…")
    button.scroll_into_view_if_needed()
    page.evaluate("streams.at(-1).dispatchEvent(new Event('open'))")
    return button


def press(page: Any, button: Any) -> bool:
    """The mouse goes down where the button rests. Whether it is what was pressed: figures that came since the mouse was
    moved there may have pushed it away. The mouse is up again then.
    """
    at_rest = """async button => {
      const top = () => button.getBoundingClientRect().top;
      for (let tries = 0, before = null; tries < 100 && before !== top(); tries++) {
        before = top();
        await new Promise(resolve => setTimeout(resolve, 500));
      }
    }"""
    button.evaluate(at_rest)
    button.hover()
    page.mouse.down()
    is_pressed = bool(button.evaluate("button => button.matches(':active')"))
    if not is_pressed:
        page.mouse.up()
    return is_pressed


def test_what_was_lost_with_the_connection_comes_back_with_it(page: Any, site: Site) -> None:
    """A proxy answers while serve starts anew: session and plan are asked again, and its HTML is shown to nobody."""
    plan_id = site.keep(PLAN)
    gone = {"status": 502, "content_type": "text/html", "body": "<h1>Bad Gateway</h1>"}
    for path in ("session", "plans/**", "decisions**"):
        page.route(f"**/api/v1/{path}", lambda route: route.fulfill(**gone))
    page.goto(f"{site.url}#plan={plan_id}")
    expected = "serve does not answer: HTTP 502"
    page.locator("#account").get_by_text(expected).wait_for()
    page.locator("#plan-look").get_by_text(expected).wait_for()
    page.goto(f"{site.url}#decisions")
    page.locator("#view-state").get_by_text(expected).wait_for()
    page.goto(f"{site.url}#plan={plan_id}")
    page.unroute_all()
    page.locator("#plan-look").get_by_text("waits for approval").wait_for()
    page.get_by_role("button", name="Sign in").wait_for()
    assert page.locator("#sign-in-error").inner_text() == ""


def test_how_long_a_plan_still_waits_is_shown_as_time_goes_by(page: Any, site: Site) -> None:
    plan_id = site.keep(PLAN)
    look_with_a_stream(page, f"{site.url}#plan={plan_id}")
    head = page.locator("#plan-head")
    head.get_by_text(re.compile(r"for \d+ min more")).wait_for()
    let_time_go_by_until_changed(page, head, head.inner_text())


def test_a_link_to_a_plan_leads_to_it(page: Any, site: Site) -> None:
    plan_id = site.keep(PLAN)
    page.goto(f"{site.url}#plan={plan_id}")
    page.locator("#plan-movements table").wait_for()
    page.wait_for_function("document.getElementById('plan-look').getBoundingClientRect().top < innerHeight / 2")


def test_a_page_older_than_serve_asks_to_be_loaded_again(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.locator("#brokers table").wait_for()
    page.route("**/api/status", lambda route: route.fulfill(json={"kafka_cluster": "test", "control": {}}))
    page.get_by_text("This page can't show what serve answers: reload it. Figures are of").wait_for()
    page.unroute_all()
    page.locator("#lost").wait_for(state="hidden")


@pytest.mark.parametrize("reading", ["open", "signed_in"])
def test_a_session_that_serve_knows_no_more_shows_the_form_again(
    page: Any, tmp_path: Path, root: str, reading: str
) -> None:
    """A restart of serve ends all sessions; nobody has clicked since."""
    skewed_cluster(Synthetic(root), now_ms())
    with Site(Signed(tmp_path, root, reading=reading)) as made:
        sign_in(page, made, "ada")
        page.locator("#brokers table").wait_for()
        page.context.clear_cookies()
        if reading == "open":
            page.evaluate("location.hash = 'audit'")
            page.get_by_text("This page needs a session.").wait_for()
        page.get_by_role("button", name="Sign in").wait_for()
        assert page.locator("#who").is_hidden()
