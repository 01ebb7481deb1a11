"""Grafana's own alert rules: made of Prometheus' ones, and of the shape that Grafana's provisioning reads.

Grafana can't be run here. The shape is that of provisioning format 1, as far as we use it; what its reader refuses (a
uid that is too long or not unique, a link to a board without its panel, a condition that names no query) fails here.
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field

from tests.prometheus.boards import BOARDS, GRAFANA, Board, load, panels
from tests.prometheus.test_rules import ALERTS, RULES, needs_tools, run

FILE = GRAFANA / "provisioning" / "alerting" / "rebalancer.yml"
DURATION = r"^\d+[smhd]$"
METRIC = re.compile(r"\b(?:up|rebalancer_\w+)\b")


class Strict(BaseModel):
    """What it doesn't know is an error; nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class TimeRange(Strict):
    from_s: int = Field(alias="from", gt=0)
    to: Literal[0]


class Source(Strict):
    type: str
    uid: str


class PrometheusQuery(Strict):
    ref_id: Literal["A"] = Field(alias="refId")
    datasource: Source
    expr: str = Field(min_length=1)
    instant: Literal[True]
    range: Literal[False]
    editor_mode: Literal["code"] = Field(alias="editorMode")
    interval_ms: int = Field(alias="intervalMs")
    data_points_max: int = Field(alias="maxDataPoints")


class Math(Strict):
    ref_id: Literal["B"] = Field(alias="refId")
    datasource: Source
    type: Literal["math"]
    expression: str


class Query(Strict):
    ref_id: str = Field(alias="refId")
    time_range: TimeRange = Field(alias="relativeTimeRange")
    datasource_uid: str = Field(alias="datasourceUid")
    model: PrometheusQuery | Math


class Rule(Strict):
    uid: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,40}$")
    title: str = Field(min_length=1, max_length=190)
    condition: str
    data: Annotated[list[Query], Field(min_length=1)]
    dashboard_uid: str | None = Field(default=None, alias="dashboardUid")
    panel_id: int | None = Field(default=None, alias="panelId")
    no_data_state: Literal["OK", "NoData", "Alerting", "KeepLast"] = Field(alias="noDataState")
    on_error: Literal["OK", "Error", "Alerting", "KeepLast"] = Field(alias="execErrState")
    evaluations_to_resolve: int = Field(alias="missing_series_evals_to_resolve", ge=0)
    for_: str = Field(alias="for", pattern=DURATION)
    keep_firing_for: str | None = Field(default=None, alias="keepFiringFor", pattern=DURATION)
    annotations: dict[str, str]
    labels: dict[str, str]
    is_paused: Literal[False] = Field(alias="isPaused")


class Group(Strict):
    org_id: Literal[1] = Field(alias="orgId")
    name: str = Field(min_length=1, max_length=190)
    folder: str = Field(min_length=1)
    interval: Literal["1m"]
    rules: Annotated[list[Rule], Field(min_length=1)]


class Provisioned(Strict):
    version: Literal[1] = Field(alias="apiVersion")
    groups: list[Group]


@cache
def provisioned() -> Provisioned:
    return Provisioned.model_validate(yaml.load(FILE.read_text(), yaml.CSafeLoader))


@cache
def grafana_rules() -> dict[str, Rule]:
    return {rule.title: rule for group in provisioned().groups for rule in group.rules}


@pytest.mark.long
def test_the_file_is_what_the_script_writes(tmp_path: Path) -> None:
    written = tmp_path / "rules.yml"
    subprocess.run([sys.executable, str(GRAFANA / "alerts.py"), str(written)], check=True)
    assert written.read_text() == FILE.read_text()


def test_examples_of_the_script() -> None:
    subprocess.run([sys.executable, "-m", "doctest", str(GRAFANA / "alerts.py")], check=True)


def test_every_rule_of_prometheus_is_there_in_its_group() -> None:
    loaded = yaml.safe_load((RULES / "alerts.yml").read_text())["groups"]
    expected = {group["name"]: [rule["alert"] for rule in group["rules"]] for group in loaded}
    assert {group.name: [rule.title for rule in group.rules] for group in provisioned().groups} == expected
    uids = [rule.uid for rule in grafana_rules().values()]
    assert len(uids) == len(set(uids))


@pytest.mark.parametrize("alert", ALERTS)
def test_a_rule_judges_and_says_the_same(alert: str) -> None:
    ours, theirs = ALERTS[alert], grafana_rules()[alert]
    query, condition = (part.model for part in theirs.data)
    assert isinstance(query, PrometheusQuery)
    assert isinstance(condition, Math)
    assert (query.expr, theirs.for_, theirs.keep_firing_for) == (ours["expr"], ours["for"], ours.get("keep_firing_for"))
    assert theirs.labels == ours["labels"]
    assert theirs.condition == condition.ref_id
    assert set(re.findall(r"\$(\w+)", condition.expression)) == {query.ref_id}
    for part in theirs.data:
        assert (part.ref_id, part.datasource_uid) == (part.model.ref_id, part.model.datasource.uid)
    annotations = {name: text for name, text in theirs.annotations.items() if not name.startswith("__")}
    assert annotations.keys() == ours["annotations"].keys()
    assert {annotations[name] for name in ("summary", "runbook_url", "dashboard_url")} <= set(
        ours["annotations"].values()
    )


