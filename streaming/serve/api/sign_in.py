"""Who asks: bearer tokens of `serve.tokens_file` or of `serve.oidc_issuer`, sessions, and a limit on wrong tokens."""

import hmac
import threading
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from starlette.requests import Request

from streaming.runtime.api_tokens import Role, read_tokens, token_id_of
from streaming.serve.api.problems import Problem
from streaming.serve.api.requests import check_own_page
from streaming.serve.api.sessions import Session, Sessions, is_secure
from streaming.serve.api.watched import Watched
from streaming.serve.oidc.identity import TokenRefused, bearer_jwt, identity_of, why_no_role
from streaming.settings import ServeSettings

if TYPE_CHECKING:
    from streaming.serve.oidc.tokens import IssuerTokens

log = structlog.get_logger()

WRONG_MAX = 10
"""Wrong tokens of one address in `WRONG_SPAN_MS`; after that its wrong ones get 429. A right one is never refused: an
address may be that of many people, and a secret of 256 bits can't be guessed at any rate."""
WRONG_SPAN_MS = 60_000
ADDRESSES_MAX = 10_000
ADDRESS_LENGTH_MAX = 64
"""A proxy may pass any text on."""
CSRF_HEADER = "X-CSRF-Token"
NOBODY = "no token and no session that holds: send `Authorization: Bearer TOKEN`, or sign in on the page"

HOW_TO_TURN_ON = (
    "acting is off, as nobody can sign in: set serve.tokens_file, make a token with "
    "`rebalancer token create NAME --role operator`, and send it as `Authorization: Bearer TOKEN`; or, for people on "
    "the page, set serve.users_file and add them with `rebalancer user add NAME --role operator`; or set "
    "serve.oidc_issuer, whose tokens serve then believes"
)


@dataclass(frozen=True, slots=True)
class Person:
    """Who is signed in, and how: a person or a program."""

    name: str
    role: Role
    signed_in_by: str
    """For the audit: `token ID`, `session ID`, or `oidc SUBJECT`."""
    remote_address: str


class SignIn:
    """Looks tokens and sessions up, in the files as they are now. For many threads. Without files nobody signs in."""

    def __init__(self, settings: ServeSettings) -> None:
        self.sessions = Sessions(settings)
        self.issuer_tokens = _issuer_tokens(settings)
        """None: no issuer is believed."""
        self.settings = settings
        self._tokens = Watched(settings.tokens_file, read_tokens, "tokens")
        self._lock = threading.Lock()
        self._wrong: OrderedDict[str, deque[int]] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether anybody can sign in."""
        return self._tokens.is_set or self.sessions.is_on or self.issuer_tokens is not None

    @property
    def by_issuer(self) -> bool:
        """Whether people can sign in on the page by the issuer."""
        return self.issuer_tokens is not None and self.settings.oidc_client_id is not None

    def reader(self, request: Request, *, now_ms: int) -> Person:
        """Who reads; raises Problem 401 for nobody, 429 after many wrong tokens, 503 where files can't be read.

        Of the issuer also 403 for somebody without a role, and 503 while its keys are not known. Never asks it.
        """
        if "authorization" in request.headers:
            return self._by_token(request, now_ms)
        session = self.sessions.find(request, now_ms=now_ms)
        if session is None:
            raise _unauthorized(NOBODY)
        return _person(request, session)

    def actor(self, request: Request, *, now_ms: int) -> Person:
        """Who acts; raises Problem as `reader` does, and 403 for a session where the page has not sent the request.

        A browser adds cookies by itself, also for pages of others; it never adds a token.
        """
        if "authorization" in request.headers:
            return self._by_token(request, now_ms)
        session = self.sessions.find(request, now_ms=now_ms)
        if session is None:
            raise _unauthorized(NOBODY)
        check_of_session(request, session)
        self.sessions.find(request, now_ms=now_ms, is_used=True)
        return _person(request, session)

    def _by_token(self, request: Request, now_ms: int) -> Person:
        scheme, _, text = request.headers["authorization"].partition(" ")
        if not text:
            raise _unauthorized("no token: send `Authorization: Bearer TOKEN`")
        text, address, of_issuer = text.strip(), address_of(request), bearer_jwt(request.headers["authorization"])
        if self.issuer_tokens is not None and of_issuer is not None:
            return self._by_issuer(self.issuer_tokens, of_issuer, address, now_ms)
        with self._lock:
            known = self._tokens.now().get(token_id_of(text) or "") if scheme.lower() == "bearer" else None
            if known is not None and known.fits(text, now_ms=now_ms):
                return Person(known.name, known.role, f"token {known.token_id}", address)
            raise self._refused(address, now_ms)

    def _by_issuer(self, tokens: "IssuerTokens", text: str, address: str, now_ms: int) -> Person:
        try:
            if self.settings.oidc_audience is None:
                raise TokenRefused("serve.oidc_audience is not set, so none is taken")
            claims = tokens.verified(text, self.settings.oidc_audience, now_ms=now_ms)
            identity = identity_of(claims, self.settings)
        except TokenRefused as error:
            with self._lock:
                raise self._refused(address, now_ms, f"the token of the issuer does not hold: {error}") from None
        if identity.role is None:
            log.warning("no_role", actor=identity.name, signed_in_by=identity.signed_in_by)
            raise Problem(403, why_no_role(identity, self.settings))
        return Person(identity.name, identity.role, identity.signed_in_by, address)

    def _refused(self, address: str, now_ms: int, why: str = "the token is unknown, revoked or expired") -> Problem:
        times = self._wrong.setdefault(address, deque(maxlen=WRONG_MAX + 1))
        self._wrong.move_to_end(address)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)
        while times and times[0] <= now_ms - WRONG_SPAN_MS:
            times.popleft()
        times.append(now_ms)
        if len(times) <= WRONG_MAX:
            log.warning("token_refused", remote_address=address, reason=why)
            return _unauthorized(why)
        return Problem(429, "too many wrong tokens", headers={"Retry-After": str(WRONG_SPAN_MS // 1000)})


def check_of_session(request: Request, session: Session) -> None:
    """Raises Problem 403 for what acts by a cookie and does not come from the page of this session."""
    check_own_page(request, needs_tls=is_secure(request))
    given = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), session.csrf_token.encode()):
        raise Problem(403, f"{CSRF_HEADER}: is missing or not that of the session; GET /api/v1/session has it")


def address_of(request: Request) -> str:
    """The address that asks, behind trusted proxies that of their client."""
    return request.client.host[:ADDRESS_LENGTH_MAX] if request.client else "unknown"


def _issuer_tokens(settings: ServeSettings) -> "IssuerTokens | None":
    """Imported only where it is used: the library takes 0.2 s."""
    if settings.oidc_issuer is None:
        return None
    from streaming.serve.oidc.tokens import IssuerTokens

    return IssuerTokens(settings.oidc_issuer)


def _person(request: Request, session: Session) -> Person:
    return Person(session.name, session.role, session.signed_in_by, address_of(request))


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})
