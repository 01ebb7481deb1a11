"""What attacks and accidents do to requests that act: cut, slow, revoked, spoilt, many at once, and after a restart."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.cli import run
from streaming.errors import TableUnavailable
from streaming.runtime.accounts import Role, Roles, read_tokens, write_tokens
from streaming.serve.api import requests
from streaming.serve.api.audit import ActOutcome
from streaming.serve.snapshot import read_snapshot
from streaming.serve.web import page_files
from tests.control.noted_cluster import plan
from tests.serve.asking import Acted, app_of, ask
from tests.serve.served import ACT_PATHS, Served, refusal, state
from tests.serve.synthetic import NOW_MS
from tests.tables_in_memory import memory_store

WAIT_S = 120
DRAIN = b'{"carry_out": true}'


class Drip:
    """A body that comes in pieces; something may happen before each. It ends with `then`, or never."""

    def __init__(self, pieces: Iterable[bytes], then: Callable[[], None] = lambda: None, *, cut: bool = False) -> None:
        self._pieces = list(pieces)
        self._then = then
        self._cut = cut

    async def __call__(self) -> dict[str, Any]:
        if self._pieces:
            return {"type": "http.request", "body": self._pieces.pop(0), "more_body": True}
        self._then()
        if self._cut:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}


async def never() -> dict[str, Any]:
    await asyncio.Event().wait()
    raise AssertionError


def drained(served: Served, receive: Callable[[], Any]) -> int | None:
    """The status that a request to drain gets whose body comes by `receive`; None if there is no answer."""
    sent: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])

    headers = {"host": "127.0.0.1", "authorization": f"Bearer {served.tokens[Role.OPERATOR]}",
               "idempotency-key": "drip-drip", "content-type": "application/json"}  # fmt: skip
    scope = {
        "type": "http", "method": "POST", "path": "/api/v1/brokers/3/drain", "raw_path": b"/api/v1/brokers/3/drain",
        "query_string": b"", "root_path": "", "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1),
        "http_version": "1.1", "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    asyncio.run(asyncio.wait_for(served.application(Acted())(scope, receive, send), WAIT_S))
    return sent[0] if sent else None


def test_a_body_in_pieces_acts_once(served: Served) -> None:
    assert drained(served, Drip([DRAIN[:3], DRAIN[3:]])) == 200
    assert len(served.acts()) == 2


def test_a_request_that_is_cut_does_nothing_and_is_no_error_of_the_server(served: Served) -> None:
    assert drained(served, Drip([DRAIN], cut=True)) in (None, 400)
    assert served.acts() == []


def test_a_body_that_does_not_come_is_waited_for_so_long_and_no_longer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "BODY_WAIT_S", 0.01)
    assert drained(served, never) == 408
    assert served.acts() == []


@pytest.mark.parametrize("status", [401, 403], ids=["revoked", "lowered"])
def test_a_token_that_is_revoked_or_lowered_while_the_body_comes_does_not_act(served: Served, status: int) -> None:
    def change() -> None:
        kept = read_tokens(served.file).values()
        lowered = [replace(token, roles=Roles(Role.VIEWER)) for token in kept]
        left = [token for token in kept if token.roles != Roles(Role.OPERATOR)]
        write_tokens(served.file, left if status == 401 else lowered)

    assert drained(served, Drip([DRAIN], change)) == status
    assert served.acts() == []


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "//", "", "http://\u00e9]", "http://127.0.0.1:9464@x"])
def test_an_origin_that_is_none_is_refused(served: Served, origin: str) -> None:
    assert refusal(served.post("brokers/3/undrain", headers={"Origin": origin.encode()}))[0] == 403
    assert served.acts() == []


@pytest.mark.parametrize("path", ACT_PATHS)
def test_a_viewer_may_do_none_of_the_acts(served: Served, path: str) -> None:
    assert refusal(served.post(path, role=Role.VIEWER))[0] == 403
    assert refusal(ask(served.app, "POST", f"/api/v1/{path}"))[0] == 401
    assert served.acts() == []


SPOILT: dict[str, dict[str, Any]] = {
    "a hash that is none": {"sha256": None},
    "a hash that is no ASCII": {"sha256": "\u00e9" * 64},
    "an end that is a text": {"expires_ms": "never"},
    "an id that is a list": {"token_id": ["0"]},
    "a name that is a number": {"name": 7},
    "a name with a control character": {"name": "a\nb"},
    "a member that nobody knows": {"admin": True},
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_row_of_the_tokens_file_lets_nobody_in(served: Served, change: dict[str, Any]) -> None:
    content = json.loads(served.file.read_text())
    content["tokens"] = [{**row, **change} for row in content["tokens"]]
    served.file.write_text(json.dumps(content))
    assert refusal(served.post("brokers/3/undrain"))[0] == 503
    assert run(["token", "list", "--set", f"serve.tokens_file={served.file}"]) == 2


def test_two_tokens_with_one_id_let_nobody_in(served: Served) -> None:
    content = json.loads(served.file.read_text())
    served.file.write_text(json.dumps({"tokens": content["tokens"] * 2}))
    assert refusal(served.post("brokers/3/undrain"))[0] == 503


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602])
def test_a_tokens_file_that_others_may_write_lets_nobody_in(served: Served, mode: int) -> None:
    served.file.chmod(mode)
    assert refusal(served.post("brokers/3/undrain"))[0] == 503
    served.file.chmod(0o640)
    assert served.post("brokers/3/undrain").status_code == 200


def test_a_tokens_file_that_a_group_may_read_stays_so(served: Served) -> None:
    """serve may run as another user of that group: a new token must not shut it out."""
    served.file.chmod(0o640)
    assert run(["token", "create", "another", "--set", f"serve.tokens_file={served.file}"]) == 0
    assert served.file.stat().st_mode & 0o777 == 0o640


def test_without_a_row_in_the_audit_nothing_is_done(served: Served, root: str) -> None:
    store, kept = memory_store(root), plan(served.journal, 0, now_ms=NOW_MS)
    assert store is not None
    writes_left = 0

    def fail(operation: str, table: str) -> None:
        nonlocal writes_left
        if (operation, table) == ("write", "audit"):
            writes_left -= 1
            if writes_left < 0:
                raise TableUnavailable("table audit can't be written: the disk is full")

    store.before = fail
    path = f"plans/{kept.plan.plan_id}/approve"
    assert refusal(served.post(path, key="approve-1"))[0] == 503
    assert served.journal.executions(now_ms=NOW_MS) == []
    writes_left = 1  # the row before the act; not the one with its answer
    assert refusal(served.post(path, key="approve-1"))[0] == 503
    writes_left = 9
    assert state(served.post(path, key="approve-1")) == (200, "already_approved")
    assert len(served.journal.executions(now_ms=NOW_MS)) == 1


class Slow(Acted):
    """Plans whose making takes until it is let go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()

    def make_plan(self, *, now_ms: int) -> ActOutcome:
        self.begun.release()
        assert self.go_on.wait(WAIT_S)
        return super().make_plan(now_ms=now_ms)


