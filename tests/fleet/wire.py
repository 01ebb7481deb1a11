"""Kafka's framing on a socket: requests in, answers out, in order; and which versions of which requests there are.

A request that is not served closes the connection, as a broker does; `Fleet.requests` counts it under UNSERVED.
"""

import asyncio
import struct
from typing import Any, cast

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from tests.fleet import (
    api_configs,
    api_groups,
    api_logins,
    api_logs,
    api_metadata,
    api_newer_groups,
    api_placement,
    api_produce,
)
from tests.fleet.api import OK, Api
from tests.fleet.fleet import HOST, Fleet

UNSERVED = "unserved"
UNSUPPORTED_VERSION = 35
SIZE = struct.Struct(">i")
HEAD = struct.Struct(">hhi")
"""How a request begins: which, version, correlation id."""


def _versions(_fleet: Fleet, _broker: int, _request: Any) -> Any:
    rows = [(row.request.API_KEY, *row.versions) for row in SERVED.values()]
    return ApiVersionsResponse(error_code=OK, api_keys=rows, throttle_time_ms=0)


SERVED: dict[int, Api] = {
    row.request.API_KEY: row
    for row in (
        Api(ApiVersionsRequest, (0, 4), _versions),
        *api_logins.APIS,
        *api_metadata.APIS,
        *api_logs.APIS,
        *api_groups.APIS,
        *api_newer_groups.APIS,
        *api_placement.APIS,
        *api_configs.APIS,
        *api_produce.APIS,
    )
}


def answer(fleet: Fleet, broker_id: int, frame: bytes) -> bytes | None:
    """The frame that answers one, both without their sizes; None for a request without an answer (acks=0).

    Raises LookupError for a request or version that is not served.
    """
    key, version, correlation_id = HEAD.unpack_from(frame)
    api = SERVED[key]
    if not api.versions[0] <= version <= api.versions[1]:
        if api.request is ApiVersionsRequest:
            refusal = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[(key, *api.versions)])
            return SIZE.pack(correlation_id) + bytes(refusal.encode(version=0))
        raise LookupError(f"{api.request.__name__}: version {version}")
    request = api.request.decode(frame, version=version, header=True)
    fleet.requests[api.request.__name__.removesuffix("Request")] += 1
    refuse = api.refusal if api.refusal is not None and fleet.faults.refuses() else None
    response = (refuse or api.answer)(fleet, broker_id, request)
    if not request.expect_response():
        return None
    body = response if isinstance(response, bytes) else bytes(response.encode(version=version))
    # The answer to ApiVersions has the old head in every version: its client doesn't know yet what the broker knows.
    is_flexible = api.request.flexible_version_q(version) and api.request is not ApiVersionsRequest
    return SIZE.pack(correlation_id) + (b"\0" if is_flexible else b"") + body


class BrokerListener:
    """The listener of one broker; dead brokers hang up, frozen ones answer when they go on."""

    def __init__(self, fleet: Fleet, broker_id: int) -> None:
        self.fleet = fleet
        self.broker_id = broker_id
        self.connections: set[Connection] = set()

    async def listen(self) -> asyncio.Server:
        """Serve on a free port of loopback until the server is closed."""
        return await asyncio.get_running_loop().create_server(lambda: Connection(self), HOST, 0)

    def go_on(self) -> None:
        """Look again at requests that wait, and hang up where the broker has died."""
        for connection in list(self.connections):
            connection.go_on()


class Connection(asyncio.Protocol):
    """One client's connection to one broker."""

    def __init__(self, listener: BrokerListener) -> None:
        self._listener = listener
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._listener.connections.add(self)
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's name
        self._listener.connections.discard(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        self.go_on()

    def go_on(self) -> None:
        """Answer all requests that are here whole."""
        broker = self._listener.fleet.contents.brokers[self._listener.broker_id]
        if not broker.running:
            if not broker.frozen and self._transport is not None:
                self._transport.abort()
            return
        while (frame := self._next_frame()) is not None:
            self._answer(frame)

    def _next_frame(self) -> bytes | None:
        if len(self._received) < SIZE.size:
            return None
        end = SIZE.size + SIZE.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        frame = bytes(self._received[SIZE.size : end])
        del self._received[:end]
        return frame

    def _answer(self, frame: bytes) -> None:
        fleet, broker_id = self._listener.fleet, self._listener.broker_id
        try:
            made = answer(fleet, broker_id, frame)
        except LookupError:
            fleet.requests[UNSERVED] += 1
            if self._transport is not None:
                self._transport.abort()
            return
        if made is None:
            return
        delay_s = fleet.faults.delay_s.get(broker_id, 0.0)
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._send, made)
        else:
            self._send(made)

    def _send(self, made: bytes) -> None:
        if self._transport is not None:
            self._transport.write(SIZE.pack(len(made)))
            self._transport.write(made)
