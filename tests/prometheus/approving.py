"""A person at the page of a demo that waits: in Chromium, or on the command line where there is no Chromium."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from tests.prometheus.demo import STORY_DEADLINE_S, WatchedDemo
from tests.waiting import DEADLINE_S, until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def signed_in(demo: WatchedDemo) -> Iterator[Any]:
    """The page, with the person signed in that the demo names; None where there is no browser."""
    if CHROMIUM is None or find_spec("playwright") is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    login = until("who may sign in", lambda: demo.login, STORY_DEADLINE_S)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(DEADLINE_S * 1000)
        until("the page", lambda: _answers(page, login[1]))
        page.get_by_label("Name").fill(login[2])
        page.get_by_label("Password").fill(login[3])
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Sign out").wait_for()
        page.goto("about:blank")  # it reads figures all the time, on a machine that has other things to do
        yield page
        browser.close()


def approve(demo: WatchedDemo, page: Any) -> None:
    """Once a plan waits: look at it, type its size and approve it."""
    waiting = until("a plan that waits", lambda: _waiting(demo), STORY_DEADLINE_S)
    if page is None:
        command = [sys.executable, "-m", "streaming", "apply", waiting[2], "--config", waiting[3], "--yes"]
        subprocess.run(command, check=True, timeout=STORY_DEADLINE_S)
        return
    page.goto(waiting[1])
    section = page.locator("#plan-look")
    section.get_by_role("button", name="Approve…").click()
    typed = section.locator("#plan-act b").inner_text()
    section.get_by_label("to approve").fill(typed)
    send = section.get_by_role("button", name="Approve", exact=True)
    send.click()
    answer = section.get_by_role("status").filter(has_text=re.compile("Done: |Refused: |Not known yet: "))
    answer.wait_for()
    if "Not known yet: " in answer.inner_text():
        send.click()  # as a person does then: the page sends the same request again, with its key
        answer.filter(has_text=re.compile("Done: |Refused: ")).wait_for()
    assert "Done: execution" in answer.inner_text(), answer.inner_text()


def shows_what_came_of_it(page: Any) -> None:
    """The page of the execution, from the overview: every movement is made, and the skew was measured."""
    page.goto(page.url.partition("#")[0])
    page.locator("#execution").get_by_role("link", name="Execution ").click()
    view = page.locator("#view")
    view.locator(".badge", has_text="measured").first.wait_for()
    figures = view.get_by_role("region", name="Highest load per mean").locator("tr", has_text="bytes in")
    before, planned, measured = (float(text) for text in figures.locator("td.num").all_inner_texts())
    assert before > 1.3
    assert max(planned, measured) < 1.15
    states = view.get_by_role("region", name="Movements").locator("tbody tr td:nth-child(5)").all_inner_texts()
    assert set(states) == {"made"}
    assert view.get_by_role("region", name="Brokers that receive replicas").locator("tbody tr").count() >= 1
    page.goto("about:blank")


def _waiting(demo: WatchedDemo) -> re.Match[str] | None:
    """The newest: address, the beginning of its id, and the file of the settings."""
    pattern = r"approve it on (\S+), or with rebalancer apply (\w+) --config (\S+)"
    found = list(re.finditer(pattern, demo.log.read_text()))
    return found[-1] if found else None


def _answers(page: Any, url: str) -> bool:
    from playwright.sync_api import Error

    try:
        page.goto(url)
    except Error:  # nothing listens yet
        return False
    return True
