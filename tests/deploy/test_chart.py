"""The Helm chart. No machine of ours has a kubelet: so what it makes is compared with golden files, checked against
Kubernetes' own schemas, and its settings are read by the product."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from streaming.config import load_clusters, load_settings
from streaming.settings import Settings
from streaming.settings.changes import READ_BY
from streaming.settings.clusters import is_paused, name_problems
from tests.deploy.objects import (
    CHART,
    EXAMPLES,
    GOLDEN,
    HELM,
    ROLES,
    ROOT,
    Json,
    KafkaUser,
    PrometheusRule,
    ServiceMonitor,
    golden,
    of_kind,
    pods,
    script,
)
from tests.shell.test_levels import granted, rows_of

KUBERNETES = ("1.25", "1.37")
"""The oldest release that the chart allows, and the newest that there are schemas of."""
OF_ONE_CLUSTER = [example for example in EXAMPLES if example != "clusters"]
CUSTOM: dict[str, type[BaseModel]] = {"ServiceMonitor": ServiceMonitor, "PrometheusRule": PrometheusRule}


def helm() -> str | None:
    """Path of helm; None where it is not."""
    try:
        found: str = script("render.py")["helm"]()
    except FileNotFoundError:
        return None
    return found


needs_helm = pytest.mark.skipif(helm() is None, reason="helm is not there: `deploy/bootstrap.sh helm` builds it")


def test_the_golden_files_are_those_of_the_chart() -> None:
    """Else render them again, with helm on the path: `make chart`."""
    made_of = (GOLDEN / "made-of.sha256").read_text(encoding="utf-8").strip()
    assert made_of == script("render.py")["made_of"](), "the chart has changed: run `make chart` and review the diff"
    assert sorted(path.stem for path in GOLDEN.glob("*.yaml")) == EXAMPLES


def test_names_of_clusters_stay_texts() -> None:
    """A cluster may be called 1 or no: as a number or a truth value Kubernetes refuses labels and arguments."""
    templates = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").glob("*.tpl"))
    assert re.findall(r"rebalancer/cluster: (.*)", templates) == ["{{ . | quote }}"]
    assert re.findall(r"- --cluster\n +- (.*)", templates) == ["{{ . | quote }}"]


@needs_helm
@pytest.mark.parametrize("example", EXAMPLES)
def test_helm_renders_the_golden_files_with_our_boards_and_rules(example: str) -> None:
    rendered = script("render.py")["rendered"](HELM / "examples" / f"{example}.yaml")
    assert rendered == (GOLDEN / f"{example}.yaml").read_text(encoding="utf-8")


@needs_helm
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("settings.kafka.sasl_password=x", "at '/settings/kafka': additional properties 'sasl_password' not allowed"),
        ("settings.collect.shard=1/2", "at '/settings/collect': additional properties 'shard' not allowed"),
        ("settings.trigger.enter_ratio=0", "at '/settings/trigger/enter_ratio'"),
        ("settings.kafca.cluster_name=x", "at '/settings': additional properties 'kafca' not allowed"),
        ("podSecurity.runAsUser=0", "at '/podSecurity/runAsUser'"),
        ("secretFiles.kafka\\.sasl_password.secretName=x", "additional properties 'kafka.sasl_password' not allowed"),
        ("secretFiles.storage\\.tables.secretName=x", "additional properties 'storage.tables' not allowed"),
        ("secretFiles.notify\\.webhooks\\.chat\\.url.secretName=x", "additional properties 'notify.webhooks.chat.url'"),
        ("settings.serve.tls_key_file=/x", "at '/settings/serve': additional properties 'tls_key_file' not allowed"),
        ("pipeline.terminationGracePeriodSeconds=30", "at '/pipeline/terminationGracePeriodSeconds'"),
        ("settings.storage.tables=/data/tables", "/data/tables is not on the volume, which is mounted at /var/lib/r"),
        ("settings.storage.checkpoints=file:///data/c", "file:///data/c is not on the volume"),
    ],
)
def test_helm_refuses_values_that_the_product_would_refuse(value: str, reason: str) -> None:
    command = [helm() or "helm", "template", str(CHART), "--set", value, "--kube-version", KUBERNETES[-1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 1
    assert reason in done.stderr


def test_files_of_secrets_are_for_settings_of_roles_that_get_them() -> None:
    """Those of serve were taken, mounted for the collectors and not for serve."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    names = set(schema["definitions"]["secretFiles"]["properties"])
    assert {"kafka.sasl_password_file", "collect.prometheus_password_file", "serve.users_file"} <= names
    assert {name.partition(".")[0] for name in names} == {"kafka", "collect", "serve"}


