"""YAML in pages can be read, and queries in it name metrics that `serve` exports."""

import re
import textwrap

import pytest
import yaml

from streaming.serve.families import FAMILIES
from tests.docs.prose import ROOT
from tests.docs.test_links import NAMES, NEW_OR_OLD
from tests.docs.test_snippets import FENCE

METRIC = re.compile(r"\brebalancer_[a-z_]+\b")


def examples(page: str) -> list[str]:
    """The fenced blocks of a page that are YAML.

    >>> examples("Set:\\n\\n```yaml\\na: 1\\n```\\n\\n```text\\nb\\n```")
    ['a: 1\\n']
    """
    return [textwrap.dedent(match.group(3)) for match in FENCE.finditer(page) if match.group(2) in ("yaml", "yml")]


ALL = {name: examples((ROOT / name).read_text(encoding="utf-8")) for name in sorted(set(NAMES) - NEW_OR_OLD)}


@pytest.mark.parametrize("name", [name for name, texts in ALL.items() if texts])
def test_the_yaml_of_a_page_can_be_read_and_names_metrics_that_exist(name: str) -> None:
    known = {family.name for family in FAMILIES}
    for text in ALL[name]:
        assert [part for part in yaml.safe_load_all(text) if part is None or isinstance(part, str)] == []
        assert set(METRIC.findall(text)) <= known


def test_what_scales_consumers_counts_the_members_needed_and_holds_where_they_are_unknown() -> None:
    keda, adapter = ALL["docs/lag.md"][-2:]
    (trigger,) = yaml.safe_load(keda)["spec"]["triggers"]
    rules, scaler = yaml.safe_load_all(adapter)
    queries = [trigger["metadata"]["query"], rules["externalRules"][0]["metricsQuery"]]
    for query in queries:
        assert re.sub(r"{[^}]*}|\s+", "", query.replace("rebalancer_consumergroup_", "")) == (
            "max(members_needed)or(max(members_needed_bound)>max(members))ormax(members)"
        )
    external = scaler["spec"]["metrics"][0]["external"]
    assert external["metric"]["name"] == rules["externalRules"][0]["name"]["as"]
    # A total is shared by the replicas: there are as many as are needed. A `Value` would multiply the replicas by it.
    assert (trigger.get("metricType", "AverageValue"), external["target"]["type"]) == ("AverageValue", "AverageValue")
