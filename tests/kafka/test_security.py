"""SASL_SSL with SCRAM and mutual TLS on a real broker with an authorizer: who may do what, and what is told of it."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from assignor_core.disks import replica_sizes
from assignor_core.marker import Marker
from assignor_core.throttles import tagged
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client, librdkafka_options, spark_options
from streaming.cluster.permissions import RIGHTS, ROLES, Right, RightScope, missing_permissions
from streaming.cluster.topics import create_input_topics
from streaming.collect.run import Collector
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.runtime.jars import PROJECT_ROOT
from streaming.runtime.locks import exclusive
from streaming.runtime.processes import free_ports
from streaming.settings import KafkaSettings, Settings, TopicSettings
from tests.commands import run
from tests.java_programs import tool
from tests.kafka.secured import kafka_acls, make_certificates, secured_cluster
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

PASSWORD = 's3cret \\ "quoted"'  # noqa: S105 - of a broker that lives for a test
INPUT_TOPICS = ("rebalancer.byte-rate", "rebalancer.consumer-lag")
FOREIGN = "__CruiseControlMetrics"
ODD = "team=a,b"
IMPLIED_BY = {
    "DESCRIBE": {"DESCRIBE", "READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"DESCRIBE_CONFIGS", "ALTER_CONFIGS"},
}
"""What Kafka's authorizer allows along with another operation."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("secured")
    make_certificates(path / "certificates", ["client"])
    return path


@pytest.fixture(scope="module")
def brokers(folder: Path) -> Iterator[EmbeddedCluster]:
    with secured_cluster(folder / "home", folder / "certificates") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def superuser(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    users = [
        UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_512, PASSWORD) for name in ("app", "nobody", ODD)
    ]
    client.alter_user_scram_credentials(users)
    client.create_topics({"t": {"num_partitions": 2, "replication_factor": 1}})
    client.create_topics({FOREIGN: {"num_partitions": 1, "replication_factor": 1}})
    create_input_topics(client, TopicSettings(partitions=1))
    wait_until_known(client, ["t", FOREIGN, *INPUT_TOPICS])
    group = KafkaConsumer(bootstrap_servers=brokers.bootstrap_servers, group_id="g", enable_auto_commit=False)
    group.assign([TopicPartition("t", 0)])
    group.commit({TopicPartition("t", 0): OffsetAndMetadata(0, "", -1)})
    group.close()
    yield client
    client.close()


