"""A real Prometheus over endpoints that a test answers for: figures, restarts, and targets that fail or are gone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from streaming.collect.counters import FIELDS, PREFIX, PrometheusSource
from streaming.collect.sample import CounterPair
from tests.prometheus.live import needs_servers, now_ms
from tests.prometheus.scraping import scraping
from tests.waiting import until

pytestmark = [pytest.mark.prometheus, needs_servers]


@dataclass
class Endpoint:
    """What one broker's jmx_exporter shows."""

    count: int = 1_000
    fails: bool = False
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def text(self) -> str:
        """Each counter, and bytes by topic; each scrape shows 10 more."""
        with self.lock:
            self.asked += 1
            self.count += 10
            series = [*FIELDS, 'bytesin_total{topic="t"}', 'bytesout_total{topic="t"}']
            return "".join(f"{PREFIX}{name} {self.count}\n" for name in series)


@contextmanager
def served(endpoint: Endpoint) -> Iterator[str]:
    """host:port of it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(500 if endpoint.fails else 200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            if not endpoint.fails:
                self.wfile.write(endpoint.text().encode())

        def log_message(self, *_arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def pairs(source: PrometheusSource) -> dict[int, CounterPair]:
    return dict(source.read((1, 2), now_ms=now_ms()))


def test_what_prometheus_scraped_is_read_and_what_is_gone_is_unknown(tmp_path: Path) -> None:
    first, second = Endpoint(), Endpoint(count=5_000)
    with served(first) as one, served(second) as two, scraping(tmp_path, {1: one, 2: two}) as source:
        until("both brokers have two scrapes", lambda: pairs(source).keys() == {1, 2}, pause_s=0.3)
        for broker, pair in pairs(source).items():
            grown = pair.later.totals["bytes_in"] - pair.earlier.totals["bytes_in"]
            assert grown > 0
            assert grown % 10 == 0
            assert pair.later.topic_bytes_in == {"t": pair.later.totals["bytes_in"]}
            assert pair.later.topic_bytes_out == {"t": pair.later.totals["bytes_out"]}
            assert pair.later.totals["reassignment_bytes_in"] == pair.later.totals["bytes_in"]
            assert (pair.later.totals["bytes_in"] < 5_000) == (broker == 1)
        second.fails = True
        until("the one that fails is unknown", lambda: pairs(source).keys() == {1}, pause_s=0.3)
        second.fails, second.count = False, 0

        def restarted() -> bool:
            pair = pairs(source).get(2)
            return pair is not None and pair.earlier.totals["bytes_in"] <= pair.later.totals["bytes_in"] < 5_000

        until("after its restart it counts from 0 on", restarted, pause_s=0.3)
