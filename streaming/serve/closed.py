"""Where `serve.reading` is `signed_in`: API and metrics want a token or session of any role."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.serve.api.problems import Problem, answer_problem
from streaming.serve.api.sign_in import SignIn

CLOSED = ("/api/", "/metrics")
"""Beginnings of paths. The page has no figures of its own; health tells nothing about the cluster."""
OPEN = frozenset({"/api/v1/session"})
"""Where people sign in."""


class ClosedReading:
    """ASGI middleware: 401 without a token or session that holds."""

    def __init__(self, app: ASGIApp, sign_in: SignIn, clock: Callable[[], int]) -> None:
        self._app = app
        self._sign_in = sign_in
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        if scope["type"] == "http" and scope["path"].startswith(CLOSED) and scope["path"] not in OPEN:
            request = Request(scope)
            try:
                self._sign_in.reader(request, now_ms=self._clock())
            except Problem as problem:
                await answer_problem(request, problem)(scope, receive, send)
                return
        await self._app(scope, receive, send)
