"""`python -m tests.serve.page_pictures [FOLDER]`: every page over a small simulated cluster, drawn into docs/pictures.

Clock, time zone and state are fixed, so that the same sources give the same pictures on one machine. Needs Chromium on
the path and Playwright (`deploy/extras/browser-tests.lock`).
"""

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assignor_core.planner import PlannerPolicy, propose
from assignor_core.proposed_plan import ProposedPlan
from streaming import tables
from tests.core.planner.cases import founding
from tests.docs.pictures import PAGES, place, stamp
from tests.serve.served import Served
from tests.serve.signed import PASSWORD, Signed
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster
from tests.serve.test_connections import listening
from tests.tables_in_memory import in_memory
from tests.waiting import DEADLINE_S

WIDTH, HEIGHT_MAX = 1280, 1500
"""Pixels; what stands further down is cut off."""
FIRST_MS = NOW_MS - NOW_MS % WINDOW_MS - 60 * WINDOW_MS
WINDOWS = 50
"""Before those of `skewed_cluster`: together an hour."""
GROUP = "payments"
DECISION = f"test-{NOW_MS - 70_000}"
ADDRESSES: Mapping[str, tuple[str, str]] = {
    "overview": ("#overview", "#brokers table"),
    "groups": ("#groups", "#view-body table"),
    "group": (f"#group={GROUP}", "#view-body svg"),
    "broker": ("#broker=1", "#view-body svg"),
    "topic": ("#topic=topic-A", "#view-body svg"),
    "partition": ("#partition=topic-A%2F3", "#view-body svg"),
    "decisions": ("#decisions", "#view-body table"),
    "decision": (f"#decision={DECISION}", "#view-body table"),
    "executions": ("#executions", "#view-body table"),
    "execution": ("#execution=e-1", "#view-body table"),
    "audit": ("#audit", "#view-body table"),
    "plan": ("#plan={plan_id}", "#plan-movements table"),
}
"""Page: what follows its address, and what is there once it is whole."""


def simulated(folder: Path) -> tuple[Signed, str]:
    """An hour of a cluster that gets skewed, with readers that fall behind; the application, and id of a plan."""
    root = in_memory()
    synthetic = Synthetic(root)
    with synthetic.together():
        for index in range(WINDOWS):
            _write_window(synthetic, index)
    _write_events(synthetic)
    skewed_cluster(synthetic, NOW_MS)
    with synthetic.together():
        for index in range(WINDOWS, WINDOWS + 9):
            _write_lag(synthetic, index)
    served = Served(folder, root)
    policy = PlannerPolicy(throttle_bytes_per_sec=50_000_000.0)
    plan = propose(founding(2.8e6, 0.9e6), policy, proves_least=True)
    served.journal.write_plan(ProposedPlan(plan), decision=None, now_ms=NOW_MS - 5_000)
    served.post("brokers/3/undrain", key="a-key-undrain")
    served.post("executions/e-0/abort", key="a-key-abort")
    return Signed(folder, root), plan.plan_id


def _write_window(synthetic: Synthetic, index: int) -> None:
    """Broker 1 gets more and more to do; all have the ups and downs of half an hour."""
    start_ms, wave = FIRST_MS + index * WINDOW_MS, 1 + 0.04 * abs(index % 30 - 15) / 15
    rates = {1: 3.0e6 * wave * (1 + 0.008 * index), 2: 2.5e6 * wave, 3: 3.1e6 * wave}
    synthetic.broker_load(start_ms, rates, replication_bytes_in_per_sec=4.0e5)
    synthetic.partition_load(
        start_ms,
        [(1 + (p > 14) + (p > 21), "topic-A", p, "leader", (2.4e5 - p * 1_000) * wave) for p in range(30)]
        + [(1 + (p > 4) + (p > 17), "topic-B", p, "leader", 9.0e4 * wave) for p in range(30)],
    )
    _write_lag(synthetic, index)
    synthetic.decision(
        start_ms + WINDOW_MS + 30_000, resource="bytes_in", max_over_mean=max(rates.values()) * 3 / sum(rates.values()),
        window_end=tables.utc(start_ms + WINDOW_MS), detail="all brokers are below the threshold of 1.30",
    )  # fmt: skip


def _write_lag(synthetic: Synthetic, index: int) -> None:
    """Reads half of what comes from minute 35 on."""
    late = max(0, index - 35)
    rows = [
        (GROUP, "topic-B", p, 10_000 + 600 * index - 300 * late - 40 * p * late, 10_000 + 600 * index) for p in range(6)
    ]
    synthetic.group_lag(FIRST_MS + index * WINDOW_MS, rows, log_start_offset=2_000, client_id=GROUP)


def _write_events(synthetic: Synthetic) -> None:
    causes = {35: "1 member lost", 36: "1 member joined", 48: "1 member left"}
    for index, cause in causes.items():
        lost = '["payments-2"]' if "joined" not in cause else "[]"
        synthetic.group_event(
            FIRST_MS + index * WINDOW_MS, GROUP, cause=cause, members_out_json=lost, partitions_moved=2,
            members_in_json="[]" if lost != "[]" else '["payments-2"]',
        )  # fmt: skip


def draw(folder: Path) -> None:
    """Write a picture of each page; raises RuntimeError where a script of a page fails."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not on the path")
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        signed, plan_id = simulated(Path(held.enter_context(tempfile.TemporaryDirectory())))
        playwright = held.enter_context(sync_playwright())
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        with listening(signed) as (host, port):
            page = _page(browser)
            problems: list[str] = []
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.goto(f"http://{host}:{port}/")
            page.get_by_label("Name").fill("ada")
            page.get_by_label("Password").fill(PASSWORD)
            page.get_by_role("button", name="Sign in").click()
            page.get_by_text("ada · ").wait_for()
            for name, (address, whole) in ADDRESSES.items():
                page.goto(f"http://{host}:{port}/{address.format(plan_id=plan_id)}")
                page.locator(whole).first.wait_for()
                _photograph(page, folder / f"page-{name}.png", "#plan-look" if name == "plan" else None)
            browser.close()
    if problems:
        raise RuntimeError(f"a script of a page failed: {problems[0]}")


def _page(browser: Any) -> Any:
    """At the time of the state, in UTC, without what moves."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": 900}, timezone_id="UTC", locale="en-GB", color_scheme="light",
        reduced_motion="reduce",
    )  # fmt: skip
    context.set_default_timeout(DEADLINE_S * 1000)
    page = context.new_page()
    page.clock.set_fixed_time(NOW_MS / 1000)
    return page


def _photograph(page: Any, file: Path, part: str | None) -> None:
    height = page.evaluate("document.querySelector('main').getBoundingClientRect().bottom + window.scrollY")
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": min(height, HEIGHT_MAX)}
    if part is None:
        page.screenshot(path=file, full_page=True, clip=clip, caret="hide")
    else:
        page.locator(part).screenshot(path=file, caret="hide")


def main(folders: list[str]) -> None:
    """The command line above."""
    if folders:
        draw(Path(folders[0]))
        return
    draw(place(next(iter(PAGES))).parent)
    for name in PAGES:
        stamp(place(name))


if __name__ == "__main__":
    main(sys.argv[1:])
