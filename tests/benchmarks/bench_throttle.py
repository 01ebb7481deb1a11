"""What a move costs producers: latency of acknowledged writes before and during it, unthrottled, fixed and adaptive.

    make bench-throttle

Three brokers on this machine; each round moves two partitions of a topic of its own to a broker that has none of it,
while a producer (acks=all, a process of its own) writes to all four. Printed: what the receiving broker copied, as it
counts it itself, beside the throttle that was set meanwhile, and the producer's p50 and p99 before, while it copies,
and its p99 over the whole move: at the end two leaders change, which costs the same whatever the throttle.
"""

import argparse
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from assignor_core.throttles import FOLLOWER_RATE
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.cluster.metric_reads import scrape
from streaming.collect.counters import parse_counters
from streaming.control.journal import ExecutionRecord, Journal
from streaming.control.wiring import executor_of, journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests.topics import wait_until_known

VALUE = b"x" * 1_000
RECEIVER = 3
WARM_UP_S = 20.0
"""The first seconds of a producer are not its normal ones, nor those of a disk that still writes what was filled in."""
SKEW: dict[str, dict[str, float]] = {
    name: {"max_over_mean": 1.0} if name == "bytes_in" else {}
    for name in ("bytes_in", "bytes_out", "disk", "leaders", "replicas")
}

Latencies = list[tuple[float, float]]
"""(sent at, latency) of each acknowledged record, s."""


@dataclass(slots=True)
class Writer:
    """Writes at a steady rate, apart from the executor, whose work would else show as latency."""

    servers: list[str]
    topic: str
    rate: int
    latencies: Latencies = field(default_factory=list)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """In a process of its own."""
        context = multiprocessing.get_context("spawn")
        ended, latencies = context.Event(), context.Queue()
        arguments = (self.servers, self.topic, self.rate, ended, latencies)
        process = context.Process(target=write, args=arguments, daemon=True)
        process.start()
        try:
            yield
        finally:
            ended.set()
            self.latencies = latencies.get(timeout=60)
            process.join()

    def percentiles(self, since_s: float, until_s: float) -> tuple[float, float]:
        """p50 and p99 of records sent in that time, ms."""
        latencies = sorted(latency for sent, latency in self.latencies if since_s <= sent < until_s)
        return latencies[len(latencies) // 2] * 1000, latencies[len(latencies) * 99 // 100] * 1000


def write(servers: list[str], topic: str, rate: int, ended: Event, answers: "Queue[Latencies]") -> None:
    """Until `ended`; what was acknowledged goes to `found`."""
    latencies: Latencies = []
    producer = Producer({"bootstrap.servers": ",".join(servers), "acks": "all", "linger.ms": 0})
    due = time.monotonic()
    number = 0
    while not ended.is_set():
        sent = time.monotonic()

        def delivered(error: object, _message: object, sent: float = sent) -> None:
            if error is None:
                latencies.append((sent, time.monotonic() - sent))

        producer.produce(topic, VALUE, partition=number % 4, on_delivery=delivered)
        number += 1
        due += 1 / rate
        while (left := due - time.monotonic()) > 0:
            producer.poll(min(left, 0.001))
    producer.flush(30)
    answers.put(latencies)


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
            "collect": {"jmx_endpoints": cluster.jmx_endpoints},
            "control": control,
            "planner": {"capacities": limits},
        }
    )


def write_load(settings: Settings, rate: float) -> None:
    """One closed window: each broker takes `rate` bytes/s."""
    now_ms = _now_ms() - 60_000
    audit = {
        "kafka_cluster": settings.kafka.cluster_name, "window_start": tables.utc(now_ms),
        "window_end": tables.utc(now_ms + 1_000), "covered_ms": 1_000, "sample_count": 1, "is_final": True,
        "first_event_time_ms": now_ms, "last_event_time_ms": now_ms, "updated_at": tables.utc(now_ms), "batch_id": 0,
        "query_id": "bench",
    }  # fmt: skip
    rows = [{**audit, "broker": broker, "bytes_in_per_sec": rate} for broker in (1, 2, 3)]
    tables.append(settings.storage.tables, "broker_load", rows, transaction_id="bench", transaction_version=now_ms)


def approve(journal: Journal, topic: str, size: int) -> tuple[ExecutionRecord, Plan]:
    """A plan that moves two partitions of `size` bytes from broker 1 to the receiver."""
    moves = tuple(Movement(topic, index, (1, 2), (RECEIVER, 2), float(size)) for index in (0, 1))
    plan = Plan("bench", moves, SKEW, SKEW)
    journal.write_plan(ProposedPlan(plan), decision=None, now_ms=_now_ms())
    return ExecutionRecord(journal.approve(journal.plan(plan.plan_id), "bench", now_ms=_now_ms())), plan


