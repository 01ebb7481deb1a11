"""A fortnight of control on real brokers within minutes, and its decisions made again from the tables it has left.

What `tests/control/test_decisions_again.py` does on a simulated cluster: four embedded brokers hold the partitions,
each window's bytes are written to them, and its rates are what their logs have grown by. Control acts in mode `apply`
and moves real replicas. Only the clock is pressed together: a window of ten minutes lasts as long as its work takes.

    make bench-fortnight ARGS="--days 14"
"""

import argparse
import json
import logging
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

import structlog

from assignor_core.disks import replica_sizes
from assignor_core.live import PartitionKey
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.policies import decision_policy
from streaming.control.replaying import decisions_again
from streaming.control.run import ControlLoop
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.runtime import clocks
from streaming.settings import DAY_MS, Settings
from tests.control.test_decisions_again import (
    BROKERS,
    DAYS,
    PARTITIONS_EACH,
    TICK_MS,
    TICKS_MAX,
    WINDOW_MS,
    rates_at,
)
from tests.control.windows import write_windows
from tests.topics import producer_for_moves, wait_until_known
from tests.waiting import until

BYTES_OF_RATE = 0.01
"""Bytes that are written for each byte/s of a window's rate."""
PAUSE_S = 0.2
"""Between two ticks while replicas move."""


def main() -> None:
    """Live through it, decide again, print what came of it; fails where a decision differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=DAYS)
    days: int = parser.parse_args().days
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka", len(BROKERS)) as brokers:
        settings = Settings.model_validate(
            {
                "kafka": {"cluster_name": "fortnight", "bootstrap_servers": brokers.bootstrap_servers},
                "storage": {"tables": str(Path(home) / "tables")},
                "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
                "trigger": {"resources": ["bytes_in"]},
                "control": {"mode": "apply"},
            }
        )
        lived = Fortnight(settings, (clocks.now_ms() // DAY_MS - days) * DAY_MS)
        lived.live_through(days)
        rows = decisions_again(settings, decision_policy(settings, ()), since_ms=lived.midnight_ms)
        done = [row for row in tables.read(settings.storage.tables, "execution") if row["event"] == "done"]
    differing = [row for row in rows if not row.is_same]
    result = {
        "days": days,
        "windows": days * DAY_MS // WINDOW_MS,
        "decisions": len(rows),
        "by_reason": dict(Counter(row.then.reason for row in rows)),
        "executions_done": len(done),
        "decided_otherwise": len(differing),
        "seconds": round(time.monotonic() - began_s),
    }
    print(json.dumps(result, indent=2))
    assert rows, "no decision was made"
    assert not differing, differing[:3]


class Fortnight:
    """Topics on the brokers, who writes to them, and control."""

    def __init__(self, settings: Settings, midnight_ms: int) -> None:
        self.settings, self.midnight_ms = settings, midnight_ms
        self._admin = admin_client(settings.kafka)
        numbers = range(len(BROKERS) * PARTITIONS_EACH)
        placed = {
            "t": {number: [BROKERS[number % len(BROKERS)]] for number in numbers},
            "job": {0: [1]},
            "grown": {0: [2], 1: [2]},
        }
        self._admin.create_topics({name: {"assignments": rows} for name, rows in placed.items()})
        wait_until_known(self._admin, list(placed))
        self._producer = producer_for_moves(settings.kafka.bootstrap_servers, acks="all")
        self._cluster = Cluster(self._admin)
        self._sizes = self._measured()
        self._loop = ControlLoop(self._cluster, settings, now_ms=midnight_ms)

    def live_through(self, days: int) -> None:
        """Window after window."""
        random, now_ms = Random(7), 0
        for index in range(1, days * DAY_MS // WINDOW_MS + 1):
            end_ms = index * WINDOW_MS
            rates = self._written(rates_at(random, end_ms))
            end_at_ms = self.midnight_ms + end_ms
            write_windows(self.settings, self._cluster.describe(), end_ms=end_at_ms, rates=rates, windows=1)
            now_ms = self._ticks(max(now_ms, end_ms))
        self._admin.close()
        del self._producer  # or it complains of brokers that are gone

    def _written(self, wanted: dict[PartitionKey, float]) -> dict[PartitionKey, float]:
        """One record to each partition; the rates are what their logs have grown by."""
        for (topic, number), rate in wanted.items():
            self._producer.produce(topic, b"x" * int(rate * BYTES_OF_RATE), partition=number)
        assert self._producer.flush() == 0
        before, self._sizes = self._sizes, self._measured()
        return {key: (size - before[key]) / BYTES_OF_RATE for key, size in self._sizes.items() if key in wanted}

    def _measured(self) -> dict[PartitionKey, int]:
        """Log sizes at the leaders. A replica that has moved may stand at both brokers for a while."""

        def of_all() -> dict[PartitionKey, int] | None:
            partitions = self._cluster.describe().partitions
            sizes = replica_sizes(self._cluster.log_dirs())
            led = {key: sizes.get((row.leader, key)) for key, row in partitions.items()}
            known = {key: size for key, size in led.items() if size is not None}
            return known if len(known) == len(led) else None

        return until("each leader shows the size of its partitions", of_all)

    def _ticks(self, now_ms: int) -> int:
        """Ticks up to one that carries nothing out; the time of the last one."""
        for _ in range(TICKS_MAX):
            now_ms += TICK_MS
            try:
                busy = self._loop.tick(now_ms=self.midnight_ms + now_ms)
            except ClusterUnreachable:
                busy = True
            if not busy:
                return now_ms
            time.sleep(PAUSE_S)
        raise AssertionError("an execution does not end")


if __name__ == "__main__":
    main()