def test_texts_ask_nothing_and_take_the_value_of_the_query() -> None:
    for rule in grafana_rules().values():
        for text in rule.annotations.values():
            assert "| query" not in text, rule.title
            assert not re.search(r"\$value\b", text), rule.title
            assert text.count("{{") == text.count("}}")
    skewed = grafana_rules()["RebalancerBrokerLoadSkewed"].annotations["description"]
    assert skewed == (
        'In cluster {{ $labels.kafka_cluster }} the busiest broker has {{ $values.A.Value | printf "%.2f" }} times the '
        "mean load in {{ $labels.resource }}. `rebalancer status` shows the plan, or the reason why there is none."
    )


@pytest.mark.prometheus
@needs_tools
def test_texts_are_templates(tmp_path: Path) -> None:
    """Grafana renders them with Prometheus' own template engine, in which only the value has another name."""
    groups: list[dict[str, Any]] = [
        {
            "name": "as Prometheus reads them",
            "rules": [
                {
                    "alert": rule.title,
                    "expr": ALERTS[rule.title]["expr"],
                    "annotations": {
                        name.strip("_"): text.replace("$values.A.Value", "$value")
                        for name, text in rule.annotations.items()
                    },
                }
                for rule in grafana_rules().values()
            ],
        }
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": groups}))
    run("promtool", "check", "rules", file)


def test_a_link_leads_to_a_panel_that_shows_the_matter() -> None:
    boards: dict[str, Board] = {file.stem: load(file) for file in BOARDS}
    linked = 0
    for rule in grafana_rules().values():
        pair = (rule.annotations.get("__dashboardUid__"), rule.annotations.get("__panelId__"))
        assert pair == (rule.dashboard_uid, None if rule.panel_id is None else str(rule.panel_id))
        assert (rule.dashboard_uid is None) == (rule.panel_id is None), "Grafana wants both or none"
        if rule.dashboard_uid is None:
            continue
        linked += 1
        assert rule.annotations["dashboard_url"].startswith(f"/d/{rule.dashboard_uid}")
        (panel,) = [panel for panel in panels(boards[rule.dashboard_uid]) if panel["id"] == rule.panel_id]
        shown = METRIC.findall(" ".join(target["expr"] for target in panel["targets"]))
        assert set(shown) & set(METRIC.findall(ALERTS[rule.title]["expr"])), (rule.title, panel["title"])
    assert linked > 20


def test_an_empty_answer_is_calm_and_prometheus_away_is_told_once() -> None:
    assert {rule.no_data_state for rule in grafana_rules().values()} == {"OK"}
    assert [rule.title for rule in grafana_rules().values() if rule.on_error != "KeepLast"] == ["RebalancerAbsent"]


def test_datasource_and_folder_are_those_that_are_provisioned() -> None:
    provisioning = GRAFANA / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "rebalancer.yml").read_text())["providers"]
    assert {rule.data[0].datasource_uid for rule in grafana_rules().values()} == {source["uid"]}
    assert {group.folder for group in provisioned().groups} == {provider["folder"]}


class Receiver(Strict):
    uid: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,40}$")
    type: Literal["webhook"]
    settings: dict[str, str]


class ContactPoint(Strict):
    org_id: Literal[1] = Field(alias="orgId")
    name: str
    receivers: list[Receiver]


class Route(Strict):
    receiver: str
    object_matchers: list[Annotated[list[str], Field(min_length=3, max_length=3)]]
    repeat_interval: str = Field(pattern=DURATION)


class Policy(Strict):
    org_id: Literal[1] = Field(alias="orgId")
    receiver: str
    group_by: list[str]
    repeat_interval: str = Field(pattern=DURATION)
    routes: list[Route]


class Notifying(Strict):
    version: Literal[1] = Field(alias="apiVersion")
    contact_points: list[ContactPoint] = Field(alias="contactPoints")
    policies: list[Policy]


def test_the_example_of_whom_to_tell_is_one_that_could_be_used() -> None:
    comment = FILE.read_text().partition("\napiVersion")[0]
    lines = [line.removeprefix("#").removeprefix(" ") for line in comment.splitlines()]
    example = Notifying.model_validate(yaml.safe_load("\n".join(lines[lines.index("apiVersion: 1") :])))
    known = {point.name for point in example.contact_points}
    (policy,) = example.policies
    assert {policy.receiver, *(route.receiver for route in policy.routes)} == known
    severities = {
        label: value for route in policy.routes for label, sign, value in route.object_matchers if sign == "="
    }
    assert severities == {"severity": "critical"}


def test_grafana_reads_no_other_kind_of_file_there() -> None:
    """Its reader ends Grafana at a file that is neither YAML nor JSON."""
    assert [file.suffix for file in FILE.parent.iterdir()] == [".yml"]