@contextmanager
def while_a_plan_is_made(served: Served) -> Iterator[None]:
    slow = Slow()
    served.app = served.application(slow)
    with ThreadPoolExecutor(1) as threads:
        planned = threads.submit(served.post, "plans")
        try:
            assert slow.begun.acquire(timeout=WAIT_S)
            yield
        finally:
            slow.go_on.set()
        assert planned.result(WAIT_S).status_code == 200


def test_an_abort_does_not_wait_for_a_plan_that_is_being_made(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "TURN_S", 0.05)
    with while_a_plan_is_made(served):
        assert state(served.post("executions/e-1/abort")) == (200, "abort_asked")
        assert refusal(served.post("plans")) == (503, "another act is still under way: try again in some seconds")


def test_acts_that_wait_leave_threads_for_those_who_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that waits holds a thread: beyond a few it is refused at once. Other acts have places of their own."""
    monkeypatch.setattr(requests, "WAITING_MAX", 1)
    with while_a_plan_is_made(served):
        assert refusal(served.post("brokers/3/drain")) == (
            503,
            "too many acts wait for their turn: try again in some seconds",
        )
        assert served.post("brokers/3/undrain").status_code == 200


METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get", "X")
TRICKS = ("//api/status", "/api//status", "/api/status/", "/metrics/", "/metrics;x", "/%61pi/status",
          "/api%2Fstatus", "/./api/status", "/x/../api/status", "/API/STATUS", "/api", "/unknown",
          "/api/v1/unknown", "/metricsx")  # fmt: skip


@pytest.mark.long
def test_where_reading_is_signed_in_no_path_and_no_method_shows_figures(tmp_path: Path, root: str) -> None:
    served = Served(tmp_path, root, reading="signed_in")
    paths = {getattr(route, "path", "") for route in served.app.routes} - {
        "/",
        "/healthz",
        "/readyz",
        "/api/v1/session",
        *(f"/{file}" for file in page_files()),  # no figures are in them
    }
    assert {"/metrics", "/api/status", "/api/weights", "/api/openapi.json", "/api/v1/audit"} <= paths
    for path in sorted(paths):
        assert {ask(served.app, method, path).status_code for method in METHODS} == {401}, path
    for path in TRICKS:
        answers = [ask(served.app, method, path) for method in METHODS]
        assert {answer.status_code for answer in answers} <= {401, 404}, path
        assert not any("rebalancer_" in answer.text or "items" in answer.text for answer in answers)
    for path in ("/metrics", "/api/status", "/api/v1/audit", "/api/v1/brokers", "/api/weights", "/api/openapi.json"):
        assert served.get(path).status_code == 200, path
    assert {served.get(path, role=None).status_code for path in ("/healthz", "/readyz", "/")} <= {200, 503}


def test_where_reading_is_signed_in_health_names_parts_and_no_reasons(tmp_path: Path, root: str) -> None:
    served = Served(tmp_path, root, reading="signed_in")
    snapshot = replace(read_snapshot(served.settings, NOW_MS), failures={"load": "s3://secret-bucket can't be read"})
    answer = ask(app_of(snapshot, served.settings, now_ms=NOW_MS), "GET", "/readyz")
    assert (answer.status_code, answer.json()["problems"]) == (503, ["load: can't be read"])
