"""Errors of the API, as `application/problem+json` (RFC 9457); of pages that browsers go to, as a page."""

from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Match, Route

MEDIA_TYPE = "application/problem+json"
OF_PEOPLE = "/oidc/"
"""Beginning of paths to which a browser goes, so that a person sees the answer."""
PATH_SHOWN = 100
"""Characters of a path or method that the answer repeats."""
DESCRIPTION = "/api/openapi.json"
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Kafka load rebalancer</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem; \
overflow-wrap: anywhere; color-scheme: light dark }}</style>
<h1>{title}</h1><p>{detail}</p><p><a href="/">To the page</a></p></html>
"""
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
}


class ApiProblem(HTTPException):
    """An answer that is an error: its status, one sentence, and what else a program may want to know.

    `fields` are members beside those of the RFC; `headers` go with the answer.
    """

    def __init__(
        self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **fields: str | int | None
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.fields = fields


def answer_problem(request: Request, error: Exception) -> Response:
    """A problem, or any other HTTP error, as problem+json; to a browser that signs somebody in or out, as a page."""
    assert isinstance(error, HTTPException)
    if request.url.path.startswith(OF_PEOPLE) and "text/html" in request.headers.get("accept", ""):
        return _page(_detail(request, error), error)
    body = problem_body(
        error.status_code, _detail(request, error), error.fields if isinstance(error, ApiProblem) else {}
    )
    headers = {"Allow": ", ".join(_methods(request))} if error.status_code == 405 else error.headers
    return JSONResponse(body, error.status_code, headers=headers, media_type=MEDIA_TYPE)


def _detail(request: Request, error: HTTPException) -> str:
    """What went wrong; Starlette's own errors only repeat the words of their status."""
    if isinstance(error, ApiProblem):
        return error.detail
    if error.status_code == 404:
        return f"there is no path {request.url.path[:PATH_SHOWN]!r}; {DESCRIPTION} lists the paths of the API"
    if error.status_code == 405:
        allowed = ", ".join(_methods(request))
        return f"method {request.method[:PATH_SHOWN]} is not allowed for this path; allowed are {allowed}"
    return error.detail


def _page(detail: str, error: HTTPException) -> Response:
    detail = detail[:1].upper() + detail[1:] + "."
    text = PAGE.format(title=escape(HTTPStatus(error.status_code).phrase), detail=escape(detail))
    return HTMLResponse(text, error.status_code, {**(error.headers or {}), **PAGE_HEADERS})


def _methods(request: Request) -> list[str]:
    """Methods of the path. Starlette names those of one route, but each method has a route of its own."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    fitting = [route for route in routes if route.matches(request.scope)[0] != Match.NONE]
    return sorted({method for route in fitting for method in route.methods or ()})


def problem_body(status: int, detail: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Members of the RFC, then `fields`."""
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **fields}
