"""Logins on a real broker, by token (OAUTHBEARER), Kerberos (GSSAPI), SCRAM and PLAIN: every role, tokens and tickets
that end meanwhile, tokens that are refused.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion
from pyspark.sql import SparkSession

from assignor_core.throttles import tagged
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client, spark_options
from streaming.cluster.record_sender import RecordSender
from streaming.collect.run import Collector
from streaming.demo.brokers import JVM_OPTIONS, EmbeddedCluster
from streaming.errors import ClusterUnreachable, TableUnavailable
from streaming.runtime import processes
from streaming.settings import Settings
from tests import kerberos
from tests.commands import command
from tests.kafka.secured import SCRAM, make_certificates
from tests.kerberos import Realm, host_of_loopback, missing_for_kerberos, realm
from tests.spark_sessions import session_with_delta
from tests.tokens import AUDIENCE, CLIENT, ISSUER, SECRET, TokenServer, make_key, token_server
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.apart]

LISTENER = "SASL_PLAINTEXT"
OF_LISTENER = f"listener.name.{LISTENER.lower()}"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "s3cret"  # noqa: S105 - of a broker that lives for a test
JAVA_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = f"{JAVA_OAUTHBEARER}.OAuthBearerValidatorCallbackHandler"
WRONG = "hunter2-is-not-it"
SHORT_LIFE_S = 12.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("oauthbearer")
    make_certificates(path / "certificates", [])
    make_key(path / "key.pem")
    make_key(path / "another-key.pem")
    (path / "secret").write_text(SECRET + "\n")
    return path


@pytest.fixture(scope="module")
def tokens(folder: Path) -> Iterator[TokenServer]:
    """Over HTTPS, with a certificate that only our own authority vouches for."""
    with token_server(folder / "key.pem", folder / "certificates") as server:
        yield server


@pytest.fixture(autouse=True)
def _the_server_is_as_at_first(tokens: TokenServer) -> None:
    tokens.status, tokens.life_s = 200, 3600.0


@pytest.fixture(scope="module")
def kdc(folder: Path) -> Iterator[Realm | None]:
    """None where Kerberos is not installed: the broker then starts without it."""
    if missing_for_kerberos():
        yield None
        return
    with realm(folder / "realm") as running:
        yield running


@pytest.fixture(scope="module")
def brokers(folder: Path, kdc: Realm | None) -> Iterator[EmbeddedCluster]:
    """One broker that verifies tokens by a JWKS endpoint, and ends sessions with their tokens (KIP-368)."""
    with token_server(folder / "key.pem") as keys:
        options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.url}"]
        if kdc is not None:
            options.append(f"-Djava.security.krb5.conf={kdc.configuration}")
        settings = {
            "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN,SCRAM-SHA-256" + (",GSSAPI" if kdc else ""),
            f"{OF_LISTENER}.plain.sasl.jaas.config": f'{PLAIN} required user_{CLIENT}="{PASSWORD}";',
            f"{OF_LISTENER}.scram-sha-256.sasl.jaas.config": SCRAM,
            **(kerberos_settings(kdc) if kdc else {}),
            "sasl.oauthbearer.jwks.endpoint.url": keys.url,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            f"{OF_LISTENER}.oauthbearer.sasl.jaas.config": f"{JAVA_OAUTHBEARER}.OAuthBearerLoginModule required;",
            f"{OF_LISTENER}.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
            f"{OF_LISTENER}.oauthbearer.connections.max.reauth.ms": "3600000",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{CLIENT}",
        }
        cluster = EmbeddedCluster(
            folder / "home", broker_count=1, listeners=(LISTENER,), broker_settings=settings,
            java_options=(*JVM_OPTIONS, *options),
        )  # fmt: skip
        with cluster:
            yield cluster


def kerberos_settings(kdc: Realm) -> dict[str, str]:
    principal = f"kafka/{host_of_loopback()}"
    login = f'keyTab="{kdc.keytab(principal)}" principal="{principal}@{kerberos.NAME}"'
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    return {
        "sasl.kerberos.service.name": "kafka",
        f"{OF_LISTENER}.gssapi.sasl.jaas.config": f"{module} {login};",
    }


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    spark = session_with_delta()
    yield spark
    spark.stop()


@pytest.fixture
def by_endpoint(brokers: EmbeddedCluster, tokens: TokenServer, folder: Path, tmp_path: Path) -> dict[str, Any]:
    """Settings of a client that fetches tokens."""
    login = {
        "sasl_oauthbearer_token_endpoint_url": tokens.url,
        "sasl_oauthbearer_client_id": CLIENT,
        "sasl_oauthbearer_client_secret_file": str(folder / "secret"),
        "sasl_oauthbearer_scope": "kafka",
        "sasl_oauthbearer_ca_file": str(folder / "certificates" / "ca.pem"),
    }
    return settings_of(brokers, tmp_path, login)


def settings_of(brokers: EmbeddedCluster, tmp_path: Path, login: Mapping[str, str]) -> dict[str, Any]:
    return {
        "kafka": {
            "bootstrap_servers": brokers.addresses(LISTENER), "security_protocol": LISTENER,
            "sasl_mechanism": "OAUTHBEARER", "request_timeout_ms": 15_000, **login,
        },
        "topics": {"partitions": 1},
        "storage": {"tables": str(tmp_path / "tables"), "checkpoints": str(tmp_path / "checkpoints")},
        "collect": {"sample_interval_ms": 500},
        "pipeline": {"window_ms": 2_000, "watermark_ms": 1_000, "trigger_interval_ms": 500, "driver_memory": "1g"},
        "control": {"tick_interval_ms": 500},
        "serve": {"port": 0},
        "log": {"format": "json"},
    }  # fmt: skip


def end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid)
        processes.end([family, *family.children(recursive=True)], 20.0)
    process.wait(timeout=DEADLINE_S)


def events(log: Path) -> list[dict[str, Any]]:
    rows = []
    for line in log.read_text().splitlines():
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict):
                rows.append(row)
    return rows


def rows_of(settings: dict[str, Any], table: str, column: str) -> list[Any]:
    with suppress(TableUnavailable):  # not there yet
        return [row[column] for row in tables.read(settings["storage"]["tables"], table, columns=[column])]
    return []


def test_every_role_works_while_its_tokens_end(
    by_endpoint: dict[str, Any], tokens: TokenServer, tmp_path: Path
) -> None:
    tokens.life_s = SHORT_LIFE_S
    log = tmp_path / "run.log"
    running = processes.start(command(by_endpoint, tmp_path, "run"), log=log)
    try:
        loads = "broker_load", "window_start"
        until("windows", lambda: len(set(rows_of(by_endpoint, *loads))) > 1, state=log.read_text)
        until("decisions", lambda: rows_of(by_endpoint, "decision", "decision_id"), state=log.read_text)
        tokens.handed_out.clear()
        time.sleep(SHORT_LIFE_S)  # each token that was good at the beginning has ended
        newest = max(rows_of(by_endpoint, *loads))
        until("windows of later tokens", lambda: max(rows_of(by_endpoint, *loads)) > newest, state=log.read_text)
        agents = {agent.partition("/")[0] for agent in tokens.handed_out}
        assert agents == {"Java", "python-httpx"}, "Spark and the Python clients have renewed theirs"
        assert not [row for row in events(log) if row["event"] == "role_ended"], log.read_text()
        tokens.status = 503
        until("renewals fail", lambda: "token_not_renewed" in log.read_text(), state=log.read_text)
        tokens.status = 200
        newest = max(rows_of(by_endpoint, *loads))
        until("windows after that", lambda: max(rows_of(by_endpoint, *loads)) > newest, state=log.read_text)
        answer = subprocess.run(
            command(by_endpoint, tmp_path, "check", "--json"), capture_output=True, text=True, timeout=DEADLINE_S,
            check=False,
        )  # fmt: skip
    finally:
        end(running)
    findings = {row["name"]: row for row in json.loads(answer.stdout)}
    for name in ("cluster reached", "permissions: collect", "permissions: pipeline", "permissions: control"):
        assert findings[name]["passed"], findings[name]
    shown = log.read_text() + answer.stdout + answer.stderr
    assert "s3cret" not in shown
    assert "eyJ" not in shown


def test_a_token_file_that_is_written_anew_serves_on(
    brokers: EmbeddedCluster, tokens: TokenServer, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    given = settings_of(brokers, tmp_path, {"sasl_oauthbearer_token_file": str(file)})
    kafka = Settings.model_validate(given).kafka
    file.write_text(tokens.token(life_s=8))
    admin, sender = admin_client(kafka), RecordSender(kafka)
    try:
        admin.create_topics({"by-file": {"num_partitions": 1, "replication_factor": 1}})
        wait_until_known(admin, ["by-file"])
        assert sender.send("by-file", [(b"k", b"v")]) - sender.flush() == 1
        file.write_text(tokens.token(life_s=3600))
        ends_s = time.monotonic() + 10
        until("the first token has ended", lambda: time.monotonic() > ends_s)
        assert admin.describe_cluster()["brokers"]
        assert sender.send("by-file", [(b"k", b"w")]) - sender.flush() == 1
    finally:
        admin.close()
        sender.close()


@pytest.mark.parametrize("kind", ["wrong", "expired", "forged", "refused"])
def test_a_login_without_a_good_token_gives_one_clear_line(
    kind: str, by_endpoint: dict[str, Any], brokers: EmbeddedCluster, tokens: TokenServer, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    settings = settings_of(brokers, tmp_path, {"sasl_oauthbearer_token_file": str(file)})
    shown = f"OAUTHBEARER token of {file} right?"
    environment = {"REBALANCER_KAFKA__REQUEST_TIMEOUT_MS": "3000"}
    if kind == "wrong":
        file.write_text("no-jwt")
    elif kind == "forged":
        file.write_text(tokens.token(key=folder / "another-key.pem"))
    elif kind == "expired":
        file.write_text(tokens.token(life_s=-60))
        shown = "s ago: write a new one to the file"
    else:
        settings = by_endpoint
        environment["REBALANCER_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET"] = WRONG
        shown = f"no token from {tokens.url}: it answers 401 (invalid_client): are client id {CLIENT}, "
    answer = subprocess.run(
        command(settings, tmp_path, "collect"), capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert answer.returncode == 1
    assert shown in answer.stderr
    assert len(answer.stderr.splitlines()) == 1
    assert WRONG not in answer.stderr


def test_a_broker_that_has_refused_a_token_is_asked_again_with_the_next(
    brokers: EmbeddedCluster, tokens: TokenServer, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    given = settings_of(brokers, tmp_path, {"sasl_oauthbearer_token_file": str(file)})
    given["kafka"]["request_timeout_ms"] = 5_000
    file.write_text(tokens.token())
    admin = admin_client(Settings.model_validate(given).kafka)
    try:
        file.write_text(tokens.token(key=folder / "another-key.pem"))
        for broker in (*admin.broker_ids(), *admin._manager._conns):
            admin._manager.close(broker)
        until("the token is refused", lambda: not answers(admin))
        file.write_text(tokens.token())
        until("the next token is taken", lambda: answers(admin))
    finally:
        admin.close()
    file.write_text(tokens.token(key=folder / "another-key.pem"))
    with pytest.raises(ClusterUnreachable):
        admin_client(Settings.model_validate(given).kafka)


def answers(admin: Any) -> bool:
    from kafka.errors import KafkaError

    try:
        return bool(admin.describe_cluster()["brokers"])
    except KafkaError:
        return False


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "GSSAPI"])
def test_every_role_does_its_work_by(
    mechanism: str, brokers: EmbeddedCluster, kdc: Realm | None, session: SparkSession, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The collector's samples, Spark's look at them, and what control asks for, on one connection each."""
    login = {"sasl_mechanism": mechanism, "sasl_username": CLIENT, "sasl_password": PASSWORD}
    if mechanism == "GSSAPI":
        login = kerberos_login(kdc, monkeypatch, session)
    elif mechanism != "PLAIN":
        add_scram_user(brokers)
    given = settings_of(brokers, tmp_path, login)
    given["topics"] |= {"byte_rate": f"rates-{mechanism}", "consumer_lag": f"lag-{mechanism}"}
    settings = Settings.model_validate(given)
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
        wait_until_known(collector._admin, [settings.topics.byte_rate, settings.topics.consumer_lag])
        now_ms = time.time_ns() // 1_000_000
        collector.sample(now_ms=now_ms)
        assert collector.sample(now_ms=now_ms + 1_000) > 0
    options = {f"kafka.{name}": value for name, value in spark_options(settings.kafka).items()}
    read = session.read.format("kafka").options(**options).option("subscribe", settings.topics.byte_rate).load()
    assert read.count() > 0
    admin = admin_client(settings.kafka)
    try:
        cluster = Cluster(admin)
        cluster.set_throttle_rates({1: tagged(1_000_000)})
        until("the throttle is shown", lambda: cluster.throttle_rates(), pause_s=0.1)
        cluster.clear_throttle([1], {}, {})
        live = cluster.describe()
        topic = settings.topics.byte_rate
        cluster.reassign({(topic, 0): live.partitions[(topic, 0)].replicas})
    finally:
        admin.close()


