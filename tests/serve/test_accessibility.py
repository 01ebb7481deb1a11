"""Every page by the rules of axe-core, dark on a narrow screen and light on a wide one: no serious or critical fault.

Skipped without Chromium on the path or without Playwright and axe-core (`deploy/extras/browser-tests.lock`).
"""

from typing import Any

import pytest

from assignor_core.planner import PlannerPolicy, propose
from tests.core.planner.cases import founding
from tests.serve.test_page_in_browser import Site, chromium, sign_in
from tests.serve.test_page_in_browser import skewed_site as site
from tests.waiting import DEADLINE_S

__all__ = ["chromium", "site"]
pytestmark = pytest.mark.long
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed")

GRAVE = ("serious", "critical")
PAGES = (
    "overview", "groups", "group=billing", "broker=1", "topic=topic-A", "partition=topic-A%2F3", "decisions",
    "executions", "execution=e-1", "audit", "group=unknown",
)  # fmt: skip


def faults(page: Any) -> list[str]:
    """What axe-core finds: the rule, and the elements that break it."""
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {[node['html'][:160] for node in one['nodes'][:4]]}"
        for one in found
        if one["impact"] in GRAVE
    ]


@pytest.mark.parametrize(("width", "colours"), [(390, "dark"), (1280, "light")])
def test_no_page_has_a_serious_fault(chromium: Any, site: Site, width: int, colours: str) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=colours)
    context.set_default_timeout(DEADLINE_S * 1000)
    page = context.new_page()
    found = {}
    page.goto(site.url)
    page.locator("#brokers table").wait_for()
    found["signed out"] = faults(page)
    sign_in(page, site, "ada")
    for name in PAGES:
        page.goto(f"{site.url}#{name}")
        if name != "overview":
            page.locator("#view-body > *").filter(has_not_text="reading …").first.wait_for()
        found[name] = faults(page)
    page.goto(f"{site.url}#decisions")
    page.locator("#view-body").get_by_role("link", name="plan", exact=True).click()
    page.get_by_role("region", name="Brokers").wait_for()
    found["what the planner saw"] = faults(page)
    plan_id = site.keep(propose(founding(), PlannerPolicy(throttle_bytes_per_sec=1_000.0)))
    page.goto(f"{site.url}#plan={plan_id}")
    page.locator("#plan-movements table").wait_for()
    page.locator("#plan-act").get_by_role("button", name="Approve…").click()
    page.get_by_label("to approve").wait_for()
    found["plan"] = faults(page)
    context.close()
    assert {name: lines for name, lines in found.items() if lines} == {}
