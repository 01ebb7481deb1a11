"""Who may ask, and how people sign in: one door to all of it.

`sign_in` knows who asks, by token or session; `sessions` keeps sessions, `signing` begins them with a password,
`code_flow` by the issuer, whose keys and tokens `issuer` has. joserfc is imported there alone, and only where an issuer
is believed: it takes 0.2 s.
"""

from collections.abc import Callable

from starlette.middleware import Middleware
from starlette.routing import Route

from streaming.serve.access.sessions import COOKIE
from streaming.serve.access.sign_in import (
    CSRF_HEADER,
    HOW_TO_TURN_ON,
    ClosedReading,
    Person,
    SignIn,
    address_of,
)
from streaming.serve.access.signing import PATH as SESSION_PATH
from streaming.serve.access.signing import Signing, network_of

__all__ = [
    "COOKIE",
    "CSRF_HEADER",
    "HOW_TO_TURN_ON",
    "SESSION_PATH",
    "Person",
    "SignIn",
    "address_of",
    "middleware",
    "network_of",
    "routes_of",
]


def routes_of(sign_in: SignIn, clock: Callable[[], int]) -> Callable[[str | None], list[Route]]:
    """Returns a function from a cluster to the routes by which people sign in and out there: with a password, and by
    the issuer if an issuer is set up. The routes of all clusters, and those of no cluster (None), share their limits.
    """
    signing = Signing(sign_in, clock)
    tokens = sign_in.issuer_tokens
    if tokens is None or not sign_in.by_issuer:
        return signing.routes
    from streaming.serve.access.code_flow import CodeFlow, SignOut

    flow, leaving = CodeFlow(tokens, sign_in, clock), SignOut(tokens, sign_in.settings.oidc_client_id or "", clock)
    of_issuer = [*flow.routes(), *leaving.routes()]
    return lambda cluster: [*signing.routes(cluster), *of_issuer]


def middleware(sign_in: SignIn, clock: Callable[[], int], cluster: str | None) -> list[Middleware]:
    """Returns what checks each request first, for the application of `cluster`, or of what all clusters share (None).
    If `serve.reading` is `signed_in`, only who has a role reads.
    """
    is_closed = sign_in.settings.reading == "signed_in"
    closed = [Middleware(ClosedReading, sign_in, clock, cluster)] if is_closed else []
    if sign_in.issuer_tokens is None:
        return closed
    from streaming.serve.access.issuer import FreshKeys

    return [Middleware(FreshKeys, sign_in.issuer_tokens, clock), *closed]
