"""Errors of the API, as `application/problem+json` (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

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


def answer_problem(_request: Request, error: Exception) -> Response:
    """A problem, or any other HTTP error, as problem+json."""
    assert isinstance(error, HTTPException)
    body = problem_body(error.status_code, error.detail, error.fields if isinstance(error, Problem) else {})
    return JSONResponse(body, error.status_code, headers=error.headers, media_type=MEDIA_TYPE)


def problem_body(status: int, detail: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Members of the RFC, then `fields`."""
    return {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **fields}
