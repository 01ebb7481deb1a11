"""Files of a login that may change while a client lives: the password, certificates, the key.

Each is checked before a client is made: a client goes on trying with one that it can't use, and does not name it.
Knows nothing of how a client takes them.
"""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.errors import KafkaConnectionError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from streaming.errors import UsageProblem
from streaming.runtime.secrets import sasl_password
from streaming.settings import KafkaSettings

PKCS8 = "-----BEGIN PRIVATE KEY-----"
LOCKED = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED")
"""What a key with a password begins with, as PKCS#8 and as OpenSSL wrote it before."""
CONVERSION = "openssl pkcs8 -topk8 -nocrypt -in FILE -out NEW_FILE"

Contents = tuple[str | None, ...]


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
        """Raises KafkaConnectionError, after which kafka-python connects anew."""
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
