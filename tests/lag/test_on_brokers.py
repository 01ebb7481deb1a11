"""Real consumers that stop, hang, go back and fall behind: each is called what it is, and its lag in time is true."""

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pyarrow as pa
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from assignor_core.lag import LagStatus
from streaming import tables
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.records import consumer_lag_records
from streaming.kafka_clients import admin_client, consumer
from streaming.lag import COLUMNS, judge
from streaming.schemas import TABLES
from streaming.settings import Settings
from tests.lag.windows import Windows

pytestmark = pytest.mark.kafka

WINDOW_MS = 2_000
DEADLINE_S = 120
PARTITIONS = 2
BATCH, BATCH_S = 40, 0.1
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
        reader = consumer(
            self.settings.kafka, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            max_poll_records=BATCH // 8 if group.startswith("slow") else 500,
        )  # fmt: skip
        reader.subscribe([self.topic])
        turned = False
        while not self.ending.is_set() and not (turned and group.startswith("stopped")):
            if self.turn.is_set() and not turned:
                turned = True
                _turn(reader, group)
            if reader.poll(timeout_ms=100) and not (turned and group.startswith("stuck")):
                reader.commit()
            if group.startswith("slow"):
                self.ending.wait(BATCH_S / 2)
        reader.close()


def _turn(reader: KafkaConsumer, group: str) -> None:
    """What happens to the consumer of this group halfway."""
    if group.startswith("stuck"):
        reader.pause(*reader.assignment())
    if group.startswith("back"):
        reader.seek_to_beginning()
        for tp in reader.assignment():
            reader.position(tp)
        reader.commit()
        reader.pause(*reader.assignment())


@contextmanager
def scene(settings: Settings) -> Iterator[Scene]:
    """Everything runs inside, and is ended."""
    name = f"lag-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({name: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    admin.wait_for_topics([name])
    admin.close()
    played = Scene(settings, name)
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


class Watch:
    """The collector's looks and the pipeline's windows, evaluated after every look."""

    def __init__(self, settings: Settings, topic: str) -> None:
        only = settings.collect.model_copy(update={"groups_include": f"-{topic}$", "jmx_endpoints": {}})
        self.settings = settings.model_copy(
            update={"collect": only, "pipeline": settings.pipeline.model_copy(update={"window_ms": WINDOW_MS})}
        )
        self._admin = admin_client(settings.kafka)
        self._http = httpx.Client()
        self._groups = GroupSampler()
        self._windows = Windows("test", WINDOW_MS)
        schema = tables.arrow_schema(TABLES["group_lag"])
        self._schema = pa.schema([schema.field(name) for name in COLUMNS])

    def look(self) -> dict[str, list[dict[str, Any]]]:
        """Partitions by group, judged now."""
        seen = observe(self._admin, self._http, self._groups, self.settings.collect, now_ms=time.time_ns() // 1_000_000)
        self._windows.add(value for _, value in consumer_lag_records("test", seen))
        picture = judge(pa.Table.from_pylist(self._windows.rows(), schema=self._schema), self.settings)
        found: dict[str, list[dict[str, Any]]] = {}
        for row in picture.partitions.to_pylist() if picture else []:
            found.setdefault(row["group_id"].split("-")[0], []).append(row)
        return found

    def close(self) -> None:
        self._admin.close()
        self._http.close()


def worst(rows: list[dict[str, Any]]) -> LagStatus:
    return LagStatus(max(row["status"] for row in rows))


def record_time_ms(settings: Settings, topic: str, partition: int, offset: int) -> int:
    """Timestamp of the record at an offset."""
    reader = consumer(settings.kafka, consumer_timeout_ms=DEADLINE_S * 1000)
    reader.assign([TopicPartition(topic, partition)])
    reader.seek(TopicPartition(topic, partition), offset)
    found: int = next(reader).timestamp
    reader.close()
    return found


def test_each_consumer_is_called_what_it_is(settings: Settings) -> None:
    with scene(settings) as played:
        watch = Watch(settings, played.topic)
        deadline = time.monotonic() + DEADLINE_S
        found = watch.look()
        while not _all_read(found):
            assert time.monotonic() < deadline, "the consumers never began"
            time.sleep(0.3)
            found = watch.look()
        played.turn.set()
        late_ms: dict[str, float] = {}
        while not _as_expected(found):
            assert time.monotonic() < deadline, {group: worst(rows).name for group, rows in found.items()}
            time.sleep(0.3)
            found = watch.look()
            assert worst(found["well"]) in (LagStatus.OK, LagStatus.UNKNOWN)
            for group in ("stopped", "stuck"):
                if worst(found[group]) is not EXPECTED[group]:
                    late_ms[group] = min(row["stuck_ms"] for row in found[group])
        # Known once records have waited for a window; told at most two windows later. Measured at the last look before.
        assert max(late_ms.values()) <= 3 * WINDOW_MS, late_ms
        for row in found["slow"]:
            written_ms = record_time_ms(settings, played.topic, row["partition"], row["committed_offset"])
            truth_s = (row["last_event_time_ms"] - written_ms) / 1000
            assert row["lag_seconds"] == pytest.approx(truth_s, rel=0.1)
        watch.close()


def _all_read(found: dict[str, list[dict[str, Any]]]) -> bool:
    """Every group has committed on every partition, and was seen for long enough to be judged."""
    rows = [row for group in GROUPS for row in found.get(group, [])]
    return len(rows) == len(GROUPS) * PARTITIONS and all(
        (row["committed_offset"] or 0) > BATCH and row["completeness"] >= 0.5 for row in rows
    )


def _as_expected(found: dict[str, list[dict[str, Any]]]) -> bool:
    lagging = min(row["lag_seconds"] or 0.0 for row in found["slow"])
    return lagging >= 10 and all(worst(found[group]) is status for group, status in EXPECTED.items())
