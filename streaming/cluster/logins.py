"""What a login rests on while a client lives: password, certificates, key, and Kerberos tickets of a keytab.

Files may change meanwhile. Each is checked before a client is made: a client goes on trying with one that it can't use,
and does not name it. Tickets are fetched with the keytab, stay in this process's memory, and are fetched again at the
first login after half of their life. The package gssapi is installed on request only. kafka-python's mechanisms are
replaced by those that read the password of now, and the tickets of a keytab.
"""

import itertools
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog
from kafka.errors import KafkaConnectionError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from streaming.errors import ClusterUnreachable, SetUpIncomplete, UsageProblem
from streaming.runtime.secrets import sasl_password
from streaming.settings import KafkaSettings

log = structlog.get_logger()

PKCS8 = "-----BEGIN PRIVATE KEY-----"
LOCKED = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED")
"""What a key with a password begins with, as PKCS#8 and as OpenSSL wrote it before."""
CONVERSION = "openssl pkcs8 -topk8 -nocrypt -in FILE -out NEW_FILE"

Contents = tuple[str | None, ...]
_caches = itertools.count()
"""Names for tickets in memory, which last as long as the credentials that hold them."""
NO_KEY = "No credentials cache found"
"""What MIT's library reports where the keytab has no key of a principal: it then looks for another source."""


def tls_files(settings: KafkaSettings) -> dict[str, Path]:
    """Files by their settings; none where the connection is not encrypted."""
    named = {
        "ssl_ca_file": settings.ssl_ca_file,
        "ssl_certificate_file": settings.ssl_certificate_file,
        "ssl_key_file": settings.ssl_key_file,
    }
    return {name: file for name, file in named.items() if file is not None and settings.is_encrypted}


def check_tls_files(settings: KafkaSettings) -> None:
    """Raises UsageProblem for the first file that can't be used."""
    files = tls_files(settings)
    for name, file in files.items():
        text = _text(name, file)
        if any(mark in text for mark in LOCKED):
            # OpenSSL would ask the terminal for the password, and wait.
            raise _problem(name, file, f"has a password, and nobody is there to type it: {CONVERSION}")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if "ssl_ca_file" in files:
        ca_file = files["ssl_ca_file"]
        _try("ssl_ca_file", ca_file, lambda: context.load_verify_locations(ca_file))
    if "ssl_key_file" in files:
        certificate_file, key_file = files["ssl_certificate_file"], files["ssl_key_file"]
        both = "ssl_certificate_file, kafka.ssl_key_file"
        _try(both, f"{certificate_file}, {key_file}", lambda: context.load_cert_chain(certificate_file, key_file))


def java_key(settings: KafkaSettings) -> str:
    """The client's key as Java's clients take it; raises UsageProblem."""
    file = tls_files(settings)["ssl_key_file"]
    key = _text("ssl_key_file", file)
    if PKCS8 not in key:
        raise _problem("ssl_key_file", file, f"is no PKCS#8 key, and Spark's Kafka client takes no other: {CONVERSION}")
    return key


def java_certificate(settings: KafkaSettings) -> str:
    """The client's certificate, with its chain; raises UsageProblem."""
    return _text("ssl_certificate_file", tls_files(settings)["ssl_certificate_file"])


def held_now(settings: KafkaSettings) -> Contents:
    """What the files hold, to be compared: a client that has other contents logs in no more. Raises UsageProblem."""
    password = sasl_password(settings) if settings.asks_for_password else None
    return (password, *(_text(name, file) for name, file in tls_files(settings).items()))


class PasswordOfNow:
    """The password as its file holds it when somebody logs in. Shows nothing of it."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises UsageProblem where there is none."""
        self._settings = settings
        sasl_password(settings)

    def read(self) -> str:
        """Raises KafkaConnectionError, after which kafka-python connects again."""
        try:
            return sasl_password(self._settings)
        except UsageProblem as error:
            raise KafkaConnectionError(str(error)) from None


class PlainOfNow(SaslMechanismPlain):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's PLAIN with the password of now."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**_with_password(config))


class ScramOfNow(SaslMechanismScram):  # type: ignore[misc]
    """kafka-python's SCRAM with the password of now."""

    def __init__(self, **config: Any) -> None:
        super().__init__(**_with_password(config))


def _with_password(config: dict[str, Any]) -> dict[str, Any]:
    password = config["sasl_plain_password"]
    return {**config, "sasl_plain_password": password.read() if isinstance(password, PasswordOfNow) else password}