def test_serve_has_no_encryption_that_its_probes_do_not_know() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    known = schema["definitions"]["ServeSettings"]["properties"]
    speaks_tls = "scheme: HTTPS" in (CHART / "templates" / "_pod.tpl").read_text(encoding="utf-8")
    assert ("tls_certificate_file" in known) == ("tls_key_file" in known) == speaks_tls
    assert "tokens_file" in known


@pytest.mark.long
@pytest.mark.parametrize("release", KUBERNETES)
@pytest.mark.parametrize("example", EXAMPLES)
def test_objects_have_the_shape_that_kubernetes_wants(example: str, release: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="`make setup` installs kubernetes-validate").validate
    for made in golden(example):
        if made["kind"] in CUSTOM:
            shown = made if made["kind"] == "ServiceMonitor" else made | {"spec": {}}
            CUSTOM[made["kind"]].model_validate(shown)
        else:
            validate(made, release, strict=True)


@pytest.mark.long
def test_all_examples_together_make_every_kind_of_object() -> None:
    kinds = {made["kind"] for example in EXAMPLES for made in golden(example)}
    in_templates = "".join(path.read_text(encoding="utf-8") for path in (CHART / "templates").glob("*.yaml"))
    assert kinds == set(re.findall(r"^kind: (\w+)$", in_templates, re.MULTILINE))


@pytest.mark.parametrize("example", EXAMPLES)
def test_no_object_stands_twice_and_every_selector_meets_pods(example: str) -> None:
    objects = golden(example)
    names = [(made["kind"], made["metadata"]["name"]) for made in objects]
    assert len(set(names)) == len(names)
    labels = [made["spec"]["template"]["metadata"]["labels"] for made in of_kind(objects, "Deployment", "StatefulSet")]
    for made in of_kind(objects, "Deployment", "StatefulSet", "Service", "PodDisruptionBudget", "NetworkPolicy"):
        selector = made["spec"].get("selector", made["spec"].get("podSelector"))
        wanted = selector.get("matchLabels", selector)
        met = [row for row in labels if wanted.items() <= row.items()]
        assert met, made["metadata"]["name"]
        if made["kind"] in ("Deployment", "StatefulSet"):
            assert len(met) == 1, "pods of one belong to no other"
    for monitored in of_kind(objects, "ServiceMonitor"):
        wanted = monitored["spec"]["selector"]["matchLabels"]
        services = [
            made for made in of_kind(objects, "Service") if wanted.items() <= made["metadata"]["labels"].items()
        ]
        assert [port["name"] for made in services for port in made["spec"]["ports"]] == ["http"]
        assert monitored["spec"]["endpoints"][0]["relabelings"][0]["replacement"] == "rebalancer", (
            "as the alerts know it"
        )


@pytest.mark.parametrize("example", EXAMPLES)
def test_pods_have_no_right_that_they_don_t_need(example: str) -> None:
    user = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["podSecurity"]["runAsUser"]
    assert f"useradd --uid {user} " in (ROOT / "deploy" / "compose" / "Dockerfile").read_text(encoding="utf-8")
    for role, pod in pods(golden(example)):
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == user
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        # serve writes down what it sends; one-node has a webhook. Tables in a bucket need no volume.
        writes = role in ("pipeline", "control") or (role, example) == ("serve", "one-node")
        writes &= example != "s3"
        assert writable == ({"/tmp", "/var/lib/rebalancer"} if writes else {"/tmp"})  # noqa: S108
        assert container["workingDir"] == "/tmp"  # noqa: S108
        assert container["resources"]["limits"]["memory"]
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}


