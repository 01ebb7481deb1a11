"""Alert rules and Alertmanager's routes, judged by Prometheus' own tools."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from streaming.serve.families import FAMILIES
from tests.prometheus.cases import CASES, FURTHER, TARGET_A, TARGET_B, Case

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus"
ALERTMANAGER = ROOT / "deploy" / "alertmanager" / "alertmanager.yml"
RUNBOOKS = ROOT / "docs" / "runbooks"
LONG = [case for case in (*CASES, *FURTHER) if case.at > 120]
"""Cases over many hours are evaluated less often: promtool evaluates every rule at each step."""
SHORT = [case for case in (*CASES, *FURTHER) if case.at <= 120]
STALLED = "RebalancerStreamStalled"
INPUT_SILENT = "RebalancerInputSilent"
RECEIVERS = {"critical": "page", "warning": "ticket", "info": "note"}

pytestmark = pytest.mark.prometheus
needs_tools = pytest.mark.skipif(
    not (shutil.which("promtool") and shutil.which("amtool")),
    reason="promtool or amtool isn't installed (Debian packages prometheus, prometheus-alertmanager)",
)


def rules(file: str) -> list[dict[str, Any]]:
    groups = yaml.load((RULES / file).read_text(), yaml.CSafeLoader)["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unit_tests(case: Case) -> list[dict[str, Any]]:
    """promtool's tests of one case: it fires with exactly these labels and words, and it is silent."""
    rule = ALERTS[case.alert]
    annotations = {
        name: re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda match: case.labels[match.group(1)], rule["annotations"][name])
        for name in ("summary", "runbook_url", "dashboard_url")
    }
    expected = {
        "exp_labels": {**rule["labels"], **case.labels},
        "exp_annotations": {**annotations, "description": case.description},
    }
    fires = case.fires if case.alert == "RebalancerAbsent" else of_two_processes(case.fires)
    return [rule_test(case, "fires", fires, [expected]), rule_test(case, "silent", case.silent, [])]


def of_two_processes(shown: Mapping[str, str]) -> dict[str, str]:
    """The series of two serve processes: nothing is told twice. `test_live` shows that no rule adds up over them."""
    return {
        key.replace("{", f'{{job="rebalancer",instance="{instance}",', 1): values
        for key, values in shown.items()
        for instance in ("a:9464", "b:9464")
    }


def without_data(cases: Iterable[Case]) -> dict[str, Any]:
    """promtool's test that none of these fires where Prometheus knows nothing."""
    rows = [
        {"eval_time": f"{case.at}m", "alertname": case.alert, "exp_alerts": []}
        for case in cases
        if case.alert != "RebalancerAbsent"
    ]
    return {"name": "no data", "interval": "1m", "input_series": [], "alert_rule_test": rows}


def rule_test(case: Case, name: str, series: dict[str, str], expected: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": f"{case.alert}: {name}",
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [{"eval_time": f"{case.at}m", "alertname": case.alert, "exp_alerts": expected}],
    }


@needs_tools
@pytest.mark.parametrize(("interval", "cases"), [("1m", SHORT), ("10m", LONG)], ids=["within hours", "over hours"])
def test_every_alert_fires_with_these_words_and_is_silent_otherwise(
    tmp_path: Path, interval: str, cases: list[Case]
) -> None:
    judge(
        tmp_path / "tests.yml", interval, [*(test for case in cases for test in unit_tests(case)), without_data(cases)]
    )


def judge(file: Path, interval: str, tests: list[dict[str, Any]]) -> None:
    """Fails where promtool finds that an alert is not as one of the tests expects."""
    rule_files = [str(RULES / "alerts.yml")]
    file.write_text(yaml.safe_dump({"rule_files": rule_files, "evaluation_interval": interval, "tests": tests}))
    run("promtool", "test", "rules", file)