def kerberos_login(kdc: Realm | None, monkeypatch: pytest.MonkeyPatch, session: SparkSession) -> dict[str, str]:
    if kdc is None:
        pytest.skip(missing_for_kerberos())
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.configuration))
    jvm = session.sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.setProperty("java.security.krb5.conf", str(kdc.configuration))
    return {
        "sasl_mechanism": "GSSAPI", "sasl_kerberos_principal": f"{CLIENT}@{kerberos.NAME}",
        "sasl_kerberos_keytab_file": str(kdc.keytab(CLIENT)),
    }  # fmt: skip


def add_scram_user(brokers: EmbeddedCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=brokers.bootstrap_servers)
    try:
        user = UserScramCredentialUpsertion(CLIENT, ScramMechanism.SCRAM_SHA_256, PASSWORD)
        admin.alter_user_scram_credentials([user])
        until("the user is known", lambda: CLIENT in str(admin.describe_user_scram_credentials([CLIENT])))
    finally:
        admin.close()


def test_a_client_logs_in_with_the_next_ticket_after_one_has_ended(
    brokers: EmbeddedCluster, kdc: Realm | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kdc is None:
        pytest.skip(missing_for_kerberos())
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.configuration))
    principal, life_s = "rebalancer-short", 4
    keytab = kdc.keytab(principal, life=f"{life_s} seconds")
    login = {
        "sasl_mechanism": "GSSAPI", "sasl_kerberos_principal": f"{principal}@{kerberos.NAME}",
        "sasl_kerberos_keytab_file": str(keytab),
    }  # fmt: skip
    settings = Settings.model_validate(settings_of(brokers, tmp_path, login)).kafka
    admin = admin_client(settings)
    try:
        ends_s, tickets = time.monotonic() + life_s + 2, kdc.tickets(principal)
        until("the ticket has ended", lambda: time.monotonic() > ends_s)
        for broker in (*admin.broker_ids(), *admin._manager._conns):
            admin._manager.close(broker)
        until("the next ticket is taken", lambda: answers(admin))
    finally:
        admin.close()
    assert kdc.tickets(principal) > tickets
