"""Pages: a bounded part of a list, and the cursor at which the next one begins."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from streaming.serve.api.problems import ApiProblem

BODY_BYTES_MAX = 1_000_000
"""No answer is longer."""
ITEMS_BYTES_MAX = 900_000
"""Bytes that the items may take of an answer's `BODY_BYTES_MAX`."""
LIMIT_DEFAULT = 100

Cursor = list[Any]
"""What a page ended with, of JSON's types."""


def pack(cursor: Cursor) -> str:
    """Returns the cursor as a text that goes into a URL."""
    return base64.urlsafe_b64encode(_written(cursor)).decode().rstrip("=")


def unpack(text: str | None, *types: type) -> Cursor | None:
    """The cursor again, whose parts have these types, numbers from 0 on; None of None. Raises ApiProblem for one that
    is not ours."""
    if text is None:
        return None
    try:
        cursor = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        _written(cursor)  # half of a surrogate pair, which JSON lets pass, is no text that a table can be asked for
    except (binascii.Error, ValueError, RecursionError):
        cursor = None
    fits = isinstance(cursor, list) and [type(part) for part in cursor] == list(types)
    if not fits or any(isinstance(part, int) and not 0 <= part < 1 << 47 for part in cursor):
        raise unknown_cursor()
    own: Cursor = cursor
    return own


def unknown_cursor() -> ApiProblem:
    """Returns the problem for a cursor that no page of the list has given."""
    return ApiProblem(400, "cursor: this list has not given it: send the `next_cursor` of its last page unchanged")


def _written(cursor: Cursor) -> bytes:
    return json.dumps(cursor, separators=(",", ":"), ensure_ascii=False).encode()


def page(
    items: Iterable[Mapping[str, Any]],
    limit: int | None,
    cursor_of: Callable[[Mapping[str, Any], int], Cursor],
    **fields: Any,
) -> dict[str, Any]:
    """The first items that fit, and `next_cursor`: that of the last one if there are more, else null.

    `cursor_of` gets an item and its number on the page; `fields` stand before the items.
    """
    shown: list[Mapping[str, Any]] = []
    room = ITEMS_BYTES_MAX
    for item in items:
        room -= len(as_json(item)) + 1
        if len(shown) == (limit or LIMIT_DEFAULT) or (shown and room < 0):
            return {**fields, "items": shown, "next_cursor": pack(cursor_of(shown[-1], len(shown) - 1))}
        shown.append(item)
    return {**fields, "items": shown, "next_cursor": None}


def as_json(body: Any) -> bytes:
    """The one way answers are written: not a number becomes an error here, not in a reader."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def answer(request: Request, body: Mapping[str, Any]) -> Response:
    """JSON with an ETag; 304 without a body where the client has it already."""
    content = as_json(body)
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "X-Content-Type-Options": "nosniff"}
    known = [text.strip().removeprefix("W/") for text in request.headers.get("if-none-match", "").split(",")]
    if tag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type="application/json")
