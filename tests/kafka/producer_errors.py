"""A producer that notes each batch which a broker answers with an error, or does not answer, and what was done then."""

import itertools
import logging
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from kafka import KafkaProducer

from tests.waiting import until

PAUSE_S = 0.002
FLUSH_S = 60.0
RETRIED = re.compile(r"on topic-partition .*, retrying \(.* attempts left\): (\w+)")
NOT_LEADER = "NotLeaderForPartitionError"


@dataclass(frozen=True, slots=True)
class RetriedBatch:
    """A batch that the producer had to send again, in which phase, and how long after its beginning."""

    phase: str
    after_s: float
    error: str


class _Noted(logging.Handler):
    """kafka-python counts retries without their errors; its log has both."""

    def __init__(self, producer: "NotingProducer") -> None:
        super().__init__(logging.WARNING)
        self._producer = producer

    def emit(self, record: logging.LogRecord) -> None:
        found = RETRIED.search(record.getMessage())
        if found:
            self._producer.note(found[1])


@dataclass
class NotingProducer:
    """Writes to all partitions of a topic in turn with acks=all, until the block ends."""

    bootstrap_servers: list[str]
    topic: str
    partitions: int
    retried: list[RetriedBatch] = field(default_factory=list)
    phase: str = "usual"

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._handler = _Noted(self)
        self._acknowledged: Counter[int] = Counter()
        self.sent = self.failed = 0

    def __enter__(self) -> "NotingProducer":
        logging.getLogger("kafka.producer.sender").addHandler(self._handler)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()
        logging.getLogger("kafka.producer.sender").removeHandler(self._handler)

    def begin(self, phase: str) -> None:
        """What is retried from now on belongs to this phase."""
        self.phase, self._began_s = phase, time.monotonic()

    def note(self, error: str) -> None:
        """Note a batch that is sent again."""
        self.retried.append(RetriedBatch(self.phase, time.monotonic() - self._began_s, error))

    def until_all_are_written(self, records: int = 20) -> None:
        """Until each partition has acknowledged so many records more."""
        before = dict(self._acknowledged)
        until(
            "each partition is written to",
            lambda: all(self._acknowledged[key] >= before.get(key, 0) + records for key in range(self.partitions)),
        )

    def count(self, phase: str, *, error: str | None = None, from_s: float = 0.0) -> int:
        """Batches of the phase that were sent again, with this error (with any where None), from that moment on."""
        return sum(row.phase == phase and row.after_s >= from_s and error in (None, row.error) for row in self.retried)

    def _write(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self.bootstrap_servers, acks="all")
        for number in itertools.count():
            if self._ended.wait(PAUSE_S):
                break
            partition = number % self.partitions
            sent = producer.send(self.topic, b"%012d" % number, partition=partition)
            sent.add_callback(self._delivered, partition)
            sent.add_errback(self._lost)
            self.sent += 1
        producer.flush(FLUSH_S)
        producer.close()

    def _delivered(self, partition: int, _metadata: object) -> None:
        self._acknowledged[partition] += 1

    def _lost(self, _error: object) -> None:
        self.failed += 1
