"""Errors of the API, as `application/problem+json` (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

MEDIA_TYPE = "application/problem+json"


class Problem(HTTPException):
    """An answer that is an error: its status, one sentence, and what else a program may want to know.

    `fields` are members beside those of the RFC; `headers` go with the answer.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **fields: str | int | None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.fields = fields


def answer_problem(request: Request, error: Exception) -> Response:
    """A problem, or any other HTTP error, as problem+json."""
    assert isinstance(error, HTTPException)
    body = problem_body(error.status_code, error.detail, error.fields if isinstance(error, Problem) else {})
    headers = {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
    return JSONResponse(body, error.status_code, headers=headers, media_type=MEDIA_TYPE)


def _methods(request: Request) -> list[str]:
    """Methods of the path. Starlette names those of one route, but each method has a route of its own."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    fitting = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
    return sorted({method for route in fitting for method in route.methods or ()})


def problem_body(status: int, detail: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Members of the RFC, then `fields`."""
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **fields}
