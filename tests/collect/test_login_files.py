"""Files of a login: one that can't be used is named, and clients that live for years log in with what they hold now."""

import json
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any

import pytest
from kafka import KafkaAdminClient
from structlog.testing import capture_logs

from streaming.cluster.clients import admin_client, librdkafka_options, spark_options
from streaming.cluster.record_sender import RecordSender
from streaming.config import load_effective
from streaming.errors import ClusterUnreachable, UsageProblem
from streaming.settings import KafkaSettings
from tests.fleet import process
from tests.fleet.process import FleetProcess
from tests.fleet.synthetic import FleetSize, synthetic_fleet
from tests.kafka.secured import make_certificates
from tests.waiting import until

TOPIC = "rebalancer.byte-rate"
TIMEOUT_MS = 5_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder, ["client", "other"])
    locked = ("pkcs8", "-topk8", "-in", "client.key", "-out", "locked.key", "-passout", "pass:hunter2")
    for arguments in (locked, ("rsa", "-in", "client.key", "-traditional", "-out", "rsa.key")):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    (folder / "empty.pem").write_text("")
    return folder


def with_tls(folder: Path, **files: str) -> KafkaSettings:
    """No broker listens there: who asks it for an answer waits until the time is over."""
    named = {"ssl_ca_file": "ca.pem", "ssl_certificate_file": "client.pem", "ssl_key_file": "client.key"} | files
    paths = {f"{name}": folder / file for name, file in named.items()}
    return KafkaSettings.model_validate({
        "bootstrap_servers": ["127.0.0.1:1"], "security_protocol": "SSL", "request_timeout_ms": 600_000, **paths,
    })  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"ssl_ca_file": "none.pem"}, r"kafka\.ssl_ca_file: \S+/none\.pem can't be read: No such file or directory"),
        ({"ssl_ca_file": "empty.pem"}, r"kafka\.ssl_ca_file: \S+/empty\.pem can't be used: no certificate"),
        ({"ssl_ca_file": "."}, r"kafka\.ssl_ca_file: \S+ can't be read: Is a directory"),
        ({"ssl_key_file": "none.key"}, r"kafka\.ssl_key_file: \S+/none\.key can't be read: No such file"),
        (
            {"ssl_key_file": "other.key"},
            r"kafka\.ssl_certificate_file, kafka\.ssl_key_file: \S+/client\.pem, \S+/other\.key can't be used: key ",
        ),
        ({"ssl_key_file": "locked.key"}, r"kafka\.ssl_key_file: \S+/locked\.key has a password, and nobody is there"),
    ],
)
def test_a_file_that_can_not_be_used_is_named_and_no_broker_is_asked(
    certificates: Path, files: dict[str, str], message: str
) -> None:
    for client in (admin_client, RecordSender):
        with pytest.raises(UsageProblem, match=message):
            client(with_tls(certificates, **files))


@pytest.mark.long
def test_java_clients_get_a_key_that_they_take_or_the_message_says_how_to_make_one(certificates: Path) -> None:
    key = spark_options(with_tls(certificates))["ssl.keystore.key"]
    assert key == (certificates / "client.key").read_text()
    with pytest.raises(UsageProblem, match=r"kafka\.ssl_key_file: \S+ is no PKCS#8 key, .*: openssl pkcs8 -topk8"):
        spark_options(with_tls(certificates, ssl_key_file="rsa.key"))


OAUTHBEARER = {
    "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/token", "sasl_oauthbearer_client_id": "rebalancer",
    "sasl_oauthbearer_client_secret": "hunter2",
}  # fmt: skip
MSK = {"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS_MSK_IAM"}
GSSAPI = {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}
TICKET = {"sasl_kerberos_principal": "app@EXAMPLE.ORG", "sasl_kerberos_keytab_file": "/etc/app.keytab"}