@pytest.fixture(params=["SASL_SSL", "SSL"])
def secured(
    request: pytest.FixtureRequest, brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> Settings:
    """Settings of the user app (SCRAM) or CN=client (mutual TLS)."""
    return settings_of(request.param, brokers, folder, tmp_path)


def settings_of(listener: str, brokers: EmbeddedCluster, folder: Path, tmp_path: Path, user: str = "app") -> Settings:
    certificates = folder / "certificates"
    password_file = tmp_path / "password"
    password_file.write_text(PASSWORD + "\n")
    kafka: dict[str, Any] = {
        "bootstrap_servers": brokers.addresses(listener),
        "security_protocol": listener,
        "ssl_ca_file": certificates / "ca.pem",
    }
    if listener == "SASL_SSL":
        kafka |= {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": user, "sasl_password_file": password_file}
    else:
        kafka |= {
            "ssl_certificate_file": certificates / "client.pem",
            "ssl_key_file": certificates / "client.key",
        }
    topics = {"foreign": {FOREIGN: "cruise-control"}}
    return Settings.model_validate({"kafka": kafka, "topics": topics, "storage": {"tables": str(tmp_path / "tables")}})


def principal(settings: Settings) -> str:
    return "User:app" if settings.kafka.sasl_username else "User:CN=client"


def acl(right: Right, name: str, who: str) -> ACL:
    kind = {
        RightScope.CLUSTER: ResourceType.CLUSTER, RightScope.GROUPS: ResourceType.GROUP,
    }.get(right.scope, ResourceType.TOPIC)  # fmt: skip
    pattern = ResourcePattern(kind, name)
    return ACL(who, "*", ACLOperation[right.operation], ACLPermissionType.ALLOW, pattern)


def acls_of(right: Right, who: str) -> list[ACL]:
    names = {
        RightScope.CLUSTER: ("kafka-cluster",),
        RightScope.INPUT_TOPICS: INPUT_TOPICS,
        RightScope.FOREIGN_TOPICS: (FOREIGN,),
    }.get(right.scope, ("*",))
    return [acl(right, name, who) for name in names]


def everything_of(who: str) -> ACLFilter:
    anything = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    return ACLFilter(who, None, ACLOperation.ANY, ACLPermissionType.ANY, anything)


def revoke_all(superuser: KafkaAdminClient, who: str) -> None:
    superuser.delete_acls([everything_of(who)])


def eventually(probe: Callable[[], Any], expected: Any) -> None:
    """ACLs reach the broker through the metadata log, a moment later."""
    until(f"{expected}", lambda: probe() == expected, pause_s=0.1, state=lambda: f"but {probe()}")


def lacking(admin: KafkaAdminClient, settings: Settings, role: str) -> set[tuple[RightScope, str]]:
    missing = missing_permissions(
        admin,
        role,
        input_topics=(settings.topics.byte_rate, settings.topics.consumer_lag),
        foreign_topics=tuple(settings.topics.foreign),
        observes_only=settings.control.mode == "observe",
    )
    return {(row.right.scope, row.right.operation) for row in missing}


@pytest.mark.parametrize("role", ROLES)
def test_each_missing_permission_is_named_and_no_other(
    role: str, brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path)
    who = principal(settings)
    needs = [right for right in RIGHTS if right.role == role]
    # What exists needs not be created.
    checked = {(right.scope, right.operation) for right in needs if right.operation != "CREATE"}
    admin = admin_client(settings.kafka)
    try:
        revoke_all(superuser, who)
        # Which topics there are can't be seen: of the other operations on them nothing is said then.
        on_topics = {(RightScope.TOPICS, operation) for operation in ("DESCRIBE_CONFIGS", "ALTER_CONFIGS")}
        on_groups = {(RightScope.GROUPS, "DESCRIBE")}
        eventually(lambda: lacking(admin, settings, role), checked - on_topics - on_groups)
        superuser.create_acls([row for right in needs for row in acls_of(right, who)])
        eventually(lambda: lacking(admin, settings, role), set())
        for right in needs:
            if (right.scope, right.operation) not in checked:
                continue
            taken = [
                row for row in needs if row.scope is right.scope
                and row.operation in IMPLIED_BY.get(right.operation, {right.operation})
            ]  # fmt: skip
            gone = [row for other in taken for row in acls_of(other, who)]
            superuser.delete_acls(
                [
                    ACLFilter(row.principal, row.host, row.operation, row.permission_type, row.resource_pattern)
                    for row in gone
                ]
            )
            if (right.scope, right.operation) == (RightScope.CLUSTER, "DESCRIBE"):
                expected = {row for row in checked if row[0] is RightScope.CLUSTER}
            else:
                expected = {(row.scope, row.operation) for row in taken} & checked
            eventually(lambda: lacking(admin, settings, role), expected)
            superuser.create_acls(gone)
            eventually(lambda: lacking(admin, settings, role), set())
    finally:
        admin.close()


def test_the_script_grants_what_is_needed_and_takes_it_back(
    brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path
) -> None:
    who = "User:somebody"
    script = [str(PROJECT_ROOT / "deploy" / "acls" / "grant.sh"), "all", who, brokers.bootstrap_servers[0]]
    environment = {**kafka_acls(folder), "FOREIGN_TOPICS": FOREIGN}
    subprocess.run(script, env=environment, check=True, capture_output=True, timeout=2 * DEADLINE_S)
    granted = superuser.describe_acls(everything_of(who))[0]
    wanted = [row for right in RIGHTS for row in acls_of(right, who)]
    assert {operation_of(row) for row in granted} == {operation_of(row) for row in wanted}
    script[1] = "pipeline"
    subprocess.run(script, env={**environment, "ACTION": "--remove"}, check=True, timeout=DEADLINE_S)
    left = superuser.describe_acls(everything_of(who))[0]
    assert {operation_of(row) for row in granted} - {operation_of(row) for row in left} == {
        (ResourceType.TOPIC, name, ACLOperation.READ) for name in (*INPUT_TOPICS, FOREIGN)
    }


def test_the_right_to_create_topics_that_do_not_exist_yet_is_seen(
    brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path)
    new = TopicSettings(byte_rate="not-there.byte-rate", consumer_lag="not-there.consumer-lag")
    settings = settings.model_copy(update={"topics": new})
    create = next(right for right in RIGHTS if right.operation == "CREATE")
    admin = admin_client(settings.kafka)
    try:
        revoke_all(superuser, principal(settings))
        rows = [row for right in RIGHTS if right.role == "collect" and right is not create
                for row in acls_of(right, principal(settings))]  # fmt: skip
        superuser.create_acls(rows)
        eventually(lambda: lacking(admin, settings, "collect"), {(create.scope, create.operation)})
        superuser.create_acls([acl(create, name, principal(settings)) for name in (new.byte_rate, new.consumer_lag)])
        eventually(lambda: lacking(admin, settings, "collect"), set())
        assert not {new.byte_rate, new.consumer_lag}.intersection(superuser.list_topics())
    finally:
        admin.close()


def operation_of(row: ACL) -> tuple[ResourceType, str, ACLOperation]:
    return row.resource_pattern.resource_type, row.resource_pattern.resource_name, row.operation


def test_with_that_much_and_no_more_every_role_does_its_work(
    secured: Settings, superuser: KafkaAdminClient, folder: Path
) -> None:
    who = principal(secured)
    revoke_all(superuser, who)
    superuser.create_acls([row for right in RIGHTS for row in acls_of(right, who)])
    admin = admin_client(secured.kafka)
    try:
        for role in ROLES:
            eventually(lambda role=role: lacking(admin, secured, role), set())  # type: ignore[misc]
        control_works(Cluster(admin))
    finally:
        admin.close()
    collect_works(secured)
    java_client_reads(secured, folder)


def control_works(cluster: Cluster) -> None:
    """Every request that control makes of a cluster, on one broker."""
    live = cluster.describe()
    assert replica_sizes(cluster.log_dirs())
    entries = {"t": frozenset({(0, 1)})}
    cluster.set_throttled_replicas(entries, entries)
    cluster.set_throttle_rates({1: tagged(1_000_000)})
    until("the throttle is shown", lambda: cluster.throttle_rates() and cluster.throttled_replicas(["t"]), pause_s=0.1)
    cluster.clear_throttle([1], entries, entries)
    cluster.reassign({("t", 0): live.partitions[("t", 0)].replicas})
    cluster.elect_preferred([("t", 0)])
    marker = Marker("a" * 32, "host/1", 1_000, 2_000)
    cluster.write_marker(marker)
    eventually(cluster.markers, (marker,))


def collect_works(settings: Settings) -> None:
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
        now_ms = time.time_ns() // 1_000_000
        collector.sample(now_ms=now_ms)
        assert collector.sample(now_ms=now_ms + 1_000) > 0


def java_client_reads(settings: Settings, folder: Path) -> None:
    """The options that Spark's Kafka source gets, given to Kafka's own consumer."""
    properties = folder / "client.properties"
    lines = [
        f"{name}={value}".replace("\\", "\\\\").replace("\n", "\\n")
        for name, value in spark_options(settings.kafka).items()
    ]
    properties.write_text("\n".join(lines))
    command = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", settings.kafka.bootstrap_servers[0], "--topic", INPUT_TOPICS[0], "--offset", "earliest",
        "--partition", "0", "--max-messages", "1", "--timeout-ms", "60000", "--command-config", str(properties),
    )  # fmt: skip
    answer = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert '"kafka_cluster"' in answer.stdout, answer.stderr


def test_check_names_what_a_stranger_lacks(
    brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path, user="nobody")
    answer = run(settings, tmp_path, "check", "--json", "--role", "collect")
    assert answer.returncode == 1
    rows = {row["name"]: row for row in json.loads(answer.stdout)}
    row = rows["permissions: collect"]
    assert not row["passed"]
    assert row["detail"].startswith("missing: DESCRIBE on cluster (log dirs, reassignments under way,")
    assert row["detail"].endswith("(deploy/acls/grant.sh collect grants them)")
    assert "permissions: control" not in rows
    detail = rows["level of rights"]["detail"]
    assert detail.startswith("none; lag needs DESCRIBE on every topic (placement, leaders, offsets); ")
    unknown = "the cluster refuses to list them: that needs DESCRIBE on cluster"
    assert (rows["no reassignment"]["passed"], rows["no reassignment"]["detail"]) == (None, unknown)


@pytest.mark.usefixtures("superuser")
def test_a_second_run_is_refused_and_names_the_first(brokers: EmbeddedCluster, folder: Path, tmp_path: Path) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path)
    with exclusive(settings.storage.tables, "run"):
        answer = run(settings, tmp_path, "run")
    assert answer.returncode == 3
    assert f"already: process {os.getpid()} on " in answer.stderr
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize("where", ["environment", "file"])
def test_a_wrong_password_is_refused_and_never_shown(
    where: str, brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path)
    wrong = "hunter2-is-not-it"
    environment = {}
    if where == "file":
        (tmp_path / "password").write_text(wrong)
    else:
        environment["REBALANCER_KAFKA__SASL_PASSWORD"] = wrong
    answers = [run(settings, tmp_path, command, environment=environment) for command in ("check", "config", "collect")]
    assert all(wrong not in answer.stdout + answer.stderr for answer in answers)
    printed = answers[0].stdout
    assert "FAIL  cluster reached" in printed
    assert "the broker refuses the login: is the SCRAM-SHA-512 password of user app right?" in printed


