"""Sends records to topics: bytes in, and a count of what the brokers have acknowledged.

It knows nothing of what the records hold. librdkafka sends them, and kafka-python where librdkafka's wheels can't make
the login (GSSAPI), at more than ten times the CPU time a record. Nothing here waits longer than one
`kafka.request_timeout_ms`: a partition whose leader hangs costs its own records, which are counted, and that time. If a
broker is known to hang, records are given up once no other is acknowledged any more.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import structlog
from confluent_kafka import KafkaError as LibrdkafkaError
from confluent_kafka import KafkaException, Message, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError

from streaming.cluster.clients import librdkafka_options, python_options, reaching
from streaming.cluster.logins import check_tls_files, held_now
from streaming.errors import ClusterUnreachable, RebalancerError
from streaming.settings import KafkaSettings

log = structlog.get_logger()

RECORDS_QUEUED_MAX = 400_000
"""Records that wait to be sent: those of one partition in four of a large fleet, so that they don't hold up others."""
QUEUED_KIB_MAX = 160 * 1024
BATCH_BYTES = 2_000_000
"""Size of a batch before compression, which leaves an eighth: brokers take 1,048,588 bytes (`max.message.bytes`), and
large batches are few Produce requests.
"""
LINGER_MS = 1_000
"""Batches fill meanwhile; `flush` sends at once what is left."""
ROOM_WAIT_S = 0.1
STALLED_SHARE = 0.2
"""If nothing is acknowledged for this share of the limit while a broker hangs, the records left are for that broker."""
NOTICED_S = 2.0
"""librdkafka looks once a second for records whose time is over."""
PENDING_MAX = 20_000
"""Most records that are sent and not acknowledged."""
PYTHON_BATCH_BYTES = 500_000
PYTHON_LINGER_MS = 100
CLOSE_S = 1.0
"""For each batch that is not acknowledged in its time."""
LOGGER = logging.getLogger("kafka.librdkafka")
"""Below kafka-python's logger: what either client logs is shown with `log.level: debug`."""


class RecordSender:
    """A producer with acks=all whose records are neither repeated nor reordered (KIP-98). Not for two threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Connects to no broker yet. Raises ClusterUnreachable where the connection can't be made from the settings,
        UsageProblem for a file of the login that can't be used.
        """
        self._settings = settings
        self._limit_s = settings.request_timeout_ms / 1000
        self._failed: Counter[str] = Counter()
        self._held = held_now(settings)
        self._producer = self._made()

    def _made(self) -> Producer:
        settings = self._settings
        check_tls_files(settings)
        try:
            return Producer(
                librdkafka_options(settings)
                | {
                    "enable.idempotence": True,
                    "acks": "all",
                    # As Java's clients: a key belongs to one partition whoever writes it.
                    "partitioner": "murmur2_random",
                    "compression.type": "lz4",
                    "linger.ms": min(LINGER_MS, settings.request_timeout_ms // 2),
                    "message.max.bytes": BATCH_BYTES,
                    "batch.size": BATCH_BYTES,
                    "batch.num.messages": RECORDS_QUEUED_MAX,
                    "queue.buffering.max.messages": RECORDS_QUEUED_MAX,
                    "queue.buffering.max.kbytes": QUEUED_KIB_MAX,
                    "message.timeout.ms": settings.request_timeout_ms,
                    "delivery.report.only.error": True,
                    "on_delivery": self._note_failure,
                },
                logger=LOGGER,
            )
        except KafkaException as error:
            # The text names the option, and may quote its value.
            name = error.args[0].name() if error.args else type(error).__name__
            raise ClusterUnreachable(f"librdkafka refuses the settings of the connection ({name})") from None

    def send(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
        """Queue records, (key, value) each, for as long as there is time; returns their number. See `flush`."""
        self._follow_files()
        count, deadline_s = 0, time.monotonic() + self._limit_s
        produce = self._producer.produce
        for key, value in records:
            count += 1
            while True:
                try:
                    produce(topic, value, key)
                except BufferError:
                    if time.monotonic() > deadline_s:
                        self._failed["QueueFull"] += 1
                        break
                    self._producer.poll(ROOM_WAIT_S)
                except KafkaException as error:
                    self._failed[error.args[0].name()] += 1
                    break
                else:
                    break
        return count

    def flush(self, *, broker_hangs: bool = False) -> int:
        """Wait until each record is acknowledged or has failed, and return how many have failed; logs why.

        A record fails where it is not acknowledged within one `kafka.request_timeout_ms`. Where a broker is known to
        hang, as it has just cost a limit, all fail that are left once none is acknowledged for a fifth of that time.
        """
        whole_s = self._limit_s + NOTICED_S
        stalled_s = max(NOTICED_S, self._limit_s * STALLED_SHARE) if broker_hangs else whole_s
        waiting = self._flush_while_acknowledged(stalled_s)
        if waiting:
            # confluent-kafka 2.16.1 takes `blocking` for its opposite. Without a wait what is sent next may be purged.
            self._producer.purge(blocking=False)
            self._producer.flush(NOTICED_S)
        failed, self._failed = self._failed, Counter()
        if failed:
            log.warning("records_not_delivered", **dict(failed))
        return failed.total()

    def _flush_while_acknowledged(self, stalled_s: float) -> int:
        """Wait until all records are acknowledged, or none was for `stalled_s`; returns the number left."""
        changed_s = time.monotonic()
        deadline_s, waiting = changed_s + self._limit_s + NOTICED_S, len(self._producer)
        while waiting and time.monotonic() < min(deadline_s, changed_s + stalled_s):
            left = self._producer.flush(ROOM_WAIT_S)
            if left != waiting:
                waiting, changed_s = left, time.monotonic()
        return waiting

    def close(self) -> None:
        """Wait for what is on its way, at most one `kafka.request_timeout_ms`, and give up the rest."""
        self.flush()

    def _follow_files(self) -> None:
        """librdkafka reads the files of a login once: with a password that has changed it would be refused for ever."""
        try:
            held = held_now(self._settings)
            if held != self._held:
                self._producer, self._held = self._made(), held
        except RebalancerError as error:
            log.warning("login_not_renewed", error=str(error))

    def _note_failure(self, error: LibrdkafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failed[error.name()] += 1


class PythonSender:
    """Sends records by kafka-python as `RecordSender` does by librdkafka. Not for two threads."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Raises ClusterUnreachable where no broker is reached."""
        self._limit_s = settings.request_timeout_ms / 1000
        self._failed: Counter[str] = Counter()
        self._pending: list[Any] = []
        limits = {
            # The time of a record begins as it is queued, and holds at least one request.
            "request_timeout_ms": max(1, settings.request_timeout_ms // 2 - PYTHON_LINGER_MS),
            "delivery_timeout_ms": settings.request_timeout_ms,
            "max_block_ms": settings.request_timeout_ms,
        }
        batches = {"batch_size": PYTHON_BATCH_BYTES, "linger_ms": PYTHON_LINGER_MS, "compression_type": "gzip"}
        with reaching(settings):
            self._producer = KafkaProducer(**python_options(settings) | limits | batches, acks="all")

    def send(self, topic: str, records: Iterable[tuple[bytes, bytes]]) -> int:
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
        self._settle(self._limit_s * (STALLED_SHARE if broker_hangs else 1.0))
        failed, self._failed = self._failed, Counter()
        if failed:
            log.warning("records_not_delivered", **dict(failed))
        return failed.total()

    def close(self) -> None:
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