@needs_tools
def test_each_cluster_of_a_serve_for_several_is_named_once_it_gives_no_answer(tmp_path: Path) -> None:
    """Each alert silences those of its own cluster. What another serve still shows is not named."""
    shown = {
        ("a:9464", "east"): "0+60x10 _x30", ("a:9464", "west"): "20+60x10 _x30", ("a:9464", "south"): "0+60x10 _x30",
        ("a:9464", "ended"): "0+60x5 _x35", ("b:9464", "south"): "0+60x40",
    }  # fmt: skip
    metric = "rebalancer_snapshot_timestamp_seconds"
    series = {
        f'{metric}{{job="rebalancer",instance="{instance}",kafka_cluster="{name}"}}': values
        for (instance, name), values in shown.items()
    }
    series |= {f"up{{{TARGET_A}}}": "1x10 0x30", f"up{{{TARGET_B}}}": "1x40"}
    labels = {"job": "rebalancer", "instance": "a:9464", "severity": "critical"}
    rule = ALERTS["RebalancerAbsent"]["annotations"]
    said = {name: rule[name] for name in ("summary", "runbook_url", "dashboard_url")}
    expected = [
        {
            "exp_labels": {**labels, "kafka_cluster": name},
            "exp_annotations": said
            | {
                "description": f"Prometheus gets no answer from a:9464, which watches cluster {name}. Until it "
                "answers, no other alert of the rebalancer can fire. Start rebalancer serve, or correct the target of "
                "the scrape job."
            },
        }
        for name in ("east", "west")
    ]
    (case,) = [case for case in CASES if case.alert == "RebalancerAbsent"]
    asked = rule_test(case, "several clusters", series, expected)
    asked["alert_rule_test"][0]["eval_time"] = "20m"
    judge(tmp_path / "tests.yml", "1m", [asked])


def test_every_alert_has_its_case() -> None:
    assert [case.alert for case in CASES] == list(ALERTS)
    for case in (*CASES, *FURTHER):
        assert case.fires, case.alert
        assert case.silent, case.alert


