"""What the brokers themselves show: byte counters read over JMX while the demo runs, and records read back at its end.

Independent of the product on purpose: no figure here comes from the collector, the tables or a plan.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx
from confluent_kafka import Consumer, Message, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from streaming.runtime import clocks

BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
POLL_INTERVAL_S = 1.0
READ_TIMEOUT_S = 120.0
READ_BATCH = 10_000
SAMPLES_MAX = 7_200


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of one moment: bytes that clients have written to each broker since it started."""

    time_ms: int
    bytes_in: Mapping[int, float]


@dataclass(slots=True)
class BrokerProbe:
    """Reads every broker's counter once a second in a thread of its own."""

    endpoints: Mapping[int, str]
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to read."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread:
            self._thread.join(timeout=10.0)

    def rates(self, start_ms: int, end_ms: int) -> dict[int, float]:
        """Mean bytes/s of each broker between the samples nearest inside start and end; {} with fewer than two."""
        inside = [sample for sample in tuple(self.samples) if start_ms <= sample.time_ms <= end_ms]
        if len(inside) < 2:
            return {}
        first, last = inside[0], inside[-1]
        seconds = (last.time_ms - first.time_ms) / 1000
        return {broker: (count - first.bytes_in[broker]) / seconds for broker, count in last.bytes_in.items()}

    def series(self, step_ms: int = 2_000) -> list[tuple[int, dict[int, float]]]:
        """Rates over time in steps: (end of the step, bytes/s by broker)."""
        points = []
        samples = tuple(self.samples)
        anchor = samples[0] if samples else None
        for sample in samples[1:]:
            assert anchor is not None
            seconds = (sample.time_ms - anchor.time_ms) / 1000
            if seconds * 1000 >= step_ms:
                rates = {
                    broker: (sample.bytes_in[broker] - anchor.bytes_in[broker]) / seconds for broker in sample.bytes_in
                }
                points.append((sample.time_ms, rates))
                anchor = sample
        return points

    def _run(self) -> None:
        with httpx.Client(timeout=5.0) as client:
            while not self._stopping.wait(POLL_INTERVAL_S):
                try:
                    counts = {broker: _bytes_in(client.get(url).text) for broker, url in self.endpoints.items()}
                except httpx.HTTPError:
                    continue
                self.samples.append(Sample(clocks.now_ms(), counts))


def max_over_mean(rates: Mapping[int, float]) -> float:
    """Worst broker against the mean; 1 = even. Written out here so that it doesn't rest on the product's own."""
    mean = sum(rates.values()) / len(rates) if rates else 0.0
    return max(rates.values()) / mean if mean else 1.0


def count_records(bootstrap_servers: Sequence[str], topics: Sequence[str], partitions: int) -> dict[str, int]:
    """Read every record that `topics` have now, from the beginning; number read by "topic/partition".

    Records that are written meanwhile don't count, so it ends while producers go on.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(bootstrap_servers),
            "group.id": "demo-verifier",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        all_partitions = [TopicPartition(topic, number, 0) for topic in topics for number in range(partitions)]
        ends = {(tp.topic, tp.partition): consumer.get_watermark_offsets(tp, timeout=15.0)[1] for tp in all_partitions}
        left = sum(ends.values())
        consumer.assign(all_partitions)
        counts: Counter[str] = Counter({f"{topic}/{number}": 0 for topic in topics for number in range(partitions)})
        deadline = time.monotonic() + READ_TIMEOUT_S + left / 50_000
        while left > 0 and time.monotonic() < deadline:
            for message in consumer.consume(READ_BATCH, timeout=1.0):
                if message.error() is None and _is_before_end(message, ends):
                    counts[f"{message.topic()}/{message.partition()}"] += 1
                    left -= 1
        return dict(counts)
    finally:
        consumer.close()


def _is_before_end(message: Message, ends: Mapping[tuple[str, int], int]) -> bool:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return offset < ends[(topic, partition)]


def _bytes_in(exposition: str) -> float:
    """The broker's total: the series without a topic."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.name == BYTES_IN and "topic" not in sample.labels
    )
