"""Who has signed out here signs out at the issuer, too, where it names a page for that (OIDC RP-Initiated Logout 1.0).

serve keeps no ID token, so it sends none along (`id_token_hint`): the issuer may ask the person whether they mean it.
"""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from streaming.serve.api.problems import Problem
from streaming.serve.api.turns import TRY_AGAIN
from streaming.serve.oidc.issuer import IssuerUnreachable
from streaming.serve.oidc.redirects import NOT_KEPT, to_issuer, url_here
from streaming.serve.oidc.tokens import IssuerTokens

PATH = "/oidc/sign-out"
ENDPOINT = "end_session_endpoint"
STILL_THERE = "you are signed out here; the issuer can't be asked now, so you may still be signed in there"


class SignOut:
    """The route to which the page goes once the session has ended; it changes nothing here."""

    def __init__(self, tokens: IssuerTokens, client_id: str, clock: Callable[[], int]) -> None:
        self._tokens = tokens
        self._client_id = client_id
        self._clock = clock

    def routes(self) -> list[Route]:
        """Where the browser goes."""
        return [Route(PATH, self.leave, methods=["GET"])]

    async def leave(self, request: Request) -> Response:
        """Send the browser to the issuer, which sends it back to the page; without such an issuer to the page at once.

        Raises Problem 503 where the issuer is not known now.
        """
        try:
            description = await self._tokens.description(self._clock)
            if ENDPOINT not in description.members:
                return RedirectResponse("/", 303, NOT_KEPT)
            endpoint = description.endpoint(ENDPOINT)
        except (Problem, IssuerUnreachable):
            raise Problem(503, STILL_THERE, headers=TRY_AGAIN) from None
        asked = {"client_id": self._client_id, "post_logout_redirect_uri": url_here(request, "/")}
        return to_issuer(endpoint, asked)