@needs_tools
def test_the_tools_find_no_fault() -> None:
    run("promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES / "alerts.yml", RULES / "recordings.yml")
    run("promtool", "check", "config", RULES / "prometheus.yml")
    run("amtool", "check-config", ALERTMANAGER)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_all_that_is_needed(alert: str) -> None:
    rule = ALERTS[alert]
    assert alert.startswith("Rebalancer")
    assert rule["labels"]["severity"] in RECEIVERS
    assert "for" in rule
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url", "dashboard_url"}
    assert "{{" not in rule["annotations"]["summary"], "a summary is one sentence for all instances"
    assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{alert}.md"
    text = (RUNBOOKS / f"{alert}.md").read_text()
    assert text.startswith(f"# {alert}\n")
    for part in ("## What it means", "## How to look", "## What to do"):
        assert part in text, part


def test_every_runbook_belongs_to_an_alert() -> None:
    assert {path.stem for path in RUNBOOKS.glob("Rebalancer*.md")} == ALERTS.keys()


def test_rules_name_only_metrics_that_are_exported() -> None:
    exported = {family.name for family in FAMILIES}
    for rule in rules("alerts.yml") + rules("recordings.yml"):
        used = set(re.findall(r"(?<![:\w])rebalancer_\w+", str(rule)))
        assert used <= exported, (rule.get("alert") or rule["record"], used - exported)


def test_every_rule_keeps_clusters_apart() -> None:
    for rule in rules("alerts.yml") + rules("recordings.yml"):
        # A target that gives no answer is known by job and instance only.
        apart = {"kafka_cluster", "instance"} if rule.get("alert") == "RebalancerAbsent" else {"kafka_cluster"}
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            assert apart & set(labels.split(", ")), rule


@needs_tools
@pytest.mark.parametrize("severity", RECEIVERS)
def test_an_alert_reaches_who_its_severity_says(severity: str) -> None:
    labels = ("alertname=RebalancerAny", f"severity={severity}", "kafka_cluster=main")
    receivers = run("amtool", "config", "routes", "test", f"--config.file={ALERTMANAGER}", *labels)
    assert receivers.split() == [RECEIVERS[severity]]


def inhibitions() -> list[dict[str, Any]]:
    rules: list[dict[str, Any]] = yaml.safe_load(ALERTMANAGER.read_text())["inhibit_rules"]
    return rules


def silenced_by(alert_that_fires: str, **labels: str) -> set[str]:
    """Alerts that this one with these labels inhibits, as Alertmanager reads the matchers."""
    silenced = set()
    for rule in inhibitions():
        if _all_match(rule["source_matchers"], alert_that_fires, labels):
            for alert in ALERTS:
                either = ({"source": "consumer_lag"}, {"source": "byte_rate"}) if alert == INPUT_SILENT else ({},)
                if any(_all_match(rule["target_matchers"], alert, of_target) for of_target in either):
                    silenced.add(alert)
    return silenced


def _all_match(matchers: list[str], alert: str, labels: dict[str, str]) -> bool:
    return all(_matches(matcher, {"alertname": alert, **labels}) for matcher in matchers)


def _matches(matcher: str, labels: dict[str, str]) -> bool:
    match = re.fullmatch(r'(\w+)(=~|!=|=)"(.*)"', matcher)
    assert match, matcher
    name, sign, pattern = match.groups()
    value = labels.get(name, "")
    return {"=~": bool(re.fullmatch(pattern, value)), "=": value == pattern, "!=": value != pattern}[sign]


def test_a_monitor_that_stands_still_silences_its_own_verdicts() -> None:
    load = {name for name in ALERTS if re.search("Skew|Hot|NearCapacity|Disk", name)}
    lag = {name for name in ALERTS if "ConsumerGroup" in name}
    assert load <= silenced_by("RebalancerDataStale")
    assert load <= silenced_by(STALLED, query="byte_rate")
    assert lag <= silenced_by(STALLED, query="consumer_lag")
    assert lag <= silenced_by(INPUT_SILENT, source="consumer_lag")
    assert silenced_by("RebalancerAbsent") == ALERTS.keys() - {"RebalancerAbsent"}


def test_what_still_is_true_is_not_silenced() -> None:
    load_and_lag = {name for name in ALERTS if re.search("Skew|Hot|NearCapacity|Disk|ConsumerGroup", name)}
    assert not load_and_lag & silenced_by(STALLED, query="rejects")
    assert not {name for name in silenced_by(STALLED, query="byte_rate") if "ConsumerGroup" in name}
    assert not {name for name in silenced_by(INPUT_SILENT, source="byte_rate") if "ConsumerGroup" in name}
    assert not silenced_by("RebalancerBrokerLoadSkewed")
    for name in ALERTS:
        for query in ("byte_rate", "consumer_lag", "rejects"):
            assert name not in silenced_by(name, query=query), "an alert that silences itself is never heard"


def test_inhibition_stays_within_a_cluster_and_names_alerts_that_exist() -> None:
    for rule in inhibitions():
        assert "kafka_cluster" in rule["equal"]
        for row in (*rule["source_matchers"], *rule["target_matchers"]):
            pattern = re.fullmatch(r'alertname(?:=~|!=|=)"(.*)"', row)
            assert not pattern or any(re.fullmatch(pattern.group(1), alert) for alert in ALERTS), row


@needs_tools
@pytest.mark.parametrize(
    ("needed", "bound", "members", "replicas"),
    [(7, 5, 4, 7), (3, 3, 4, 3), (None, 2, 11, 11), (None, 12, 11, 12), (None, None, 6, 6)],
)
def test_what_keda_scales_to(
    tmp_path: Path, needed: int | None, bound: int | None, members: int, replicas: int
) -> None:
    """A group whose need is unknown, such as one with a hot partition, is never scaled down."""
    page = (RULES.parents[1] / "docs" / "lag.md").read_text()
    scaler = yaml.safe_load(page[page.index("apiVersion: keda.sh") :].split("```")[0])
    shown = {"members_needed": needed, "members_needed_bound": bound, "members": members}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": f'rebalancer_consumergroup_{name}{{consumergroup="billing"}}', "values": f"{value}x5"}
            for name, value in shown.items()
            if value is not None
        ],
        "promql_expr_test": [
            {
                "expr": scaler["spec"]["triggers"][0]["metadata"]["query"],
                "eval_time": "1m",
                "exp_samples": [{"labels": "{}", "value": replicas}],
            }
        ],
    }
    file = tmp_path / "keda.yml"
    file.write_text(yaml.safe_dump({"rule_files": [], "tests": [case]}))
    run("promtool", "test", "rules", file)
