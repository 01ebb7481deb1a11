"""What the brokers themselves show: byte counters read over JMX while the demo runs, and records read back at its end.

Independent of the product on purpose: no figure here comes from the collector, the tables or a plan.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

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
class CounterSample:
    """Counters of one moment: bytes that clients have written to each broker since it started, None if unknown."""

    time_ms: int
    bytes_in: Mapping[int, float | None]


@dataclass(slots=True)
class BrokerProbe:
    """Reads every broker's counter once a second in a thread of its own."""

    endpoints: Mapping[int, str]
    samples: deque[CounterSample] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))
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

    def rates(self, start_ms: int, end_ms: int) -> dict[int, float | None]:
        """Mean bytes/s of each broker between its samples nearest inside start and end.

        None is unknown: there are fewer than two, or its counter started again between them, as after a restart.
        """
        inside = [sample for sample in tuple(self.samples) if start_ms <= sample.time_ms <= end_ms]
        return {broker: _rate(inside, broker) for broker in self.endpoints}

    def series(self, step_ms: int = 2_000) -> list[tuple[int, dict[int, float | None]]]:
        """Rates over time in steps: (end of the step, bytes/s by broker as in `rates`)."""
        points, step = [], list[CounterSample]()
        for sample in tuple(self.samples):
            step.append(sample)
            if sample.time_ms - step[0].time_ms >= step_ms:
                points.append((sample.time_ms, {broker: _rate(step, broker) for broker in self.endpoints}))
                step = [sample]
        return points

    def _run(self) -> None:
        with httpx.Client(timeout=5.0) as client:
            while not self._stopping.wait(POLL_INTERVAL_S):
                counts = {broker: _read(client, url) for broker, url in self.endpoints.items()}
                self.samples.append(CounterSample(clocks.now_ms(), counts))


def _read(client: httpx.Client, url: str) -> float | None:
    try:
        return _bytes_in(client.get(url).text)
    except (httpx.HTTPError, ValueError):  # no answer, or one that is no exposition
        return None


def max_over_mean(rates: Mapping[int, float | None]) -> float | None:
    """Worst broker against the mean; 1 = even, None unknown. Written out here so that it doesn't rest on the product's.

    >>> max_over_mean({1: 3.0, 2: 1.0}), max_over_mean({1: 3.0, 2: None}), max_over_mean({1: 0.0}), max_over_mean({})
    (1.5, None, None, None)
    """
    known = [rate for rate in rates.values() if rate is not None]
    total = sum(known)
    return max(known) / (total / len(known)) if total and len(known) == len(rates) else None


def ratio_text(ratio: float | None, places: int = 3) -> str:
    """Text of a max/mean.

    >>> ratio_text(1.25), ratio_text(None)
    ('1.250', 'unknown')
    """
    return "unknown" if ratio is None else f"{ratio:.{places}f}"


def _rate(samples: Sequence[CounterSample], broker: int) -> float | None:
    counts = [(row.time_ms, count) for row in samples if (count := row.bytes_in.get(broker)) is not None]
    if len(counts) < 2 or any(later < before for (_, before), (_, later) in pairwise(counts)):
        return None
    (first_ms, first), (last_ms, last) = counts[0], counts[-1]
    return (last - first) * 1000 / (last_ms - first_ms)


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


def _bytes_in(exposition: str) -> float | None:
    """The broker's total: the series without a topic. None where it is not shown, as before the first record.

    >>> _bytes_in(f"{BYTES_IN} 5.0"), _bytes_in("up 1")
    (5.0, None)
    """
    totals = [
        sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
        if sample.name == BYTES_IN and "topic" not in sample.labels
    ]
    return sum(totals) if totals else None
