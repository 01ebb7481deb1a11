"""Sends records through kafka-python, for logins that librdkafka's wheels can't make (GSSAPI).

Same counts and limits as `streaming.cluster.record_sender`; each record costs more than ten times its CPU time.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import structlog
from kafka import KafkaProducer
from kafka.errors import KafkaError

from streaming.cluster.clients import python_options, reaching
from streaming.settings import KafkaSettings

log = structlog.get_logger()

PENDING_MAX = 20_000
"""Most records that are sent and not acknowledged."""
BATCH_BYTES = 500_000
LINGER_MS = 100
CLOSE_S = 1.0
"""For each batch that is not acknowledged in its time."""
STALLED_SHARE = 0.2
"""Share of the limit that `flush` waits while a broker is known to hang."""


class PythonSender:
    """A producer with acks=all whose records are neither repeated nor reordered (KIP-98). Not for two threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises ClusterUnreachable where no broker is reached."""
        self._limit_s = settings.request_timeout_ms / 1000
        self._failed: Counter[str] = Counter()
        self._pending: list[Any] = []
        limits = {
            # The time of a record begins as it is queued, and holds at least one request.
            "request_timeout_ms": max(1, settings.request_timeout_ms // 2 - LINGER_MS),
            "delivery_timeout_ms": settings.request_timeout_ms,
            "max_block_ms": settings.request_timeout_ms,
        }
        batches = {"batch_size": BATCH_BYTES, "linger_ms": LINGER_MS, "compression_type": "gzip"}
        with reaching(settings):
            self._producer = KafkaProducer(**python_options(settings) | limits | batches, acks="all")

    def send(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
        """Sends records as `RecordSender.send` does."""
        count, deadline_s = 0, time.monotonic() + self._limit_s
        for key, value in records:
            count += 1
            if len(self._pending) >= PENDING_MAX:
                self._settle(max(0.0, deadline_s - time.monotonic()))
            if time.monotonic() > deadline_s:
                self._failed["QueueFull"] += 1
                continue
            try:
                self._pending.append(self._producer.send(topic, value=value, key=key))
            except KafkaError as error:
                self._failed[type(error).__name__] += 1
        return count

    def flush(self, *, broker_hangs: bool = False) -> int:
        """Waits for acknowledgements as `RecordSender.flush` does."""
        self._settle(self._limit_s * (STALLED_SHARE if broker_hangs else 1.0))
        failed, self._failed = self._failed, Counter()
        if failed:
            log.warning("records_not_delivered", **dict(failed))
        return failed.total()

    def close(self) -> None:
        """Closes the producer as `RecordSender.close` does."""
        self.flush()
        try:
            self._producer.close(timeout=CLOSE_S)
        except KafkaError:
            # kafka-python's thread would go on, and its destructor would close once more.
            self._producer._sender.force_close()
            self._producer._closed = True

    def _settle(self, limit_s: float) -> None:
        """Wait for what is sent, and count what has failed or is not acknowledged in time."""
        deadline_s = time.monotonic() + limit_s
        for future in self._pending:
            try:
                future.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except KafkaError as error:
                self._failed[type(error).__name__] += 1
        self._pending.clear()
