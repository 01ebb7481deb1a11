"""A real Prometheus on loopback that scrapes targets each second, and the source that the collector reads it by."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import yaml

from streaming.collect.counters import PrometheusSource
from streaming.runtime import processes
from streaming.settings import CollectSettings
from tests.waiting import DEADLINE_S, until


def until_ready(url: str) -> None:
    """Wait until Prometheus answers queries: its port is open before its storage is, and until then it answers 503."""
    until(f"{url} is ready", lambda: httpx.get(f"{url}/-/ready", timeout=DEADLINE_S).is_success)


@contextmanager
def scraping(folder: Path, targets: Mapping[int, str]) -> Iterator[PrometheusSource]:
    """`targets` are host:port by broker id; the label `node` names the broker as `kafka-ID`."""
    port = processes.free_port()
    static = [{"targets": [target], "labels": {"node": f"kafka-{broker}"}} for broker, target in targets.items()]
    configuration = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "kafka", "static_configs": static}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    command = [
        "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    process = processes.start(command, log=folder / "prometheus.log")
    try:
        ready = processes.wait_for_port("127.0.0.1", port, process, time.monotonic() + DEADLINE_S)
        assert ready, (folder / "prometheus.log").read_text()
        until_ready(f"http://127.0.0.1:{port}")
        settings = CollectSettings(
            prometheus_url=f"http://127.0.0.1:{port}", prometheus_broker_label="node",
            prometheus_broker_pattern=r"-(\d+)$", prometheus_matchers='job="kafka"', sample_interval_ms=2_000,
        )  # fmt: skip
        source = PrometheusSource.of(settings)
        assert source is not None
        yield source
    finally:
        processes.end([psutil.Process(process.pid)] if process.poll() is None else [])
        process.wait()
