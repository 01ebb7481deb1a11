"""Tokens of the issuer (JWT): its description and keys over the network, then signature, `iss`, `aud`, `exp`, `nbf`.

Each request to the issuer has limits of time and bytes. Keys are kept. Whoever verifies never waits for the network:
`FreshKeys` fetches keys before a request is looked at.
"""

import asyncio
import base64
import json
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import structlog
from joserfc import jws, jwt
from joserfc.errors import ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import JWKRegistry, Key
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.errors import RebalancerError
from streaming.runtime.http_answers import HTTP_ERRORS
from streaming.serve.access.sign_in import TokenRefused, bearer_jwt
from streaming.serve.api.problems import ApiProblem
from streaming.settings.serve import is_safe

LIMIT_S = 5.0
"""Time limit of one request to the issuer, seconds, with all that belongs to it: the name, the connection, the answer
to its end.
"""
ANSWER_BYTES_MAX = 512 * 1024
DESCRIPTION = "/.well-known/openid-configuration"
log = structlog.get_logger()
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "Ed448")
"""Signatures by a key pair alone: with a shared secret (HS256) who verifies could sign, and `none` signs nothing."""
KEY_TYPES = ("RSA", "EC", "OKP")
RSA_BITS_MIN = 2_048
KEYS_MAX = 100
TOKEN_LENGTH_MAX = 16_384
LEEWAY_S = 60
"""How far the clocks of issuer and serve may differ, seconds."""
ASKED_AGAIN_MS = 60_000
"""The issuer is asked for keys at most so often, whatever tokens come."""
KEYS_FRESH_MS = 600_000
"""Age above which keys are fetched again, ms, so that a key that the issuer takes away stops being valid."""
KEYS_KEPT_MS = 86_400_000
"""How long keys hold while the issuer does not answer."""
ACCESS_TYPES = (None, "jwt", "at+jwt", "application/at+jwt")
"""`typ` of tokens for programs (RFC 9068, 4). Others, as those of a logout, sign nobody in."""


class IssuerUnreachable(RebalancerError):
    """The issuer does not answer, or not as an issuer does; the message names the URL and the reason."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the issuer's answer, if the status is what was wrong."""


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


