"""Each curl of docs/api.md is answered as the page has it."""

import shlex
from pathlib import Path

import pytest
from starlette.applications import Starlette

from streaming.runtime.jars import PROJECT_ROOT
from streaming.serve.api.endpoints import ENDPOINTS
from streaming.serve.snapshot import read_snapshot
from tests.serve.asking import BASE_URL, app_of, ask
from tests.serve.synthetic import NOW_MS, settings_for

PAGE = (PROJECT_ROOT / "docs/api.md").read_text(encoding="utf-8")
READING = [line.strip() for line in PAGE.splitlines() if line.startswith("    curl ")]


@pytest.fixture(scope="module")
def app(skewed_tables: str) -> Starlette:
    own = settings_for(Path(skewed_tables).parent)
    return app_of(read_snapshot(own, NOW_MS), own, now_ms=NOW_MS)


@pytest.mark.parametrize("command", READING)
def test_each_example_is_answered(app: Starlette, command: str) -> None:
    *options, url = shlex.split(command)[1:]
    headers = dict(option.split(": ", 1) for option in options if option != "--header")
    assert url.startswith(f"{BASE_URL}/")
    answer = ask(app, "GET", url, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json().get("items") != [] or url.endswith("/movements")


def test_the_page_has_an_example_of_each_path() -> None:
    paths = {shlex.split(line)[-1].removeprefix(BASE_URL).partition("?")[0] for line in READING}
    wanted = {endpoint.path.format(plan_id="a" * 64, execution_id="e-1") for endpoint in ENDPOINTS}
    assert wanted <= paths