def test_a_batch_under_way_can_be_finished() -> None:
    source = (ROOT / "streaming" / "pipeline" / "run.py").read_text(encoding="utf-8")
    grace_s = float(re.findall(r"^STOP_GRACE_S = ([\d.]+)$", source, re.MULTILINE)[0])
    for example in EXAMPLES:
        (pod,) = [pod for role, pod in pods(golden(example)) if role == "pipeline"]
        assert pod["terminationGracePeriodSeconds"] >= 2 * grace_s
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    least_s = schema["properties"]["pipeline"]["properties"]["terminationGracePeriodSeconds"]["minimum"]
    assert least_s > grace_s


@pytest.mark.parametrize("example", OF_ONE_CLUSTER)
def test_the_product_reads_the_settings_of_every_role(example: str, tmp_path: Path) -> None:
    objects = golden(example)
    (data,) = [made["data"] for made in of_kind(objects, "ConfigMap") if "serve.yaml" in made["data"]]
    by_role = dict(pods(objects))
    assert {name.removesuffix(".yaml") for name in data} == set(ROLES) == by_role.keys()
    for role in ROLES:
        file = tmp_path / f"{role}.yaml"
        file.write_text(data[f"{role}.yaml"], encoding="utf-8")
        settings = load_settings(file)
        assert settings.storage.tables in ("/var/lib/rebalancer/tables", "s3://example-bucket/rebalancer/tables")
        assert files_of(settings) == mounted_secrets(by_role[role])
        assert (settings.serve.host == "0.0.0.0") == (role == "serve")  # noqa: S104
        assert settings.kafka.cluster_name == yaml.safe_load(data["collect.yaml"])["kafka"]["cluster_name"]
        if role == "serve":
            assert not [file for file in files_of(settings) if "/kafka." in file], "serve never logs in to Kafka"
            (service,) = [made for made in of_kind(objects, "Service") if made["metadata"]["name"].endswith("-serve")]
            assert {service["metadata"]["name"], f"{service['metadata']['name']}.kafka-tools.svc"} <= set(
                settings.serve.allowed_hosts
            )


