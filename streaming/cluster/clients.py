"""Kafka clients made from the settings: how a connection is secured, and why no broker is reached.

Secrets come from the settings' environment variables or from a file, and go nowhere but to these clients.

kafka-python retries whatever fails until its time is over, and keeps no reason. So where it reaches no broker, each
address is tried step by step, as a client connects, up to the login itself. Each step has a time limit, only a few
addresses are tried, and no secret is sent: the first words of a SASL login name the mechanism alone.
"""

import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import AuthorizationError, KafkaConnectionError, KafkaError, KafkaProtocolError
from kafka.net.sasl.oauth import AbstractTokenProvider

from streaming.cluster.kafka_python_patches import NoFirstContact, PatchedAdminClient
from streaming.cluster.logins import PasswordOfNow, check_tls_files, java_certificate, java_key, ready_login, tls_files
from streaming.cluster.tokens import FileTokens, KeptTokens, MskSigner, TokenEndpoint, TokenSource
from streaming.cluster.wire import Reader, decoded
from streaming.errors import ClusterUnreachable, RebalancerError
from streaming.runtime.secrets import oauthbearer_client_secret, sasl_password
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
CLIENT_ID = "kafka-load-rebalancer"
BY_TOKEN = ("OAUTHBEARER", "AWS_MSK_IAM")
"""Mechanisms by which the Python clients show the brokers a token (SASL OAUTHBEARER)."""
_JAVA_SECURITY = "org.apache.kafka.common.security"
_AWS_IAM = "software.amazon.msk.auth.iam"
_LIBRDKAFKA_NAMES = {
    "client_id": "client.id",
    "bootstrap_servers": "bootstrap.servers",
    "security_protocol": "security.protocol",
    "sasl_mechanism": "sasl.mechanism",
    "sasl_plain_username": "sasl.username",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
}
"""librdkafka's names of kafka-python's options."""


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


def admin_client(settings: KafkaSettings) -> KafkaAdminClient:
    """An admin client that has reached a broker; raises ClusterUnreachable, which names the reason where it is known.

    One bootstrap server that works is enough; where all fail it is over after some two seconds.
    """
    try:
        client = PatchedAdminClient(**python_options(settings))
    except (KafkaError, OSError, ValueError) as error:
        raise _not_reached(settings, error) from None
    try:
        client.connect_to_any()
        client.describe_cluster()
    except (KafkaError, OSError) as error:
        advertised = client.addresses()
        with suppress(KafkaError, OSError):
            client.close()
        raise _not_reached(settings, error, advertised) from None
    return client


def consumer(settings: KafkaSettings, **options: object) -> KafkaConsumer:
    """A consumer of bytes; `options` are kafka-python's. Raises ClusterUnreachable."""
    try:
        return KafkaConsumer(**python_options(settings), **options)
    except (KafkaError, OSError) as error:
        raise _unreachable(settings, error) from None


@contextmanager
def reaching(settings: KafkaSettings) -> Iterator[None]:
    """For requests of a client that is there already: raises ClusterUnreachable where no broker answers one."""
    try:
        yield
    except (KafkaError, OSError) as error:
        raise _unreachable(settings, error) from None


def spark_options(settings: KafkaSettings) -> dict[str, str]:
    """The connection as options of Spark's Kafka source, without `kafka.`; raises UsageProblem for a wrong secret."""
    options = {
        "bootstrap.servers": ",".join(settings.bootstrap_servers),
        "security.protocol": settings.security_protocol,
    }
    mechanism, files = settings.mechanism, tls_files(settings)
    if mechanism == "OAUTHBEARER":
        options |= _java_oauthbearer(settings)
    elif mechanism == "AWS_MSK_IAM":
        options |= _java_msk_iam(settings)
    elif mechanism == "GSSAPI":
        options |= _java_gssapi(settings)
    elif mechanism:
        module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
        user, password = settings.sasl_username or "", sasl_password(settings)
        options["sasl.mechanism"] = mechanism
        options["sasl.jaas.config"] = _jaas(f"{_JAVA_SECURITY}.{module}", {"username": user, "password": password})
    if "ssl_ca_file" in files:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(files["ssl_ca_file"])}
    if "ssl_key_file" in files:
        chain, key = java_certificate(settings), java_key(settings)
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    return options


