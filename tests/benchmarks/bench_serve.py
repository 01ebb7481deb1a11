"""How long `/metrics` takes with 50 brokers and 200 groups while tables change under it: real process, real scrapes."""

import argparse
import json
import tempfile
from pathlib import Path

import yaml

from streaming.runtime import processes
from tests.benchmarks.scraping import scraped
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, skewed_cluster

BROKERS, GROUPS, TOPICS_PER_GROUP, PARTITIONS_PER_TOPIC, TOPICS = 50, 200, 3, 10, 100
WRITE_INTERVAL_S = 2.0


def main() -> None:
    """Print the figures of four scrapers as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        synthetic = Synthetic(str(folder / "tables"))
        skewed_cluster(synthetic, NOW_MS)
        for window in range(-8, 1):
            write_window(synthetic, window)
        port = processes.free_port()
        settings = {"kafka": {"cluster_name": "test"}, "storage": {"tables": synthetic.root}, "serve": {"port": port}}
        config = folder / "rebalancer.yaml"
        config.write_text(yaml.safe_dump(settings))
        figures = scraped(
            config, port, seconds=seconds, changes=round(seconds / WRITE_INTERVAL_S),
            change=lambda number: write_window(synthetic, number + 1),
        )  # fmt: skip
    print(json.dumps(figures))


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


if __name__ == "__main__":
    main()
