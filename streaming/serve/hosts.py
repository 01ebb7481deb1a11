"""Which `Host` a request may name: a page of another site must not read this one (DNS rebinding).

Such a page lies at a name whose owner lets it point to this machine, so the browser sends that name. An address can't
be made to point elsewhere, so addresses are always allowed: Prometheus that scrapes by address needs no setting.
Starlette's TrustedHostMiddleware is no help: it knows no IPv6 address, no "any address", and answers 400.
"""

import ipaddress
import socket
from collections.abc import Collection

import structlog
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

log = structlog.get_logger()

EVERY_NAME = "*"
NAMED_MAX = 10
"""So many refused names are logged; whoever sends the requests chooses them."""
REFUSED = "421: this host name is not allowed; serve.allowed_hosts lists names besides localhost and addresses\n"


class AllowedHosts:
    """ASGI middleware: 421 (RFC 9110, misdirected request) for a name that is not allowed."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names) | {"localhost", socket.gethostname().lower()}
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        host = Request(scope).headers.get("host", "") if scope["type"] == "http" else ""
        if not host or self.allows(host):  # every browser sends it
            await self._app(scope, receive, send)
            return
        if host not in self._logged and len(self._logged) < NAMED_MAX:
            self._logged.add(host)
            log.warning("host_refused", host=host[:255])
        await PlainTextResponse(REFUSED, status_code=421)(scope, receive, send)

    def allows(self, host: str) -> bool:
        """Whether a `Host`, with or without a port, is an address or an allowed name."""
        name = name_of(host)
        if EVERY_NAME in self._names or is_address(name) or name in self._names:
            return True
        return any(name.endswith(own[1:]) for own in self._names if own.startswith("*."))


def name_of(host: str) -> str:
    """The name or address of a `Host`, in lower case, without the port and without the dot at its end.

    >>> name_of("Rebalancer.example.:9464"), name_of("[::1]:9464"), name_of("10.0.0.1")
    ('rebalancer.example', '::1', '10.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0 if ":" in host else 2].lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Whether this is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
