"""Tickets of Kerberos, from a real KDC: fetched with a keytab, kept, fetched anew; one line where there is none."""

import re
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from streaming.cluster.clients import admin_client, spark_options
from streaming.cluster.logins import KeytabLogin, ready_login
from streaming.cluster.record_sender import PythonSender
from streaming.errors import ClusterUnreachable, SetUpIncomplete, UsageProblem
from streaming.settings import KafkaSettings
from tests.kerberos import NAME, Realm, missing_for_kerberos, realm
from tests.waiting import until

APP = f"app@{NAME}"
SHORT_LIFE_S = 4
LOGIN_ANSWERS = {
    (18, 0): struct.pack(">hihhh", 0, 1, 3, 0, 13),  # ApiVersions: no error, one request, Metadata from 0 to 13
    (17, 1): struct.pack(">hih6s", 0, 1, 6, b"GSSAPI"),  # SaslHandshake: no error, one mechanism
}
"""Answers to the first two requests of a client, by API key and version."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    if missing_for_kerberos():
        pytest.skip(missing_for_kerberos())
    with realm(tmp_path_factory.mktemp("kerberos")) as running:
        yield running


@pytest.fixture
def kdc(started: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    monkeypatch.setenv("KRB5_CONFIG", str(started.configuration))
    return started


def settings_of(keytab: Path, principal: str = APP) -> KafkaSettings:
    return KafkaSettings.model_validate({
        "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_principal": principal,
        "sasl_kerberos_keytab_file": keytab, "bootstrap_servers": ["127.0.0.1:1"], "request_timeout_ms": 500,
    })  # fmt: skip


def test_a_ticket_is_kept_and_the_next_one_fetched_before_it_ends(kdc: Realm) -> None:
    login = ready_login(settings_of(kdc.keytab("short", life=f"{SHORT_LIFE_S} seconds"), f"short@{NAME}"))
    first = kdc.tickets("short")
    assert first >= 1
    lives_s = []

    def renewed() -> bool:
        lives_s.append(login.credentials().lifetime)
        return kdc.tickets("short") > first

    until("the next ticket", renewed, pause_s=0.1)
    assert 0 < min(lives_s) <= max(lives_s) <= SHORT_LIFE_S
    assert kdc.tickets("short") < len(lives_s), "not one for each login"


def test_while_the_kdc_is_away_the_old_ticket_serves_to_its_end(
    kdc: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gssapi.exceptions import ExpiredCredentialsError

    login = ready_login(settings_of(kdc.keytab("brief", life=f"{SHORT_LIFE_S} seconds"), f"brief@{NAME}"))
    monkeypatch.setenv("KRB5_CONFIG", str(without_kdc(kdc, tmp_path)))
    failures: list[str] = []

    def ended() -> bool:
        try:
            ticket = login.credentials()
            with suppress(ExpiredCredentialsError):  # its last second may end between the two calls
                assert ticket.lifetime >= 0
        except ClusterUnreachable as error:
            failures.append(str(error))
        return bool(failures)

    with capture_logs() as logged:
        until("the ticket has ended", ended, pause_s=0.1)
    assert {row["event"] for row in logged} == {"ticket_not_renewed"}
    assert failures[0].endswith(f"Cannot contact any KDC for realm '{NAME}'")
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.configuration))
    assert login.credentials().lifetime > 0


def without_kdc(kdc: Realm, folder: Path) -> Path:
    """A configuration whose KDC does not answer."""
    file = folder / "krb5.conf"
    file.write_text(re.sub(r"kdc = .*", "kdc = 127.0.0.1:1", kdc.configuration.read_text()))
    return file


class HangsUpAtTheLogin(socketserver.StreamRequestHandler):
    """A broker that offers GSSAPI and closes the connection at whatever follows, as brokers do with a refused login."""

    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            request = self.rfile.read(struct.unpack(">i", size)[0])
            api_key, version, correlation_id = struct.unpack(">hhi", request[:8])
            answer = LOGIN_ANSWERS.get((api_key, version))
            if answer is None:
                return
            self.wfile.write(struct.pack(">ii", 4 + len(answer), correlation_id) + answer)


@contextmanager
def hangs_up_at_the_login() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangsUpAtTheLogin) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield "{}:{}".format(*server.server_address[:2])
        server.shutdown()


@pytest.mark.parametrize("kind", ["of another", "no keytab", "out of date", "no KDC", "not there"])
def test_a_login_without_a_ticket_gives_one_clear_line(
    kind: str, kdc: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    principal = f"app-{kind.replace(' ', '-')}"
    keytab = kdc.keytab(principal)
    reason = "it holds no key of that principal"
    if kind == "of another":
        keytab = kdc.keytab("another")
    elif kind == "no keytab":
        keytab = tmp_path / "text"
        keytab.write_text("a password")
    elif kind == "out of date":
        kdc.administer(f"cpw -randkey {principal}")
        reason = "Preauthentication failed"
    elif kind == "no KDC":
        monkeypatch.setenv("KRB5_CONFIG", str(without_kdc(kdc, tmp_path)))
        reason = f"Cannot contact any KDC for realm '{NAME}'"
    else:
        keytab = tmp_path / "gone"
    shown = f"no Kerberos ticket for {principal}@{NAME} with the keytab {keytab}: {reason}"
    if kind == "not there":
        shown = f"kafka.sasl_kerberos_keytab_file: {keytab} can't be read: No such file or directory"
    for connect in (admin_client, PythonSender):
        with pytest.raises(UsageProblem if kind == "not there" else ClusterUnreachable) as caught:
            connect(settings_of(keytab, f"{principal}@{NAME}"))
        assert str(caught.value) == shown


def test_with_a_ticket_and_a_closed_port_the_line_names_the_port(kdc: Realm) -> None:
    with pytest.raises(ClusterUnreachable, match=r"^no broker reached at 127\.0\.0\.1:1: the port is closed$"):
        admin_client(settings_of(kdc.keytab("app")))


def test_with_a_ticket_and_a_broker_that_hangs_up_the_line_doubts_the_login(kdc: Realm) -> None:
    with hangs_up_at_the_login() as address:
        settings = settings_of(kdc.keytab("app")).model_copy(update={"bootstrap_servers": (address,)})
        doubted = rf"service name kafka, principal {APP} right\?$"
        with pytest.raises(ClusterUnreachable, match=doubted):
            admin_client(settings)


def test_without_gssapi_the_line_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(SetUpIncomplete, match=r"^kafka\.sasl_mechanism GSSAPI needs the package gssapi: "):
        KeytabLogin(settings_of(tmp_path / "keytab"))


def test_java_clients_log_in_with_the_same_keytab() -> None:
    assert spark_options(settings_of(Path("/etc/app.keytab"))) == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": (
            'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" storeKey="true" doNotPrompt="true" '
            f'keyTab="/etc/app.keytab" principal="{APP}";'
        ),
    }
