"""JMX endpoints that are mistyped or answer with something else: a clear word at the start, later only a warning."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.execution.caution import LatencyBound
from streaming.cluster import metric_reads
from streaming.cluster.metric_reads import Scrapes, scrape
from streaming.collect.counters import FIELDS, PREFIX, parse_counters, read_counters
from streaming.collect.sample import BrokerCounters, SampleState
from streaming.config import load_effective
from streaming.control.pressure import SERIES, LatencyPressure
from streaming.errors import UsageProblem
from streaming.settings import Settings
from tests.http_environment import UNUSABLE

SCRAPE = f"""# TYPE {PREFIX}bytesin_total untyped
{PREFIX}bytesin_total 300
{PREFIX}bytesout_total 200
{PREFIX}bytesout_total{{topic="t"}} 150
{PREFIX}messagesin_total 3
"""
OTHERWISE_WRONG = "http://" + "a" * 70_000
"""What only the HTTP client finds out."""


URL = "http://reader:hunter2@b:7071/metrics"
FIGURES = '# HELP x y\nother{a="1"} 1.0\n' + SCRAPE


def counters(answer: str, url: str = URL) -> BrokerCounters | None:
    """Counters of broker 1, whose endpoint answers so; broker 2's always answers soundly."""
    answers = {url: answer, "http://sound/": SCRAPE}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=answers[str(request.url)]))
    look = SampleState({1: None, 2: None}, 0, 0.0, lambda: 0.0)
    read = read_counters({1: url, 2: "http://sound/"}, look, transport=transport)
    assert read[2].totals["bytes_in"] == 300
    assert ("counters", 2) in look.read_ms
    return read.get(1)


@contextmanager
def endpoint(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The URL of a server that answers so."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with suppress(OSError):  # the client has gone
                answer(self)

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()


def drips(handler: BaseHTTPRequestHandler, beginning: bytes, byte: bytes) -> None:
    """A byte every now and then until the client has gone, each sooner than any limit that begins anew with it."""
    handler.wfile.write(beginning)
    while True:
        handler.wfile.write(byte)
        handler.wfile.flush()
        time.sleep(0.05)


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\n\r\n"], ids=["head", "body"])
def test_an_endpoint_that_drips_is_left_at_its_limit_and_the_others_are_read(beginning: bytes) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        drips(handler, beginning, b"a")

    def sound(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\nup 1\n")

    with endpoint(drip) as dripping, endpoint(sound) as other:
        scrapes = scrape({1: dripping, 2: other}, limit_s=2.0)
    assert scrapes == Scrapes({2: "up 1\n"}, {1: "TimeoutError"})


def test_an_answer_without_end_is_left_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_reads, "SCRAPE_BYTES_MAX", len(SCRAPE))
    answers = {"http://a/": SCRAPE, "http://b/": SCRAPE + "x"}
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text=answers[str(request.url)]))
    scrapes = scrape({1: "http://a/", 2: "http://b/"}, limit_s=5.0, transport=transport)
    assert scrapes == Scrapes({1: SCRAPE}, {2: "AnswerTooLarge"})


def test_counters_are_read_from_a_scrape() -> None:
    read = counters(SCRAPE)
    assert read is not None
    assert [read.totals[name] for name in ("bytes_in", "bytes_out", "messages_in")] == [300, 200, 3]
    assert read.topic_bytes_out == {"t": 150}


@pytest.mark.parametrize(
    "answer",
    [
        "<html><body>Please log in</body></html>",
        '{"error": "not found"}',
        "",
        "up 1\n",
        SCRAPE.replace("300", "NaN"),
        SCRAPE + "torn",
        SCRAPE[:-5],
        SCRAPE + f"{PREFIX}bytesin_total\n",
        SCRAPE + f'{PREFIX}bytesout_total{{a="1", ="x"}} 1\n',
        SCRAPE + f"{PREFIX}bytesout_total {'1' * 400}\n",
    ],
)
def test_an_answer_without_sound_counters_costs_its_brokers_alone(answer: str) -> None:
    assert counters(answer) is None


@pytest.mark.parametrize("line", ["other", 'other{a="1", ="x"} 1', f"other {'1' * 400}", "# TYPE", "other NaN"])
def test_a_line_that_does_not_concern_us_need_not_be_sound(line: str) -> None:
    assert counters(f"{line}\n{SCRAPE}") == counters(SCRAPE)


@given(st.integers(0, len(FIGURES)), st.integers(0, 40), st.text('{}="\\, #\n\t1e_x', max_size=8))
def test_no_answer_ends_the_look(start: int, length: int, text: str) -> None:
    parse_counters(FIGURES[:start] + text + FIGURES[start + length :])


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*FIELDS, "other_total", "bytesout_total_extra"]),
            st.sampled_from(
                ["", '{topic="t"}', '{topic="a.b-c_1",}', '{topic="t",x="1"}', '{topic="a\\"b"}', "{}", '{topic=""}']
            ),
            st.sampled_from(["1", "1.5E7", "2e-3", "NaN", "+Inf", "-1", "1 1700000000000", "x", "1.2.3", "1e999", "٣"]),
        ),
        max_size=4,
    )
)
def test_lines_of_the_usual_form_give_what_the_parser_of_any_form_gives(lines: list[tuple[str, str, str]]) -> None:
    text = "".join(f"{PREFIX}{name}{labels} {value}\n" for name, labels, value in lines)
    # A line of another kind of labels, not ours, sends all of them through the parser of any form.
    assert parse_counters(text) == parse_counters(text + f'{PREFIX}ignored{{client="x"}} 1\n')


def test_a_login_inside_a_url_is_not_logged() -> None:
    with structlog.testing.capture_logs() as lines:
        counters("")
        counters("", OTHERWISE_WRONG.replace("//", "//reader:hunter2@"))
    assert [line["event"] for line in lines] == ["jmx_incomplete", "jmx_unreachable"]
    assert all("@" in line["url"] and "hunter2" not in str(line) and "reader" not in str(line) for line in lines)


def test_a_url_that_the_http_client_refuses_is_no_endpoint() -> None:
    assert counters(SCRAPE, OTHERWISE_WRONG) is None


@pytest.mark.parametrize(("variable", "value", "problem"), UNUSABLE)
def test_an_environment_that_the_http_client_refuses_costs_the_counters_alone(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(variable, value)
    urls = {2: "https://127.0.0.1:1/metrics", 1: "http://127.0.0.1:1/metrics"}
    assert scrape(urls, limit_s=1.0) == Scrapes(problems={1: problem, 2: problem})
    assert LatencyPressure(urls, LatencyBound(2.0, 100.0)).highest_ms() is None


def test_latencies_are_read_past_a_url_that_the_http_client_refuses() -> None:
    assert LatencyPressure({1: OTHERWISE_WRONG}, LatencyBound(2.0, 100.0)).highest_ms() is None


@pytest.mark.parametrize("value", ["", " torn", " NaN", " +Inf", ' 0x10 # {trace="1"}', " 9 1700000000000"])
def test_a_latency_that_is_no_number_is_unknown_and_others_count(value: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        line = value if handler.path == "/broken" else " 3"
        handler.wfile.write(f"HTTP/1.1 200 OK\r\n\r\n{SERIES},}}{line}\n".encode())

    with endpoint(answer) as url:
        urls = {1: url.replace("/metrics", "/broken"), 2: url}
        pressure = LatencyPressure(urls, LatencyBound(2.0, 100.0))
        assert pressure.highest_ms() == (9.0 if value.startswith(" 9") else 3.0)


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
