"""Python in pages is run against the real library: indented and fenced snippets, and `python -c` in shell lines. YAML
can be read, and queries in it name metrics that `serve` exports.

Snippets of a page share their names, in the order of the page, as a reader would type them. What needs a cluster is
listed in `NEEDS` with the reason, and runs up to the point where it asks for the cluster.
"""

import importlib.util
import re
import textwrap
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer
from kafka.errors import KafkaConfigurationError, KafkaTimeoutError

from streaming.serve.families import FAMILIES
from tests.docs.prose import ROOT
from tests.docs.test_links import NAMES, NEW_OR_OLD, code

FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
OPENS_PYTHON = re.compile(r"(?:>>> |from [\w.]+ import |import \w)")
IN_SHELL = re.compile(r"python -c '([^']+)'")
NEEDS = {"KafkaConsumer(": "the consumer connects when it is made"}
"""By a part of its text: why a snippet needs a cluster."""
NOBODY = "127.0.0.1:1"
"""An address on which nothing listens: the port is reserved."""


def indented(text: str) -> Iterator[str]:
    """The indented blocks of a page, lists included, without their indents."""
    block: list[str] = []
    was_blank = True
    for line in [*text.splitlines(), "end"]:
        if line.startswith("    ") and (block or was_blank):
            block.append(line)
        elif not line.strip() and block:
            block.append("")
        elif block:
            yield textwrap.dedent("\n".join(block)).strip() + "\n"
            block = []
        was_blank = not line.strip()


def snippets(page: str) -> list[str]:
    """What a page shows as Python: a fence that says so, or an indented block that begins like Python.

    >>> snippets("Do:\\n\\n    import os\\n\\n    os.getpid()\\n\\nor\\n\\n    make demo\\n\\n```python\\n1 + 1\\n```")
    ['import os\\n\\nos.getpid()\\n', '1 + 1\\n']
    """
    fenced = [textwrap.dedent(match.group(3)) for match in FENCE.finditer(page) if match.group(2) in ("python", "py")]
    return [block for block in indented(FENCE.sub("", page)) if OPENS_PYTHON.match(block)] + fenced


def run(texts: list[str], where: str) -> dict[str, Any]:
    """Run snippets in one set of names, which is returned. No consumer waits for its brokers."""
    names: dict[str, Any] = {"__name__": "snippet"}
    for text in texts:
        compiled = compile(text.replace("127.0.0.1:9092", NOBODY), f"{where}: {text}", "exec")
        # Wrong names, options and assignors fail before the first connection.
        unreached = pytest.raises(KafkaTimeoutError, match="Unable to bootstrap")
        with unreached if any(part in text for part in NEEDS) else nullcontext():
            exec(compiled, names)  # noqa: S102  # the pages of this repository
    return names


def pages_with(found: dict[str, list[str]]) -> list[str]:
    return [name for name, texts in found.items() if texts]


ALL = {name: snippets((ROOT / name).read_text(encoding="utf-8")) for name in sorted(set(NAMES) - NEW_OR_OLD)}
SHELL = {name: IN_SHELL.findall((ROOT / name).read_text(encoding="utf-8")) for name in ALL}


@pytest.fixture(autouse=True)
def no_wait_for_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KafkaConsumer.DEFAULT_CONFIG, "bootstrap_timeout_ms", 1)


@pytest.mark.parametrize("name", pages_with(ALL))
def test_snippets_of_a_page_run(name: str) -> None:
    run(ALL[name], name)


def test_each_reason_is_that_of_a_snippet() -> None:
    texts = [snippet for texts in ALL.values() for snippet in texts]
    assert [part for part in NEEDS if not any(part in text for text in texts)] == []


@pytest.mark.parametrize("name", pages_with(SHELL))
def test_python_in_shell_lines_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text in SHELL[name]:
        run([text], name)
        assert capsys.readouterr().out


def test_the_assignment_that_is_shown_is_one() -> None:
    result = run(ALL["docs/assignors.md"], "docs/assignors.md")["result"]
    shares = [list(result.assignment[member]) for member in ("c-1", "c-2")]
    assert sorted(map(len, shares)) == [3, 4]
    assert {pair for share in shares for pair in share} == {("t", partition) for partition in range(7)}


@pytest.mark.parametrize(
    ("page", "error"),
    [
        ("    from streaming.consumer import NoSuchAssignor\n", ImportError),
        ("    import os\n\n    os.no_such_name\n", AttributeError),
        ("```python\n1 +\n```\n", SyntaxError),
        ("1. So:\n\n       import os\n       os.no_such_name\n", AttributeError),
        ("    from kafka import KafkaConsumer\n    KafkaConsumer(no_such_option=1)\n", KafkaConfigurationError),
    ],
)
def test_a_snippet_that_does_not_run_is_noticed(page: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run(snippets(page), "page")


def test_every_module_and_script_for_python_is_there() -> None:
    texts = [text for name in ALL for text in code((ROOT / name).read_text(encoding="utf-8"))]
    modules = {module.rstrip(".") for text in texts for module in re.findall(r"\bpython -m ([\w.]+)", text)}
    scripts = {script for text in texts for script in re.findall(r"\bpython ([\w/]+\.py)", text)}
    assert {module for module in modules if importlib.util.find_spec(module) is None} == set()
    assert {script for script in scripts if not (ROOT / script).is_file()} == set()
    assert "streaming.runtime.jars" in modules
    assert "deploy/grafana/pictures.py" in scripts


METRIC = re.compile(r"\brebalancer_[a-z_]+\b")


def examples(page: str) -> list[str]:
    """The fenced blocks of a page that are YAML.

    >>> examples("Set:\\n\\n```yaml\\na: 1\\n```\\n\\n```text\\nb\\n```")
    ['a: 1\\n']
    """
    return [textwrap.dedent(match.group(3)) for match in FENCE.finditer(page) if match.group(2) in ("yaml", "yml")]


YAML = {name: examples((ROOT / name).read_text(encoding="utf-8")) for name in sorted(set(NAMES) - NEW_OR_OLD)}


@pytest.mark.parametrize("name", [name for name, texts in YAML.items() if texts])
def test_the_yaml_of_a_page_can_be_read_and_names_metrics_that_exist(name: str) -> None:
    known = {family.name for family in FAMILIES}
    for text in YAML[name]:
        assert [part for part in yaml.safe_load_all(text) if part is None or isinstance(part, str)] == []
        assert set(METRIC.findall(text)) <= known


def test_what_scales_consumers_counts_the_members_needed_and_holds_where_they_are_unknown() -> None:
    keda, adapter = YAML["docs/lag.md"][-2:]
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
