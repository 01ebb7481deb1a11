"""`/api/v1/events`: server-sent events that name what has changed, so that a page need not ask again and again.

An event has no figures: who gets it reads them by the routes that have them. Knows no table.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streaming.contract import LEASE
from streaming.serve.access import SignIn, address_of, network_of
from streaming.serve.api.pages import as_json
from streaming.serve.api.parameters import read_query
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.read_sources import ReadSources
from streaming.serve.snapshot import Snapshot

PATH = "/api/v1/events"
MEDIA_TYPE = "text/event-stream"
STREAM_MAX_S = 300.0
"""Life of a stream; a browser asks for the next one by itself."""
HEARTBEAT_S = 10.0
"""Silence after which a comment is sent, seconds: a connection that is lost is then seen here, and a proxy keeps the
others.
"""
READ_INTERVAL_S = 0.5
"""Time between two reads of the newest snapshot; also how long a stream may outlast serve's wish to end."""
RETRY_MS = 2_000
"""How long a browser waits before it asks for the next stream."""
STREAMS_MAX = 100
"""Number of event streams at a time, out of the connections of serve; see `streaming.serve.connections`."""
OF_ADDRESS_MAX = 20
"""Streams of one address, more than of a person: an address may be that of many people. Who gets no stream may ask for
`/api/status`.
"""
TRY_AGAIN = {"Retry-After": "30"}

Marks = Mapping[str, Any]
"""Name of an event -> what is another one once there is such an event to send."""


def marks(snapshot: Snapshot) -> Marks:
    """What the events of this snapshot go by. `status` is any table that pages show, and what can't be read."""
    decision, execution = snapshot.control.decision, snapshot.control.execution
    # The lease is renewed all the time, and no page shows it.
    versions = tuple((table.name, table.version) for table in snapshot.tables if table.name != LEASE.name)
    return {
        "status": (versions, tuple(sorted(snapshot.failures.items()))),
        "executions": execution and (execution["execution_id"], execution["sequence"]),
        "decisions": decision and decision["decision_id"],
    }


def written(name: str, snapshot: Snapshot) -> str:
    """One event as it goes over the wire.

    Its data names the newest execution or decision, or the snapshot by its time, ms since 1970.
    """
    decision, execution = snapshot.control.decision, snapshot.control.execution
    data = {
        "status": {"read_at_ms": snapshot.read_at_ms},
        "executions": {"execution_id": execution["execution_id"] if execution else None},
        "decisions": {"decision_id": decision["decision_id"] if decision else None},
    }[name]
    return f"event: {name}\ndata: {as_json(data).decode()}\n\n"


class Events:
    """Streams that are open, and how many more may be. All on the event loop of serve."""

    def __init__(self, sources: ReadSources, sign_in: SignIn, open_streams: Counter[str]) -> None:
        """`open_streams` counts the streams of each network; several clusters in one serve share it."""
        self._sources = sources
        self._sign_in = sign_in
        self._is_closed = False
        self._open = open_streams

    def routes(self) -> list[Route]:
        """Returns the route of the stream."""
        return [Route(PATH, self.stream, methods=["GET"])]

    def close(self) -> None:
        """End all streams, as serve ends: uvicorn would wait for them."""
        self._is_closed = True

    async def stream(self, request: Request) -> Response:
        """Changes as server-sent events; raises ApiProblem where there are too many streams."""
        read_query(request.query_params, ())
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=MEDIA_TYPE)
        network = network_of(address_of(request))
        if self._open[network] >= OF_ADDRESS_MAX:
            raise ApiProblem(
                429,
                "too many streams of events are open from this address: close one, or poll /api/status",
                headers=TRY_AGAIN,
            )
        if self._open.total() >= STREAMS_MAX:
            raise ApiProblem(
                503, "too many streams of events are open: try again later, or poll /api/status", headers=TRY_AGAIN
            )
        self._open[network] += 1
        return _Stream(self._events(request), lambda: self._give_back(network))

    async def _events(self, request: Request) -> AsyncIterator[str]:
        clock = asyncio.get_running_loop().time
        began_s = spoke_s = clock()
        sent: Marks = {}
        yield f"retry: {RETRY_MS}\n\n"
        while self._may_read(request):
            snapshot = self._sources.snapshot()
            now = marks(snapshot)
            text = "".join(written(name, snapshot) for name in now if name not in sent or now[name] != sent[name])
            if not text and clock() - spoke_s >= HEARTBEAT_S:
                text = ": heartbeat\n\n"
            if text:
                yield text
                sent, spoke_s = now, clock()
            if self._is_closed or clock() - began_s >= STREAM_MAX_S:
                return
            await asyncio.sleep(READ_INTERVAL_S)

    def _may_read(self, request: Request) -> bool:
        """Whether who reads may still do so: tokens are revoked and sessions end while a stream is open."""
        if self._sign_in.settings.reading != "signed_in":
            return True
        try:
            self._sign_in.reader(request, self._sources.kafka_cluster, now_ms=self._sources.clock())
        except ApiProblem:
            return False
        return True

    def _give_back(self, network: str) -> None:
        self._open[network] -= 1
        if not self._open[network]:
            del self._open[network]


_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Accel-Buffering": "no"}
"""The last keeps nginx from holding events back."""


class _Stream(StreamingResponse):
    """An answer whose place is free again however it ends."""

    def __init__(self, content: AsyncIterator[str], on_end: Callable[[], None]) -> None:
        super().__init__(content, headers=_HEADERS, media_type=MEDIA_TYPE)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the stream ends on either side."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()
