"""The stream of events: when one comes, who gets a stream and for how long, and that each place is free again."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from streaming.runtime.accounts import Role, write_tokens
from streaming.serve.api import events
from streaming.serve.api.events import PATH
from streaming.serve.metrics import Exposition
from streaming.serve.snapshot import Snapshot
from streaming.serve.web import build_app
from tests.serve.asking import Acted, ask
from tests.serve.served import Served, refusal
from tests.serve.synthetic import NOW_MS, settings_for
from tests.serve.test_connections import connected, listening
from tests.waiting import DEADLINE_S, until


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams look often, so that tests need not wait."""
    monkeypatch.setattr(events, "READ_INTERVAL_S", 0.001)


class Now:
    """An application over a snapshot that a test replaces."""

    def __init__(self, folder: Path, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        settings = settings_for(folder)
        exposition = Exposition(snapshot, settings)
        self.app = build_app(lambda: self.snapshot, exposition, settings, lambda: NOW_MS, Acted())

    def after(self, **control: Any) -> None:
        """One more snapshot, in which these parts of control are others."""
        tables = tuple(replace(table, version=table.version + bool(control)) for table in self.snapshot.tables)
        self.snapshot = replace(
            self.snapshot,
            read_at_ms=self.snapshot.read_at_ms + 2_000,
            tables=tables,
            control=replace(self.snapshot.control, **control),
        )


@pytest.fixture
def now(skewed_folder: Path, skewed_snapshot: Snapshot) -> Now:
    return Now(skewed_folder, skewed_snapshot)


class Stream:
    """A stream of events that a client reads, and may leave."""

    def __init__(self, app: Starlette, address: str = "10.0.0.1", **headers: str) -> None:
        self.text = ""
        self._status = 0
        self._left = asyncio.Event()
        named = [(name.encode(), value.encode()) for name, value in {"host": "127.0.0.1", **headers}.items()]
        self._scope = {"type": "http", "method": "GET", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
                       "headers": named, "client": (address, 1), "scheme": "http", "http_version": "1.1",
                       "server": ("127.0.0.1", 80), "root_path": ""}  # fmt: skip
        self.task = asyncio.create_task(app(self._scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self._status = message.get("status", self._status)
        self.text += message.get("body", b"").decode()

    async def reads(self, text: str) -> str:
        """What has come since the last call, once this is in it."""
        await soon(lambda: text in self.text)
        read, self.text = self.text, ""
        return read

    async def status(self) -> int:
        await soon(lambda: self._status)
        return self._status

    async def leaves(self) -> None:
        self._left.set()
        await self.task


async def soon(probe: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not probe():
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def streams(app: Starlette, *addresses: str) -> AsyncIterator[list[Stream]]:
    opened = [Stream(app, address) for address in addresses]
    for stream in opened:
        await stream.reads("event: decisions")
    yield opened
    for stream in opened:
        await stream.leaves()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await test()

    asyncio.run(whole())


@pytest.mark.long
def test_a_stream_begins_with_what_is_now_and_goes_on_with_what_changes(now: Now) -> None:
    decision, execution = now.snapshot.control.decision, now.snapshot.control.execution
    assert decision
    assert execution

    async def test() -> None:
        stream = Stream(now.app)
        begun = await stream.reads("event: decisions\n")
        assert begun.startswith(f"retry: {events.RETRY_MS}\n\nevent: status\ndata: {{")
        assert 'event: executions\ndata: {"execution_id":"e-1"}\n\n' in begun
        now.after(decision={**decision, "decision_id": "test-9"})
        decided = await stream.reads('{"decision_id":"test-9"}')
        assert f'event: status\ndata: {{"read_at_ms":{NOW_MS + 2_000}}}' in decided
        assert "event: executions" not in decided
        now.after(execution={**execution, "sequence": 4})
        went_on = await stream.reads("event: executions")
        assert "event: decisions" not in went_on
        await stream.leaves()

    run(test)


def test_a_snapshot_that_is_only_newer_is_no_event_and_silence_has_a_heartbeat(
    now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.0)

    async def test() -> None:
        async with streams(now.app, "10.0.0.1") as (stream,):
            now.after()
            assert "event:" not in await stream.reads(": heartbeat\n\n")

    run(test)


def test_a_stream_has_a_bounded_life(now: Now, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAM_MAX_S", 0.0)
    answer = ask(now.app, "GET", PATH)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert answer.text.count("event: ") == 3
    assert answer.headers["cache-control"] == "no-store"


def test_one_address_has_so_many_streams_and_all_together_have_so_many(
    now: Now, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "OF_ADDRESS_MAX", 2)
    monkeypatch.setattr(events, "STREAMS_MAX", 3)

    async def test() -> None:
        async with streams(now.app, "10.0.0.1", "10.0.0.1"):
            assert await Stream(now.app, "10.0.0.1").status() == 429
            async with streams(now.app, "10.0.0.2"):
                assert await Stream(now.app, "10.0.0.3").status() == 503
        async with streams(now.app, "10.0.0.1", "10.0.0.1", "10.0.0.3"):
            pass

    run(test)


def test_a_stream_that_is_refused_says_when_to_try_again(now: Now, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, status in (("STREAMS_MAX", 503), ("OF_ADDRESS_MAX", 429)):
        monkeypatch.setattr(events, limit, 0)
        answer = ask(now.app, "GET", PATH)
        assert (refusal(answer)[0], answer.headers["retry-after"]) == (status, "30")


def test_a_head_is_answered_at_once_and_an_unknown_parameter_is_refused(now: Now) -> None:
    head = ask(now.app, "HEAD", PATH)
    assert (head.status_code, head.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert refusal(ask(now.app, "GET", f"{PATH}?x=1")) == (
        400,
        "'x' is not a parameter of this request; allowed are none",
    )


def test_where_reading_is_signed_in_a_stream_ends_with_the_token(tmp_path: Path, root: str) -> None:
    served = Served(tmp_path, root, reading="signed_in")
    assert refusal(ask(served.app, "GET", PATH))[0] == 401

    async def test() -> None:
        stream = Stream(served.app, authorization=f"Bearer {served.tokens[Role.VIEWER]}")
        await stream.reads("event: decisions")
        write_tokens(served.file, [])
        await asyncio.wait_for(stream.task, DEADLINE_S)

    run(test)


def test_streams_end_whole_when_serve_ends(served: Served) -> None:
    with listening(served) as (host, port):
        with httpx.stream("GET", f"http://{host}:{port}{PATH}", timeout=DEADLINE_S) as answer:
            chunks = answer.iter_text()
            assert next(chunks).startswith("retry: ")
            served.app.state.events.close()
            assert "heartbeat" not in "".join(chunks), "the last chunk came, so nothing was cut off"
        until("the place is free", lambda: not served.app.state.events._open, pause_s=0.01)


def test_a_client_that_goes_away_gives_its_place_back(served: Served) -> None:
    with listening(served) as address:
        with connected(address) as client:
            client.sendall(f"GET {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert client.recv(65_536).startswith(b"HTTP/1.1 200")
            assert served.app.state.events._open.total() == 1
        until("the place is free", lambda: not served.app.state.events._open.total(), pause_s=0.01)
