"""serve with 300 brokers, 100,000 partitions and 10,000 groups: first paint, sizes of answers, memory of serve.

.venv/bin/python -m tests.benchmarks.bench_first_paint

Each round adds a closed window of all brokers, partitions and groups, reads the paths that pages read, and opens the
page in a fresh browser. Prints one JSON object last.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
import yaml

from streaming.runtime.processes import free_port
from tests.benchmarks.scraping import serving
from tests.serve.synthetic import WINDOW_MS, Synthetic
from tests.waiting import until

BROKERS, PARTITIONS, PER_TOPIC, GROUPS = 300, 100_000, 100, 10_000
PATHS = (
    "api/status", "api/weights", "api/v1/groups?limit=1000", "api/v1/partitions?limit=1000",
    "api/v1/partitions?broker=7&order=bytes_in&limit=20", "api/v1/brokers?limit=1000",
    "api/v1/groups/partitions?group=group-00007&limit=1000", "metrics",
)  # fmt: skip
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
SHOWN = "() => document.querySelector('#brokers table') ? performance.now() : null"
WAIT_S = 600.0


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=8, help="Windows that come one after the other")
    windows = parser.parse_args().windows
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables"
        synthetic = Synthetic(str(tables))
        start_ms = (time.time_ns() // 1_000_000 // WINDOW_MS - windows - 3) * WINDOW_MS
        write_window(synthetic, start_ms)
        port, config = free_port(), Path(folder) / "rebalancer.yaml"
        url = f"http://127.0.0.1:{port}/"
        settings = {"kafka": {"cluster_name": "test"}, "storage": {"tables": str(tables)}, "serve": {"port": port}}
        config.write_text(yaml.safe_dump(settings))
        with serving(config, port) as process:
            rounds = []
            for number in range(1, windows + 1):
                window_ms = start_ms + number * WINDOW_MS
                write_window(synthetic, window_ms)
                until("the new window is shown", partial(_shows, url, window_ms), WAIT_S)
                rounds.append(one_round(process, url))
                print(json.dumps(rounds[-1]), file=sys.stderr)
    print(json.dumps(summary(rounds)))


def _shows(url: str, window_ms: int) -> bool:
    """Whether serve has read this window."""
    answer = httpx.get(url + "api/status", timeout=WAIT_S).json()
    load, groups = answer["load"], answer["groups"]
    return bool(load["window_start_ms"] == window_ms and load["hot_partitions"] and groups["groups"])


def write_window(synthetic: Synthetic, start_ms: int) -> None:
    """Every broker, every partition's leader, and a partition of each group."""
    synthetic.broker_load(start_ms, {broker: 1e6 + broker for broker in range(BROKERS)})
    places = [(f"topic-{number // PER_TOPIC:04d}", number % PER_TOPIC) for number in range(PARTITIONS)]
    leaders = [(n % BROKERS, *place, "leader", 1e4 + n * 7919 % 100_000) for n, place in enumerate(places)]
    synthetic.partition_load(start_ms, leaders)
    read = [(f"group-{n:05d}", *places[n * 7 % PARTITIONS], 1_000 + n, 2_000 + n) for n in range(GROUPS)]
    synthetic.group_lag(start_ms, read)


def one_round(process: psutil.Process, url: str) -> dict[str, Any]:
    """Answers, first paint, memory."""
    sizes, seconds = {}, {}
    for path in PATHS:
        began = time.perf_counter()
        answer = httpx.get(url + path, timeout=WAIT_S)
        answer.raise_for_status()
        seconds[path], sizes[path] = round(time.perf_counter() - began, 3), len(answer.content)
    return {
        **painted(url), "seconds": seconds, "bytes": sizes, "rss_mib": round(process.memory_info().rss / 2**20, 1),
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def painted(url: str) -> dict[str, float]:
    """Ms from the begin of the navigation to the first paint, and to the table of brokers."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(WAIT_S * 1000)
        page.goto(url)
        table_ms = page.wait_for_function(SHOWN).json_value()
        first_ms = page.wait_for_function(PAINT).json_value()
        browser.close()
    return {"first_paint_ms": round(first_ms), "table_ms": round(table_ms)}


def summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians and the highest of all rounds."""
    largest = {path: max(row["bytes"][path] for row in rounds) for path in PATHS}
    return {
        "brokers": BROKERS, "partitions": PARTITIONS, "groups": GROUPS, "rounds": len(rounds),
        "first_paint_ms": median(row["first_paint_ms"] for row in rounds),
        "first_paint_ms_max": max(row["first_paint_ms"] for row in rounds),
        "table_ms": median(row["table_ms"] for row in rounds),
        "seconds": {path: median(row["seconds"][path] for row in rounds) for path in PATHS},
        "bytes_max": largest, "rss_mib": [row["rss_mib"] for row in rounds],
        "load_average": [rounds[0]["load_average"], rounds[-1]["load_average"]],
    }  # fmt: skip


if __name__ == "__main__":
    main()
