"""Grafana's own alert rules, made of Prometheus' ones: `python deploy/grafana/alerts.py [FILE]`.

For those who let Grafana judge and tell instead of Prometheus and Alertmanager. `deploy/prometheus/alerts.yml` stays
the one source: what fires, for how long, and what is said of it. Here is what Grafana's format adds: a condition, what
an empty answer means, and the panel that shows it. A test runs this again and compares.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
RULES = HERE.parent / "prometheus" / "alerts.yml"
PROVISIONED = HERE / "provisioning" / "alerting" / "rebalancer.yml"
FOLDER = "Kafka"
"""Where `provisioning/dashboards` puts the boards, too."""
INTERVAL = "1m"
DATASOURCE = "prometheus"
"""The uid in `provisioning/datasources`."""
EXPRESSION = "__expr__"
ASKED = re.compile(r"\s*\{\{-? (?:range|with) printf .*? \| query \}\}.*?\{\{ end \}\}", re.DOTALL)
"""What an annotation asks Prometheus for besides: Grafana's templates can't."""
HEAD = """\
# Generated from deploy/prometheus/alerts.yml by `python deploy/grafana/alerts.py`; a test compares.
#
# Mount this folder at /etc/grafana/provisioning/alerting INSTEAD of letting Prometheus tell Alertmanager, or everything
# alerts twice. Grafana has no inhibition: a monitor that stands still does not silence its own verdicts there, and
# RebalancerAbsent is the one rule that tells of a Prometheus that gives no answer. Grafana before 12 ignores
# keepFiringFor and missing_series_evals_to_resolve.
#
# Whom to tell is yours: without contact points of your own, Grafana tells its default one. For instance, in a second
# file beside this one:
#
# apiVersion: 1
# contactPoints:
#   - orgId: 1
#     name: page
#     receivers:
#       - uid: rebalancer-page
#         type: webhook
#         settings: {url: "http://127.0.0.1:9095/page"}
#   - orgId: 1
#     name: ticket
#     receivers:
#       - uid: rebalancer-ticket
#         type: webhook
#         settings: {url: "http://127.0.0.1:9095/ticket"}
# policies:
#   - orgId: 1
#     receiver: ticket
#     group_by: [alertname, kafka_cluster]
#     repeat_interval: 12h
#     routes:
#       - receiver: page
#         object_matchers: [[severity, "=", critical]]
#         repeat_interval: 1h
"""

Loaded = dict[str, Any]


def render() -> str:
    """The whole file."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    provisioned = {"apiVersion": 1, "groups": [_group(group) for group in groups]}
    return HEAD + yaml.dump(provisioned, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


def _group(group: Loaded) -> Loaded:
    rules = [_rule(rule) for rule in group["rules"]]
    return {"orgId": 1, "name": group["name"], "folder": FOLDER, "interval": INTERVAL, "rules": rules}


def _rule(rule: Loaded) -> Loaded:
    name = rule["alert"]
    annotations = {key: in_grafana(text) for key, text in rule["annotations"].items()}
    board = re.match(r"/d/([\w-]+)", annotations["dashboard_url"])
    panel = _panel_of(rule["expr"], board.group(1)) if board else None
    link: Loaded = {"dashboardUid": board.group(1), "panelId": panel} if board and panel is not None else {}
    if link:
        annotations |= {"__dashboardUid__": link["dashboardUid"], "__panelId__": str(link["panelId"])}
    # An error of Prometheus is one error, not one of each rule.
    on_error = "Error" if name == "RebalancerAbsent" else "KeepLast"
    kept = {"keepFiringFor": rule["keep_firing_for"]} if "keep_firing_for" in rule else {}
    return {
        "uid": name, "title": name, "condition": "B", "data": [_query(rule["expr"]), _any_series()], **link,
        # Prometheus knows only what is there: a rule without series is quiet, and a series that is gone has ended.
        "noDataState": "OK", "missing_series_evals_to_resolve": 1, "execErrState": on_error,
        "for": rule["for"], **kept, "annotations": annotations, "labels": rule["labels"], "isPaused": False,
    }  # fmt: skip


def _query(expr: str) -> Loaded:
    source = {"type": "prometheus", "uid": DATASOURCE}
    model = {"refId": "A", "datasource": source, "expr": expr, "instant": True, "range": False, "editorMode": "code",
             "intervalMs": 1000, "maxDataPoints": 43200}  # fmt: skip
    return {"refId": "A", "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": DATASOURCE, "model": model}


def _any_series() -> Loaded:
    """Fires for each series of A, whatever its value: in Prometheus 0 fires, too."""
    model = {"refId": "B", "datasource": {"type": EXPRESSION, "uid": EXPRESSION}, "type": "math",
             "expression": "is_number($A) || is_nan($A) || is_inf($A)"}  # fmt: skip
    return {"refId": "B", "relativeTimeRange": {"from": 600, "to": 0}, "datasourceUid": EXPRESSION, "model": model}


def in_grafana(text: str) -> str:
    """A text of Prometheus' templates as Grafana understands it: the value is that of query A, and nothing is asked.

    >>> in_grafana('{{ $labels.broker }} is {{ $value | humanize }} off')
    '{{ $labels.broker }} is {{ $values.A.Value | humanize }} off'
    >>> in_grafana('It lags {{- range printf "x{y=%q}" $labels.y | query }}: {{ .Value }} records{{ end }}.')
    'It lags.'
    """
    return re.sub(r"\$value\b", "$values.A.Value", ASKED.sub("", text)).strip()


def _panel_of(expr: str, board_uid: str) -> int | None:
    """The board's panel that shows the first of the rule's metrics that any shows, and most of the others."""
    board: dict[str, Any] = json.loads((HERE / "dashboards" / f"{board_uid}.json").read_text(encoding="utf-8"))
    shown: dict[int, set[str]] = {
        panel["id"]: set(_metrics(" ".join(target["expr"] for target in panel["targets"])))
        for panel in board["panels"]
        if panel["type"] != "row"
    }
    metrics = _metrics(expr)
    for metric in metrics:
        panels = [panel for panel, names in shown.items() if metric in names]
        if panels:
            return max(panels, key=lambda panel: len(shown[panel] & set(metrics)))
    return None


def _metrics(expr: str) -> list[str]:
    return re.findall(r"\b(?:up|rebalancer_\w+)\b", expr)


class _Dumper(yaml.SafeDumper):
    """Several lines as several lines."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PROVISIONED).write_text(render(), encoding="utf-8")
