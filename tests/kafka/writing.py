"""A producer that writes while a test moves partitions and restarts brokers, and what of its records can be read."""

import threading
import uuid
from collections import Counter
from typing import Self

from confluent_kafka import KafkaError, Message
from kafka import KafkaConsumer, TopicPartition

from tests.topics import producer_for_moves
from tests.waiting import until

INTERVAL_S = 0.01
FILLING = b"x" * 1_000


class Writer:
    """Writes records to all partitions of a topic with acks=all until the context ends; knows which brokers have taken.

    Each record begins with the writer's own mark and a number, so that records of another writer do not pass for it.
    """

    def __init__(self, bootstrap_servers: list[str], topic: str, partitions: int, *, filling: bytes = FILLING) -> None:
        self._servers, self._topic, self._partitions, self._filling = bootstrap_servers, topic, partitions, filling
        self._mark = uuid.uuid4().hex[:8].encode()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.acknowledged: Counter[int] = Counter()
        """Records by partition."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        producer = producer_for_moves(self._servers, acks="all")
        number = 0
        while not self._ended.wait(INTERVAL_S):
            value = self._mark + b"%012d" % number + self._filling
            producer.produce(self._topic, value, partition=number % self._partitions, on_delivery=self._delivered)
            producer.poll(0)
            number += 1
        producer.flush()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is None and partition is not None:
            self.acknowledged[partition] += 1

    def lost(self) -> dict[int, tuple[int, int]]:
        """partition: (acknowledged, found) where fewer records are there than were acknowledged."""
        reader = KafkaConsumer(bootstrap_servers=self._servers, auto_offset_reset="earliest", enable_auto_commit=False)
        places = [TopicPartition(self._topic, partition) for partition in self.acknowledged]
        reader.assign(places)
        ends, found = reader.end_offsets(places), {place.partition: set[bytes]() for place in places}
        reader.seek_to_beginning(*places)

        def all_is_read() -> bool:
            for place, rows in reader.poll(1_000).items():
                own = (row.value[:20] for row in rows if row.value.startswith(self._mark))
                found[place.partition].update(own)
            return all(reader.position(place) >= ends[place] for place in places)

        until("all is read", all_is_read)
        reader.close()
        counts = {partition: (count, len(found[partition])) for partition, count in self.acknowledged.items()}
        return {partition: row for partition, row in counts.items() if row[1] < row[0]}
