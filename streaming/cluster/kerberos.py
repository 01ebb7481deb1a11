"""Logins by Kerberos (GSSAPI) with a keytab, for kafka-python.

Tickets are fetched with the keytab, stay in this process's memory, and are fetched anew at the first login after half
of their life. The package gssapi is installed on request only.
"""

import itertools
import threading
from types import ModuleType
from typing import Any

import structlog
from kafka.errors import KafkaConnectionError
from kafka.net.sasl import register_sasl_mechanism
from kafka.net.sasl.gssapi import SaslMechanismGSSAPI

from streaming.errors import ClusterUnreachable, SetUpIncomplete, UsageProblem
from streaming.settings import KafkaSettings

log = structlog.get_logger()

_caches = itertools.count()
"""Names for tickets in memory, which last as long as the credentials that hold them."""

NO_KEY = "No credentials cache found"
"""What MIT's library reports where the keytab has no key of a principal: it then looks for another source."""


class KeytabLogin:
    """Who logs in, and with what."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises SetUpIncomplete where gssapi is missing, UsageProblem where the keytab can't be read."""
        self._gssapi = _gssapi()
        self._principal = settings.sasl_kerberos_principal or ""
        self._keytab = settings.sasl_kerberos_keytab_file
        self._service = settings.sasl_kerberos_service_name
        self._lock = threading.Lock()
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
                    log.warning("ticket_not_renewed", error=str(error), expires_in_ms=left_s * 1000)
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
        """Raises KafkaConnectionError, after which kafka-python connects anew."""
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
