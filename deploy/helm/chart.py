"""What of the chart follows from the product: `python deploy/helm/chart.py`. Needs no helm; tests compare.

- `rebalancer/values.schema.json`: the shape of the values, with every setting of the product and its limits
- `../kubernetes/kafka-users.yaml`: users of Strimzi with the least rights of each role
"""

import json
from pathlib import Path
from typing import Any

import yaml

from streaming.cluster.permissions import RIGHTS, ROLES, Right, RightScope
from streaming.settings import Settings, TopicSettings
from streaming.settings.clusters import ClusterSettings

HERE = Path(__file__).resolve().parent
VALUES_SCHEMA = HERE / "rebalancer" / "values.schema.json"
KAFKA_USERS = HERE.parent / "kubernetes" / "kafka-users.yaml"

LEFT_OUT = {
    "CollectSettings": {"shard"},
    # Probes and the ServiceMonitor ask by plain HTTP.
    "ServeSettings": {"host", "port", "allowed_hosts", "tls_certificate_file", "tls_key_file"},
}
"""What the chart sets itself, or can't work with."""
WITH_SECRET_FILES = ("kafka", "collect", "serve")
"""Sections whose files may come from Secrets: `kafka` for the roles that log in, the others for their own role."""

KAFKA_USERS_HEAD = """\
# Users of Strimzi, one for each role, with the least rights of that role: those that deploy/acls/grant.sh grants, at
# level execute. Made by deploy/helm/chart.py. Change the name of the cluster (main) and the namespace (that of the
# Kafka resource), which must have `authorization: {type: simple}` and a listener with `scram-sha-512`.
# The User Operator makes a Secret of the same name, with the key `password`. Pods read Secrets of their own namespace
# alone: copy it, and the Secret main-cluster-ca-cert, to that of the rebalancer.
# Not part of it: Read on the topics of `topics.foreign` for the pipeline.
"""
STRIMZI_OPERATIONS = {
    "DESCRIBE": "Describe", "DESCRIBE_CONFIGS": "DescribeConfigs", "ALTER": "Alter", "ALTER_CONFIGS": "AlterConfigs",
    "CREATE": "Create", "READ": "Read", "WRITE": "Write",
}  # fmt: skip
FILES_OF_WEBHOOKS = r"^notify\.webhooks\.[A-Za-z0-9_-]+\.(url_file|secret_file)$"

Json = dict[str, Any]


def values_schema() -> str:
    """JSON Schema (draft 7) of the chart's values."""
    schema: Json = yaml.safe_load((HERE / "values.schema.yaml").read_text(encoding="utf-8"))
    for helper in ("role", "login", "shards"):
        del schema["definitions"][helper]
    settings = Settings.model_json_schema(ref_template="#/definitions/{model}")
    of_cluster = ClusterSettings.model_json_schema(ref_template="#/definitions/{model}")
    sections: Json = settings.pop("$defs")
    sections |= {name: section for name, section in of_cluster.pop("$defs").items() if name not in sections}
    files = {}
    for field, section in settings["properties"].items():
        name = section["$ref"].rpartition("/")[2]
        for key in list(sections[name]["properties"]):
            secret = "writeOnly" in json.dumps(sections[name]["properties"][key])  # values end up in a ConfigMap
            if secret or key in LEFT_OUT.get(name, set()):
                del sections[name]["properties"][key]
            elif key.endswith("_file") and field in WITH_SECRET_FILES:
                files[f"{field}.{key}"] = {"$ref": "#/definitions/secretFile"}
    schema["definitions"] |= sections | {
        "settings": settings,
        "clusterSettings": of_cluster,
        "clusterSecretFiles": {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: file for name, file in files.items() if not name.startswith("serve.")},
        },
        "secretFiles": {
            "type": "object",
            "additionalProperties": False,
            "properties": files,
            "patternProperties": {FILES_OF_WEBHOOKS: {"$ref": "#/definitions/secretFile"}},
        },
    }
    return json.dumps(_without_defaults(schema), indent=2) + "\n"


def _without_defaults(part: Any, *, of_properties: bool = False) -> Any:
    """The schema without `default` and `title`, which judge nothing; properties may have these names."""
    if isinstance(part, dict):
        left_out = () if of_properties else ("default", "title")
        return {
            key: _without_defaults(inner, of_properties=key == "properties" and not of_properties)
            for key, inner in part.items()
            if key not in left_out
        }
    return [_without_defaults(item) for item in part] if isinstance(part, list) else part


def kafka_users() -> str:
    """The users as YAML documents."""
    users = [_kafka_user(role) for role in ROLES]
    return KAFKA_USERS_HEAD + yaml.safe_dump_all(users, sort_keys=False, explicit_start=True)


def _kafka_user(role: str) -> Json:
    acls: dict[str, Json] = {}
    for right in RIGHTS:
        if right.role == role and right.scope is not RightScope.FOREIGN_TOPICS:
            for resource in _resources(right):
                acl = acls.setdefault(json.dumps(resource), {"resource": resource, "operations": []})
                acl["operations"].append(STRIMZI_OPERATIONS[right.operation])
    return {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaUser",
        "metadata": {
            "name": f"rebalancer-{role}", "namespace": "kafka", "labels": {"strimzi.io/cluster": "main"},
        },
        "spec": {
            "authentication": {"type": "scram-sha-512"},
            "authorization": {"type": "simple", "acls": list(acls.values())},
        },
    }  # fmt: skip


def _resources(right: Right) -> list[Json]:
    if right.scope is RightScope.CLUSTER:
        return [{"type": "cluster"}]
    topics = TopicSettings()
    names = {
        RightScope.TOPICS: ("topic", ["*"]),
        RightScope.GROUPS: ("group", ["*"]),
        RightScope.INPUT_TOPICS: ("topic", [topics.byte_rate, topics.consumer_lag]),
    }
    kind, resources = names[right.scope]
    return [{"type": kind, "name": name, "patternType": "literal"} for name in resources]


if __name__ == "__main__":
    VALUES_SCHEMA.write_text(values_schema(), encoding="utf-8")
    KAFKA_USERS.write_text(kafka_users(), encoding="utf-8")
