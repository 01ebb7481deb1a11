"""Why no broker is reached: each address is tried step by step, as a client connects, up to the login itself.

kafka-python retries whatever fails until its time is over, and keeps no reason. Each step here has a time limit, only
a few addresses are tried, and no secret is sent: the first words of a SASL login name the mechanism alone. This module
knows nothing of clients.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kafka.errors import KafkaProtocolError

from streaming.cluster.logins import tls_files
from streaming.cluster.wire import Reader, decoded
from streaming.settings import KafkaSettings

STEP_LIMIT_S = 2.0
ADDRESSES_MAX = 5
ANSWER_BYTES_MAX = 100_000
METADATA, SASL_HANDSHAKE, API_VERSIONS = 3, 17, 18
ILLEGAL_SASL_STATE = 34
"""The answer to a SASL handshake at a listener without SASL."""
NO_TLS_REASONS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""OpenSSL's names of the error that the answer to a TLS handshake is no TLS."""
NO_MECHANISM = "none"
"""The name of a mechanism that no broker offers: the answer lists those that it offers."""


def obstacles(settings: KafkaSettings, addresses: Sequence[str]) -> dict[str, str | None]:
    """By address (host:port), what keeps a client with these settings from it; None: nothing before the login itself.

    All addresses are tried at once, and no more than a few.
    """
    tried = list(dict.fromkeys(addresses))[:ADDRESSES_MAX]
    with ThreadPoolExecutor(max_workers=ADDRESSES_MAX) as pool:
        return dict(zip(tried, pool.map(lambda address: _obstacle(settings, address), tried), strict=True))


def _obstacle(settings: KafkaSettings, address: str) -> str | None:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), timeout=STEP_LIMIT_S) as plain:
            return _conversation(settings, host, plain, speaks_tls=lambda: _speaks_tls(host, int(port)))
    except socket.gaierror:
        return "the host name is unknown"
    except ConnectionRefusedError:
        return "the port is closed"
    except TimeoutError:
        return f"no answer within {STEP_LIMIT_S:.0f} s"
    except (OSError, ValueError) as error:  # ValueError: no port
        return getattr(error, "strerror", None) or str(error)


def _conversation(
    settings: KafkaSettings, host: str, plain: socket.socket, *, speaks_tls: Callable[[], bool]
) -> str | None:
    """The steps after the connection is made; raises TimeoutError."""
    no_tls = f"the port speaks no TLS, security_protocol is {settings.security_protocol}"
    if not settings.is_encrypted:
        return _questions(settings, plain, speaks_tls)
    try:
        encrypted = _tls_context(settings).wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        return f"the certificate of the broker is refused: {error.verify_message} (kafka.ssl_ca_file)"
    except (ssl.SSLEOFError, ConnectionError):
        return no_tls
    except ssl.SSLError as error:
        return no_tls if error.reason in NO_TLS_REASONS else f"TLS fails: {_reason(error)}"
    with encrypted:
        return _questions(settings, encrypted, speaks_tls)


def _questions(settings: KafkaSettings, connection: socket.socket, speaks_tls: Callable[[], bool]) -> str | None:
    """The first two requests of a client, and what the answers show; raises TimeoutError."""
    try:
        if METADATA not in decoded(_known_requests, _asked(connection, API_VERSIONS, 0, b""), flexible=False):
            return "the port is a controller's, not a broker's"
        name = (settings.mechanism or NO_MECHANISM).encode()
        answer = _asked(connection, SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
        error_code, offered = decoded(_handshake, answer, flexible=False)
    except ssl.SSLError as error:  # with TLS 1.3 a broker that misses a client's certificate says so here
        return f"TLS fails: {_reason(error)} (kafka.ssl_certificate_file)"
    except (ConnectionError, KafkaProtocolError):
        if settings.is_encrypted and not settings.ssl_certificate_file:
            return "TLS fails: the broker closes the connection, as without a certificate (kafka.ssl_certificate_file)"
        if not settings.is_encrypted and speaks_tls():
            return f"the port speaks TLS, security_protocol is {settings.security_protocol}"
        return "the port does not answer as a Kafka broker does"
    return _about_login(settings, asks_for_login=error_code != ILLEGAL_SASL_STATE, offered=offered)


def _about_login(settings: KafkaSettings, *, asks_for_login: bool, offered: Sequence[str]) -> str | None:
    if settings.mechanism is None:
        wanted = f"the port asks for a SASL login ({', '.join(offered)}), security_protocol is"
        return f"{wanted} {settings.security_protocol}" if asks_for_login else None
    if not asks_for_login:
        return f"the port asks for no login, security_protocol is {settings.security_protocol}"
    # AWS's own clients log in by a mechanism of another name than the Python clients.
    names = {settings.mechanism, "OAUTHBEARER"} if settings.mechanism == "AWS_MSK_IAM" else {settings.mechanism}
    if names.isdisjoint(offered):
        return f"the broker does not offer sasl_mechanism {settings.mechanism}, only {', '.join(offered)}"
    return None


def _asked(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """The body of the answer to one request; raises KafkaProtocolError for what no broker answers, OSError."""
    header = struct.pack(">hhih", api_key, version, 1, -1)  # correlation id 1, no client id
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    size, correlation_id = struct.unpack(">ii", _received(connection, 8))
    if correlation_id != 1 or not 4 <= size <= ANSWER_BYTES_MAX:
        raise KafkaProtocolError("the answer is no answer of Kafka's")
    return _received(connection, size - 4)


def _received(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise KafkaProtocolError("the connection was closed in the middle of an answer")
        received += chunk
    return received


def _known_requests(reader: Reader) -> set[int]:
    reader.skip(2)  # the error code
    rows = [(reader.int16(), reader.int16(), reader.int16()) for _ in range(reader.length())]
    return {api_key for api_key, _, _ in rows}


def _handshake(reader: Reader) -> tuple[int, list[str]]:
    error_code = reader.int16()
    return error_code, [reader.text() for _ in range(reader.length())]


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: only the kind of port is of interest
    try:
        with socket.create_connection((host, port), timeout=STEP_LIMIT_S) as plain:
            context.wrap_socket(plain).close()
    except OSError:
        return False
    return True


def _tls_context(settings: KafkaSettings) -> ssl.SSLContext:
    files = tls_files(settings)
    context = ssl.create_default_context(cafile=files.get("ssl_ca_file"))
    if "ssl_certificate_file" in files:
        context.load_cert_chain(files["ssl_certificate_file"], files.get("ssl_key_file"))
    return context


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