@pytest.mark.usefixtures("superuser")
def test_a_name_with_what_scram_parts_its_messages_by_is_that_name_to_both_clients(
    brokers: EmbeddedCluster, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path, user=ODD)
    client = admin_client(settings.kafka)
    client.describe_cluster()
    client.close()
    producer = Producer(librdkafka_options(settings.kafka))
    producer.poll(0)
    assert producer.list_topics(timeout=DEADLINE_S).brokers


def test_without_a_certificate_mutual_tls_is_refused_and_said_so(
    brokers: EmbeddedCluster, superuser: KafkaAdminClient, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SSL", brokers, folder, tmp_path)
    bare = settings.kafka.model_copy(
        update={"ssl_certificate_file": None, "ssl_key_file": None, "request_timeout_ms": 5_000}
    )
    with pytest.raises(ClusterUnreachable, match=r"TLS fails: .*certificate.* \(kafka\.ssl_certificate_file\)$"):
        admin_client(bare)


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "mechanism": ("SASL_SSL", {"sasl_mechanism": "PLAIN"},
                  "the broker does not offer sasl_mechanism PLAIN, only SCRAM-SHA-512"),
    "no login": ("SASL_SSL", {"security_protocol": "SSL"},
                 "the port asks for a SASL login (SCRAM-SHA-512), security_protocol is SSL"),
    "no TLS": ("SASL_SSL", {"security_protocol": "SASL_PLAINTEXT"},
               "the port speaks TLS, security_protocol is SASL_PLAINTEXT"),
    "plaintext port": ("PLAINTEXT", {}, "the port speaks no TLS, security_protocol is SASL_SSL"),
    "port without login": ("PLAINTEXT", {"security_protocol": "SASL_PLAINTEXT"},
                           "the port asks for no login, security_protocol is SASL_PLAINTEXT"),
    "controller": ("CONTROLLER", {"security_protocol": "PLAINTEXT"}, "the port is a controller's, not a broker's"),
    "authority": ("SASL_SSL", {"ssl_ca_file": None},
                  "the certificate of the broker is refused: unable to get local issuer certificate"),
}  # fmt: skip
"""What is wrong of settings that are right else: where they connect to, what they have instead, and what is said."""


