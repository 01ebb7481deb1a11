"""People sign in by the issuer: authorization code flow with PKCE, bound to the browser by a cookie of ten minutes.

`/oidc/sign-in` sends the browser to the issuer; the issuer sends it to `/oidc/callback`, which begins a session.
serve keeps nothing in between: state, nonce and verifier are made of the random secret in the cookie.

Who has signed out here signs out at the issuer, too, where it names a page for that (OIDC RP-Initiated Logout 1.0).
serve keeps no ID token, so it sends none along (`id_token_hint`): the issuer may ask the person whether they mean it.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote_plus

import httpx
import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from streaming.errors import UsageProblem
from streaming.runtime.secrets import first_line
from streaming.serve.access.issuer import Description, IssuerTokens, IssuerUnreachable
from streaming.serve.access.sessions import is_secure, set_session_cookie
from streaming.serve.access.sign_in import Identity, SignIn, TokenRefused, address_of, identity_of, why_no_role
from streaming.serve.access.signing import OF_ADDRESS_MAX, TOO_MANY, Attempts, network_of
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.requests import TRY_AGAIN, Turns

NOT_KEPT = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
log = structlog.get_logger()
START, CALLBACK = "/oidc/sign-in", "/oidc/callback"
COOKIE = "rebalancer_oidc"
LIFE_S = 600
"""How long somebody may take at the issuer."""
SECRET = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
OWN_PATH = re.compile(r"/(?![/\\])[A-Za-z0-9._~/?=&%:@!,;+*'()-]{0,300}", re.ASCII)
"""A path of serve. Browsers take `//host` and `/\\host` for another site."""
CODE = re.compile(r"[\x21-\x7e]{1,4096}", re.ASCII)
ERROR_CODE = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
USED_MAX = 10_000
ID_TYPES = (None, "jwt")
BEGIN_AGAIN = "go back to the page and begin again"
PATH = "/oidc/sign-out"
ENDPOINT = "end_session_endpoint"
STILL_THERE = "you are signed out here; serve can't reach the issuer now, so you may still be signed in there"


def to_issuer(endpoint: str, asked: Mapping[str, str]) -> RedirectResponse:
    """To a page of the issuer, with these parameters besides those that its URL has."""
    return RedirectResponse(str(httpx.URL(endpoint).copy_merge_params(asked)), 303, NOT_KEPT)


def url_here(request: Request, path: str) -> str:
    """The URL of a path of serve, by the scheme and host that the browser named; `CALLBACK` is registered so at the
    issuer."""
    return f"{request.url.scheme}://{request.url.netloc}{path}"


class CodeFlow:
    """Both routes of the sign-in by the issuer, and the secrets that were used, each of which signs in once. Runs on
    the event loop alone.
    """

    def __init__(self, tokens: IssuerTokens, sign_in: SignIn, clock: Callable[[], int]) -> None:
        self._tokens = tokens
        self._settings = sign_in.settings
        self._client_id = sign_in.settings.oidc_client_id or ""
        self._sessions = sign_in.sessions
        self._clock = clock
        self._turns = Turns("sign-in")
        self._attempts = Attempts(OF_ADDRESS_MAX)
        self._used: OrderedDict[str, None] = OrderedDict()
        self._failure: str | None = None

    def routes(self) -> list[Route]:
        """Returns the routes where the browser begins and where the issuer sends the browser back to."""
        return [Route(START, self.start, methods=["GET"]), Route(CALLBACK, self.finish, methods=["GET"])]

    async def start(self, request: Request) -> Response:
        """Send the browser to the issuer; `return_to` is the path of serve that is shown afterwards."""
        return_to = request.query_params.get("return_to", "/")
        if not OWN_PATH.fullmatch(return_to):
            raise ApiProblem(400, "return_to: must be a path of serve, like /")
        description = await self._tokens.description(self._clock)
        try:
            endpoint = description.endpoint("authorization_endpoint")
        except IssuerUnreachable as error:
            raise self._unreachable(error) from None
        secret = secrets.token_urlsafe(32)
        challenge = _base64(hashlib.sha256(derived(secret, "verifier").encode()).digest())
        asked = {
            "response_type": "code", "client_id": self._client_id, "redirect_uri": url_here(request, CALLBACK),
            "scope": "openid profile", "state": derived(secret, "state"), "nonce": derived(secret, "nonce"),
            "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        answer = to_issuer(endpoint, asked)
        # Lax: a cookie that is Strict does not come along when the issuer sends the browser back.
        answer.set_cookie(flow_cookie(request), f"{secret}.{_base64(return_to.encode())}", path="/", max_age=LIFE_S,
                          secure=is_secure(request), httponly=True, samesite="lax")  # fmt: skip
        return answer

    async def finish(self, request: Request) -> Response:
        """Begin a session for whom the issuer names. Raises ApiProblem 400, 401, 403, 429, 503."""
        secret, return_to = _begun(request)
        if not _equal(request.query_params.get("state", ""), derived(secret, "state")):
            raise ApiProblem(403, f"this sign-in did not begin in this browser: {BEGIN_AGAIN}")
        try:
            identity = await self._identity(request, secret)
            answer = self._signed_in(request, identity, return_to)
        except ApiProblem as problem:
            problem.headers = {**(problem.headers or {}), "Set-Cookie": _without_cookie(request), **NOT_KEPT}
            raise
        answer.headers.append("Set-Cookie", _without_cookie(request))
        return answer

    async def _identity(self, request: Request, secret: str) -> Identity:
        network, now_ms = network_of(address_of(request)), self._clock()
        if not self._attempts.take(network, now_ms=now_ms):
            raise ApiProblem(429, "too many sign-ins from this address: try again later", headers=TOO_MANY)
        code = self._code(request)
        self._use_once(secret)
        with self._turns.place():
            description = await self._tokens.description(self._clock)
            id_token = await self._id_token(description, request, code, secret)
            await self._tokens.fetch_keys_for(id_token, self._clock)
        try:
            claims = self._tokens.verified(id_token, self._client_id, now_ms=self._clock(), types=ID_TYPES)
            if not _equal(claims.get("nonce"), derived(secret, "nonce")):
                raise TokenRefused("its nonce is not that of this sign-in")
            if claims.get("azp", self._client_id) != self._client_id:
                raise TokenRefused("it was made for another client (azp)")
            identity = identity_of(claims, self._settings)
        except TokenRefused as error:
            log.warning("sign_in_refused", remote_address=address_of(request), reason=str(error))
            raise ApiProblem(401, f"the ID token of the issuer is not valid: {error}") from None
        self._attempts.give_back(network, taken_ms=now_ms)
        self._failure = None
        return identity

    def _code(self, request: Request) -> str:
        given = request.query_params
        # RFC 9207: the answer of another issuer must not be taken for that of this one.
        if given.get("iss", self._settings.oidc_issuer) != self._settings.oidc_issuer:
            raise ApiProblem(403, f"the answer comes from another issuer: {BEGIN_AGAIN}")
        error = given.get("error")
        if error is not None:
            shown = error if ERROR_CODE.fullmatch(error) else "with an error that is none"
            log.warning("sign_in_refused", remote_address=address_of(request), reason=f"the issuer: {shown}")
            raise ApiProblem(403, f"the issuer refuses the sign-in: {shown}")
        code = given.get("code", "")
        if not CODE.fullmatch(code):
            raise ApiProblem(400, f"code: is missing or malformed: {BEGIN_AGAIN}")
        return code

    def _use_once(self, secret: str) -> None:
        key = derived(secret, "used")
        if key in self._used:
            raise ApiProblem(403, f"this sign-in has ended already: {BEGIN_AGAIN}")
        self._used[key] = None
        if len(self._used) > USED_MAX:
            self._used.popitem(last=False)

    async def _id_token(self, description: Description, request: Request, code: str, secret: str) -> str:
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": url_here(request, CALLBACK),
            "code_verifier": derived(secret, "verifier"),
        }  # fmt: skip
        try:
            how = self._client_login(description, form)
            answer = await self._tokens.issuer.ask("POST", description.endpoint("token_endpoint"), **how)
        except (IssuerUnreachable, UsageProblem) as error:
            if isinstance(error, IssuerUnreachable) and error.status in (400, 401, 403):
                log.warning("sign_in_refused", remote_address=address_of(request), reason=str(error))
                detail = f"the issuer does not take the code; are client id and secret right? Else {BEGIN_AGAIN}"
                raise ApiProblem(403, detail) from None
            raise self._unreachable(error) from None
        id_token = answer.get("id_token")
        if not isinstance(id_token, str):
            raise ApiProblem(401, f"the answer of the issuer has no ID token: {BEGIN_AGAIN}")
        return id_token

    def _client_login(self, description: Description, form: dict[str, str]) -> dict[str, Any]:
        """How the client shows who it is (RFC 6749, 2.3.1), as arguments of httpx; raises UsageProblem."""
        file = self._settings.oidc_client_secret_file
        if file is None:
            return {"data": {**form, "client_id": self._client_id}}
        own = first_line(file, "serve.oidc_client_secret_file").strip()
        methods = description.members.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if isinstance(methods, list) and "client_secret_basic" in methods:
            return {"data": form, "auth": (quote_plus(self._client_id), quote_plus(own))}
        return {"data": {**form, "client_id": self._client_id, "client_secret": own}}

    def _unreachable(self, error: Exception) -> ApiProblem:
        if self._failure != str(error):  # once: whoever asks could fill the log
            log.warning("issuer_unreachable", error=str(error))
        self._failure = str(error)
        return ApiProblem(
            503, "serve can't reach the issuer now: see the log of serve, then sign in again", headers=TRY_AGAIN
        )

    def _signed_in(self, request: Request, identity: Identity, return_to: str) -> Response:
        if not identity.roles:
            self._sessions.end_of_subject(identity.subject)
            log.warning("no_role", actor=identity.name, signed_in_by=identity.signed_in_by)
            raise ApiProblem(403, why_no_role(identity, self._settings))
        # As with a password: always a new id, and an end to the one before.
        self._sessions.end(request)
        secret, session = self._sessions.begin_of_subject(
            identity.subject, identity.name, identity.roles, now_ms=self._clock()
        )
        log.info("signed_in", actor=session.name, roles=str(session.roles), session_id=session.session_id,
                 signed_in_by=session.signed_in_by, remote_address=address_of(request))  # fmt: skip
        answer = RedirectResponse(return_to, 303, NOT_KEPT)
        set_session_cookie(request, answer, secret)
        return answer


def derived(secret: str, what: str) -> str:
    """One of the values that the secret stands for: who sees it learns neither the secret nor another value."""
    return _base64(hmac.digest(secret.encode(), what.encode(), "sha256"))


def flow_cookie(request: Request) -> str:
    """Over TLS a name that no other host can set, as that of the session."""
    return f"__Host-{COOKIE}" if is_secure(request) else COOKIE


def _begun(request: Request) -> tuple[str, str]:
    """(Secret, path to show) of the cookie; raises ApiProblem 403 where there is none."""
    secret, _, packed = request.cookies.get(flow_cookie(request), "").partition(".")
    try:
        return_to = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)).decode("ascii")
    except ValueError:
        return_to = ""
    if not SECRET.fullmatch(secret) or not OWN_PATH.fullmatch(return_to):
        raise ApiProblem(403, f"no sign-in began in this browser within {LIFE_S // 60} minutes: {BEGIN_AGAIN}")
    return secret, return_to


def _without_cookie(request: Request) -> str:
    answer = Response()
    answer.delete_cookie(flow_cookie(request), path="/", secure=is_secure(request), httponly=True, samesite="lax")
    return answer.headers["set-cookie"]


def _equal(given: object, expected: str) -> bool:
    return isinstance(given, str) and hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


class SignOut:
    """The route to which the page goes once the session has ended; it changes nothing here."""

    def __init__(self, tokens: IssuerTokens, client_id: str, clock: Callable[[], int]) -> None:
        self._tokens = tokens
        self._client_id = client_id
        self._clock = clock

    def routes(self) -> list[Route]:
        """Returns the route at which the browser signs out."""
        return [Route(PATH, self.leave, methods=["GET"])]

    async def leave(self, request: Request) -> Response:
        """Send the browser to the issuer, which sends it back to the page; without such an issuer to the page at once.

        Raises ApiProblem 503 where the issuer is not known now.
        """
        try:
            description = await self._tokens.description(self._clock)
            if ENDPOINT not in description.members:
                return RedirectResponse("/", 303, NOT_KEPT)
            endpoint = description.endpoint(ENDPOINT)
        except (ApiProblem, IssuerUnreachable):
            raise ApiProblem(503, STILL_THERE, headers=TRY_AGAIN) from None
        asked = {"client_id": self._client_id, "post_logout_redirect_uri": url_here(request, "/")}
        return to_issuer(endpoint, asked)
