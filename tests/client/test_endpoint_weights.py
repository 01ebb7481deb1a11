"""What a consumer that leads makes of the answers of an endpoint: weights or none, never an error."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isnan
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

import pytest

from assignor_core.assignors import GroupSpec, MemberSpec, assign
from streaming.weights import endpoint_weights
from tests.waiting import DEADLINE_S

Answering = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def serving(answering: Answering) -> Iterator[str]:
    """Host and port of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answering(self)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answer(body: str, status: int = 200) -> Answering:
    def answering(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return answering


def rates(listed: str) -> Answering:
    return answer(f'{{"bytes_in_per_sec": {{"t": {listed}}}}}')


OTHER = ["[]", "{}", '"no"', "null", "no", '{"bytes_in_per_sec": []}', '{"bytes_in_per_sec": {"t": 5}}', "[" * 200_000]
NO_RATES = ["-1", "Infinity", "-Infinity", "NaN", "1e16", "1" * 400, '"5"', "[1]", "{}", "true", "null"]
READER = "rb_reader"


@pytest.mark.parametrize("body", OTHER, ids=lambda body: body[:30])
def test_an_answer_of_something_else_leaves_the_group_to_counts(body: str) -> None:
    with serving(answer(body)) as host:
        assert endpoint_weights(f"http://{host}", timeout_s=DEADLINE_S)(["t"]) == {}


@pytest.mark.parametrize("value", NO_RATES)
def test_a_value_that_is_no_rate_is_unknown(value: str) -> None:
    with serving(rates(f"[7, {value}, 0]")) as host:
        weights = endpoint_weights(f"http://{host}", timeout_s=DEADLINE_S)(["t"])
    first, spoilt, last = weights["t"]
    assert (first, last) == (7.0, 0.0)
    assert isnan(spoilt)
    spec = GroupSpec({"t": 3}, {"a": MemberSpec(["t"]), "b": MemberSpec(["t"])}, partition_weights=weights)
    assert sum(map(len, assign("load-aware", spec).assignment.values())) == 3


def test_many_topics_are_asked_for_in_requests_that_a_server_takes() -> None:
    topics = [f"tópic-{number:04d}-with-a-long-name-{'x' * 80}" for number in range(1_000)]
    asked: list[str] = []

    def answering(handler: BaseHTTPRequestHandler) -> None:
        assert len(handler.path) < 32_000
        named = parse_qs(urlsplit(handler.path).query)["topic"]
        asked.extend(named)
        answer(json.dumps({"bytes_in_per_sec": {topic: [5.0] for topic in named}}))(handler)

    with serving(answering) as host:
        assert endpoint_weights(f"http://{host}", timeout_s=DEADLINE_S)(topics) == {topic: [5.0] for topic in topics}
    assert asked == topics


@pytest.mark.parametrize(
    "beginning", [b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"]
)
def test_an_answer_that_arrives_byte_by_byte_is_not_waited_for(beginning: bytes) -> None:
    """Each byte comes within the limit, and the last one never."""
    over = Event()

    def answering(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(beginning)
        while not over.wait(0.02):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    with serving(answering) as host:
        try:
            assert endpoint_weights(f"http://{host}", timeout_s=0.2)(["t"]) == {}
        finally:
            over.set()


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_the_login_of_a_url_is_not_logged(scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answer("no", 503)) as host:
        assert endpoint_weights(f"{scheme}reader:hunter2@{host}", token=READER)(["t"]) == {}
    shown = "".join(capsys.readouterr())
    assert "weights_unavailable" in shown
    assert "hunter2" not in shown
    assert READER not in shown


def test_a_token_signs_the_consumer_in() -> None:
    def answering(handler: BaseHTTPRequestHandler) -> None:
        signed_in = handler.headers["Authorization"] == f"Bearer {READER}"
        (rates("[1]") if signed_in else answer("", 401))(handler)

    with serving(answering) as host:
        assert endpoint_weights(f"http://{host}", timeout_s=DEADLINE_S)(["t"]) == {}
        assert endpoint_weights(f"http://{host}", timeout_s=DEADLINE_S, token=READER)(["t"]) == {"t": [1.0]}
