"""How long `/metrics` takes with 50 brokers and 200 groups while tables change under it: real process, real scrapes."""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import yaml

from streaming.runtime import processes
from tests.benchmarks.scraping import ACCEPT, wait_until_healthy
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster

BROKERS, GROUPS, TOPICS_PER_GROUP, PARTITIONS_PER_TOPIC, TOPICS = 50, 200, 3, 10, 100
WRITE_INTERVAL_S = 2.0
SCRAPE_INTERVAL_S = 0.1


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scrapes", type=int, default=300)
    scrapes = parser.parse_args().scrapes
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        synthetic = Synthetic(str(folder / "tables"))
        skewed_cluster(synthetic, NOW_MS)
        for window in range(-8, 1):
            write_window(synthetic, window)
        port = processes.free_port()
        settings = {"kafka": {"cluster_name": "test"}, "storage": {"tables": synthetic.root}, "serve": {"port": port}}
        (folder / "rebalancer.yaml").write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "streaming", "serve", "--config", str(folder / "rebalancer.yaml")]
        serve = processes.start(command, log=folder / "serve.log")
        try:
            seconds, lines = measure(f"http://127.0.0.1:{port}", serve, synthetic, scrapes)
        finally:
            serve.terminate()
            serve.wait()
    report(seconds, lines)


def measure(url: str, serve: subprocess.Popen[bytes], synthetic: Synthetic, scrapes: int) -> tuple[list[float], int]:
    """Seconds of each scrape, and lines of the last."""
    wait_until_healthy(url, serve)
    stopping = threading.Event()

    def write() -> None:
        window = 1
        while not stopping.wait(WRITE_INTERVAL_S):
            write_window(synthetic, window)
            window += 1

    writer = threading.Thread(target=write)
    writer.start()
    seconds, body = [], ""
    try:
        with httpx.Client(headers={"Accept": ACCEPT}) as client:
            for _ in range(scrapes):
                began = time.perf_counter()
                body = client.get(f"{url}/metrics").raise_for_status().text
                seconds.append(time.perf_counter() - began)
                time.sleep(SCRAPE_INTERVAL_S)
    finally:
        stopping.set()
        writer.join()
    return seconds, body.count("\n")


def write_window(synthetic: Synthetic, window: int) -> None:
    """One closed window of every broker and group."""
    start_ms = NOW_MS - NOW_MS % WINDOW_MS + window * WINDOW_MS
    synthetic.broker_load(start_ms, {broker: 1.0e6 * (1 + broker % 7) for broker in range(BROKERS)})
    synthetic.group_event(start_ms, f"group-{window % GROUPS}")
    synthetic.group_lag(
        start_ms,
        [
            (
                f"group-{group}",
                f"topic-{(group + nth) % TOPICS}",
                partition,
                1_000 * (window + 20),
                1_100 * (window + 20),
            )
            for group in range(GROUPS)
            for nth in range(TOPICS_PER_GROUP)
            for partition in range(PARTITIONS_PER_TOPIC)
        ],
        log_start_offset=1,
    )


def report(seconds: list[float], lines: int) -> None:
    print(f"{lines:,} lines; first scrape {seconds[0] * 1e3:.1f} ms")
    ordered = sorted(seconds[1:])
    for name, share in (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99), ("worst", 1.0)):
        print(f"{name:>8} {ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3:>8.1f} ms")


if __name__ == "__main__":
    main()
