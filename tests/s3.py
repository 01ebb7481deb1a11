"""An S3 server on loopback (moto), and a proxy before it that counts requests, loses, delays and refuses answers."""

import http.client
import re
import socket
import struct
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from streaming.runtime.jars import PROJECT_ROOT
from streaming.runtime.processes import die_with_parent

BUCKET = "rebalancer-tests"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "of-tests", "AWS_SECRET_ACCESS_KEY": "of-tests", "AWS_REGION": "us-east-1"}
STARTED = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
NOT_PASSED_ON = {"connection", "content-length", "date", "server", "transfer-encoding"}


@contextmanager
def s3_server() -> Iterator[str]:
    """URL of a server that holds one empty bucket, until the end of the block."""
    command = [sys.executable, "-m", "tests.s3_store", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(
        command,
        cwd=PROJECT_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # a run of tests that a signal ends never comes to its `finally`
    ) as process:
        try:
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                started = STARTED.search(line)
                if started:
                    break
            else:
                raise AssertionError(f"moto doesn't start: {''.join(lines)}")
            # It logs each request: a pipe that nobody reads would stop it.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            with urllib.request.urlopen(urllib.request.Request(f"{started[1]}/{BUCKET}", method="PUT")):  # noqa: S310
                pass
            yield started[1]
        finally:
            process.terminate()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that reached the proxy."""

    method: str
    path: str
    commits_before: int
    """How many writes of a Delta log's entries came before: between them come writes of data, in any order."""
    session_token: str = ""
    """Of the credentials that have signed it."""

    @property
    def kind(self) -> str:
        """What a store charges it as: to list objects is a request of its own price."""
        return "LIST" if self.method == "GET" and "list-type=" in self.path else self.method

    @property
    def is_commit(self) -> bool:
        """Whether it writes an entry of a Delta log."""
        return self.method == "PUT" and re.search(r"/_delta_log/\d{20}\.json$", self.path) is not None


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of a request instead of an answer at once."""

    status: int | None = None
    """Answered by the proxy itself; the store doesn't see the request."""
    body: bytes = b""
    is_reset: bool = False
    """The connection is reset; the store doesn't see the request."""
    is_lost: bool = False
    """The store has carried it out; the connection ends without an answer."""
    is_cut: bool = False
    """The store has carried it out; the connection is reset after half of the answer's body."""
    delay_s: float = 0.0
    without_condition: bool = False
    """The store is not told to refuse a second put."""


SOUND = Fault()


def commit_lost(each: int) -> Callable[[Asked], Fault]:
    """The store carries out each commit, and each so-many-th stays without an answer."""

    def fault(asked: Asked) -> Fault:
        return Fault(is_lost=True) if asked.is_commit and asked.commits_before % each == each - 1 else SOUND

    return fault


@dataclass
class Proxy:
    """What the proxy does, and what it has seen."""

    url: str
    fault: Callable[[Asked], Fault] = lambda _: SOUND
    asked: list[Asked] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Requests by method."""
    commits: int = 0
    faults: int = 0
    on_asked: Callable[[Asked], None] | None = None
    """Called with each request in place of noting it in `asked`: hours of requests would fill the memory."""
    guard: threading.Lock = field(default_factory=threading.Lock)

    def meet(self, method: str, path: str, session_token: str) -> Fault:
        """Note a request and say what becomes of it."""
        with self.guard:
            asked = Asked(method, path, self.commits, session_token)
            self.counts[method] += 1
            self.commits += asked.is_commit
            (self.on_asked or self.asked.append)(asked)
            fault = self.fault(asked)
            self.faults += fault != SOUND
            return fault


@contextmanager
def proxy(store_url: str) -> Iterator[Proxy]:
    """A proxy before the store, until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            fault = before.meet(self.command, self.path, self.headers.get("x-amz-security-token") or "")
            threading.Event().wait(fault.delay_s)
            if fault.is_reset:
                self._reset()
                return
            if fault.status is not None:
                self._send(fault.status, [("Content-Type", "application/xml")], fault.body, len(fault.body))
                return
            status, headers, content = self._ask(body, fault)
            if fault.is_lost:
                self.close_connection = True
                return
            self._send(status, headers, content, len(content) // 2 if fault.is_cut else len(content))
            if fault.is_cut:
                self._reset()

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer  # noqa: N815 - names of the base

        def _ask(self, body: bytes, fault: Fault) -> tuple[int, list[tuple[str, str]], bytes]:
            connection = http.client.HTTPConnection(urlsplit(store_url).netloc)
            left_out = {"if-none-match"} if fault.without_condition else set()
            headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
            try:
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
                kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in NOT_PASSED_ON]
                if self.command == "HEAD":
                    kept.append(("Content-Length", answer.getheader("Content-Length") or "0"))
                return answer.status, kept, content
            finally:
                connection.close()

        def _reset(self) -> None:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, sent_bytes: int) -> None:
            with suppress(ConnectionError):  # a client that knows enough closes the connection
                self._write(status, headers, content, sent_bytes)

        def _write(self, status: int, headers: list[tuple[str, str]], content: bytes, sent_bytes: int) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content[:sent_bytes])

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    before = Proxy(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield before
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
