"""What a move costs producers: latency of acknowledged writes before and during it, unthrottled, fixed and adaptive.

    make bench-throttle

Three brokers on this machine; each round moves two partitions of a topic of its own while a producer (acks=all) writes
to all of them. Printed: the rate of copying beside the throttle, and the producer's p50 and p99 beside those before.
"""

import argparse
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from assignor_core.plan import Movement, Plan, plan_to_json
from streaming import tables
from streaming.cluster import Cluster
from streaming.control.executor import Executor
from streaming.control.journal import Journal
from streaming.demo.brokers import EmbeddedCluster
from streaming.kafka_clients import admin_client
from streaming.settings import Settings

VALUE = b"x" * 1_000
SKEW: dict[str, dict[str, float]] = {
    name: {"max_over_mean": 1.0} if name == "bytes_in" else {}
    for name in ("bytes_in", "bytes_out", "disk", "leaders", "replicas")
}


@dataclass(slots=True)
class Writer:
    """Writes at a steady rate and keeps (sent at, latency) of each acknowledged record, s."""

    servers: list[str]
    topic: str
    rate: int
    latencies: list[tuple[float, float]] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """In a thread of its own."""
        thread = threading.Thread(target=self._write)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def percentiles(self, since_s: float, until_s: float) -> tuple[float, float]:
        """p50 and p99 of records sent in that time, ms."""
        found = sorted(latency for sent, latency in self.latencies if since_s <= sent < until_s)
        return found[len(found) // 2] * 1000, found[len(found) * 99 // 100] * 1000

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": ",".join(self.servers), "acks": "all", "linger.ms": 0})
        due = time.monotonic()
        number = 0
        while not self._ended.is_set():
            sent = time.monotonic()

            def delivered(error: object, _message: object, sent: float = sent) -> None:
                if error is None:
                    self.latencies.append((sent, time.monotonic() - sent))

            producer.produce(self.topic, VALUE, partition=number % 4, on_delivery=delivered)
            number += 1
            due += 1 / self.rate
            while (left := due - time.monotonic()) > 0:
                producer.poll(min(left, 0.001))
        producer.flush(30)


def fill(servers: list[str], topic: str, bytes_each: int) -> None:
    """Put `bytes_each` into each of four partitions."""
    producer = Producer({"bootstrap.servers": ",".join(servers), "queue.buffering.max.messages": 1_000_000})
    for index in range(4 * bytes_each // len(VALUE)):
        producer.produce(topic, VALUE, partition=index % 4)
        if index % 1_000 == 0:
            producer.poll(0)
    producer.flush(120)


def settings_of(cluster: EmbeddedCluster, folder: Path, control: dict[str, Any], capacity: float | None) -> Settings:
    """Settings of one round."""
    limits = {broker.broker_id: {"bytes_in_per_sec": capacity} for broker in cluster.brokers} if capacity else {}
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": cluster.bootstrap_servers},
            "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
            "control": control,
            "planner": {"capacities": limits},
        }
    )


def write_load(settings: Settings, rate: float) -> None:
    """One closed window: each broker takes `rate` bytes/s."""
    now_ms = time.time_ns() // 1_000_000 - 60_000
    audit = {
        "kafka_cluster": settings.kafka.cluster_name, "window_start": tables.utc(now_ms),
        "window_end": tables.utc(now_ms + 1_000), "covered_ms": 1_000, "sample_count": 1, "is_final": True,
        "first_event_time_ms": now_ms, "last_event_time_ms": now_ms, "updated_at": tables.utc(now_ms), "batch_id": 0,
        "query_id": "bench",
    }  # fmt: skip
    rows = [{**audit, "broker": broker, "bytes_in_per_sec": rate} for broker in (1, 2, 3)]
    tables.append(settings.storage.tables, "broker_load", rows, transaction_id="bench", transaction_version=now_ms)


def measure(cluster: EmbeddedCluster, settings: Settings, name: str, options: argparse.Namespace) -> str:
    """One round as a line of the table."""
    topic = f"throttle-{name}"
    admin = admin_client(settings.kafka)
    try:
        admin.create_topics({topic: {"assignments": {0: [1, 2], 1: [1, 2], 2: [2, 1], 3: [2, 1]}}})
        admin.wait_for_topics([topic])
        size = options.mb * 1_000_000
        fill(cluster.bootstrap_servers, topic, size)
        write_load(settings, options.rate * len(VALUE) * 2 / 3)
        moves = tuple(Movement(topic, index, (1, 2), (3, 2), float(size)) for index in (0, 1))
        plan, journal = Plan("bench", moves), Journal(settings)
        now_ms = time.time_ns() // 1_000_000
        content = {**plan_to_json(plan), "skew_before": SKEW, "skew_after": SKEW, "elapsed_ms": 0.0}
        journal.write_plan(content, decision=None, window=None, now_ms=now_ms)
        record = journal.approve(journal.plan(plan.plan_id), "bench", now_ms=now_ms)
        executor = Executor(Cluster(admin), journal, settings)
        writer = Writer(cluster.bootstrap_servers, topic, options.rate)
        with writer.writing():
            time.sleep(options.before_s)
            began = time.monotonic()
            executor.begin(record, journal.plan(plan.plan_id), now_ms=time.time_ns() // 1_000_000)
            while not executor.tick(record, plan, now_ms=time.time_ns() // 1_000_000):
                time.sleep(0.2)
            ended = time.monotonic()
        # The first seconds of a producer are not its normal ones.
        before = writer.percentiles(began - options.before_s + 3, began)
        during = writer.percentiles(began, ended)
    finally:
        admin.close()
    copied = 2 * size / (ended - began) / 1e6
    return (
        f"{name:>12} {copied:8.2f} {ended - began:8.1f} {before[0]:8.2f} {during[0]:8.2f} {before[1]:8.1f} "
        f"{during[1]:8.1f} {during[1] / before[1]:8.2f}"
    )


def main() -> None:
    """All rounds, each with its own topic, on the same brokers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=60, help="size of each partition, MB")
    parser.add_argument("--rate", type=int, default=500, help="records of 1 kB per second")
    parser.add_argument("--before-s", type=float, default=15.0)
    options = parser.parse_args()
    rounds: list[tuple[str, dict[str, Any], float | None]] = [
        ("unthrottled", {"throttle_bytes_per_sec": 10**11, "throttle_adaptive": False}, None),
        ("fixed 4 MB/s", {"throttle_bytes_per_sec": 4_000_000, "throttle_adaptive": False}, None),
        ("adaptive", {"throttle_bytes_per_sec": 50_000_000}, 6e6),
    ]
    print(f"{platform.machine()}, {os.cpu_count()} cores; 2 of 4 partitions of {options.mb} MB, {options.rate} kB/s")
    print("              MB/s        s   p50 ms   during   p99 ms   during    ratio")
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka") as cluster:
        for index, (name, control, capacity) in enumerate(rounds):
            settings = settings_of(cluster, Path(home) / str(index), control, capacity)
            print(measure(cluster, settings, name.split()[0], options), flush=True)


if __name__ == "__main__":
    main()
