"""Traffic of the demo, a process of its own: one producer, and a consumer group with one slow member.

Every record that the brokers have acknowledged is counted per partition and written to a file, so that afterwards it
can be proven that none was lost. librdkafka does the work: 2 cores also carry three brokers, Spark and the rest.
`python -m streaming.demo.traffic FILE` with the JSON of `TrafficOrder`.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from streaming.demo.scenario import PARTITIONS_PER_TOPIC, RECORDS_OF_A_PER_RECORD_OF_B
from streaming.runtime import clocks
from streaming.tables import utc

STEP_S = 0.05
SENT_EVERY_MS = 250
"""How long producer and readers gather what they send and fetch, ms. librdkafka sends a request for each partition: at
100 ms the requests took a quarter of the brokers' CPU time.
"""
FETCH_BYTES_MIN = 1_000_000
"""Bytes that a fetch waits for, more than comes in `SENT_EVERY_MS`: a broker answers a reader when the time is over."""
REPORT_INTERVAL_S = 1.0
FLUSH_TIMEOUT_S = 60.0
FAST_BATCH = 2_000
SLOW_SHARE = 0.2
"""The slow member reads this share of what a member would have to read to keep up."""


@dataclass(frozen=True, slots=True)
class TrafficOrder:
    """What to send and where: records of topic A per second."""

    bootstrap_servers: str
    topic_a: str
    topic_b: str
    group: str
    records_per_sec: float
    report_file: str


@dataclass(frozen=True, slots=True)
class TrafficReport:
    """Acknowledged and failed records; `acknowledged` by "topic/partition"."""

    started_ms: int
    acknowledged: dict[str, int]
    failed: int
    read: int
    finished: bool

    @property
    def acknowledged_total(self) -> int:
        """Number of all acknowledged records."""
        return sum(self.acknowledged.values())


def read_report(file: Path) -> TrafficReport | None:
    """The newest report; None before the first."""
    try:
        return TrafficReport(**json.loads(file.read_text()))
    except FileNotFoundError:
        return None


class DemoTraffic:
    """Producer and readers of one order, until stopped."""

    def __init__(self, order: TrafficOrder) -> None:
        self._order = order
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._failed = 0
        self._read = 0
        self._started_ms = 0
        self._stopping = threading.Event()

    def stop(self, _signal: int, _frame: FrameType | None) -> None:
        """Signal handler: stop sending, flush, report, end."""
        self._stopping.set()

    def run(self) -> None:
        """Send until stopped; the readers stop with it."""
        share = SLOW_SHARE * self._order.records_per_sec / 2
        readers = [
            threading.Thread(target=self._consume, args=("fast", None), daemon=True),
            threading.Thread(target=self._consume, args=("slow", share), daemon=True),
        ]
        for reader in readers:
            reader.start()
        self._produce()
        for reader in readers:
            reader.join(timeout=10.0)
        self._report(finished=True)

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._order.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": SENT_EVERY_MS,
                "queue.buffering.max.messages": 500_000,
                "client.id": "demo-producer",
            }
        )
        began = reported = time.monotonic()
        self._started_ms = clocks.now_ms()
        sent_a = sent_b = 0
        while not self._stopping.is_set():
            due = int((time.monotonic() - began) * self._order.records_per_sec)
            # In slices, so that a machine that was busy catches up without one long burst.
            for number in range(sent_a, min(due, sent_a + int(self._order.records_per_sec))):
                self._send(producer, self._order.topic_a, number, f"log-id:{number} {utc(clocks.now_ms()).isoformat()}")
                sent_a = number + 1
            while sent_b * RECORDS_OF_A_PER_RECORD_OF_B < sent_a:
                self._send(producer, self._order.topic_b, sent_b, str(sent_b))
                sent_b += 1
            if time.monotonic() - reported > REPORT_INTERVAL_S:
                self._report(finished=False)
                reported = time.monotonic()
            producer.poll(STEP_S)
        producer.flush(FLUSH_TIMEOUT_S)

    def _send(self, producer: Producer, topic: str, number: int, value: str) -> None:
        while True:
            try:
                producer.produce(
                    topic, value.encode(), partition=number % PARTITIONS_PER_TOPIC, on_delivery=self._delivered
                )
                break
            except BufferError:
                producer.poll(STEP_S)  # the queue is full: wait for acknowledgements

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._acknowledged[(message.topic() or "", message.partition() or 0)] += 1
        else:
            self._failed += 1

    def _consume(self, name: str, records_per_sec: float | None) -> None:
        """One member of the group; with `records_per_sec` it is slow on purpose."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._order.bootstrap_servers,
                "group.id": self._order.group,
                "client.id": f"demo-reader-{name}",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 2_000,
                "fetch.wait.max.ms": SENT_EVERY_MS,
                "fetch.min.bytes": FETCH_BYTES_MIN,
            }
        )
        consumer.subscribe([self._order.topic_a, self._order.topic_b])
        batch = FAST_BATCH if records_per_sec is None else max(1, int(records_per_sec / 2))
        try:
            while not self._stopping.is_set():
                try:
                    messages = consumer.consume(batch, timeout=0.5)
                except KafkaException:
                    continue
                self._read += sum(message.error() is None for message in messages)
                self._stopping.wait(0.25 if records_per_sec is None else 0.5)
        finally:
            consumer.close()

    def _report(self, *, finished: bool) -> None:
        acknowledged = {
            f"{topic}/{partition}": count for (topic, partition), count in sorted(self._acknowledged.items())
        }
        report = TrafficReport(self._started_ms, acknowledged, self._failed, self._read, finished)
        file = Path(self._order.report_file)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(report)))
        os.replace(fresh, file)


def main() -> None:
    """Run the order in the file named by the first argument until SIGTERM."""
    order = TrafficOrder(**json.loads(Path(sys.argv[1]).read_text()))
    traffic = DemoTraffic(order)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, traffic.stop)
    traffic.run()


if __name__ == "__main__":
    main()
