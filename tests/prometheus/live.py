"""Real Prometheus and Alertmanager on loopback, watching a real serve process: over tables that a test writes, or any.

Their configuration is the committed one with addresses and waiting times changed, nothing else.
"""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from streaming.runtime import processes
from streaming.settings import DAY_MS
from tests.prometheus.scraping import until_ready
from tests.prometheus.test_rules import ALERTMANAGER, RULES
from tests.serve.synthetic import Synthetic, skewed_cluster
from tests.waiting import DEADLINE_S

STALLED_AFTER_S = 8
"""Instead of 300 s: after this long without a heartbeat a stream counts as stalled."""
REPORT_MS = 1_000

has_servers = all(map(shutil.which, ("prometheus", "prometheus-alertmanager")))
needs_servers = pytest.mark.skipif(
    not has_servers,
    reason="Prometheus or Alertmanager isn't installed (Debian packages prometheus, prometheus-alertmanager)",
)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Watch:
    """Prometheus, Alertmanager, and what the webhook got."""

    prometheus_url: str
    alertmanager_url: str
    received: list[dict[str, Any]]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Series of an instant query; fails on what Prometheus refuses."""
        answer = httpx.post(f"{self.prometheus_url}/api/v1/query", data={"query": expr}, timeout=DEADLINE_S).json()
        assert answer["status"] == "success", f"{expr}: {answer.get('error')}"
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def alerts(self) -> dict[str, list[dict[str, Any]]]:
        """Alerts that Alertmanager holds, by name."""
        alerts: dict[str, list[dict[str, Any]]] = {}
        for alert in httpx.get(f"{self.alertmanager_url}/api/v2/alerts", timeout=DEADLINE_S).json():
            alerts.setdefault(alert["labels"]["alertname"], []).append(alert)
        return alerts

    def notification(self, alert: str, status: str) -> dict[str, Any] | None:
        """What the webhook was told last of this alert in this state."""
        rows = [row for row in self.received if row["labels"]["alertname"] == alert and row["status"] == status]
        return rows[-1] if rows else None


@contextmanager
def watching(folder: Path, serve_port: int, *, stalled_after_s: int) -> Iterator[Watch]:
    """Both running, with every `for` at nothing and a stall told after `stalled_after_s`; ended whatever happens."""
    ports = dict(zip(("prometheus", "alertmanager"), processes.free_ports(2), strict=True))
    received: list[dict[str, Any]] = []
    with _webhook(received) as webhook_port:
        _write_configuration(folder, {"serve": serve_port, **ports}, webhook_port, stalled_after_s)
        with _running(folder, _commands(folder, ports), ports):
            prometheus_url, alertmanager_url = (f"http://127.0.0.1:{port}" for port in ports.values())
            # Alertmanager has the same page.
            for url in (prometheus_url, alertmanager_url):
                until_ready(url)
            yield Watch(prometheus_url, alertmanager_url, received)


@dataclass(slots=True)
class Live:
    """A serve process over tables that the test writes, and who watches it."""

    synthetic: Synthetic
    watch: Watch
    _reported_ms: int = 0

    def batch_rows(self) -> None:
        """The stream lives; at most one row a second and query."""
        if now_ms() - self._reported_ms >= REPORT_MS:
            self._reported_ms = now_ms()
            for query in ("byte_rate", "consumer_lag", "rejects"):
                self.synthetic.batch_row(self._reported_ms, query, trigger_interval_ms=REPORT_MS)


@contextmanager
def live(folder: Path) -> Iterator[Live]:
    """Everything running over a skewed cluster's tables; ended whatever happens."""
    synthetic = Synthetic(str(folder / "tables"))
    skewed_cluster(synthetic, now_ms())
    for number in range(10, 13):
        synthetic.measured_plan(number, now_ms() - number * DAY_MS, factor=1.05)
    port = processes.free_port()
    settings = {
        "kafka": {"cluster_name": "test"},
        "storage": {"tables": str(folder / "tables")},
        "serve": {"port": port, "refresh_interval_ms": 300},
    }
    file = folder / "rebalancer.yaml"
    file.write_text(yaml.safe_dump(settings))
    serve = [sys.executable, "-m", "streaming", "serve", "--config", str(file)]
    with (
        _running(folder, {"serve": serve}, {"serve": port}),
        watching(folder, port, stalled_after_s=STALLED_AFTER_S) as watch,
    ):
        yield Live(synthetic, watch)


@contextmanager
def _running(folder: Path, commands: dict[str, list[str]], ports: dict[str, int]) -> Iterator[None]:
    """Each command as a process, once its port answers."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, command in commands.items():
            process = processes.start(command, log=folder / f"{name}.log")
            started.append(process)
            ready = processes.wait_for_port("127.0.0.1", ports[name], process, time.monotonic() + DEADLINE_S)
            assert ready, (folder / f"{name}.log").read_text()
        yield
    finally:
        processes.end([psutil.Process(process.pid) for process in started if process.poll() is None])
        for process in started:
            process.wait()


def _commands(folder: Path, ports: dict[str, int]) -> dict[str, list[str]]:
    return {
        "alertmanager": [
            "prometheus-alertmanager",
            f"--config.file={folder}/alertmanager.yml",
            f"--storage.path={folder}/alertmanager",
            f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
            "--cluster.listen-address=",
        ],
        "prometheus": [
            "prometheus",
            f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/prometheus",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
        ],
    }


def _write_configuration(folder: Path, ports: dict[str, int], webhook_port: int, stalled_after_s: int) -> None:
    prometheus = yaml.safe_load((RULES / "prometheus.yml").read_text())
    prometheus["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    prometheus["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{ports['serve']}"]
    prometheus["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{ports['alertmanager']}"]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(prometheus))
    (folder / "recordings.yml").write_text((RULES / "recordings.yml").read_text())
    rules = (RULES / "alerts.yml").read_text()
    rules = re.sub(r"\bfor: \d+\w", "for: 0s", re.sub(r"keep_firing_for: \d+m", "keep_firing_for: 0s", rules))
    (folder / "alerts.yml").write_text(rules.replace(", 300)", f", {stalled_after_s})"))
    routes = ALERTMANAGER.read_text().replace("127.0.0.1:9095", f"127.0.0.1:{webhook_port}")
    routes = routes.replace("group_wait: 30s", "group_wait: 0s").replace("group_interval: 5m", "group_interval: 1s")
    (folder / "alertmanager.yml").write_text(routes)


@contextmanager
def _webhook(received: list[dict[str, Any]]) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.extend({**alert, "path": self.path} for alert in body["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            """Nothing: what came is in `received`."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
