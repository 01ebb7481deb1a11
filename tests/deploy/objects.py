"""Objects of Kubernetes in tests: those of the golden files, and the shapes of resources that Kubernetes has no schema
for."""

import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).parents[2]
HELM = ROOT / "deploy" / "helm"
CHART = HELM / "rebalancer"
GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = sorted(path.stem for path in (HELM / "examples").glob("*.yaml"))
ROLES = ("collect", "control", "pipeline", "serve")

Json = dict[str, Any]


def script(name: str) -> Json:
    """What a script of deploy/helm defines."""
    return script_at(HELM / name)


@cache
def script_at(path: Path) -> Json:
    """What a script defines; it is run once."""
    return runpy.run_path(str(path))


@cache
def golden(example: str) -> list[Json]:
    """The objects that the chart made of an example; shared, so don't change them."""
    return [made for made in yaml.safe_load_all((GOLDEN / f"{example}.yaml").read_text(encoding="utf-8")) if made]


def of_kind(objects: list[Json], *kinds: str) -> list[Json]:
    return [made for made in objects if made["kind"] in kinds]


def pods(objects: list[Json]) -> Iterator[tuple[str, Json]]:
    """(Role, spec of its pods) of everything that starts pods."""
    for made in of_kind(objects, "Deployment", "StatefulSet"):
        template = made["spec"]["template"]
        yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


class Strict(BaseModel):
    """A part of a custom resource as far as we use it: what it doesn't know is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Metadata(Strict):
    name: str = Field(pattern=r"^[a-z0-9-]{1,63}$")
    namespace: str | None = None
    labels: dict[str, str] = {}


class Relabeling(Strict):
    action: Literal["replace"]
    targetLabel: str  # noqa: N815
    replacement: str


class Endpoint(Strict):
    port: str
    path: str
    interval: str = Field(pattern=r"^\d+(ms|s|m)$")
    relabelings: list[Relabeling]


class Selector(Strict):
    matchLabels: dict[str, str]  # noqa: N815


class Namespaces(Strict):
    matchNames: list[str]  # noqa: N815


class ServiceMonitorSpec(Strict):
    selector: Selector
    namespaceSelector: Namespaces  # noqa: N815
    endpoints: list[Endpoint]


class ServiceMonitor(Strict):
    """Of the Prometheus Operator."""

    apiVersion: Literal["monitoring.coreos.com/v1"]  # noqa: N815
    kind: Literal["ServiceMonitor"]
    metadata: Metadata
    spec: ServiceMonitorSpec


class PrometheusRule(Strict):
    """Of the Prometheus Operator; its groups are tested by promtool where they come from."""

    apiVersion: Literal["monitoring.coreos.com/v1"]  # noqa: N815
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: Json


class AclResource(Strict):
    type: Literal["cluster", "topic", "group"]
    name: str | None = None
    patternType: Literal["literal", "prefix"] | None = None  # noqa: N815


class Acl(Strict):
    resource: AclResource
    operations: list[
        Literal["Read", "Write", "Create", "Describe", "DescribeConfigs", "Alter", "AlterConfigs"]
    ]  # those that we use; Strimzi knows more


class Authorization(Strict):
    type: Literal["simple"]
    acls: list[Acl]


class Authentication(Strict):
    type: Literal["scram-sha-512"]


class KafkaUserSpec(Strict):
    authentication: Authentication
    authorization: Authorization


class KafkaUser(Strict):
    """Of Strimzi."""

    apiVersion: Literal["kafka.strimzi.io/v1beta2"]  # noqa: N815
    kind: Literal["KafkaUser"]
    metadata: Metadata
    spec: KafkaUserSpec
