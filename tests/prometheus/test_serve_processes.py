"""Two serve processes of one cluster show the same: nothing is told twice, and nothing is added up over them."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.prometheus.boards import BOARDS, load, panels
from tests.prometheus.cases import Case
from tests.prometheus.test_rules import LONG, SHORT, judge, needs_tools, rule_test, rules, unit_tests

pytestmark = pytest.mark.prometheus
ADDING = re.compile(r"\b(?:sum|count)\b(?: by \([^)]*\))? ?\(\s*(.{12})")
"""What PromQL adds up, as far as it shows what kind of expression that is."""


def of_two(case: Case) -> dict[str, Any]:
    """promtool's test that the alert fires as ever where each series comes from two processes."""
    series = {
        key.replace("{", f'{{job="rebalancer",instance="{instance}",', 1): values
        for key, values in case.fires.items()
        for instance in ("a:9464", "b:9464")
    }
    (expected,) = unit_tests(case)[0]["alert_rule_test"]
    return rule_test(case, "two serve processes", series, expected["exp_alerts"])


@needs_tools
@pytest.mark.parametrize(("interval", "cases"), [("1m", SHORT), ("10m", LONG)], ids=["within hours", "over hours"])
def test_an_alert_fires_once_with_the_same_words(tmp_path: Path, interval: str, cases: list[Case]) -> None:
    judge(tmp_path / "tests.yml", interval, [of_two(case) for case in cases if case.alert != "RebalancerAbsent"])


def test_no_rule_and_no_panel_adds_up_over_processes() -> None:
    asked = [rule["expr"] for rule in (*rules("alerts.yml"), *rules("recordings.yml"))]
    asked += [target["expr"] for file in BOARDS for panel in panels(load(file)) for target in panel["targets"]]
    added = [(found, expr) for expr in asked for found in ADDING.findall(expr)]
    assert len(added) > 5
    assert [expr for found, expr in added if not re.match(r"(?:max|min) by \(", found)] == []
