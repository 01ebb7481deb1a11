"""Renders the chart for each set of values in `examples`: `python deploy/helm/render.py FOLDER`. Needs helm.

The files are what reviewers compare: tests/deploy/golden holds those of the chart as it is, with a digest of what they
were made of. Boards and rules are left out of them, after a check that they are those of deploy/grafana and
deploy/prometheus: a changed board needs no new rendering.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from streaming.runtime.jars import cache_folder

HERE = Path(__file__).resolve().parent
CHART = HERE / "rebalancer"
EXAMPLES = sorted((HERE / "examples").glob("*.yaml"))
PROMETHEUS = HERE.parent / "prometheus"
DASHBOARDS = HERE.parent / "grafana" / "dashboards"
DIGEST = "made-of.sha256"
RELEASE = ("rebalancer", "--namespace", "kafka-tools")
TIMEOUT_S = 120
KUBERNETES = "1.34"
"""Release that is rendered for: without it Helm takes the one that it was built for."""

Json = dict[str, Any]


class _Dumper(yaml.SafeDumper):
    """YAML whose texts of several lines stand as such."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def made_of() -> str:
    """Digest of templates, defaults and examples."""
    files = [CHART / "Chart.yaml", CHART / "values.yaml", *sorted((CHART / "templates").iterdir()), *EXAMPLES]
    digests = [f"{hashlib.sha256(file.read_bytes()).hexdigest()} {file.relative_to(HERE)}" for file in files]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def helm() -> str:
    """Path of helm: of the system, or that of `deploy/bootstrap.sh helm`. Raises FileNotFoundError."""
    found = shutil.which("helm") or shutil.which("helm", path=str(cache_folder().parent / "bin"))
    if found is None:
        raise FileNotFoundError("helm is not there: `deploy/bootstrap.sh helm` builds it, with Go")
    return found


def objects(values: Path) -> list[Json]:
    """The objects of the chart for these values. Raises CalledProcessError where helm refuses them."""
    of_kubernetes = ["--kube-version", KUBERNETES]
    command = [helm(), "template", RELEASE[0], str(CHART), *RELEASE[1:], "--values", str(values), *of_kubernetes]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    return [loaded for loaded in yaml.safe_load_all(done.stdout) if loaded]


def for_review(made: Json) -> Json:
    """The object without boards and rules. Raises ValueError where these are not those of their sources."""
    if made["kind"] == "PrometheusRule":
        groups = [group for file in ("alerts.yml", "recordings.yml") for group in _loaded(PROMETHEUS / file)["groups"]]
        if made["spec"]["groups"] != groups:
            raise ValueError("the rules of the chart are not those of deploy/prometheus")
        return made | {"spec": {"groups": "those of deploy/prometheus/alerts.yml and recordings.yml"}}
    boards = {name: text for name, text in made.get("data", {}).items() if name.endswith(".json")}
    for name, text in boards.items():
        if json.loads(text) != json.loads((DASHBOARDS / name).read_text(encoding="utf-8")):
            raise ValueError(f"board {name} of the chart is not that of deploy/grafana")
        made["data"][name] = f"that of deploy/grafana/dashboards/{name}"
    return made


def rendered(values: Path) -> str:
    """The objects for review, as YAML documents."""
    return yaml.dump_all(
        [for_review(made) for made in objects(values)], Dumper=_Dumper, sort_keys=False, explicit_start=True, width=200
    )


def _loaded(file: Path) -> Json:
    loaded: Json = yaml.safe_load(file.read_text(encoding="utf-8"))
    return loaded


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for example in EXAMPLES:
        (folder / example.name).write_text(rendered(example), encoding="utf-8")
    (folder / DIGEST).write_text(made_of() + "\n", encoding="utf-8")