class IssuerTokens:
    """Tokens of one issuer, and its keys as they were fetched last. `verified` is for many threads."""

    def __init__(self, url: str) -> None:
        self.issuer = Issuer(url)
        self._url = url
        self._registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = (
            TOKEN_LENGTH_MAX  # joserfc's own 512 bytes are too few for a certificate (x5c)
        )
        self._fetching = asyncio.Lock()
        self._keys: tuple[tuple[str | None, Key], ...] = ()
        self._description: Description | None = None
        self._fetched_ms: int | None = None
        self._asked_ms: int | None = None
        self._failure: str | None = None

    async def fetch_keys_for(self, text: str, clock: Callable[[], int]) -> None:
        """Ask the issuer for its keys if this token needs them and it is time; fails silently but for one log line."""
        # Who has the key of a request does not wait for another request that fetches.
        if not self._lacks_key(text, clock(), is_old_too=not self._fetching.locked()):
            return
        async with self._fetching:
            now_ms = clock()
            if self._lacks_key(text, now_ms, is_old_too=True):
                await self._fetch(now_ms)

    async def description(self, clock: Callable[[], int]) -> Description:
        """What the issuer says of itself, asked as seldom as for keys. Raises ApiProblem 503 where it is not known."""
        async with self._fetching:
            now_ms = clock()
            if self._is_time(now_ms) and not self._is_fresh(now_ms):
                await self._fetch(now_ms)
        if self._description is None:
            raise _no_keys()
        return self._description

    def verified(
        self, text: str, audience: str, *, now_ms: int, types: Collection[str | None] = ACCESS_TYPES
    ) -> Mapping[str, Any]:
        """The claims of a token that holds. Raises TokenRefused, and ApiProblem 503 where the keys are not known."""
        header = self._header(text)
        keys = self._known_keys(now_ms)
        key = _key_with(keys, header.get("kid"))
        if key is None and self._failure is not None:
            raise _no_keys()
        if key is None:
            raise TokenRefused("its key is none of the issuer's")
        typ = header.get("typ")
        if (typ.lower() if isinstance(typ, str) else typ) not in types:
            raise TokenRefused("its typ is not that of a token to sign in with")
        try:
            claims = jwt.decode(text, key, registry=self._registry).claims
            expected = jwt.JWTClaimsRegistry(
                now=now_ms // 1000,
                leeway=LEEWAY_S,
                iss={"essential": True, "value": self._url},
                aud={"essential": True, "value": audience},
                exp={"essential": True},
                sub={"essential": True},
            )
            expected.validate(claims)
        except ExpiredTokenError:
            raise TokenRefused("it has expired") from None
        except ClaimError as error:
            raise TokenRefused(f"its claim {str(error.claim)[:40]} is missing or does not fit") from None
        except (JoseError, ValueError, TypeError, KeyError, RecursionError):
            raise TokenRefused("its signature does not hold") from None
        return claims

    def _header(self, text: str) -> dict[str, Any]:
        if len(text) > TOKEN_LENGTH_MAX:
            raise TokenRefused(f"it is longer than {TOKEN_LENGTH_MAX} characters")
        try:
            header = jws.extract_compact(text.encode(), registry=self._registry).headers()
        except (JoseError, ValueError, TypeError, RecursionError):
            raise TokenRefused("it is no signed JWT") from None
        if not isinstance(header, dict) or header.get("alg") not in ALGORITHMS:
            raise TokenRefused(f"its alg is not allowed; allowed are {', '.join(ALGORITHMS)}")
        return header

    def _known_keys(self, now_ms: int) -> tuple[tuple[str | None, Key], ...]:
        if self._fetched_ms is None or now_ms - self._fetched_ms > KEYS_KEPT_MS:
            raise _no_keys()
        return self._keys

    def _lacks_key(self, text: str, now_ms: int, *, is_old_too: bool) -> bool:
        """Whether to fetch; `is_old_too`: also where the key is known but may have been taken away."""
        if not self._is_time(now_ms):
            return False
        try:
            header = self._header(text)
        except TokenRefused:
            return False
        if self._fetched_ms is None or _key_with(self._keys, header.get("kid")) is None:
            return True
        return is_old_too and not self._is_fresh(now_ms)

    def _is_time(self, now_ms: int) -> bool:
        return self._asked_ms is None or not 0 <= now_ms - self._asked_ms < ASKED_AGAIN_MS

    def _is_fresh(self, now_ms: int) -> bool:
        return self._fetched_ms is not None and 0 <= now_ms - self._fetched_ms < KEYS_FRESH_MS

    async def _fetch(self, now_ms: int) -> None:
        self._asked_ms = now_ms
        try:
            description = await self.issuer.description()
            keys = _sound_keys(await self.issuer.keys(description))
            if not keys:
                raise IssuerUnreachable(f"{self._url}: none of its keys can verify a token")
        except IssuerUnreachable as error:
            if self._failure != str(error):  # once, not each minute
                log.warning("issuer_unreachable", error=str(error))
            self._failure = str(error)
            return
        if self._failure is not None:
            log.info("issuer_answers_again", issuer=self._url)
        self._description = description
        self._keys, self._fetched_ms, self._failure = keys, now_ms, None


class FreshKeys:
    """ASGI middleware: fetches keys for the token of a request where it is time, before anybody looks at the token."""

    def __init__(self, app: ASGIApp, tokens: IssuerTokens, clock: Callable[[], int]) -> None:
        self._app = app
        self._tokens = tokens
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] == "http":
            text = bearer_jwt(Request(scope).headers.get("authorization", ""))
            if text is not None:
                await self._tokens.fetch_keys_for(text, self._clock)
        await self._app(scope, receive, send)


def _key_with(keys: tuple[tuple[str | None, Key], ...], key_id: object) -> Key | None:
    """The key with this id. A token may leave the id out if there is one key (OpenID Connect Core 1.0, 10.1)."""
    if key_id is None:
        return keys[0][1] if len(keys) == 1 else None
    return next((key for own, key in keys if own == key_id), None)


def _sound_keys(rows: list[Any]) -> tuple[tuple[str | None, Key], ...]:
    """(id, key) of those that may verify a signature: public ones, for signatures, and long enough."""
    sound: list[tuple[str | None, Key]] = []
    for row in rows[:KEYS_MAX]:
        if not isinstance(row, dict) or row.get("kty") not in KEY_TYPES or row.get("use", "sig") != "sig":
            continue
        key_id = row.get("kid")
        try:
            if row["kty"] == "RSA" and _bits(row["n"]) < RSA_BITS_MIN:
                continue
            key = JWKRegistry.import_key(row)
        except (JoseError, ValueError, TypeError, KeyError):  # one of a kind that joserfc does not know
            continue
        sound.append((key_id if isinstance(key_id, str) else None, key))
    return tuple(sound)


def _bits(number: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()


def _no_keys() -> ApiProblem:
    detail = "serve has no keys of serve.oidc_issuer, which does not answer: see the log of serve, then try again"
    return ApiProblem(503, detail, headers={"Retry-After": str(ASKED_AGAIN_MS // 1000)})