def librdkafka_options(settings: KafkaSettings) -> dict[str, object]:
    """The connection as options of librdkafka, password included; raises ClusterUnreachable without a token."""
    options = {_LIBRDKAFKA_NAMES[name]: value for name, value in _connection(settings).items()}
    if settings.asks_for_password:
        options["sasl.password"] = sasl_password(settings)
    elif settings.mechanism in BY_TOKEN:
        options["oauth_cb"] = _librdkafka_tokens(_ready_source(settings))
    return options | {"bootstrap.servers": ",".join(settings.bootstrap_servers)}


def python_options(settings: KafkaSettings) -> dict[str, object]:
    """Returns the connection as options of kafka-python's clients. Hand them to a client, and to nothing else.

    Raises ClusterUnreachable where a token or ticket is needed and there is none, UsageProblem for a file that can't be
    used.
    """
    check_tls_files(settings)
    options = _connection(settings)
    if settings.asks_for_password:
        options["sasl_plain_password"] = PasswordOfNow(settings)
        options["sasl_plain_username"] = _as_sent(settings)
    elif settings.mechanism in BY_TOKEN:
        options["sasl_oauth_token_provider"] = _TokenProvider(_ready_source(settings))
    elif settings.mechanism == "GSSAPI":
        # Passed on as it is to our mechanism, which is registered in place of kafka-python's.
        options["sasl_kerberos_name"] = ready_login(settings)
    timeout_ms = settings.request_timeout_ms
    return options | {"request_timeout_ms": timeout_ms, "bootstrap_timeout_ms": timeout_ms}


def _as_sent(settings: KafkaSettings) -> str:
    """The name as a login by password sends it.

    SCRAM parts its messages by commas and equals signs (RFC 5802, 5.1). kafka-python 3.0 leaves these in a name;
    librdkafka does not.
    """
    name = settings.sasl_username or ""
    return name if settings.mechanism == "PLAIN" else name.replace("=", "=3D").replace(",", "=2C")


def _connection(settings: KafkaSettings) -> dict[str, object]:
    """What the settings hold of a connection as options of kafka-python, but for secrets."""
    values: dict[str, object] = {
        "client_id": CLIENT_ID,
        "bootstrap_servers": settings.bootstrap_servers,
        "security_protocol": settings.security_protocol,
    }
    if settings.mechanism:
        values["sasl_mechanism"] = "OAUTHBEARER" if settings.mechanism in BY_TOKEN else settings.mechanism
    if settings.asks_for_password:
        values["sasl_plain_username"] = settings.sasl_username
    names = {"ssl_ca_file": "ssl_cafile", "ssl_certificate_file": "ssl_certfile", "ssl_key_file": "ssl_keyfile"}
    return values | {names[name]: str(path) for name, path in tls_files(settings).items()}


def _ready_source(settings: KafkaSettings) -> TokenSource:
    """A source that has a token: where there is none, its own error says why, and the client's would not."""
    source: TokenSource
    if settings.mechanism == "AWS_MSK_IAM":
        source = KeptTokens(MskSigner(settings).fetch)
    elif settings.sasl_oauthbearer_token_file is not None:
        source = FileTokens(settings)
    else:
        source = KeptTokens(TokenEndpoint(settings).fetch)
    source.token()
    return source


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """A source of tokens as kafka-python asks it, for each login to a broker."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        """The token; raises KafkaConnectionError, after which kafka-python connects again."""
        try:
            return self._source.token().value
        except RebalancerError as error:
            raise KafkaConnectionError(str(error)) from None


def _librdkafka_tokens(source: TokenSource) -> Callable[[str], tuple[str, float]]:
    """A source of tokens as librdkafka asks it, from `poll` and `flush`; it asks again 10 s after a failure."""

    def token_and_expiry_s(_config: str) -> tuple[str, float]:
        token = source.token()
        return token.value, token.expires_ms / 1000

    return token_and_expiry_s


def _java_oauthbearer(settings: KafkaSettings) -> dict[str, str]:
    """KIP-768. Java's clients fetch tokens themselves; from a file they read one once for each login."""
    file, url, of_module = settings.sasl_oauthbearer_token_file, settings.sasl_oauthbearer_token_endpoint_url, {}
    if file is None:
        of_module = {
            "clientId": settings.sasl_oauthbearer_client_id or "",
            "clientSecret": oauthbearer_client_secret(settings),
        }
        if settings.sasl_oauthbearer_scope:
            of_module["scope"] = settings.sasl_oauthbearer_scope
        if settings.sasl_oauthbearer_ca_file:
            location = str(settings.sasl_oauthbearer_ca_file.absolute())
            of_module |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    limit_ms = str(settings.request_timeout_ms)
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": _jaas(f"{_JAVA_SECURITY}.oauthbearer.OAuthBearerLoginModule", of_module),
        "sasl.login.callback.handler.class": f"{_JAVA_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": file.absolute().as_uri() if file else url or "",
        "sasl.login.connect.timeout.ms": limit_ms,
        "sasl.login.read.timeout.ms": limit_ms,
    }


