"""JMX endpoints that are mistyped or answer with something else: a clear word at the start, later only a warning."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest

from assignor_core.execution.caution import LatencyBound
from streaming.collect.jmx import PREFIX, read_counters
from streaming.config import load_effective
from streaming.control.latency import SERIES, LatencyPressure
from streaming.errors import UsageProblem
from streaming.settings import Settings

SCRAPE = f"""# TYPE {PREFIX}bytesin_total untyped
{PREFIX}bytesin_total 300
{PREFIX}bytesout_total 200
{PREFIX}bytesout_total{{topic="t"}} 150
{PREFIX}messagesin_total 3
"""
OTHERWISE_WRONG = "http://" + "a" * 70_000
"""What only the HTTP client finds out."""


def counters(answer: str, url: str = "http://b:7071/metrics") -> Any:
    with httpx.Client(transport=httpx.MockTransport(lambda _request: httpx.Response(200, text=answer))) as http:
        return read_counters(http, 1, url)


def test_counters_are_read_from_a_scrape() -> None:
    found = counters(SCRAPE)
    assert [found.totals[name] for name in ("bytes_in", "bytes_out", "messages_in")] == [300, 200, 3]
    assert found.topic_bytes_out == {"t": 150}


@pytest.mark.parametrize(
    "answer",
    [
        "<html><body>Please log in</body></html>",
        '{"error": "not found"}',
        "",
        "up 1\n",
        SCRAPE.replace("300", "NaN"),
        SCRAPE + "torn",
    ],
)
def test_an_answer_without_sound_counters_is_none(answer: str) -> None:
    assert counters(answer) is None


def test_a_url_that_the_http_client_refuses_is_no_endpoint() -> None:
    assert counters(SCRAPE, OTHERWISE_WRONG) is None


def test_latencies_are_read_past_a_url_that_the_http_client_refuses() -> None:
    assert LatencyPressure({1: OTHERWISE_WRONG}, LatencyBound(2.0, 100.0)).highest_ms() is None


@pytest.mark.parametrize("value", ["", " torn", " NaN", " +Inf", ' 0x10 # {trace="1"}'])
def test_a_latency_that_is_no_number_is_unknown(value: str) -> None:
    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f"{SERIES},}}{value}\n".encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        pressure = LatencyPressure({1: f"http://127.0.0.1:{server.server_port}"}, LatencyBound(2.0, 100.0))
        assert pressure.highest_ms() is None
        server.shutdown()


@pytest.mark.parametrize(
    "url",
    ["http://broker-1:7071/metrics", "https://10.0.0.1/metrics", "http://[::1]:7071", "http://user:word@b_1:1/m?x=y"],
)
def test_urls_of_endpoints(url: str) -> None:
    assert Settings.model_validate({"collect": {"jmx_endpoints": {"1": url}}}).collect.jmx_endpoints == {1: url}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "broker-1:7071/metrics",
        "http//broker-1:7071",
        "http://:7071/metrics",
        "http://broker-1:7O71/metrics",
        "http://broker-1:70711/metrics",
        "http://broker-1:0/metrics",
        "http://[::1:7071/metrics",
        "http://broker 1:7071/metrics",
        "http://broker-1:7071/metrics\n",
        "http://broker..1:7071/metrics",
        "ftp://broker-1/metrics",
    ],
)
def test_a_mistyped_url_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        load_effective(None, {"collect.jmx_endpoints": {"2": url}}, {})
    assert str(caught.value) == f"collect.jmx_endpoints.2: must be like http://host:port/path, found {url!r} (flag)"