@dataclass(slots=True)
class Copying:
    """What the receiver copied and was allowed to, from the start of the execution to its end."""

    began_s: float
    arrived_s: float
    """When the first of the movements was last seen to copy."""
    ended_s: float
    copied_bytes: float
    allowed_bytes: float
    """The throttle that was set, times how long."""


def carry_out(cluster: Cluster, settings: Settings, journal: Journal, topic: str, size: int) -> Copying:
    """One execution, watched."""
    record, plan = approve(journal, topic, size)
    executor = executor_of(cluster, journal, settings)
    began = arrived = looked = time.monotonic()
    moving = {(topic, 0), (topic, 1)}
    copied, allowed = copied_bytes(settings), 0.0
    executor.begin(record, journal.plan(plan.plan_id), now_ms=_now_ms())
    while not executor.tick(record, plan, now_ms=_now_ms()):
        rate = cluster.throttle_rates().get(RECEIVER, {}).get(FOLLOWER_RATE, 0)
        now = time.monotonic()
        allowed += rate * (now - looked)
        looked = now
        if cluster.describe().reassigning() == moving:
            arrived = now
        time.sleep(0.5)
    return Copying(began, arrived, time.monotonic(), copied_bytes(settings) - copied, allowed)


def copied_bytes(settings: Settings) -> float:
    """Bytes that the receiver has copied for reassignments since it started, by its own count."""
    scrapes = scrape({RECEIVER: settings.collect.jmx_endpoints[RECEIVER]}, limit_s=5.0)
    counters = parse_counters(scrapes.answers.get(RECEIVER, ""))
    assert counters is not None, f"the receiver's JMX endpoint does not answer: {scrapes.problems}"
    return counters.totals["reassignment_bytes_in"]


def measure(cluster: EmbeddedCluster, settings: Settings, name: str, options: argparse.Namespace) -> str:
    """One round as a line of the table."""
    topic = f"throttle-{name.replace('/', '').replace(' ', '-')}"
    admin = admin_client(settings.kafka)
    try:
        admin.create_topics({topic: {"assignments": {0: [1, 2], 1: [1, 2], 2: [2, 1], 3: [2, 1]}}})
        wait_until_known(admin, [topic])
        size = options.mb * 1_000_000
        fill(cluster.bootstrap_servers, topic, size)
        write_load(settings, options.rate * len(VALUE) * 2 / 3)
        writer = Writer(cluster.bootstrap_servers, topic, options.rate)
        with writer.writing():
            time.sleep(WARM_UP_S + options.before_s)
            copying = carry_out(Cluster(admin), settings, journal_of(settings), topic, size)
        before = writer.percentiles(copying.began_s - options.before_s, copying.began_s)
        during = writer.percentiles(copying.began_s, max(copying.arrived_s, copying.began_s + 1.0))
        whole = writer.percentiles(copying.began_s, copying.ended_s)
    finally:
        admin.close()
    elapsed = copying.ended_s - copying.began_s
    return (
        f"{name:>14} {copying.allowed_bytes / elapsed / 1e6:10.2f} {copying.copied_bytes / elapsed / 1e6:8.2f} "
        f"{copying.copied_bytes / copying.allowed_bytes:7.2f} {elapsed:7.1f} {before[0]:8.2f} {during[0]:8.2f} "
        f"{before[1]:8.1f} {during[1]:8.1f} {during[1] / before[1]:7.2f} {whole[1]:8.1f}"
    )


def main() -> None:
    """All rounds, each with its own topic, on the same brokers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=60, help="size of each partition, MB")
    parser.add_argument("--rate", type=int, default=200, help="records of 1 kB per second")
    parser.add_argument("--before-s", type=float, default=30.0)
    options = parser.parse_args()
    rounds: list[tuple[str, dict[str, Any], float | None]] = [
        ("unthrottled", {"throttle_bytes_per_sec": 10**11, "throttle_adaptive": False}, None),
        ("fixed 4 MB/s", {"throttle_bytes_per_sec": 4_000_000, "throttle_adaptive": False}, None),
        ("adaptive", {"throttle_bytes_per_sec": 50_000_000}, 6e6),
    ]
    print(f"{platform.machine()}, {os.cpu_count()} cores; 2 of 4 partitions of {options.mb} MB, {options.rate} kB/s")
    print(
        f"{'':>14} {'throttle':>10} {'copied':>8} {'share':>7} {'s':>7} {'p50 ms':>8} {'during':>8} {'p99 ms':>8} "
        f"{'during':>8} {'ratio':>7} {'whole':>8}"
    )
    with tempfile.TemporaryDirectory() as home, EmbeddedCluster(Path(home) / "kafka") as cluster:
        for index, (name, control, capacity) in enumerate(rounds):
            settings = settings_of(cluster, Path(home) / str(index), control, capacity)
            print(measure(cluster, settings, name, options), flush=True)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    main()
