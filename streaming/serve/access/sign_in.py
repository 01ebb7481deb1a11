"""Who asks, and what they may do on a cluster: bearer tokens of `serve.tokens_file` or of `serve.oidc_issuer`,
sessions, and a limit on wrong tokens.

The claims of a token of the issuer name somebody, and give roles. If `serve.reading` is `signed_in`, API and metrics
of a cluster require a token or a session with a role on this cluster. `SignIn` alone compares roles: `reader` and
`actor` are the only ways from a request to a person who may.
"""

import hmac
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.errors import RebalancerError
from streaming.runtime.accounts import NAME_LENGTH_MAX, Role, Roles, read_tokens, roles_of_claim, token_id_of
from streaming.serve.access.sessions import Session, Sessions, Watched, is_secure
from streaming.serve.api.problems import ApiProblem, answer_problem
from streaming.serve.api.requests import check_own_page
from streaming.settings import ServeSettings

if TYPE_CHECKING:
    from streaming.serve.access.issuer import IssuerTokens

SUBJECT_LENGTH_MAX = 255
"""OpenID Connect Core 1.0, 2."""
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
CLOSED = ("/api/", "/metrics")
"""Beginnings of paths. The page has no figures of its own; health tells nothing about the cluster."""
OPEN = frozenset({"/api/v1/session"})
"""Paths that are open without a sign-in, as people sign in there."""


class TokenRefused(RebalancerError):
    """A token that does not hold; the message says why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is named: `subject` never changes at the issuer; `name` is for people to read, and anybody may have it."""

    subject: str
    name: str
    roles: Roles
    """Roles that the claims give; false if the claims give none."""

    @property
    def signed_in_by(self) -> str:
        """The identity's name for the audit."""
        return f"oidc {self.subject}"


def bearer_jwt(authorization: str) -> str | None:
    """The JWT of an `Authorization` header; None if it has none. Our own API tokens have no dot."""
    scheme, _, text = authorization.partition(" ")
    text = text.strip()
    return text if scheme.lower() == "bearer" and "." in text else None


def identity_of(claims: Mapping[str, Any], settings: ServeSettings) -> Identity:
    """Whom verified claims name; raises TokenRefused where they name nobody."""
    subject = claims.get("sub")
    if not _is_text(subject, SUBJECT_LENGTH_MAX):
        raise TokenRefused(f"its sub is not 1 to {SUBJECT_LENGTH_MAX} printable characters")
    name = claims.get("preferred_username")
    shown = str(name if _is_text(name, NAME_LENGTH_MAX) else subject)[:NAME_LENGTH_MAX]
    values = [value for value in claim_values(claims, settings.oidc_role_claim) if value in settings.oidc_roles]
    return Identity(str(subject), shown, Roles.highest(roles_of_claim(settings, value) for value in values))


def why_no_role(identity: Identity, settings: ServeSettings) -> str:
    """What to tell somebody whom the issuer knows and who may do nothing."""
    return (
        f"{identity.name} ({identity.signed_in_by}) has no role here: "
        f"claim {settings.oidc_role_claim} has no value that serve.oidc_roles lists"
    )


