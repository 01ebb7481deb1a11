"""Connections: TLS, proxies, and those who send slowly, too much, half of a request, or nothing, over real sockets."""

import contextlib
import logging
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest
from structlog.testing import capture_logs
from uvicorn.server import ServerState

from streaming.errors import UsageProblem
from streaming.runtime.accounts import Role
from streaming.serve import connections
from streaming.serve.connections import BoundedProtocol, server_config
from streaming.serve.run import Server
from streaming.settings import ServeSettings
from tests.serve.asking import ask
from tests.serve.served import Served
from tests.waiting import DEADLINE_S, until

PIECE = b"x" * 65_536


@contextlib.contextmanager
def listening(served: Served) -> Iterator[tuple[str, int]]:
    """The application on a free port of loopback, in a thread."""
    config = server_config(served.app, served.settings.serve)
    config.timeout_keep_alive = int(DEADLINE_S)
    config.date_header = False  # the clock of the application is another one
    server = Server(config, served.app.state.events.close)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until("the server has started", lambda: server.started, pause_s=0.01)
            yield listener.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join(DEADLINE_S)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take its time between two lines of a test."""
    monkeypatch.setattr(connections, "REQUEST_WAIT_S", DEADLINE_S)


@pytest.fixture
def address(served: Served) -> Iterator[tuple[str, int]]:
    with listening(served) as where:
        yield where


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=DEADLINE_S)


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a connection that it breaks off has ended, too."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65_536):
            received += piece
    return received


def head(served: Served, *lines: str, method: str = "POST", path: str = "/api/v1/brokers/3/undrain") -> bytes:
    token = served.tokens[Role.OPERATOR]
    own = (
        f"{method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Bearer {token}",
        "Idempotency-Key: a-key-123",
    )
    return "".join(f"{line}\r\n" for line in (*own, *lines, "")).encode()


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "])
def test_a_request_that_does_not_come_is_not_waited_for(
    address: tuple[str, int], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_WAIT_S", 0.05)
    with connected(address) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        assert rest(connection) == b""


def test_nor_is_a_second_one_of_the_same_connection(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        received_until(connection, b"ok\n")
        monkeypatch.setattr(connections, "REQUEST_WAIT_S", 0.05)
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /healthz HT")
        assert rest(connection) == b""


def test_requests_one_after_the_other_are_answered_on_one_connection(address: tuple[str, int]) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    with connected(address) as connection:
        connection.sendall(one + b"\r\n" + one[:9])
        connection.sendall(one[9:] + b"Connection: close\r\n\r\n")
        assert rest(connection).count(b"\r\n\r\nok\n") == 2


def received_until(connection: socket.socket, end: bytes) -> bytes:
    received = b""
    while not received.endswith(end):
        piece = connection.recv(4_096)
        assert piece, received
        received += piece
    return received


def test_who_sends_the_body_after_the_head_gets_the_refusal(address: tuple[str, int]) -> None:
    """Many clients send both apart: a connection that was closed at once could lose them the answer."""
    refused = b"POST /api/v1/brokers/3/undrain HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n"
    with connected(address) as connection:
        connection.sendall(refused)
        assert received_until(connection, b"}").startswith(b"HTTP/1.1 401 ")
        connection.sendall(b"{}GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert received_until(connection, b"ok\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_body_that_nobody_asked_for_is_not_taken_for_ever(
    address: tuple[str, int], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_WAIT_S", 0.05)
    lines = f"{method} /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\nx"
    with connected(address) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(lines.encode())
        until("the connection ends", lambda: connection.sendall(b"x"), pause_s=0.01)


def test_a_large_head_is_refused(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: " + b"x" * 200_000)
        assert rest(connection)[:13] in (b"HTTP/1.1 400 ", b"")
    assert httpx.get(f"http://127.0.0.1:{address[1]}/healthz", timeout=DEADLINE_S).status_code == 200


def test_a_large_body_is_refused_and_does_nothing(served: Served, address: tuple[str, int]) -> None:
    with connected(address) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head(served, "Content-Type: application/json", "Transfer-Encoding: chunked"))
            for _ in range(160):
                connection.sendall(b"10000\r\n" + PIECE + b"\r\n")
        assert rest(connection)[:13] in (b"HTTP/1.1 413 ", b"")
    assert served.acts() == []


def test_a_request_that_is_cut_leaves_no_error_in_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR), listening(served) as address:
        with connected(address) as connection:
            connection.sendall(head(served, "Content-Type: application/json", "Content-Length: 20") + b'{"carry')
        assert httpx.get(f"http://127.0.0.1:{address[1]}/healthz", timeout=DEADLINE_S).status_code == 200
    assert served.acts() == []
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_more_connections_than_there_may_be_are_refused(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 2)
    one = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    with connected(address), connected(address), connected(address) as third:
        with contextlib.suppress(ConnectionError):
            third.sendall(one)
        assert rest(third) == b""

    def answered() -> bool:
        with connected(address) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(one)
            return rest(connection).endswith(b"ok\n")
        return False

    until("a place is free again", answered, pause_s=0.01)


def held_by(stack: contextlib.ExitStack, address: tuple[str, int], client: str, count: int) -> None:
    """So many idle connections of one client address."""
    for _ in range(count):
        stack.enter_context(socket.create_connection(address, timeout=DEADLINE_S, source_address=(client, 0)))


@pytest.mark.long
@pytest.mark.parametrize("held", [{"127.0.0.2": 60}, {f"127.0.0.{number}": 12 for number in range(2, 7)}])
def test_idle_connections_of_some_addresses_keep_nobody_else_out(
    address: tuple[str, int], held: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth of the usual bounds."""
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 50)
    monkeypatch.setattr(connections, "CONNECTIONS_OF_ADDRESS_MAX", 20)
    monkeypatch.setattr(connections, "ROOM_FOR_OTHERS", 10)
    monkeypatch.setattr(connections, "FEW_CONNECTIONS", 2)
    url = f"http://127.0.0.1:{address[1]}/metrics"
    with contextlib.ExitStack() as stack:
        for client, count in held.items():
            held_by(stack, address, client, count)
        for _ in range(3):
            assert httpx.get(url, timeout=DEADLINE_S).status_code == 200