def test_each_cluster_has_pods_of_its_own_but_for_pipeline_and_serve() -> None:
    found: dict[tuple[str, ...], Json] = {}
    for made in of_kind(golden("clusters"), "Deployment", "StatefulSet"):
        (container,) = made["spec"]["template"]["spec"]["containers"]
        found[tuple(container["args"])] = made
    assert found.keys() == {
        ("collect", "--cluster", "east", "--set", "collect.shard=1/2"),
        ("collect", "--cluster", "east", "--set", "collect.shard=2/2"),
        ("collect", "--cluster", "west-2", "--set", "collect.shard=1/1"),
        ("control", "--cluster", "east"),
        ("control", "--cluster", "west-2"),
        ("pipeline",),
        ("serve",),
    }, "lab is paused"
    east, west = (found["control", "--cluster", name]["spec"] for name in ("east", "west-2"))
    assert east["selector"] != west["selector"]
    for spec in (east, west):  # each pair of controls shares no node, and loses one of them at a time
        (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["labelSelector"] == spec["selector"]
        budgets = [row["spec"] for row in of_kind(golden("clusters"), "PodDisruptionBudget")]
        assert [row["maxUnavailable"] for row in budgets if row["selector"] == spec["selector"]] == [1]


def test_the_product_reads_the_settings_of_each_clusters_pods(tmp_path: Path) -> None:
    objects = golden("clusters")
    (data,) = [made["data"] for made in of_kind(objects, "ConfigMap") if "serve.yaml" in made["data"]]
    used = set()
    for role, pod in pods(objects):
        (key,) = {item["key"] for volume in pod["volumes"] for item in volume.get("configMap", {}).get("items", ())}
        used.add(key)
        file = tmp_path / key
        file.write_text(data[key], encoding="utf-8")
        clusters = {name: effective.settings for name, effective in load_clusters(file, None, {}).items()}
        args = pod["containers"][0]["args"]
        assert [*clusters] == ([args[2]] if "--cluster" in args else ["east", "lab", "west-2"])
        assert [name for name, settings in clusters.items() if is_paused(settings)] == ["lab"][: len(clusters) // 3]
        files = {file for settings in clusters.values() for file in files_of(settings)}
        assert files == mounted_secrets(pod), role
        assert not [file for file in files if role == "serve"], "serve never logs in to Kafka"
        for name, settings in clusters.items():
            assert settings.storage.tables == f"/var/lib/rebalancer/tables/clusters/{name}"
            if role == "control":
                assert settings.control.mode == ("apply" if name == "east" else "propose")
    assert used == data.keys()


def test_a_change_of_one_cluster_starts_no_pods_that_do_not_read_it() -> None:
    """The checksum is over the settings of the pod, without those of other clusters and of roles beside it."""
    (data,) = [made["data"] for made in of_kind(golden("clusters"), "ConfigMap") if "serve.yaml" in made["data"]]
    own = {key: yaml.safe_load(text)["clusters"] for key, text in data.items()}
    assert own["control-east.yaml"].keys() == own["collect-east.yaml"].keys() == {"east"}
    for name in ("east", "lab", "west-2"):
        assert (
            own["pipeline.yaml"][name].keys()
            <= {"kafka", "topics", "storage", "paused"}
            <= READ_BY["pipeline"] | {"paused"}
        )
    assert "control" not in own["collect-east.yaml"]["east"]


def test_names_of_clusters_can_be_those_of_objects() -> None:
    """The product takes more of them."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    names = schema["properties"]["clusters"]["propertyNames"]
    for name, is_taken in (
        ("east", True),
        ("eu-west-2", True),
        ("eu_west", False),
        ("East", False),
        ("-a", False),
        ("a.b", False),
    ):
        assert bool(re.search(names["pattern"], name)) == is_taken, name
        assert not is_taken or not [*name_problems([name])]


def test_tables_in_a_bucket_need_no_volume_but_credentials_and_a_way_there() -> None:
    """The claim was made and mounted by all pods, and no policy let them reach the bucket."""
    objects = golden("s3")
    assert not of_kind(objects, "PersistentVolumeClaim")
    (account,) = of_kind(objects, "ServiceAccount")
    assert account["metadata"]["annotations"].keys() == {"eks.amazonaws.com/role-arn"}
    for role, pod in pods(objects):
        assert "persistentVolumeClaim" not in json.dumps(pod["volumes"]), role
        assert pod["serviceAccountName"] == account["metadata"]["name"]
    by_role = dict(pods(objects))
    assert mounted_secrets(by_role["serve"]) == {
        "/etc/rebalancer/secrets/serve.users_file", "/etc/rebalancer/secrets/serve.tokens_file",
    }  # fmt: skip


def test_people_reach_the_page_by_the_ingress() -> None:
    objects = golden("s3")
    (ingress,) = of_kind(objects, "Ingress")
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "rebalancer.example.org" == ingress["spec"]["tls"][0]["hosts"][0]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    (service,) = [made for made in of_kind(objects, "Service") if made["metadata"]["name"] == backend["name"]]
    assert backend["port"]["name"] in [port["name"] for port in service["spec"]["ports"]]
    (data,) = [made["data"] for made in of_kind(objects, "ConfigMap") if "serve.yaml" in made["data"]]
    assert rule["host"] in yaml.safe_load(data["serve.yaml"])["serve"]["allowed_hosts"]
    (policy,) = [
        made["spec"] for made in of_kind(objects, "NetworkPolicy") if made["metadata"]["name"].endswith("-serve")
    ]
    assert {"kubernetes.io/metadata.name": "ingress-nginx"} in [
        peer.get("namespaceSelector", {}).get("matchLabels") for peer in policy["ingress"][0]["from"]
    ]


@needs_helm
@pytest.mark.parametrize(
    ("values", "mounting", "reaching"),
    [
        ({}, set(ROLES), set()),
        ({"storage": {"tables": "s3://b/t"}}, {"pipeline"}, set(ROLES)),
        ({"storage": {"checkpoints": "s3://b/c"}}, set(ROLES), {"pipeline"}),
        ({"storage": {"tables": "s3://b/t", "checkpoints": "s3://b/c"}}, set(), set(ROLES)),
        ({"storage": {"tables": "file:///var/lib/rebalancer/t", "checkpoints": "s3://b/c"}}, set(ROLES), {"pipeline"}),
    ],
)
def test_a_volume_is_mounted_and_the_store_is_reached_by_those_who_use_it(
    values: Json, mounting: set[str], reaching: set[str], tmp_path: Path
) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"settings": values, "storage": {"credentialsSecret": "keys"}}), encoding="utf-8")
    objects = script("render.py")["objects"](file)
    assert bool(of_kind(objects, "PersistentVolumeClaim")) == bool(mounting)
    assert {role for role, pod in pods(objects) if "persistentVolumeClaim" in json.dumps(pod["volumes"])} == mounting
    reached = {
        made["metadata"]["labels"]["app.kubernetes.io/component"]
        for made in of_kind(objects, "NetworkPolicy")
        if {"protocol": "TCP", "port": 443} in [port for rule in made["spec"]["egress"] for port in rule["ports"]]
    }
    assert reached == reaching
    for _, pod in pods(objects):
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "keys"}}]


def test_the_check_in_controls_pod_reads_prometheus_as_the_collectors_do() -> None:
    """`rebalancer check` runs in that pod, and had no login to the Prometheus that its settings name."""
    by_role = {role: mounted_secrets(pod) for role, pod in pods(golden("secured"))}
    of_collect = {file for file in by_role["collect"] if "/collect." in file}
    assert of_collect
    for role, mounted in by_role.items():
        assert (of_collect <= mounted) == (role in ("collect", "control"))


@needs_helm
def test_secrets_of_a_webhook_go_to_serve_alone(tmp_path: Path) -> None:
    webhooks = {"chat": {"format": "slack"}, "ops": {"url": "https://ops.example.org/"}}
    secret = {"secretName": "hooks", "key": "url"}
    values = {
        "settings": {"notify": {"webhooks": webhooks}}, "secretFiles": {"notify.webhooks.chat.url_file": secret},
    }  # fmt: skip
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    objects = script("render.py")["objects"](file)
    mounted = {role: mounted_secrets(pod) for role, pod in pods(objects)}
    path = "/etc/rebalancer/secrets/notify.webhooks.chat.url_file"
    assert mounted == {role: {path} if role == "serve" else set() for role in ROLES}
    (data,) = [made["data"] for made in of_kind(objects, "ConfigMap") if "serve.yaml" in made["data"]]
    own = tmp_path / "serve.yaml"
    own.write_text(data["serve.yaml"], encoding="utf-8")
    assert load_settings(own).notify.webhooks["chat"].url_file == Path(path)


def files_of(settings: Settings) -> set[str]:
    """Files that the settings name as their secrets."""
    sections = settings.model_dump(mode="json", exclude={"paused"}).values()
    return {value for section in sections for key, value in section.items() if key.endswith("_file") and value}


def mounted_secrets(pod: Json) -> set[str]:
    """Files of Secrets, by their paths in the pod."""
    projected = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "secrets"]
    return {
        f"/etc/rebalancer/secrets/{item['path']}"
        for volume in projected
        for source in volume["sources"]
        for item in source["secret"]["items"]
    }


def test_each_collector_reports_a_part_of_its_own() -> None:
    shards = [pod["containers"][0]["args"] for role, pod in pods(golden("secured")) if role == "collect"]
    assert shards == [["collect", "--set", f"collect.shard={number}/2"] for number in (1, 2)]
    for made in of_kind(golden("secured"), "Deployment"):
        if "-collect-" in made["metadata"]["name"]:
            assert made["spec"]["strategy"] == {"type": "Recreate"}, "two of one part would count it twice"


@pytest.mark.parametrize("example", OF_ONE_CLUSTER)
def test_another_number_of_shards_can_be_installed(example: str) -> None:
    """A selector can't be changed, so that of a collector holds its number, not how many there are."""
    collectors = [made for made in of_kind(golden(example), "Deployment") if "-collect-" in made["metadata"]["name"]]
    own = [
        set(made["spec"]["selector"]["matchLabels"].items())
        - {("app.kubernetes.io/name", "rebalancer"), ("app.kubernetes.io/instance", "rebalancer")}
        - {("app.kubernetes.io/component", "collect")}
        for made in collectors
    ]
    assert own == [{("rebalancer/shard-number", str(number))} for number in range(1, len(collectors) + 1)]
    shards = [made["spec"]["template"]["metadata"]["labels"]["rebalancer/shard"] for made in collectors]
    assert shards == [f"{number}-of-{len(collectors)}" for number in range(1, len(collectors) + 1)]


def test_controls_share_no_node_unless_the_volume_is_on_one() -> None:
    def affinity(example: str) -> Json:
        (pod,) = [pod for role, pod in pods(golden(example)) if role == "control"]
        found: Json = pod["affinity"]
        return found

    assert "requiredDuringSchedulingIgnoredDuringExecution" in affinity("minimal")["podAntiAffinity"]
    assert affinity("one-node").keys() == {"podAffinity"}
    assert [pod["affinity"] for _, pod in pods(golden("one-node"))] == [affinity("one-node")] * 4


@pytest.mark.parametrize("example", OF_ONE_CLUSTER)
def test_pods_may_reach_the_brokers_and_serve_alone_is_reached(example: str) -> None:
    objects = golden(example)
    policies = {
        made["metadata"]["labels"]["app.kubernetes.io/component"]: made["spec"]
        for made in of_kind(objects, "NetworkPolicy")
    }
    if example == "one-node":
        assert not policies
        return
    (data,) = [made["data"] for made in of_kind(objects, "ConfigMap") if "serve.yaml" in made["data"]]
    servers = yaml.safe_load(data["collect.yaml"])["kafka"]["bootstrap_servers"]
    for role in ROLES:
        allowed = {port["port"] for rule in policies[role]["egress"] for port in rule["ports"]}
        brokers = {int(server.rpartition(":")[2]) for server in servers}
        store = {443} if example == "s3" else set()
        assert brokers | store <= allowed if role != "serve" else allowed == {53} | store
        assert bool(policies[role]["ingress"]) == (role == "serve")


def test_users_of_strimzi_are_those_that_follow_from_the_rights_of_the_roles() -> None:
    chart = script("chart.py")
    assert chart["KAFKA_USERS"].read_text(encoding="utf-8") == chart["kafka_users"](), "run `make chart`"


@pytest.mark.parametrize("role", ["collect", "pipeline", "control"])
def test_users_of_strimzi_have_the_rights_that_the_script_grants(role: str, tmp_path: Path) -> None:
    users = [
        KafkaUser.model_validate(user)
        for user in yaml.safe_load_all((ROOT / "deploy/kubernetes/kafka-users.yaml").read_text(encoding="utf-8"))
    ]
    (user,) = [user for user in users if user.metadata.name == f"rebalancer-{role}"]
    calls = []
    for acl in user.spec.authorization.acls:
        resource = acl.resource
        where = f"--{resource.type}" + (f" {resource.name}" if resource.name else "")
        calls += [f"{where} --operation {operation}" for operation in acl.operations]
    assert rows_of(calls) == rows_of(granted(tmp_path, role, FOREIGN_TOPICS="").stdout.splitlines())


@pytest.mark.long
def test_values_fit_their_schema_and_slips_do_not() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="`make setup` installs it, with kubernetes-validate")
    judge = jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text(encoding="utf-8")))
    for file in (CHART / "values.yaml", *(HELM / "examples").glob("*.yaml")):
        assert not list(judge.iter_errors(yaml.safe_load(file.read_text(encoding="utf-8")))), file
    slips: list[Json] = [
        {"settings": {"kafka": {"sasl_password": "x"}}}, {"settings": {"collect": {"shard": "1/2"}}},
        {"settings": {"control": {"mode": "aply"}}}, {"clusters": {"east": {"settings": {"serve": {}}}}},
        {"clusters": {"Ea.st": {}}}, {"clusters": {"east": {"secretFiles": {"serve.users_file": {}}}}},
        {"clusters": {"east": {"settings": {"kafka": {"sasl_password": "x"}}}}},
        {"secretFiles": {"kafka.sasl_password": {}}}, {"replicas": 2},
    ]  # fmt: skip
    assert all(list(judge.iter_errors(slip)) for slip in slips)


