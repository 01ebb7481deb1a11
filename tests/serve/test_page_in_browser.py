"""The page in a real browser: who is signed in looks at a plan and approves exactly that, and a viewer can't.

Skipped without Chromium on the path or without Playwright (`deploy/extras/browser-tests.lock`).
"""

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
import uvicorn

from assignor_core.plan import Movement, Plan, Wave
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.roll import RollEvent, RollPolicy
from streaming.commands.acting import JournalActions
from streaming.control.rolls import RollJournal
from streaming.control.wiring import journal_of
from streaming.runtime.processes import free_port
from streaming.serve.api.audit import Actions
from streaming.serve.metrics import Exposition
from streaming.serve.run import Server
from streaming.serve.snapshot import read_snapshot
from streaming.serve.web import build_app
from streaming.settings import Settings
from streaming.views.approvals import instant_text
from tests.core.planner.cases import founding
from tests.serve.served import Served
from tests.serve.signed import PASSWORD, Signed
from tests.serve.synthetic import Synthetic, skewed_cluster
from tests.waiting import DEADLINE_S, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("Chromium is not installed", allow_module_level=True)
pytestmark = pytest.mark.long

SCRIPT_NAME = "<img src=x onerror=document.title=1>"
"""A topic of Kafka can't have such a name; whoever writes tables may."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Site:
    """serve on a port of its own, over the tables of `served`, as they are at each look."""

    def __init__(self, served: Served, actions: Actions | None = None) -> None:
        self.served = served
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/"
        settings = served.settings
        exposition = Exposition(read_snapshot(settings, now_ms()), settings)
        app = build_app(
            lambda: read_snapshot(settings, now_ms()), exposition, settings, now_ms, actions or JournalActions(settings)
        )
        self.server = Server(uvicorn.Config(app, port=self.port, log_config=None), app.state.events.close)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        until("the server has started", lambda: self.server.started)

    def keep(self, plan: Plan) -> str:
        """Id of the plan, which waits from now on."""
        self.served.journal.write_plan(ProposedPlan(plan), decision=None, now_ms=now_ms())
        return plan.plan_id

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


@pytest.fixture
def site(tmp_path: Path, root: str) -> Iterator[Site]:
    with Site(Signed(tmp_path, root)) as made:
        yield made


@pytest.fixture
def skewed_site(tmp_path: Path, root: str) -> Iterator[Site]:
    """A cluster that has everything, as it is now, and a plan that waits."""
    skewed_cluster(Synthetic(root), now_ms())
    with Site(Signed(tmp_path, root)) as made:
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that notes errors: of its scripts, and what its policy has refused."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(DEADLINE_S * 1000)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("console", lambda line: problems.append(line.text) if "Content Security" in line.text else None)
    yield opened
    context.close()
    assert problems == []


def sign_in(page: Any, site: Site, name: str, plan_id: str = "") -> None:
    page.goto(site.url + (f"#plan={plan_id}" if plan_id else ""))
    give_password(page, name)
    page.get_by_text(f"{name} · ").wait_for()


def give_password(page: Any, name: str = "ada") -> None:
    """Fill in the form and send it."""
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_an_operator_looks_types_and_approves(page: Any, site: Site) -> None:
    plan = propose(founding(), PlannerPolicy(throttle_bytes_per_sec=1_000.0), proves_least=True)
    plan_id = site.keep(plan)
    sign_in(page, site, "ada")
    page.locator("#plan").get_by_text("waits for approval").wait_for()
    page.locator("#plan").get_by_role("link", name="Look at it and approve it").click()
    section = page.locator("#plan-look")
    section.get_by_text("waits for approval").wait_for()
    assert not page.locator("#overview").is_visible(), "a plan has a page of its own"
    assert section.get_by_text(plan_id).count() == 1
    assert section.locator("#plan-brokers tbody tr").count() == 3
    section.get_by_text("No plan as good copies less than 880 B.").wait_for()
    section.get_by_text(f"1 to {len(plan.movements)} of {len(plan.movements)}").wait_for()
    section.get_by_role("button", name="Approve…").click()
    approve = section.get_by_role("button", name="Approve", exact=True)
    typed = section.locator("#plan-act b").inner_text()
    assert typed == f"{plan.bytes_to_move / 1000:.2f} kB"
    section.get_by_label("to approve").fill("yes")
    assert approve.is_disabled()
    section.get_by_label("to approve").fill(typed)
    approve.click()
    section.get_by_text("Done: execution").wait_for()
    section.get_by_text("taken by execution").wait_for()
    open_now = site.served.journal.open_executions(now_ms=now_ms())
    assert [(one.plan_id, one.phase.value) for one in open_now] == [(plan_id, "waiting")]
    assert "approved by ada (session " in open_now[0].last.detail
    assert {(row["actor"], row["action"]) for row in site.served.acts()} == {("ada", "approve")}

    page.get_by_role("link", name="Overview").click()
    execution = page.locator("#execution-abort")
    execution.get_by_role("button", name="Abort…").click()
    execution.get_by_label("to abort").fill("abort")
    page.keyboard.press("Enter")
    execution.get_by_text("is asked to stop").wait_for()
    assert site.served.journal.open_executions(now_ms=now_ms())[0].abort_requested


def test_the_beginning_of_an_id_shows_its_plan_and_what_is_none_shows_no_plan(page: Any, site: Site) -> None:
    older = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0), Movement("t", 1, (1,), (2,), 5.0))))
    site.keep(Plan("c", (Movement("t", 7, (1,), (2,), 7.0),)))
    head = page.locator("#plan-head")
    page.goto(f"{site.url}#plan={older[:12]}")
    head.get_by_text(older).wait_for()
    page.locator("#plan-figures").get_by_text("2 partitions change").wait_for()
    for wrong in (older[:-1] + ("0" if older[-1] != "0" else "1"), "a%2Fb", SCRIPT_NAME, "%ff"):
        page.goto(f"{site.url}#plan={wrong}")
        head.get_by_text("There is no such plan").wait_for()
        assert head.locator(".badge").count() == 0
        assert not page.locator("#plan-body").is_visible()
        assert page.locator("#plan-act button").count() == 0


def test_a_plan_that_copies_nothing_takes_no_time_and_one_partition_is_one(page: Any, site: Site) -> None:
    plan = Plan("c", (Movement("t", 0, (1, 2), (2, 1), 0.0),), waves=(Wave(1, 0.0, 0.0),))
    plan_id = site.keep(plan)
    page.goto(site.url)
    page.locator("#plan").get_by_text("1 partition changes").wait_for()
    page.goto(f"{site.url}#plan={plan_id}")
    figures = page.locator("#plan-figures")
    figures.get_by_text("Nothing is copied").wait_for()
    assert figures.get_by_text("not known").count() == 0
    assert figures.get_by_text("1 partition changes, 1 of them only its leader.").count() == 1


def test_a_viewer_sees_no_button_and_is_refused(page: Any, site: Site) -> None:
    plan_id = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)))
    sign_in(page, site, "vic", plan_id)
    section = page.locator("#plan-look")
    section.get_by_text("Role viewer looks and does not act").wait_for()
    assert page.locator("#plan-act button").count() == 0
    status = page.evaluate(
        """async plan => {
            const session = await (await fetch("api/v1/session")).json();
            const headers = { "X-CSRF-Token": session.csrf_token, "Idempotency-Key": "by-hand-1" };
            return (await fetch(`api/v1/plans/${plan}/approve`, { method: "POST", headers })).status;
        }""",
        plan_id,
    )
    assert status == 403
    assert site.served.journal.open_executions(now_ms=now_ms()) == []


def test_what_is_refused_is_shown_in_words(page: Any, site: Site) -> None:
    """The plan is taken by somebody else while the form is open: nothing is approved twice."""
    plan_id = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)))
    sign_in(page, site, "ada", plan_id)
    section = page.locator("#plan-look")
    section.get_by_role("button", name="Approve…").click()
    journal = site.served.journal
    journal.refuse(journal.plan(plan_id), "it no longer fits", now_ms=now_ms())
    section.get_by_label("to approve").fill("5 B")
    section.get_by_role("button", name="Approve", exact=True).click()
    section.get_by_text("Refused: execution").wait_for()
    assert journal.open_executions(now_ms=now_ms()) == []


def test_a_second_person_sees_who_has_approved_and_when_it_begins(page: Any, site: Site) -> None:
    plan_id = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)))
    settings, begins_ms = site.served.settings, now_ms() + 3_600_000
    by_two = journal_of(Settings.model_validate(settings.model_dump() | {"control": {"approvals": 2}}))
    by_two.approve_once(by_two.plan(plan_id), "bob (session 1)", now_ms=now_ms(), begins_ms=begins_ms)
    sign_in(page, site, "ada", plan_id)
    section = page.locator("#plan-look")
    section.get_by_text("it has 1 of 2 approvals, by bob").wait_for()
    section.get_by_role("button", name="Approve…").click()
    section.get_by_label("to approve").fill("5 B")
    section.get_by_role("button", name="Approve", exact=True).click()
    section.get_by_text(f"is approved and begins at {instant_text(begins_ms)} or later").wait_for()
    section.get_by_text(f": it begins at {instant_text(begins_ms)} or later").wait_for()


def test_a_plan_is_approved_for_a_time_and_one_too_far_ahead_is_explained(page: Any, site: Site) -> None:
    """The field is reached by the keyboard, and names the time zone of the browser."""
    plan_id = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)))
    sign_in(page, site, "ada", plan_id)
    section = page.locator("#plan-look")
    begins_ms = (now_ms() // 60_000 + 600) * 60_000

    def approve(at_ms: int) -> None:
        section.get_by_role("button", name="Approve…").click()
        page.keyboard.type("5 B")
        page.keyboard.press("Shift+Tab")
        assert page.evaluate("document.activeElement.type") == "datetime-local"
        shown = "ms => new Date(ms - 60000 * new Date(ms).getTimezoneOffset()).toISOString().slice(0, 16)"
        section.get_by_label(re.compile(r"Begin no earlier than \(.*UTC")).fill(page.evaluate(shown, at_ms))
        page.keyboard.press("Enter")

    approve(now_ms() + 15 * 86_400_000)
    section.get_by_text(re.compile("Refused: .*14 days")).wait_for()
    assert site.served.journal.open_executions(now_ms=now_ms()) == []
    approve(begins_ms)
    section.get_by_text(f"begins at {instant_text(begins_ms)} or later").first.wait_for()
    assert [row.begins_ms for row in site.served.journal.open_executions(now_ms=now_ms())] == [begins_ms]


def test_the_open_roll_is_shown_with_what_it_keeps_to(page: Any, site: Site) -> None:
    settings = site.served.settings
    journal = RollJournal(settings.storage.tables, settings.kafka.cluster_name)
    roll = journal.begin((2, 1), "a person", RollPolicy(margin=1, accepts_single=True), now_ms=now_ms())
    journal.write(roll, RollEvent.DEMOTING, "its leadership goes", now_ms=now_ms())
    page.goto(f"{site.url}#executions")
    view = page.locator("#view-body")
    view.get_by_text("0 of 2 brokers are restarted · broker 2: demoting").wait_for()
    view.get_by_text("margin 1 · partitions without a second replica may be offline").wait_for()
    view.get_by_text(": its leadership goes").wait_for()


def test_an_answer_is_still_there_when_another_plan_is_looked_at_already(page: Any, site: Site) -> None:
    """Who approved, and then looks at the next plan, must see that the first was taken."""
    plan_id = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)))
    sign_in(page, site, "ada", plan_id)
    held: list[Any] = []
    page.route("**/approve", lambda route: held.append(route))
    section = page.locator("#plan-look")
    section.get_by_role("button", name="Approve…").click()
    section.get_by_label("to approve").fill("5 B")
    section.get_by_role("button", name="Approve", exact=True).click()
    until("the request", lambda: page.wait_for_timeout(10) or held)
    answer = held[0].fetch()
    newer = site.keep(Plan("c", (Movement("t", 1, (1,), (2,), 7.0),)))
    page.goto(f"{site.url}#plan={newer}")
    section.get_by_text(newer).wait_for()
    held[0].fulfill(response=answer)
    section.get_by_role("button", name="Approve…").wait_for()
    section.get_by_text(f"Answer for plan {plan_id[:12]}: Done: execution").wait_for()
    section.get_by_role("button", name="Approve…").click()
    assert section.get_by_text("Done: execution").count() == 0, "what is asked next has no answer yet"


@pytest.mark.parametrize("width", [390, 1280])
def test_movements_come_in_pages_and_fit_the_screen(page: Any, site: Site, width: int) -> None:
    rows = [Movement(SCRIPT_NAME, 0, (1,), (2,), 1_000_000.0)]
    rows += [Movement(f"orders-{number % 3}", number, (1,), (2,), 1_000.0 + number) for number in range(449)]
    plan_id = site.keep(Plan("c", tuple(rows)))
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(f"{site.url}#plan={plan_id}")
    section = page.locator("#plan-look")
    section.get_by_text("1 to 200 of 450; 250 others").wait_for()
    first = section.locator("#plan-movements tbody tr").first
    assert first.locator("td").first.inner_text() == f"{SCRIPT_NAME}-0", "the largest, and text"
    assert section.locator("#plan-movements img").count() == 0
    section.get_by_role("button", name="Next").click()
    section.get_by_text("201 to 400 of 450; 250 others").wait_for()
    section.get_by_label("Topic").fill("ORDERS-1")
    page.keyboard.press("Enter")
    section.get_by_text("1 to 150 of 150").wait_for()
    section.get_by_label("Order").select_option("plan")
    until("the plan's order", lambda: first.locator("td").first.inner_text() == "orders-1-1")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_where_nobody_can_sign_in_the_page_says_how_to_turn_it_on(page: Any, tmp_path: Path, root: str) -> None:
    with Site(Served(tmp_path, root, tokens_file=None)) as site:
        plan_id = site.keep(Plan("c", (Movement("t", 0, (1,), (2,), 5.0),)))
        page.goto(f"{site.url}#plan={plan_id}")
        page.locator("#plan-act").get_by_text("set serve.tokens_file").wait_for()
        assert page.locator("#plan-act button").count() == 0
