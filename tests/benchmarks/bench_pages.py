"""How long the lists behind pages take with 300 brokers, 100,000 partitions and three plans of 50,000 movements each.

.venv/bin/python -m tests.benchmarks.bench_pages
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from starlette.applications import Starlette

from streaming.serve.snapshot import read_snapshot
from tests.serve.asking import app_of, ask
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

BROKERS, PARTITIONS, PER_TOPIC, PLANS, MOVEMENTS = 300, 100_000, 100, 3, 50_000
PATHS = (
    "/api/status", "/api/v1/partitions?broker=7&order=bytes_in&limit=20",
    "/api/v1/partitions?order=bytes_out&limit=1000",
    "/api/v1/movements?topic=topic-0007&partition=3", "/api/v1/movements?topic=topic-0007&limit=25",
    "/api/v1/movements?broker=7&limit=25", "/api/v1/movements?limit=1000", "/api/v1/movements?topic=none",
)  # fmt: skip


def main() -> None:
    """Print the median seconds and the size of each answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="How often each is asked for")
    times = parser.parse_args().times
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_for(Path(folder))
        write(Synthetic(settings.storage.tables))
        app = app_of(read_snapshot(settings, NOW_MS), settings, now_ms=NOW_MS)
        for path in PATHS:
            seconds, size = measured(app, path, times)
            print(f"{seconds:6.2f} s {size / 1000:6.0f} kB  {path}")


def measured(app: Starlette, path: str, times: int) -> tuple[float, int]:
    """Median seconds, and bytes of the answer."""
    taken, size = [], 0
    for _ in range(times):
        began = time.perf_counter()
        answer = ask(app, "GET", path)
        taken.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
        size = len(answer.content)
    return median(taken), size


def write(synthetic: Synthetic) -> None:
    """One window of load, and plans that were carried out ten minutes apart."""
    start_ms = NOW_MS - NOW_MS % WINDOW_MS - 2 * WINDOW_MS
    synthetic.broker_load(start_ms, {broker: 1e6 + broker for broker in range(BROKERS)})
    leaders = [
        (number % BROKERS, *placed(number), "leader", 1e4 + number * 7919 % 100_000) for number in range(PARTITIONS)
    ]
    synthetic.partition_load(start_ms, leaders)
    for plan in range(PLANS):
        plan_id, made_ms = f"{plan:064x}", NOW_MS - (PLANS - plan) * 600_000
        synthetic.plan(made_ms, plan_id)
        moved = [(*placed(number), [number % BROKERS], [(number + 1) % BROKERS]) for number in range(MOVEMENTS)]
        synthetic.movements(made_ms, moved, plan_id)
        for sequence, event in enumerate(("approved", "started", "done")):
            own = {"plan_id": plan_id, "movements_total": MOVEMENTS}
            synthetic.event(made_ms + 1_000 * sequence, sequence, event, execution_id=f"e-{plan}", **own)


def placed(number: int) -> tuple[str, int]:
    """Topic and partition of a partition by its number."""
    return f"topic-{number // PER_TOPIC:04d}", number % PER_TOPIC


if __name__ == "__main__":
    main()