def claim_values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Texts of a claim, which is one text or a list of them.

    >>> claim_values({"roles": ["a", 7, "b"]}, "roles"), claim_values({"role": "a"}, "role")
    (['a', 'b'], ['a'])
    >>> claim_values({"realm_access": {"roles": ["a"]}}, "realm_access.roles"), claim_values({"a.b": "c"}, "a.b")
    (['a'], ['c'])
    >>> claim_values({"roles": {"a": True}}, "roles"), claim_values({}, "a.b")
    ([], [])
    """
    value: Any = claims.get(name)
    if value is None:
        value = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
    values = value if isinstance(value, list) else [value]
    return [one for one in values if isinstance(one, str)]


def _is_text(value: object, length_max: int) -> bool:
    if not isinstance(value, str) or not 1 <= len(value) <= length_max:
        return False
    return value.isprintable() and value == value.strip()


@dataclass(frozen=True, slots=True)
class Person:
    """Who asks something of one cluster, with their role there, and how they signed in: a person or a program."""

    name: str
    role: Role
    signed_in_by: str
    """Who or what signed in, for the audit: `token ID`, `session ID`, or `oidc SUBJECT`."""
    remote_address: str


@dataclass(frozen=True, slots=True)
class SignedIn:
    """Who is signed in, with their roles on all clusters."""

    name: str
    roles: Roles
    signed_in_by: str
    remote_address: str

    def on(self, cluster: str) -> Person:
        """Returns the person with their role on this cluster. Raises ApiProblem 403 if they have none there."""
        role = self.roles.on(cluster)
        if role is None:
            raise ApiProblem(403, f"{self.name} has no role on cluster {cluster}, only {self.roles}")
        return Person(self.name, role, self.signed_in_by, self.remote_address)


class SignIn:
    """Looks tokens and sessions up, in the files as they are now. For many threads. Without files nobody signs in."""

    def __init__(self, settings: ServeSettings) -> None:
        self.sessions = Sessions(settings)
        self.issuer_tokens = _issuer_tokens(settings)
        """Tokens of the issuer; None if no issuer is believed."""
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

    def signed_in(self, request: Request, *, now_ms: int) -> SignedIn:
        """Returns who is signed in, with any role on any cluster; sends no request to the issuer.

        Raises ApiProblem 401 for nobody, 429 after many wrong tokens, 503 if files can't be read; with an issuer also
        403 for somebody without a role, and 503 while the issuer's keys are not known.
        """
        if "authorization" in request.headers:
            return self._by_token(request, now_ms)
        session = self.sessions.find(request, now_ms=now_ms)
        if session is None:
            raise _unauthorized(NOBODY)
        return _of_session(request, session)

    def reader(self, request: Request, cluster: str, *, now_ms: int) -> Person:
        """Returns who reads `cluster`. Raises ApiProblem as `signed_in` does, and 403 without a role there."""
        return self.signed_in(request, now_ms=now_ms).on(cluster)

    def actor(self, request: Request, cluster: str, *, now_ms: int) -> Person:
        """Returns who acts on `cluster`. Raises ApiProblem as `reader` does, 403 for a role that may not act there, and
        403 for a session if the page has not sent the request.

        A browser adds cookies by itself, also for pages of others; it never adds a token.
        """
        if "authorization" in request.headers:
            signed_in = self._by_token(request, now_ms)
        else:
            session = self.sessions.find(request, now_ms=now_ms)
            if session is None:
                raise _unauthorized(NOBODY)
            check_of_session(request, session)
            self.sessions.find(request, now_ms=now_ms, is_used=True)
            signed_in = _of_session(request, session)
        role = signed_in.roles.on(cluster)
        if role is None or not role.may(Role.OPERATOR):
            log.warning("act_refused", actor=signed_in.name, role=role and role.value, path=request.url.path,
                        kafka_cluster=cluster)  # fmt: skip
            shown = "no role" if role is None else f"role {role}"
            raise ApiProblem(403, f"{shown} on cluster {cluster} may not act: that needs role {Role.OPERATOR}")
        return signed_in.on(cluster)

    def may_see(self, request: Request, *, now_ms: int) -> Callable[[str], bool]:
        """Returns whether who reads may see a cluster, by its name, for what is of several clusters. Everybody may see
        every cluster unless `serve.reading` is `signed_in`. Raises ApiProblem as `signed_in` does.
        """
        if self.settings.reading != "signed_in":
            return lambda _cluster: True
        roles = self.signed_in(request, now_ms=now_ms).roles
        return lambda cluster: roles.on(cluster) is not None

    def _by_token(self, request: Request, now_ms: int) -> SignedIn:
        scheme, _, text = request.headers["authorization"].partition(" ")
        if not text:
            raise _unauthorized("no token: send `Authorization: Bearer TOKEN`")
        text, address, of_issuer = text.strip(), address_of(request), bearer_jwt(request.headers["authorization"])
        if self.issuer_tokens is not None and of_issuer is not None:
            return self._by_issuer(self.issuer_tokens, of_issuer, address, now_ms)
        with self._lock:
            known = self._tokens.now().get(token_id_of(text) or "") if scheme.lower() == "bearer" else None
            if known is not None and known.fits(text, now_ms=now_ms):
                return SignedIn(known.name, known.roles, f"token {known.token_id}", address)
            raise self._refused(address, now_ms)

    def _by_issuer(self, tokens: "IssuerTokens", text: str, address: str, now_ms: int) -> SignedIn:
        try:
            if self.settings.oidc_audience is None:
                raise TokenRefused("serve.oidc_audience is not set, so none is taken")
            claims = tokens.verified(text, self.settings.oidc_audience, now_ms=now_ms)
            identity = identity_of(claims, self.settings)
        except TokenRefused as error:
            with self._lock:
                raise self._refused(address, now_ms, f"the token of the issuer does not hold: {error}") from None
        if not identity.roles:
            log.warning("no_role", actor=identity.name, signed_in_by=identity.signed_in_by)
            raise ApiProblem(403, why_no_role(identity, self.settings))
        return SignedIn(identity.name, identity.roles, identity.signed_in_by, address)

    def _refused(self, address: str, now_ms: int, why: str = "the token is unknown, revoked or expired") -> ApiProblem:
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
        return ApiProblem(
            429,
            f"too many wrong tokens from this address: try again in {WRONG_SPAN_MS // 1000} s",
            headers={"Retry-After": str(WRONG_SPAN_MS // 1000)},
        )


def check_of_session(request: Request, session: Session) -> None:
    """Raises ApiProblem 403 for what acts by a cookie and does not come from the page of this session."""
    check_own_page(request, needs_tls=is_secure(request))
    given = request.headers.get(CSRF_HEADER, "")
    if not hmac.compare_digest(given.encode(), session.csrf_token.encode()):
        raise ApiProblem(403, f"{CSRF_HEADER}: is missing, or is not that of the session: GET /api/v1/session has it")


def address_of(request: Request) -> str:
    """The address that asks, behind trusted proxies that of their client."""
    return request.client.host[:ADDRESS_LENGTH_MAX] if request.client else "unknown"


def _issuer_tokens(settings: ServeSettings) -> "IssuerTokens | None":
    """Imported only where it is used: the library takes 0.2 s."""
    if settings.oidc_issuer is None:
        return None
    from streaming.serve.access.issuer import IssuerTokens

    return IssuerTokens(settings.oidc_issuer)


def _of_session(request: Request, session: Session) -> SignedIn:
    return SignedIn(session.name, session.roles, session.signed_in_by, address_of(request))


def _unauthorized(detail: str) -> ApiProblem:
    return ApiProblem(401, detail, headers={"WWW-Authenticate": "Bearer"})


class ClosedReading:
    """ASGI middleware: 401 without a token or session that holds, 403 without a role on the cluster."""

    def __init__(self, app: ASGIApp, sign_in: SignIn, clock: Callable[[], int], cluster: str | None) -> None:
        """`cluster` is None for what is of several clusters: any role on any of them reads, each answer filters."""
        self._app = app
        self._sign_in = sign_in
        self._clock = clock
        self._cluster = cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] == "http" and scope["path"].startswith(CLOSED) and scope["path"] not in OPEN:
            request = Request(scope)
            try:
                if self._cluster is None:
                    self._sign_in.signed_in(request, now_ms=self._clock())
                else:
                    self._sign_in.reader(request, self._cluster, now_ms=self._clock())
            except ApiProblem as problem:
                await answer_problem(request, problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)
