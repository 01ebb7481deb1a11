"""`/api/v1/session`: people sign in with name and password, see who is signed in, and sign out.

Wrong passwords have a bound: so many for a user and for an address, in a span of time. In memory, of this process.
"""

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streaming.runtime.accounts import PASSWORD_LENGTH_MAX, Roles, User, check_name
from streaming.serve.access.sessions import Session, cookie_name, is_secure, set_session_cookie
from streaming.serve.access.sign_in import HOW_TO_TURN_ON, SignIn, address_of, check_of_session
from streaming.serve.api.pages import as_json
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.requests import Turns, check_origin, read_body

KEYS_MAX = 10_000
"""Users or addresses remembered; beyond, the one that tried longest ago is forgotten."""
SPAN_MS = 300_000
TOO_MANY = {"Retry-After": str(SPAN_MS // 1000)}
"""Header of an answer of 429."""
OF_USER_MAX = 10
OF_ADDRESS_MAX = 20
"""Attempts that an address may make, more than a user may: an address may be that of many people."""
OTHER_LENGTH_MAX = 64
"""Characters kept of an address that is none of IP: a proxy may pass any text on."""
log = structlog.get_logger()
PATH = "/api/v1/session"
HOW_TO_SIGN_IN = (
    "nobody can sign in with a password: set serve.users_file, and add people with "
    "`rebalancer user add NAME --role operator`"
)
WRONG = "name or password is wrong"


class Attempts:
    """Attempts of the last `SPAN_MS`, by key; each is counted before it is known whether it is wrong."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, list[int]] = OrderedDict()

    def take(self, key: str, *, now_ms: int) -> bool:
        """Count one more; False, and nothing is counted, where there were too many."""
        times = [time for time in self._times.get(key, ()) if time > now_ms - SPAN_MS]
        is_allowed = len(times) < self._most
        self._times[key] = [*times, now_ms] if is_allowed else times
        self._times.move_to_end(key)
        if len(self._times) > KEYS_MAX:
            self._times.popitem(last=False)
        return is_allowed

    def give_back(self, key: str, *, taken_ms: int) -> None:
        """Takes back an attempt that was right. Others stay counted: whoever knows one password must not get to guess
        others.
        """
        times = self._times.get(key, [])
        if taken_ms in times:
            times.remove(taken_ms)


def network_of(address: str) -> str:
    """What one person can choose addresses in: a single IPv4 address, the /64 of an IPv6 address.

    >>> network_of("10.0.0.1"), network_of("::ffff:10.0.0.1"), network_of("2001:db8::1:2:3:4")
    ('10.0.0.1', '10.0.0.1', '2001:db8::/64')
    >>> len(network_of("x" * 1000))
    64
    """
    try:
        own = ipaddress.ip_address(address)
    except ValueError:
        return address[:OTHER_LENGTH_MAX]  # a socket of this machine, or whatever a proxy passes on
    if own.version == 4:
        return str(own)
    if own.ipv4_mapped is not None:
        return str(own.ipv4_mapped)
    return str(ipaddress.ip_network((int(own) >> 64 << 64, 64)))


class Signing:
    """Begins and ends sessions; one password is hashed at a time, as each takes a core and 16 MiB."""

    def __init__(self, sign_in: SignIn, clock: Callable[[], int]) -> None:
        self._sign_in = sign_in
        self._sessions = sign_in.sessions
        self._clock = clock
        self._turns = Turns("sign-in")
        self._lock = threading.Lock()
        self._of_user, self._of_address = Attempts(OF_USER_MAX), Attempts(OF_ADDRESS_MAX)

    def routes(self, cluster: str | None) -> list[Route]:
        """Returns a route for each method. Answers name the role on `cluster`; None: the role on every cluster."""

        def show(request: Request) -> Response:
            return self.show(request, cluster)

        async def begin(request: Request) -> Response:
            return await self.begin(request, cluster)

        return [
            Route(PATH, show, methods=["GET"]),
            Route(PATH, begin, methods=["POST"]),
            Route(PATH, self.end, methods=["DELETE"]),
        ]

    def show(self, request: Request, cluster: str | None) -> Response:
        """Who is signed in, and what a request that acts needs; counts as a use of the session."""
        if "authorization" in request.headers:
            by_token = self._sign_in.signed_in(request, now_ms=self._clock())
            return _answer(self._nobody() | _named(by_token.name, by_token.roles, by_token.signed_in_by, cluster))
        session = self._sessions.find(request, now_ms=self._clock(), is_used=True)
        return _answer(self._nobody() if session is None else self._described(session, cluster))

    async def begin(self, request: Request, cluster: str | None) -> Response:
        """Sign in with name and password; the answer sets the cookie."""
        if not self._sessions.is_on:
            raise ApiProblem(403, HOW_TO_SIGN_IN)
        check_origin(request)
        _, body = await read_body(request)
        name, password = _given(body)
        network, now_ms = network_of(address_of(request)), self._clock()
        with self._turns.place():
            self._count(name, network, now_ms)
            user = await run_in_threadpool(self._user, name, password)
        if user is None:
            log.warning("sign_in_refused", remote_address=address_of(request))
            raise ApiProblem(401, WRONG)
        with self._lock:
            self._of_user.give_back(name, taken_ms=now_ms)
            self._of_address.give_back(network, taken_ms=now_ms)
        return self._begun(request, user, cluster)

    def end(self, request: Request) -> Response:
        """Sign out."""
        session = self._sessions.find(request, now_ms=self._clock())
        if session is not None:
            check_of_session(request, session)
            self._sessions.end(request)
            log.info("signed_out", actor=session.name, session_id=session.session_id)
        answer = _answer(self._nobody())
        answer.delete_cookie(
            cookie_name(request), path="/", secure=is_secure(request), httponly=True, samesite="strict"
        )
        return answer

    def _user(self, name: str, password: str) -> User | None:
        with self._turns.turn():
            try:
                return self._sessions.user(name, password)
            except ValueError:
                raise ApiProblem(400, "password: must be Unicode text") from None

    def _begun(self, request: Request, user: User, cluster: str | None) -> Response:
        # Always a new id, and an end to the one before: an id that somebody else knows is worth nothing.
        self._sessions.end(request)
        secret, session = self._sessions.begin(user, now_ms=self._clock())
        log.info("signed_in", actor=user.name, roles=str(user.roles), session_id=session.session_id,
                 remote_address=address_of(request))  # fmt: skip
        answer = _answer(self._described(session, cluster))
        set_session_cookie(request, answer, secret)
        return answer

    def _count(self, name: str, network: str, now_ms: int) -> None:
        with self._lock:
            is_allowed = self._of_address.take(network, now_ms=now_ms) and self._of_user.take(name, now_ms=now_ms)
        if not is_allowed:
            raise ApiProblem(
                429, "too many wrong passwords for this name or from this address: try again later", headers=TOO_MANY
            )

    def _described(self, session: Session, cluster: str | None) -> dict[str, Any]:
        return (
            self._nobody()
            | _named(session.name, session.roles, session.signed_in_by, cluster)
            | {
                "csrf_token": session.csrf_token,
                "ends_in_ms": self._sessions.ends_in_ms(session, now_ms=self._clock()),
            }
        )

    def _nobody(self) -> dict[str, Any]:
        is_on = self._sessions.is_on or self._sign_in.by_issuer
        detail = "not signed in" if is_on else HOW_TO_SIGN_IN
        return {
            "signed_in": False,
            "name": None,
            "role": None,
            "roles": {},
            "signed_in_by": None,
            "csrf_token": None,
            "ends_in_ms": None,
            "by_password": self._sessions.is_on,
            "by_issuer": self._sign_in.by_issuer,
            "detail": detail if self._sign_in.is_on else HOW_TO_TURN_ON,
        }


def _named(name: str, roles: Roles, signed_in_by: str, cluster: str | None) -> dict[str, Any]:
    """Returns who is signed in, as an answer of one cluster, or of what all clusters share (None), has it."""
    role = roles.elsewhere if cluster is None else roles.on(cluster)
    has_none = cluster is not None and role is None
    return {
        "signed_in": True,
        "name": name,
        "role": role,
        "roles": roles.by_cluster if cluster is None else {},
        "signed_in_by": signed_in_by,
        "detail": f"signed in, without a role on cluster {cluster}" if has_none else "signed in",
    }


def _given(body: Mapping[str, Any]) -> tuple[str, str]:
    if set(body) != {"name", "password"}:
        raise ApiProblem(400, "the body must have the members name and password, and no others")
    name, password = body["name"], body["password"]
    if not isinstance(name, str) or not isinstance(password, str):
        raise ApiProblem(400, "name and password must be texts")
    try:
        check_name(name)
    except ValueError as error:
        raise ApiProblem(400, str(error)) from None
    if not 1 <= len(password) <= PASSWORD_LENGTH_MAX:
        raise ApiProblem(400, f"password: must have 1 to {PASSWORD_LENGTH_MAX} characters")
    return name, password


def _answer(body: Mapping[str, Any]) -> Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Cookie, Authorization"}
    return Response(as_json(body), headers=headers, media_type="application/json")