def test_a_burst_that_is_refused_takes_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """All come in one turn of the loop, before the first refused one is reported as lost."""
    for name, value in (("MAX", 10), ("OF_ADDRESS_MAX", 4)):
        monkeypatch.setattr(connections, f"CONNECTIONS_{name}", value)
    monkeypatch.setattr(connections, "ROOM_FOR_OTHERS", 2)
    config, state = server_config(no_app, ServeSettings()), ServerState()

    def refused(client: str) -> bool:
        transport = mock.Mock()
        transport.get_extra_info.side_effect = {"peername": (client, 1)}.get
        BoundedProtocol(config, state, {}, mock.Mock()).connection_made(transport)
        return bool(transport.abort.called)

    assert [refused("127.0.0.2") for _ in range(20)] == [False] * 4 + [True] * 16
    assert not refused("127.0.0.1")


def test_an_address_gets_its_part_of_the_connections_and_again_once_it_has_closed_some(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_OF_ADDRESS_MAX", 20)
    url = f"http://127.0.0.1:{address[1]}/healthz"
    with contextlib.ExitStack() as stack:
        held_by(stack, address, "127.0.0.1", 20)
        until("the address has no place left", lambda: not is_answered(url), pause_s=0.01)
    until("a place is free again", lambda: is_answered(url), pause_s=0.01)


def unread(connection: socket.socket) -> None:
    """Ask for many answers, as far as the server takes the requests, and read none."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1_000)


@pytest.mark.long
def test_clients_that_read_no_answer_lose_their_place(
    address: tuple[str, int], tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS, and with it."""
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 1)
    monkeypatch.setattr(connections, "ANSWER_WAIT_S", 0.1)
    with connected(address) as one:
        unread(one)
        until("a place is free", lambda: is_answered(f"http://127.0.0.1:{address[1]}/healthz"), pause_s=0.05)
    served, certificate, _ = served_with_tls(tmp_path, root)
    trusted = ssl.create_default_context(cafile=str(certificate))
    with listening(served) as where, trusted.wrap_socket(connected(where), server_hostname="127.0.0.1") as one:
        unread(one)
        url = f"https://127.0.0.1:{where[1]}/healthz"
        until("the place is free", lambda: is_answered(url, verify=trusted), pause_s=0.05)


