"""Connections of serve: TLS, trusted proxies, and for how long requests and unread answers may keep serve waiting."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from streaming.errors import UsageProblem
from streaming.serve.access import network_of
from streaming.settings import ServeSettings

log = structlog.get_logger()

REQUEST_WAIT_S = 10.0
"""How long the head of a request may take to come, and the rest of one that is answered before its end."""
ANSWER_WAIT_S = 30.0
"""Time in which a client has to take `ANSWER_BYTES_MIN` of what waits for it, or all of it, seconds."""
ANSWER_BYTES_MIN = 65_536
HEAD_BYTES_MAX = 65_536
"""Largest head of a request, bytes: a request with a larger head gets 400."""
RENEWAL_INTERVAL_S = 60
"""Time between two reads of the files of TLS, seconds."""
NO_PASSWORD = "none"  # noqa: S105 - any will do
"""Without one OpenSSL would ask the terminal for that of a locked key, and wait."""
CONNECTIONS_MAX = 500
"""Connections at a time: each takes a file descriptor, of which a process often has 1,024."""
CONNECTIONS_OF_ADDRESS_MAX = 200
"""How many of all connections one client address may have; one IPv6 network of 64 bits counts as one address."""
ROOM_FOR_OTHERS = 100
"""How many of all connections only addresses with few get: Prometheus and people beside somebody with many."""
FEW_CONNECTIONS = 8


class BoundedProtocol(H11Protocol):
    """uvicorn's own, which ends connections whose requests don't come and whose answers nobody reads: without that
    anybody could use them all up.
    """

    _timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None
    _unsent_bytes = 0
    """When the answer's timer was set."""
    network = ""
    """The network of the client, for the bound by address."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, or refuse it at once."""
        super().connection_made(transport)
        # Each byte that the system does not take pauses writing: of some kB that wait nobody would hear otherwise.
        transport.set_write_buffer_limits(high=1, low=0)
        self.network = network_of(self.client[0]) if self.client else ""
        if not self._has_place():
            self.connections.discard(self)  # it is reported as lost later, and takes no place until then
            transport.abort()
        self._watch()

    def _has_place(self) -> bool:
        count: int = len(self.connections)
        if count > CONNECTIONS_MAX:
            return False
        of_address: int = sum(getattr(other, "network", None) == self.network for other in self.connections)
        is_crowded = CONNECTIONS_MAX - count < ROOM_FOR_OTHERS
        most: int = FEW_CONNECTIONS if is_crowded else CONNECTIONS_OF_ADDRESS_MAX
        return of_address <= most

    def data_received(self, data: bytes) -> None:
        """Takes more bytes of a request."""
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        """The answer is sent."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        self._stop_timer()
        self._stop_answer_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read what is sent to it, or not as fast."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """The client has read, and nothing waits for it."""
        self._stop_answer_timer()
        super().resume_writing()

    def _await_reader(self) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._answer_timer = self.loop.call_later(ANSWER_WAIT_S, self._end_if_unread)

    def _end_if_unread(self) -> None:
        if self._unsent_bytes - self.transport.get_write_buffer_size() < ANSWER_BYTES_MIN:
            self.transport.abort()
        else:
            self._await_reader()

    def _stop_answer_timer(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _watch(self) -> None:
        if not self._is_awaited() or self.transport.is_closing():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(REQUEST_WAIT_S, self.transport.abort)

    def _is_awaited(self) -> bool:
        """Whether a head has begun to come, or the rest of a body that nobody reads.

        Bodies that are read are waited for by their readers. Between two requests uvicorn waits for 5 s.
        """
        if self.cycle is None:
            return self.conn.their_state is h11.IDLE
        if self.conn.their_state is h11.SEND_BODY:
            return self.cycle.response_complete
        return self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Renewal:
    """Takes a renewed certificate for the connections that come after; one that can't be used changes nothing."""

    def __init__(self, context: ssl.SSLContext, certificate_file: Path, key_file: Path) -> None:
        """`context` has been made of these files."""
        self._context = context
        self._files = (certificate_file, key_file)
        self._held = self._contents()

    async def check(self) -> None:
        """Read the files again; each contents are tried once."""
        try:
            held = self._contents()
            if held == self._held:
                return
            self._held = held
            # Of files that don't belong together a context would take the one, and show nobody a certificate any more.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*self._files, password=NO_PASSWORD)
            self._context.load_cert_chain(*self._files, password=NO_PASSWORD)
        except OSError as error:  # of ssl too
            log.warning("certificate_not_renewed", error=str(error))
        else:
            log.info("certificate_renewed")

    def _contents(self) -> tuple[bytes, ...]:
        return tuple(file.read_bytes() for file in self._files)


def server_config(app: ASGIApp, settings: ServeSettings) -> uvicorn.Config:
    """How uvicorn is to run `app`; raises UsageProblem for files of TLS that can't be used.

    Forwarded headers are believed of nobody by default: uvicorn itself would believe all of this machine.
    """
    tls: dict[str, Any] = {}
    if settings.tls_certificate_file is not None:
        tls = {"ssl_certfile": settings.tls_certificate_file, "ssl_keyfile": settings.tls_key_file,
               "ssl_keyfile_password": NO_PASSWORD}  # fmt: skip
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=3,
        http=BoundedProtocol,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        ws="none",
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        **tls,
    )
    try:
        config.load()
    except OSError as error:  # of ssl too
        files = f"{settings.tls_certificate_file}, {settings.tls_key_file}"
        raise UsageProblem(f"serve.tls_certificate_file, serve.tls_key_file: {files}: {error}") from None
    if config.ssl is not None and settings.tls_certificate_file and settings.tls_key_file:
        renewal = Renewal(config.ssl, settings.tls_certificate_file, settings.tls_key_file)
        config.callback_notify, config.timeout_notify = renewal.check, RENEWAL_INTERVAL_S
    return config