@pytest.mark.parametrize(
    ("login", "changes", "message"),
    [
        ({"security_protocol": "SSL"}, {"ssl_key_file": "/x"}, "ssl_key_file: one is set without the other"),
        ({"security_protocol": "SSL"}, {"ssl_certificate_file": "/x"}, "ssl_key_file: one is set without the other"),
        (OAUTHBEARER, {"sasl_oauthbearer_token_endpoint_url": None}, "sasl_oauthbearer_token_file, found neither"),
        (OAUTHBEARER, {"sasl_oauthbearer_token_file": "/t"}, "or sasl_oauthbearer_token_file, not both"),
        (OAUTHBEARER, {"sasl_oauthbearer_client_id": None}, "endpoint_url needs sasl_oauthbearer_client_id"),
        (OAUTHBEARER, {"sasl_oauthbearer_token_endpoint_url": "ftp://x"}, "url: must be like http://host:port/path"),
        (MSK, {"security_protocol": "SASL_PLAINTEXT"}, "sasl_mechanism AWS_MSK_IAM needs security_protocol SASL_SSL"),
        (MSK, {"sasl_aws_msk_iam_region": "eu.example.org/x"}, "kafka.sasl_aws_msk_iam_region"),
        (GSSAPI, TICKET | {"sasl_kerberos_principal": None}, "needs sasl_kerberos_principal and sasl_kerberos_keytab_"),
        (GSSAPI, TICKET | {"sasl_kerberos_keytab_file": None}, "needs sasl_kerberos_principal and sasl_kerberos_keyt"),
    ],
)
def test_a_login_that_is_not_whole_is_refused_in_one_line(
    tmp_path: Path, login: dict[str, str], changes: dict[str, str | None], message: str
) -> None:
    file = tmp_path / "settings.json"
    given = {name: value for name, value in {**login, **changes}.items() if value is not None}
    file.write_text(json.dumps({"kafka": given}))
    with pytest.raises(UsageProblem) as caught:
        load_effective(file, None, {})
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"])
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_login_that_the_protocol_does_not_have_is_part_of_no_connection(protocol: str, mechanism: str) -> None:
    bare = {"bootstrap_servers": ["127.0.0.1:1"], "security_protocol": protocol}
    unused = {"sasl_mechanism": mechanism, "sasl_username": "app"}
    without, with_login = KafkaSettings.model_validate(bare), KafkaSettings.model_validate(bare | unused)
    assert spark_options(with_login) == spark_options(without)
    assert librdkafka_options(with_login) == librdkafka_options(without)
    hint = f"security_protocol is {protocol}, so 2 settings have no effect: kafka.sasl_mechanism, kafka.sasl_username"
    with pytest.raises(
        ClusterUnreachable, match=rf"^no broker reached at 127\.0\.0\.1:1: the port is closed\. kafka\.{hint}$"
    ):
        admin_client(with_login)


def test_certificates_are_no_part_of_a_connection_that_is_not_encrypted(tmp_path: Path) -> None:
    settings = KafkaSettings(ssl_ca_file=tmp_path / "none.pem", request_timeout_ms=1_000)
    assert "ssl.truststore.location" not in spark_options(settings)
    RecordSender(settings).close()


@pytest.mark.parametrize("timeout_ms", [1, 1_000])
def test_a_short_time_for_requests_is_one_that_the_sender_takes(timeout_ms: int) -> None:
    RecordSender(KafkaSettings(bootstrap_servers=["127.0.0.1:1"], request_timeout_ms=timeout_ms)).close()


@pytest.fixture
def fleet() -> Iterator[FleetProcess]:
    with FleetProcess(partial(synthetic_fleet, FleetSize(3, 3, 0), (TOPIC,))) as started:
        yield started


def with_password(fleet: FleetProcess, file: Path) -> KafkaSettings:
    return KafkaSettings.model_validate({
        "bootstrap_servers": fleet.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
        "sasl_username": "app", "sasl_password_file": file, "request_timeout_ms": TIMEOUT_MS,
    })  # fmt: skip


def change_password(fleet: FleetProcess, password: str) -> None:
    fleet.run(process.change_password, password)
    fleet.run(process.restart_brokers)


def answers(admin: Any) -> bool:
    try:
        admin.describe_cluster()
    except Exception:  # noqa: BLE001 - kafka-python's are many
        return False
    return True


def sends(sender: RecordSender) -> bool:
    sender.send(TOPIC, [(b"1", b"{}")])
    return sender.flush() == 0


@pytest.mark.long  # for the start of a fleet
def test_clients_log_in_with_the_password_that_its_file_holds_now(fleet: FleetProcess, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the first\n")
    change_password(fleet, "the first")
    admin: KafkaAdminClient = admin_client(with_password(fleet, file))
    sender = RecordSender(with_password(fleet, file))
    try:
        assert sends(sender)
        change_password(fleet, "the second")
        assert not sends(sender)
        assert not answers(admin)
        file.write_text("the second\n")
        until("records arrive again", lambda: sends(sender))
        until("the admin client is answered again", lambda: answers(admin))
        file.unlink()
        with capture_logs() as logs:
            assert sends(sender), "what it holds serves on"
        assert [row["event"] for row in logs] == ["login_not_renewed"]
    finally:
        sender.close()
        admin.close()


@contextmanager
def asking_for_certificates(folder: Path) -> Iterator[tuple[int, set[str]]]:
    """(Port, names in the certificates of clients) of a server that hangs up once it knows a client's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "broker.pem", folder / "broker.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    names: set[str] = set()

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as encrypted:
                subject: Any = (encrypted.getpeercert() or {})["subject"]
                names.add(subject[0][0][1])

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1], names
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.long
def test_the_sender_shows_brokers_the_certificate_that_its_file_holds_now(certificates: Path, tmp_path: Path) -> None:
    for name in ("client.pem", "client.key"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
    (tmp_path / "ca.pem").write_bytes((certificates / "ca.pem").read_bytes())
    with asking_for_certificates(certificates) as (port, shown):
        settings = with_tls(tmp_path).model_copy(
            update={"bootstrap_servers": [f"127.0.0.1:{port}"], "request_timeout_ms": 1_000}
        )
        sender = RecordSender(settings)
        until("a certificate is shown", lambda: not sends(sender) and "client" in shown)
        for suffix in ("pem", "key"):
            (tmp_path / f"client.{suffix}").write_bytes((certificates / f"other.{suffix}").read_bytes())
        until("the next one is shown", lambda: not sends(sender) and "other" in shown)
        sender.close()
