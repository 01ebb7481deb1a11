"""What the issuer is asked over the network, within limits of time and bytes: its description and its keys."""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from streaming.errors import RebalancerError
from streaming.runtime.http_errors import HTTP_ERRORS
from streaming.settings.oidc import is_safe

LIMIT_S = 5.0
"""Of one request, with all that belongs to it: the name, the connection, the answer to its end."""
ANSWER_BYTES_MAX = 512 * 1024
DESCRIPTION = "/.well-known/openid-configuration"


class IssuerUnreachable(RebalancerError):
    """The issuer does not answer, or not as an issuer does; the message names the URL and the reason."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """Of its answer, if that is what was wrong."""


@dataclass(frozen=True, slots=True)
class Description:
    """What the issuer says of itself (OpenID Connect Discovery 1.0, 3)."""

    url: str
    members: Mapping[str, Any]

    def endpoint(self, name: str) -> str:
        """A URL among the members; raises IssuerUnreachable for one that is missing or not safe."""
        url = self.members.get(name)
        try:
            if isinstance(url, str) and url.isprintable() and httpx.URL(url).host and is_safe(url):
                return url
        except (httpx.InvalidURL, ValueError):
            pass
        raise IssuerUnreachable(f"{self.url}: {name} is no https:// URL")


class Issuer:
    """The issuer at a URL. Follows no redirect: it would lead to where nobody said that keys may come from."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._certificates: ssl.SSLContext | None = None

    async def description(self) -> Description:
        """The description; raises IssuerUnreachable, also for that of another issuer."""
        url = self._url.rstrip("/") + DESCRIPTION
        members = await self.ask("GET", url)
        if members.get("issuer") != self._url:
            raise IssuerUnreachable(f"{url}: is that of another issuer, {str(members.get('issuer'))[:200]!r}")
        return Description(url, members)

    async def keys(self, description: Description) -> list[Any]:
        """The keys that sign tokens now, as JSON (RFC 7517); raises IssuerUnreachable."""
        url = description.endpoint("jwks_uri")
        keys = (await self.ask("GET", url)).get("keys")
        if not isinstance(keys, list):
            raise IssuerUnreachable(f"{url}: the answer has no keys")
        return keys

    async def ask(self, method: str, url: str, **how: Any) -> dict[str, Any]:
        """The JSON object of one answer of 200; raises IssuerUnreachable."""
        try:
            async with asyncio.timeout(LIMIT_S):
                status, body = await self._ask(method, url, how)
        except HTTP_ERRORS as error:
            self._certificates = None  # the issuer's may be by an authority that has been added since
            raise IssuerUnreachable(f"{url}: {type(error).__name__}") from None
        if status != httpx.codes.OK:
            raise IssuerUnreachable(f"{url}: answers {status}", status)
        try:
            members = json.loads(body)
        except (ValueError, RecursionError):
            members = None
        if not isinstance(members, dict):
            raise IssuerUnreachable(f"{url}: the answer is no JSON object")
        return members

    async def _ask(self, method: str, url: str, how: dict[str, Any]) -> tuple[int, bytes]:
        body = bytearray()
        headers = {"Accept": "application/json"}
        async with (
            httpx.AsyncClient(timeout=LIMIT_S, verify=self._verification(url)) as client,
            client.stream(method, url, headers=headers, **how) as answer,
        ):
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > ANSWER_BYTES_MAX:
                    raise httpx.DecodingError("the answer is too large")
        return answer.status_code, bytes(body)

    def _verification(self, url: str) -> ssl.SSLContext | bool:
        """Certificates are kept while they serve, and loaded only where the URL needs them: it takes 20 ms of CPU."""
        if not url.startswith("https:"):
            return False
        if self._certificates is None:
            self._certificates = httpx.create_ssl_context()
        return self._certificates