def is_answered(url: str, **how: Any) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url, timeout=DEADLINE_S, **how).text == "ok\n"
    return False


def test_who_reads_slowly_gets_the_whole_answer() -> None:
    """As long as some of it goes in each interval."""
    loop, transport = mock.Mock(), mock.Mock()
    transport.get_extra_info.return_value = None
    protocol = BoundedProtocol(server_config(no_app, ServeSettings()), ServerState(), {}, loop)
    protocol.connection_made(transport)

    def waits(unsent_bytes: int) -> None:
        """So many bytes are left when the timer that was set last is over."""
        transport.get_write_buffer_size.return_value = unsent_bytes
        loop.call_later.call_args.args[1]()

    transport.get_write_buffer_size.return_value = 1_000_000
    protocol.pause_writing()
    waits(900_000)
    waits(100_000)
    assert not transport.abort.called
    protocol.resume_writing()
    assert loop.call_later.return_value.cancel.called, "all of it has gone"
    transport.get_write_buffer_size.return_value = 100_000
    protocol.pause_writing()
    waits(99_000)
    assert transport.abort.called


def test_an_upgrade_is_a_request_like_others(tmp_path: Path, root: str) -> None:
    served = Served(tmp_path, root, reading="signed_in")
    lines = (
        b"Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n"
    )
    with listening(served) as address, connected(address) as connection:
        connection.sendall(b"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines + b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 401 ")


def served_with_tls(folder: Path, root: str) -> tuple[Served, Path, Path]:
    """The application, its certificate and its key."""
    certificate, key = made_key(folder)
    return Served(folder, root, tls_certificate_file=str(certificate), tls_key_file=str(key)), certificate, key


def made_key(folder: Path, *options: str) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files, *(options or ("-nodes",))], check=True, capture_output=True)
    return certificate, key


def test_with_files_of_tls_it_speaks_tls_alone(tmp_path: Path, root: str) -> None:
    served, certificate, _ = served_with_tls(tmp_path, root)
    with listening(served) as (host, port):
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"https://{host}:{port}/healthz", verify=trusted, timeout=DEADLINE_S).text == "ok\n"
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://{host}:{port}/healthz", timeout=DEADLINE_S)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://{host}:{port}/healthz", timeout=DEADLINE_S)
        old = ssl.create_default_context(cafile=str(certificate))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("ECDHE+AESGCM")
        assert httpx.get(f"https://{host}:{port}/healthz", verify=old, timeout=DEADLINE_S).status_code == 200


@pytest.mark.long
def test_a_renewed_certificate_is_shown_without_a_restart_and_one_that_can_not_be_used_changes_nothing(
    tmp_path: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "RENEWAL_INTERVAL_S", 0)
    served, certificate, key = served_with_tls(tmp_path, root)
    with listening(served) as address, capture_logs() as logs:
        url, first = f"https://127.0.0.1:{address[1]}/healthz", ssl.create_default_context(cafile=str(certificate))
        assert is_answered(url, verify=first)
        key.write_text("no PEM")
        until("the look at a spoilt key is over", lambda: [row["event"] for row in logs] == ["certificate_not_renewed"])
        assert is_answered(url, verify=first)
        made_key(tmp_path)
        second = ssl.create_default_context(cafile=str(certificate))
        until("the next certificate is shown", lambda: is_answered(url, verify=second))
        assert not is_answered(url, verify=first)
        assert logs[-1]["event"] == "certificate_renewed"


