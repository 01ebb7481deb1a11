"""Boards and rules on a real Prometheus: each panel shows data, and each expression can be evaluated.

How alerts reach a person: `test_demo`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.prometheus.boards import BOARDS, GRAFANA, load, panels, without_numbers
from tests.prometheus.live import Live, live, needs_servers
from tests.prometheus.test_rules import rules
from tests.waiting import DEADLINE_S, until

ROOT = Path(__file__).parents[2]
ADDING = re.compile(r"\b(?:sum|count)\b(?: by \([^)]*\))? ?\(\s*(.{12})")
"""What PromQL adds up, as far as it shows what kind of expression that is."""

pytestmark = [pytest.mark.prometheus, needs_servers]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("live")) as everything:
        yield everything


@pytest.mark.parametrize("file", BOARDS, ids=lambda file: file.stem)
def test_no_panel_is_empty_and_no_query_fails(running: Live, file: Path) -> None:
    """Rates have something to show once two scrapes have seen progress between them, on a busy machine later."""
    board, empty = load(file), list[str]()

    def has_numbers() -> bool:
        running.batch_rows()
        empty[:] = without_numbers(board, running.watch, "test")
        return not empty

    until("each panel has numbers", has_numbers, state=lambda: str(empty))


def test_every_alert_expression_is_evaluated_without_error(running: Live) -> None:
    until("an evaluation", lambda: running.watch.query("ALERTS"))
    groups = httpx.get(f"{running.watch.prometheus_url}/api/v1/rules", timeout=DEADLINE_S).json()["data"]["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert rule["health"] == "ok", rule


def test_boards_are_what_the_script_writes(tmp_path: Path) -> None:
    pytest.importorskip("grafana_foundation_sdk", reason="the boards' generator isn't installed")
    subprocess.run([sys.executable, str(GRAFANA / "generate.py"), str(tmp_path)], check=True)
    written = {file.name: file.read_text() for file in tmp_path.glob("*.json")}
    assert written == {file.name: file.read_text() for file in BOARDS}


def test_boards_follow_the_rules() -> None:
    assert len(BOARDS) == 5
    uids = {load(file)["uid"] for file in BOARDS}
    linked = set(re.findall(r"/d/([\w-]+)", (ROOT / "deploy/prometheus/alerts.yml").read_text()))
    assert linked == uids, "alerts link to boards that exist, and each board is linked"
    for file in BOARDS:
        board = load(file)
        assert board["uid"] == file.stem
        names = [variable["name"] for variable in board["templating"]["list"]]
        assert names[:2] == ["datasource", "kafka_cluster"]
        ids = [panel["id"] for panel in board["panels"]]
        assert len(ids) == len(set(ids))
        for panel in panels(board):
            assert panel["description"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            for target in panel["targets"]:
                _check_query(target["expr"])


def test_the_page_of_boards_has_every_board_with_its_picture() -> None:
    page = (ROOT / "docs" / "boards.md").read_text()
    for file in BOARDS:
        board = load(file)
        heading = board["title"].rpartition(" · ")[2].capitalize()
        assert f"## {heading}\n\n{board['description']}\n\n![{heading}](images/{file.stem}.png)" in page
        assert (ROOT / "docs" / "images" / f"{file.stem}.png").is_file()


def test_no_rule_and_no_panel_adds_up_over_serve_processes_of_one_cluster() -> None:
    asked = [rule["expr"] for rule in (*rules("alerts.yml"), *rules("recordings.yml"))]
    asked += [target["expr"] for file in BOARDS for panel in panels(load(file)) for target in panel["targets"]]
    added = [(found, expr) for expr in asked for found in ADDING.findall(expr)]
    assert len(added) > 5
    assert [expr for found, expr in added if not re.match(r"(?:max|min) by \(", found)] == []


def _check_query(expr: str) -> None:
    for selector in re.findall(r"\brebalancer_\w+(\{[^}]*\})?", expr):
        assert 'kafka_cluster="$kafka_cluster"' in selector, f"{expr}: mixes clusters"
    for name in re.findall(r"\b(rebalancer_\w+_total)\b", expr):
        assert re.search(rf"(rate|increase)\({name}", expr) or name == "rebalancer_rebalance_failures_total", expr