@pytest.mark.usefixtures("superuser")
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_with_a_connection_is_named(
    wrong: str, brokers: EmbeddedCluster, folder: Path, tmp_path: Path
) -> None:
    where, instead, said = WRONG[wrong]
    others = {
        "PLAINTEXT": brokers.bootstrap_servers,
        "CONTROLLER": [f"127.0.0.1:{broker.controller_port}" for broker in brokers.brokers],
    }
    addresses = others.get(where) or brokers.addresses(where)
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path)
    with pytest.raises(ClusterUnreachable, match=re.escape(f"{addresses[0]}: {said}")):
        admin_client(settings.kafka.model_copy(update={"bootstrap_servers": addresses, **instead}))


@pytest.mark.usefixtures("superuser")
def test_one_address_that_works_is_enough_and_of_several_that_fail_each_has_its_reason(
    brokers: EmbeddedCluster, folder: Path, tmp_path: Path
) -> None:
    settings = settings_of("SASL_SSL", brokers, folder, tmp_path)
    listed = ["127.0.0.1:1", "no-such-host.invalid:9092", *brokers.addresses("SASL_SSL")]
    kafka = settings.kafka.model_copy(update={"bootstrap_servers": listed})
    admin_client(kafka).close()
    (tmp_path / "password").write_text("wrong")
    with pytest.raises(ClusterUnreachable) as failure:
        admin_client(kafka)
    assert str(failure.value).endswith(
        "127.0.0.1:1: the port is closed; no-such-host.invalid:9092: the host name is unknown; "
        f"{listed[-1]}: the broker refuses the login: is the SCRAM-SHA-512 password of user app right?"
    )


def test_brokers_that_advertise_an_address_that_nobody_reaches_are_named(folder: Path) -> None:
    port, nowhere = free_ports(1)[0], "no-such-host.invalid:9092"
    certificates = folder / "certificates"
    settings = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://{nowhere}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "broker.keystore.pem"),
    }
    with EmbeddedCluster(
        folder / "advertised", broker_count=1, broker_settings=settings, listeners=("SSL",), ports={1: port}
    ) as cluster:
        listed = cluster.addresses("SSL")
        kafka = KafkaSettings(bootstrap_servers=listed, security_protocol="SSL", ssl_ca_file=certificates / "ca.pem")
        said = f"the cluster answers, and not at the addresses that its brokers advertise: {nowhere}: the host name is"
        with pytest.raises(ClusterUnreachable, match=re.escape(f"no broker reached at {listed[0]}: {said} unknown")):
            admin_client(kafka)