def choices(schema: Json, part: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each place of the settings where the chart's schema lists what is allowed, with a value for each entry."""
    if "$ref" in part:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]]
    for one in part.get("anyOf", ()):
        yield from choices(schema, one, path)
    for value in part.get("enum", ()):
        yield path, value
    for name, inner in part.get("properties", {}).items():
        yield from choices(schema, inner, (*path, name))
    if "items" in part:
        yield from ((place, [value]) for place, value in choices(schema, part["items"], path))


def test_what_the_schema_lists_as_allowed_is_what_the_product_takes() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    listed = list(choices(schema, schema["definitions"]["settings"]))
    assert (("trigger", "resources"), ["disk"]) in listed
    refused = []
    for path, value in listed:
        content: Any = value
        for name in reversed(path):
            content = {name: content}
        try:
            Settings.model_validate(content)
        except ValidationError as error:
            # A rule of the whole section may want further settings beside this one: that is no matter of the value.
            refused += [(path, value) for row in error.errors() if row["loc"][: len(path)] == path]
    assert refused == []


def test_every_value_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `?([^|]*?)`? \|", page, re.MULTILINE))
    for key, value in leaves(values):
        role, _, common = key.partition(".")
        documented = key if key in rows else f"ROLE.{common}" if role in ROLES else key
        assert documented in rows, f"docs/kubernetes.md does not have {key}"
        if documented == key:
            assert yaml.safe_load(rows[key]) == value, key
    known = {key for key, _ in leaves(values)}
    for key in rows:
        assert key in known or any(key.replace("ROLE", role) in known for role in ROLES), f"{key} is no value"


def leaves(values: Json, prefix: str = "") -> list[tuple[str, Any]]:
    """(Dotted key, default) of what can be set; settings of the product and resources count as one value."""
    rows = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        whole = key in ("settings", "resources", "labels") or not isinstance(value, dict) or not value
        rows += [(name, value)] if whole else leaves(value, f"{name}.")
    return rows


def test_the_chart_has_the_version_of_the_product_and_its_own_files_are_links_to_the_sources() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["version"] == chart["appVersion"] == project["version"]
    links = {path.name: path.resolve() for path in (CHART / "files").iterdir()}
    prometheus, grafana = ROOT / "deploy" / "prometheus", ROOT / "deploy" / "grafana"
    assert links == {
        "alerts.yml": prometheus / "alerts.yml", "recordings.yml": prometheus / "recordings.yml",
        "dashboards": grafana / "dashboards",
    }  # fmt: skip
