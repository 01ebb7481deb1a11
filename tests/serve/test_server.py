"""The process: what it answers, what it does when its port is taken, and that it ends as told."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import yaml
from starlette.applications import Starlette

from streaming import tables
from streaming.runtime.processes import free_port
from streaming.serve.snapshot import Snapshot, read_snapshot
from tests.serve.asking import app_of, ask
from tests.serve.synthetic import NOW_MS, Synthetic, settings_for, skewed_cluster
from tests.waiting import DEADLINE_S, until


def get(app: Starlette, path: str, accept: str = "*/*") -> httpx.Response:
    return ask(app, "GET", path, headers={"Accept": accept})


@pytest.fixture(scope="module")
def app(skewed_tables: str, skewed_snapshot: Snapshot) -> Starlette:
    """Over tables that nobody changes."""
    return app_of(skewed_snapshot, settings_for(Path(skewed_tables).parent), now_ms=NOW_MS)


def test_metrics_come_in_the_form_that_is_asked_for(app: Starlette) -> None:
    text = get(app, "/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "# EOF" not in text.text
    openmetrics = get(app, "/metrics", "application/openmetrics-text; version=1.0.0")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.text.endswith("# EOF\n")


def test_metrics_are_packed_for_those_who_can_unpack_them(app: Starlette) -> None:
    """Prometheus asks for gzip; what unpacks it is the client here, too."""

    packed, plain = (
        ask(app, "GET", "/metrics", headers={"Accept-Encoding": encoding}) for encoding in ("gzip", "identity")
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept, Accept-Encoding"
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 4


def test_ready_says_why_not(tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    Path(settings.storage.tables).mkdir()
    fresh = read_snapshot(settings, NOW_MS)
    assert get(app_of(fresh, settings, now_ms=NOW_MS), "/readyz").status_code == 200
    broken = replace(fresh, failures={"load": "table broker_load can't be read"})
    answer = get(app_of(broken, settings, now_ms=NOW_MS), "/readyz")
    assert (answer.status_code, answer.json()["problems"]) == (503, ["load: table broker_load can't be read"])
    old = replace(fresh, read_at_ms=NOW_MS - 3_600_000)
    assert get(app_of(old, settings, now_ms=NOW_MS), "/readyz").status_code == 503
    assert get(app_of(old, settings, now_ms=NOW_MS), "/healthz").status_code == 200


def start(folder: Path, port: int) -> subprocess.Popen[str]:
    config = folder / "rebalancer.yaml"
    settings = {"kafka": {"cluster_name": "test"}, "storage": {"tables": str(folder / "tables")},
                "serve": {"port": port, "refresh_interval_ms": 200}, "log": {"format": "json"},
                "notify": {"webhooks": {"ops": {"url": "http://127.0.0.1:1/"}}, "interval_ms": 200}}  # fmt: skip
    config.write_text(yaml.safe_dump(settings))
    command = [sys.executable, "-m", "streaming", "serve", "--config", str(config)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    port = free_port()
    process = start(tmp_path, port)
    try:
        assert process.stderr is not None
        events = [json.loads(process.stderr.readline())["event"] for _ in range(2)]
        assert events == ["snapshot_part_failed", "serve_started"], "there is no folder of tables yet"
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_it_starts_without_tables_sees_them_come_and_ends_on_a_signal(
    serving: tuple[subprocess.Popen[str], str], tmp_path: Path, number: signal.Signals
) -> None:
    process, url = serving
    client = httpx.Client(base_url=url, timeout=DEADLINE_S)
    assert client.get("/api/status").json()["load"]["brokers"] == []
    assert client.get("/readyz").status_code == 503
    now_ms = time.time_ns() // 1_000_000
    synthetic = Synthetic(str(tmp_path / "tables"))
    skewed_cluster(synthetic, now_ms)
    until("the tables are seen", lambda: client.get("/api/status").json()["control"]["execution"], pause_s=0.1)
    assert client.get("/readyz").status_code == 200
    client.close()
    for sequence, event in enumerate(("approved", "started")):
        synthetic.event(time.time_ns() // 1_000_000, sequence, event, execution_id="e-2")
    tried = until("a notification is tried", lambda: tables.read(synthetic.root, "notification"))
    assert tried[0]["occurrence_id"] == "execution:e-2:1"
    with httpx.stream("GET", f"{url}/api/v1/events", timeout=DEADLINE_S) as stream:
        chunks = stream.iter_text()
        assert next(chunks).startswith("retry: ")
        process.send_signal(number)
        assert "event: " in "".join(chunks), "to its end: a stream that was cut off raises an error"
    assert process.wait(DEADLINE_S) == 0
    assert process.stderr is not None
    assert json.loads(process.stderr.read().splitlines()[-1])["event"] == "serve_stopped"


@pytest.mark.long
def test_a_port_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start(tmp_path, port)
        _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert errors.count("\n") == 1
    assert f"serve.port {port}" in errors
    assert "in use" in errors