def _text(name: str, file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")  # a chain may have comments in any encoding
    except OSError as error:
        raise _problem(name, file, f"can't be read: {error.strerror}") from None


def _try(name: str, file: object, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise _problem(name, file, f"can't be used: {str(reason).replace('_', ' ').lower()}") from None


def _problem(name: str, file: object, reason: str) -> UsageProblem:
    return UsageProblem(f"kafka.{name}: {file} {reason}")


for _name, _mechanism in (("PLAIN", PlainOfNow), ("SCRAM-SHA-256", ScramOfNow), ("SCRAM-SHA-512", ScramOfNow)):
    register_sasl_mechanism(_name, _mechanism, overwrite=True)


class KeytabLogin:
    """Who logs in, and with what."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises SetUpIncomplete where gssapi is missing, UsageProblem where the keytab can't be read."""
        self._gssapi = _gssapi()
        self._principal = settings.sasl_kerberos_principal or ""
        self._keytab = settings.sasl_kerberos_keytab_file
        self._service = settings.sasl_kerberos_service_name
        self._lock = threading.Lock()
        self._log_fields = structlog.contextvars.get_contextvars()  # clients log in in threads of their own
        self._kept: Any = None
        self._renewed_at_s = 0
        try:
            assert self._keytab is not None
            self._keytab.open("rb").close()
        except OSError as error:
            raise UsageProblem(
                f"kafka.sasl_kerberos_keytab_file: {self._keytab} can't be read: {error.strerror}"
            ) from None

    def credentials(self) -> Any:
        """A ticket that has not expired; raises ClusterUnreachable where the KDC gives none."""
        with self._lock:
            left_s = self._left_s()
            if left_s <= self._renewed_at_s:
                try:
                    self._renew()
                except ClusterUnreachable as error:
                    if left_s <= 0:
                        raise
                    log.warning("ticket_not_renewed", error=str(error), expires_in_ms=left_s * 1000, **self._log_fields)
            return self._kept

    def _renew(self) -> None:
        gssapi = self._gssapi
        # A cache of its own, or the library would go on with the old ticket and not report why.
        store = {"client_keytab": f"FILE:{self._keytab}", "ccache": f"MEMORY:rebalancer-{next(_caches)}"}
        try:
            name = gssapi.Name(self._principal, gssapi.NameType.kerberos_principal)
            credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
            self._renewed_at_s = credentials.lifetime // 2
        except gssapi.exceptions.GSSError as error:
            raise ClusterUnreachable(
                f"no Kerberos ticket for {self._principal} with the keytab {self._keytab}: {reason(error)}"
            ) from None
        self._kept = credentials

    def _left_s(self) -> int:
        """Returns the seconds left of the ticket's life; 0 where there is no ticket."""
        try:
            return int(self._kept.lifetime) if self._kept is not None else 0
        except self._gssapi.exceptions.GSSError:  # it has expired
            return 0

    def context(self, host: str) -> tuple[str, Any]:
        """(Name of the service, security context) of a login to one broker; raises ClusterUnreachable."""
        gssapi, service = self._gssapi, f"{self._service}@{host}"
        credentials = self.credentials()
        try:
            named = gssapi.Name(service, gssapi.NameType.hostbased_service)
            broker = named.canonicalize(gssapi.MechType.kerberos)
            return service, gssapi.SecurityContext(name=broker, creds=credentials, usage="initiate")
        except gssapi.exceptions.GSSError as error:
            raise ClusterUnreachable(f"no Kerberos ticket for the service {service}: {reason(error)}") from None


class KeytabMechanism(SaslMechanismGSSAPI):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's GSSAPI with the tickets of a `KeytabLogin` in place of those that the user's session has."""

    def __init__(self, *, host: str, sasl_kerberos_name: KeytabLogin, **_config: object) -> None:
        # Instead of the parent's, which takes no credentials.
        self.gssapi_name = None
        self._is_done = self._is_authenticated = False
        try:
            self.auth_id, self._client_ctx = sasl_kerberos_name.context(host)
        except ClusterUnreachable as error:
            raise KafkaConnectionError(str(error)) from None
        self._next_token = self._stepped(None)

    def receive(self, auth_bytes: bytes) -> None:
        """Raises KafkaConnectionError, after which kafka-python connects again."""
        gssapi = _gssapi()
        try:
            super().receive(auth_bytes)
        except gssapi.exceptions.GSSError as error:
            raise KafkaConnectionError(f"Kerberos login to {self.auth_id} fails: {reason(error)}") from None

    def _stepped(self, token: bytes | None) -> bytes:
        gssapi = _gssapi()
        try:
            answer: bytes = self._client_ctx.step(token)
        except gssapi.exceptions.GSSError as error:
            raise KafkaConnectionError(f"no Kerberos ticket for the service {self.auth_id}: {reason(error)}") from None
        return answer


def ready_login(settings: KafkaSettings) -> KeytabLogin:
    """A login that has its ticket: where there is none, its own error says why, and the client's would not."""
    login = KeytabLogin(settings)
    login.credentials()
    return login


def reason(error: Any) -> str:
    """What Kerberos says of a failure, in one line, without GSSAPI's general words."""
    statuses = list(error.get_all_statuses(error.min_code, False)) if error.min_code else []
    text = " ".join(" ".join(statuses or [str(error)]).split())
    return "it holds no key of that principal" if text == NO_KEY else text


def _gssapi() -> ModuleType:
    try:
        import gssapi
    except (ImportError, OSError):  # or MIT's library is missing
        raise SetUpIncomplete(
            "kafka.sasl_mechanism GSSAPI needs the package gssapi: see Kerberos in docs/security.md"
        ) from None
    module: ModuleType = gssapi
    return module


register_sasl_mechanism("GSSAPI", KeytabMechanism, overwrite=True)
