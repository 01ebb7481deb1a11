"""SASL PLAIN: a login is refused unless its password is that of the fleet. Nothing else is refused without a login."""

from typing import Any

from kafka.errors import SaslAuthenticationFailedError
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from tests.fleet.api import OK, Api
from tests.fleet.fleet import Fleet

PLAIN = "PLAIN"
REFUSED: int = SaslAuthenticationFailedError.errno


def _offered(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    return SaslHandshakeResponse(error_code=OK, mechanisms=[PLAIN])


def _login(fleet: Fleet, _broker: int, request: Any) -> Any:
    _, _, password = bytes(request.auth_bytes).split(b"\0")
    fits = password.decode() == fleet.password
    problem = None if fits else "Authentication failed"
    return SaslAuthenticateResponse(
        error_code=OK if fits else REFUSED, error_message=problem, auth_bytes=b"", session_lifetime_ms=0
    )


APIS = (Api(SaslHandshakeRequest, (0, 1), _offered), Api(SaslAuthenticateRequest, (0, 2), _login))
