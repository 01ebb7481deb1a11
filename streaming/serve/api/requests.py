"""What a request that acts must be like before anything looks at what it asks, and its turn.

Acts of one kind go one after the other, and only a few wait, as each that waits holds a thread of serve.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request

from streaming.serve.api.problems import ApiProblem

BODY_BYTES_MAX = 16_384
BODY_WAIT_S = 10.0
"""How long a body may take to come."""
CLOSE = {"Connection": "close"}
KEY = re.compile(r"[\x21-\x7e]{8,128}", re.ASCII)
WAITING_MAX = 4
"""Acts of one kind that are done or wait; serve has 40 threads for all that is asked."""
TURN_S = 30.0
"""How long an act waits for the one before it."""
TRY_AGAIN = {"Retry-After": "5"}


def check_origin(request: Request) -> None:
    """Raises ApiProblem for what a page of another site sends: browsers name their site in these headers."""
    origin = request.headers.get("origin")
    if origin is not None and (not _site(origin) or _site(origin) != request.headers.get("host", "").lower()):
        raise ApiProblem(403, f"origin {origin[:100]!r} is another site: send the request from a page of this serve")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise ApiProblem(403, "the request comes from a page of another site: send it from a page of this serve")


def check_own_page(request: Request, *, needs_tls: bool) -> None:
    """Raises ApiProblem for what does not name this site as its `Origin`; one without TLS is not that with TLS."""
    check_origin(request)
    origin = request.headers.get("origin")
    if origin is None:
        raise ApiProblem(403, "Origin: a request that acts in a session needs this header; browsers send it")
    if needs_tls and not origin.lower().startswith("https://"):
        raise ApiProblem(403, f"origin {origin[:100]!r} is another site: send the request from a page of this serve")


def _site(origin: str) -> str:
    """Host and port; empty of what is no origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def idempotency_key(request: Request) -> str:
    """The key of the request; raises ApiProblem."""
    key = request.headers.get("idempotency-key", "")
    if not KEY.fullmatch(key):
        raise ApiProblem(
            400, "Idempotency-Key: a request that acts needs this header: choose 8 to 128 visible ASCII characters"
        )
    return key


async def read_body(request: Request) -> tuple[bytes, dict[str, Any]]:
    """The body and the JSON object in it, empty if the body is; raises ApiProblem if it is too large or no JSON.

    Only `application/json` is taken: no form of another site can send it.
    """
    content = await _content(request)
    if not content:
        return content, {}
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ApiProblem(415, f"content type {media_type[:100]!r} is not allowed: send application/json")
    try:
        body = json.loads(content, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        raise ApiProblem(400, "the body of the request is not valid JSON") from None
    if not isinstance(body, dict):
        raise ApiProblem(400, "the body of the request must be a JSON object")
    return content, body


async def _content(request: Request) -> bytes:
    content = b""
    try:
        async with asyncio.timeout(BODY_WAIT_S):
            async for chunk in request.stream():
                content += chunk
                if len(content) > BODY_BYTES_MAX:
                    raise ApiProblem(
                        413,
                        f"the body of the request is larger than {BODY_BYTES_MAX} bytes, which is the most allowed",
                        headers=CLOSE,
                    )
    except TimeoutError:
        raise ApiProblem(
            408,
            f"the body of the request has not arrived within {BODY_WAIT_S:.0f} s: send the request again",
            headers=CLOSE,
        ) from None
    except ClientDisconnect:
        raise ApiProblem(400, "the request ended before the end of its body: send it again", headers=CLOSE) from None
    return content


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ApiProblem(400, "a member of the request's body is given twice: give it once")
    return members


class Turns:
    """Turns of one kind of acts: one act is done at a time, and a limited number of acts wait."""

    def __init__(self, what: str = "act") -> None:
        self._what = what
        self._places = threading.BoundedSemaphore(WAITING_MAX)
        self._turn = threading.Lock()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for an act, to be held before a thread is; raises ApiProblem 503 at once if too many acts wait."""
        if not self._places.acquire(blocking=False):
            raise ApiProblem(
                503, f"too many {self._what}s wait for their turn: try again in some seconds", headers=TRY_AGAIN
            )
        try:
            yield
        finally:
            self._places.release()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the act before; raises ApiProblem 503."""
        if not self._turn.acquire(timeout=TURN_S):
            raise ApiProblem(
                503, f"another {self._what} is still under way: try again in some seconds", headers=TRY_AGAIN
            )
        try:
            yield
        finally:
            self._turn.release()
