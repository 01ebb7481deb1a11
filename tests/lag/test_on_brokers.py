"""Real consumers that stop, hang, go back and fall behind: each is called what it is, and its lag in time is true."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as NativePartition
from kafka import KafkaProducer
from kafka.structs import TopicPartition

from assignor_core.lag import LagStatus
from streaming.cluster.clients import admin_client, consumer
from streaming.settings import Settings
from tests.lag.watch import Watch
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S

pytestmark = pytest.mark.kafka

WINDOW_MS = 2_000
PARTITIONS = 2
BATCH, BATCH_S = 40, 0.1
POLL_S = 0.1
GROUPS = ("well", "stopped", "stuck", "back", "slow")
EXPECTED = {
    "well": LagStatus.OK, "stopped": LagStatus.STOP, "stuck": LagStatus.STALL, "back": LagStatus.REWIND,
    "slow": LagStatus.WARN,
}  # fmt: skip


@dataclass(slots=True)
class Scene:
    """A topic that is written evenly, and one consumer a group; `turn` begins what is wrong with them."""

    settings: Settings
    topic: str
    protocol: str
    ending: threading.Event = field(default_factory=threading.Event)
    turn: threading.Event = field(default_factory=threading.Event)

    def write(self) -> None:
        with KafkaProducer(bootstrap_servers=self.settings.kafka.bootstrap_servers) as producer:
            number = 0
            while not self.ending.wait(BATCH_S):
                for _ in range(BATCH):
                    producer.send(self.topic, b"x" * 50, partition=number % PARTITIONS)
                    number += 1
                producer.flush()

    def read(self, group: str) -> None:
        """As a member of this group, by the scene's protocol."""
        reader = Consumer({
            "bootstrap.servers": ",".join(self.settings.kafka.bootstrap_servers), "group.id": group,
            "group.protocol": self.protocol, "auto.offset.reset": "earliest", "enable.auto.commit": False,
        })  # fmt: skip
        reader.subscribe([self.topic])
        turned = False
        while not self.ending.is_set() and not (turned and group.startswith("stopped")):
            if self.turn.is_set() and not turned:
                turned = True
                _turn(reader, group)
            records = reader.consume(BATCH // 8 if group.startswith("slow") else 500, timeout=POLL_S)
            if records and not (turned and group.startswith("stuck")):
                reader.commit(asynchronous=False)
            if group.startswith("slow"):
                self.ending.wait(BATCH_S / 2)
        reader.close()


def _turn(reader: Consumer, group: str) -> None:
    """What happens to the consumer of this group halfway."""
    if group.startswith("back"):
        beginning = [NativePartition(tp.topic, tp.partition, 0) for tp in reader.assignment()]
        reader.commit(offsets=beginning, asynchronous=False)
    if group.startswith(("stuck", "back")):
        reader.pause(reader.assignment())


@contextmanager
def scene(settings: Settings, protocol: str) -> Iterator[Scene]:
    """Everything runs inside, and is ended."""
    name = f"lag-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({name: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    wait_until_known(admin, [name])
    admin.close()
    played = Scene(settings, name, protocol)
    threads = [threading.Thread(target=played.write)]
    threads += [threading.Thread(target=played.read, args=(f"{group}-{name}",)) for group in GROUPS]
    for thread in threads:
        thread.start()
    try:
        yield played
    finally:
        played.ending.set()
        for thread in threads:
            thread.join(DEADLINE_S)


def look(watch: Watch) -> dict[str, list[dict[str, Any]]]:
    """Partitions by the group's first word, judged now."""
    return {group.split("-")[0]: rows for group, rows in watch.look().items()}


def worst(rows: list[dict[str, Any]]) -> LagStatus:
    return LagStatus(max(row["status"] for row in rows))


@dataclass(slots=True)
class Delays:
    """How long what the newest look alone shows of each group went untold, ms, at the last look before it was told."""

    untold: set[str] = field(default_factory=lambda: set(GROUPS))
    """Groups that no look has shown as what they are. Looks are compared one group at a time, as some states pass."""
    longest_ms: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0))
    _since_ms: dict[str, int] = field(default_factory=dict)

    def note(self, picture: dict[str, list[dict[str, Any]]]) -> None:
        """One look more."""
        for group in sorted(self.untold):
            status, now_ms = EXPECTED[group], max(row["last_event_time_ms"] for row in picture[group])
            if worst(picture[group]) is status:
                self.untold.remove(group)
            elif max(row["at_once"] for row in picture[group]) != status:
                self._since_ms.pop(group, None)
            else:
                waited_ms = now_ms - self._since_ms.setdefault(group, now_ms)
                self.longest_ms[group] = max(self.longest_ms[group], waited_ms)


def record_time_ms(settings: Settings, topic: str, partition: int, offset: int) -> int:
    """Timestamp of the record at an offset."""
    reader = consumer(settings.kafka, consumer_timeout_ms=int(DEADLINE_S * 1000))
    reader.assign([TopicPartition(topic, partition)])
    reader.seek(TopicPartition(topic, partition), offset)
    timestamp_ms: int = next(reader).timestamp
    reader.close()
    return timestamp_ms


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_consumer_is_called_what_it_is(settings: Settings, protocol: str) -> None:
    with scene(settings, protocol) as played:
        watch = Watch(settings, f"-{played.topic}$", window_ms=WINDOW_MS)
        deadline = time.monotonic() + DEADLINE_S
        picture = look(watch)
        while not _all_read(picture):
            assert time.monotonic() < deadline, "the consumers never began"
            time.sleep(0.3)
            picture = look(watch)
        played.turn.set()
        late_ms: dict[str, float] = {}
        delays = Delays()
        while delays.untold or min(row["lag_seconds"] or 0.0 for row in picture["slow"]) < 10:
            assert time.monotonic() < deadline, {group: worst(rows).name for group, rows in picture.items()}
            time.sleep(0.3)
            picture = look(watch)
            delays.note(picture)
            assert worst(picture["well"]) in (LagStatus.OK, LagStatus.UNKNOWN)
            for group in delays.untold & {"stopped", "stuck"}:
                late_ms[group] = min(row["stuck_ms"] for row in picture[group])
        # Known once records have waited for a window; told at most two windows later. Measured at the last look before.
        assert max(late_ms.values(), default=0) <= 3 * WINDOW_MS, late_ms
        assert max(delays.longest_ms.values()) <= 2 * WINDOW_MS, delays.longest_ms
        for row in picture["slow"]:
            written_ms = record_time_ms(settings, played.topic, row["partition"], row["committed_offset"])
            truth_s = (row["last_event_time_ms"] - written_ms) / 1000
            assert row["lag_seconds"] == pytest.approx(truth_s, rel=0.1)
        watch.close()


def _all_read(picture: dict[str, list[dict[str, Any]]]) -> bool:
    """Every group has committed on every partition, and was seen for long enough to be judged."""
    rows = [row for group in GROUPS for row in picture.get(group, [])]
    return len(rows) == len(GROUPS) * PARTITIONS and all(
        (row["committed_offset"] or 0) > BATCH and row["completeness"] >= 0.5 for row in rows
    )