@pytest.mark.parametrize("spoilt", ["certificate", "key", "both"])
def test_files_of_tls_that_are_missing_or_spoilt_are_one_clear_line(tmp_path: Path, spoilt: str) -> None:
    certificate, key = made_key(tmp_path)
    if spoilt == "both":
        certificate.unlink()
    else:
        (certificate if spoilt == "certificate" else key).write_text("no PEM")
    settings = ServeSettings(tls_certificate_file=certificate, tls_key_file=key)
    with pytest.raises(
        UsageProblem, match=r"serve.tls_certificate_file, serve.tls_key_file: .*certificate.pem"
    ) as error:
        server_config(no_app, settings)
    assert "\n" not in str(error.value)


@pytest.mark.long
def test_nobody_is_asked_for_the_password_of_a_key(tmp_path: Path) -> None:
    """The process could read it from its input, as OpenSSL does by itself; a service would wait for ever."""
    certificate, key = made_key(tmp_path, "-passout", "pass:secret")
    code = (
        "import sys; from streaming.serve.connections import server_config\n"
        "from streaming.settings import ServeSettings\n"
        "server_config(print, ServeSettings(tls_certificate_file=sys.argv[1], tls_key_file=sys.argv[2]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(certificate), str(key)],
        input="secret\n", text=True, capture_output=True, start_new_session=True, timeout=DEADLINE_S, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert ended.returncode == 1
    assert "UsageProblem: serve.tls_certificate_file" in ended.stderr


async def no_app(_scope: Any, _receive: Any, _send: Any) -> None:
    """Never asked."""


def address_seen(served: Served, peer: str, forwarded: dict[str, str]) -> str:
    """The address in the audit of a request that comes from `peer` with these headers."""
    app = server_config(served.app, served.settings.serve).loaded_app
    headers = {
        "Authorization": f"Bearer {served.tokens[Role.OPERATOR]}",
        "Idempotency-Key": f"from-{peer}-{len(served.acts())}",
    }
    answer = ask(app, "POST", "/api/v1/brokers/3/undrain", headers={**headers, **forwarded}, client=(peer, 1))
    assert answer.status_code == 200, answer.text
    return str(served.acts()[-1]["remote_address"])


def test_forwarded_addresses_are_believed_of_trusted_proxies_alone(tmp_path: Path, root: str) -> None:
    trusting = Served(tmp_path, root, trusted_proxies=["10.0.0.0/24", "fd00::1"])
    for forwarded, peer, seen in (
        ("192.0.2.7", "10.0.0.9", "192.0.2.7"),
        ("192.0.2.7", "fd00::1", "192.0.2.7"),
        ("127.0.0.1, 192.0.2.7", "10.0.0.9", "192.0.2.7"),  # what the sender wrote itself stands on the left
        ("192.0.2.7, 10.0.0.8", "10.0.0.9", "192.0.2.7"),
        ("192.0.2.7", "10.0.1.9", "10.0.1.9"),
        ("192.0.2.7", "127.0.0.1", "127.0.0.1"),
        ("", "10.0.0.9", "10.0.0.9"),
    ):
        assert address_seen(trusting, peer, {"X-Forwarded-For": forwarded}) == seen, (forwarded, peer)
    long = address_seen(trusting, "10.0.0.9", {"X-Forwarded-For": "x" * 60_000})
    assert len(long) <= 100, "a proxy that passes anything on must not fill tables and memory"
    nobody = Served(tmp_path, root)
    assert address_seen(nobody, "127.0.0.1", {"X-Forwarded-For": "192.0.2.7"}) == "127.0.0.1"


@pytest.mark.parametrize("proxies", [["*"], ["10.0.0.7/24"], ["proxy.example"], [""]])
def test_a_proxy_that_is_no_address_is_refused(proxies: list[str]) -> None:
    with pytest.raises(ValueError, match="is no address or network"):
        ServeSettings(trusted_proxies=proxies)
