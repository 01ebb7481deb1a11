"""Scrapers on a real serve process: how long `/metrics` takes them while tables change, and what the process takes."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil

from streaming.runtime import processes

ACCEPT = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
"""What Prometheus asks for; it asks for gzip, too."""
SCRAPERS = 4
SCRAPE_INTERVAL_S = 0.5
HEALTHY_S = 300
Figures = dict[str, float]


def scraped(config: Path, port: int, *, seconds: float, change: Callable[[int], None], changes: int) -> Figures:
    """Figures of four scrapers over so many seconds, in which the tables are changed so many times, evenly."""
    with serving(config, port) as process:
        waits_s, cpu_share = _scrape(
            f"http://127.0.0.1:{port}", process, seconds=seconds, change=change, changes=changes
        )
        peak_mib = peak_rss_mib(process.pid)
    ordered = sorted(waits_s)
    return {
        "scrapes": len(ordered),
        "scrape_p50_ms": 1e3 * ordered[len(ordered) // 2],
        "scrape_p99_ms": 1e3 * ordered[int(0.99 * len(ordered))],
        "serve_cpu_share": cpu_share,
        "serve_rss_mib": peak_mib,
    }


@contextmanager
def serving(config: Path, port: int) -> Iterator[psutil.Process]:
    """serve as a process of its own, as operators run it, from its first answer on."""
    command = [sys.executable, "-m", "streaming", "serve", "--config", str(config)]
    serve = processes.start(command, log=config.parent / "serve.log")
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}", serve)
        yield psutil.Process(serve.pid)
    finally:
        serve.terminate()
        serve.wait()


def _scrape(
    url: str, process: psutil.Process, *, seconds: float, change: Callable[[int], None], changes: int
) -> tuple[list[float], float]:
    """Seconds of each scrape, and CPU seconds a second of the process meanwhile: it may last longer than planned."""
    waits_s: list[float] = []
    stopping = threading.Event()

    def scrape() -> None:
        with httpx.Client(headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"}, timeout=60) as client:
            while not stopping.wait(SCRAPE_INTERVAL_S):
                began_s = time.perf_counter()
                client.get(f"{url}/metrics").raise_for_status()
                waits_s.append(time.perf_counter() - began_s)

    threads = [threading.Thread(target=scrape) for _ in range(SCRAPERS)]
    before = process.cpu_times()
    began_s = time.monotonic()
    for thread in threads:
        thread.start()
    for number in range(changes):
        change(number)
        time.sleep(max(0.0, began_s + seconds * (number + 1) / changes - time.monotonic()))
    stopping.set()
    for thread in threads:
        thread.join()
    after, took_s = process.cpu_times(), time.monotonic() - began_s
    return waits_s, (after.user + after.system - before.user - before.system) / took_s


def _wait_until_healthy(url: str, serve: subprocess.Popen[bytes]) -> None:
    """Until it answers; ends the benchmark where it never does."""
    deadline = time.monotonic() + HEALTHY_S
    while serve.poll() is None and time.monotonic() < deadline:
        try:
            httpx.get(f"{url}/healthz")
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("serve has ended, or does not answer")


def peak_rss_mib(pid: int) -> float:
    """Most memory that the process had; what it has now where Linux does not show it."""
    status = Path(f"/proc/{pid}/status")
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return float(psutil.Process(pid).memory_info().rss) / 2**20