def _java_msk_iam(settings: KafkaSettings) -> dict[str, str]:
    """The mechanism of AWS's own jar, which finds and renews credentials itself (`pipeline.extra_jars`)."""
    profile = settings.sasl_aws_msk_iam_profile
    of_module = {"awsProfileName": profile} if profile else {}
    return {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": _jaas(f"{_AWS_IAM}.IAMLoginModule", of_module),
        "sasl.client.callback.handler.class": f"{_AWS_IAM}.IAMClientCallbackHandler",
    }


def _java_gssapi(settings: KafkaSettings) -> dict[str, str]:
    """Java's own login with a keytab, which Kafka's clients renew."""
    of_module = {
        "useKeyTab": "true", "storeKey": "true", "doNotPrompt": "true",
        "keyTab": str(settings.sasl_kerberos_keytab_file and settings.sasl_kerberos_keytab_file.absolute()),
        "principal": settings.sasl_kerberos_principal or "",
    }  # fmt: skip
    return {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": settings.sasl_kerberos_service_name,
        "sasl.jaas.config": _jaas("com.sun.security.auth.module.Krb5LoginModule", of_module),
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    quoted = {name: value.replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    written = "".join(f' {name}="{value}"' for name, value in quoted.items())
    return f"{module} required{written};"


def _not_reached(settings: KafkaSettings, error: Exception, advertised: Sequence[str] = ()) -> ClusterUnreachable:
    """What keeps a new client from the brokers. Where it has got their `advertised` addresses, these are in doubt."""
    if isinstance(error, AuthorizationError):  # a broker has answered, and refuses
        return _unreachable(settings, error)
    found = obstacles(settings, advertised or settings.bootstrap_servers)
    by_reason: dict[str, list[str]] = {}
    for address, reason in found.items():
        if reason is None and settings.mechanism and isinstance(error, NoFirstContact):
            reason = f"the broker refuses the login: is the {_credential(settings)} right?"
        if reason is not None:
            by_reason.setdefault(reason, []).append(address)
    if not by_reason:
        return _unreachable(settings, error)
    servers = ", ".join(settings.bootstrap_servers)
    named = "; ".join(
        reason if len(addresses) == len(found) and not advertised else f"{', '.join(addresses)}: {reason}"
        for reason, addresses in by_reason.items()
    )
    if advertised:
        named = f"the cluster answers, and not at the addresses that its brokers advertise: {named}"
    return ClusterUnreachable(f"no broker reached at {servers}: {named}{_unused(settings, before='. ')}")


def _unreachable(settings: KafkaSettings, error: Exception) -> ClusterUnreachable:
    servers = ", ".join(settings.bootstrap_servers)
    doubted = ["address"]
    if settings.security_protocol != "PLAINTEXT":
        # A broker that refuses a login or a certificate hangs up, and the client goes on trying until its time is over.
        doubted.append(f"security_protocol {settings.security_protocol}")
    if settings.mechanism:
        doubted.append(_credential(settings))
    if settings.is_encrypted:
        doubted.append("certificates")
    verb = "is the" if len(doubted) == 1 else "are"
    question = f"{verb} {', '.join(doubted)} right?"
    return ClusterUnreachable(
        f"no broker reached at {servers} ({type(error).__name__}): {question}{_unused(settings, before=' ')}"
    )


def _credential(settings: KafkaSettings) -> str:
    """What a login by the mechanism of the settings rests on."""
    if settings.mechanism == "OAUTHBEARER":
        origin = settings.sasl_oauthbearer_token_file or f"client {settings.sasl_oauthbearer_client_id}"
        return f"OAUTHBEARER token of {origin}"
    if settings.mechanism == "GSSAPI":
        return f"service name {settings.sasl_kerberos_service_name}, principal {settings.sasl_kerberos_principal}"
    if settings.mechanism == "AWS_MSK_IAM":
        return "IAM policy of the AWS credentials (kafka-cluster:Connect)"
    return f"{settings.mechanism} password of user {settings.sasl_username}"


def _unused(settings: KafkaSettings, *, before: str) -> str:
    """Settings of a login that is not made: a broker that wants one does not answer a client that begins without."""
    unused = settings.without_effect()
    return f"{before}{unused}" if unused else ""
