"""Consumers that followers serve, on three real brokers of three racks: predicted bytes out against what brokers count.

In each round the same bytes are written and read, so no pace matters: what is compared are parts of all bytes. What the
brokers should send is predicted from the round before.
"""

import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaProducer

from assignor_core.deciding.observation import PlanRequest
from assignor_core.live import LiveCluster, PartitionKey
from assignor_core.model import ClusterState
from assignor_core.plan import apply_to
from assignor_core.planner import PlannerPolicy, propose
from assignor_core.resources import Resource
from streaming.cluster.admin import Cluster
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.metric_reads import scrape
from streaming.collect.counters import parse_counters
from streaming.control.planning import model_for
from streaming.control.windows import closed_windows
from streaming.control.wiring import window_tables_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.runtime.clocks import now_ms
from streaming.settings import Settings
from tests.core.serving_rule import served_parts
from tests.kafka.measured_windows import MeasuredWindows
from tests.topics import LEADERS_AGE_MAX_MS, settled, wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.kafka

PLACED = [(1, 2), (1, 3), (1, 2), (1, 3), (1, 2), (3, 2)]
"""By partition; broker 1 leads nearly all."""
RECORDS = (60, 120, 100, 80, 40, 20)
"""By partition, written in each round."""
VALUE = b"x" * 10_000
READERS = {"near-1": "rack-1", "near-2": "rack-2", "near-2-too": "rack-2", "near-3": "rack-3", "anywhere": None}
"""Rack by group; each of one member that reads everything."""
STALLED_S = 45.0
CLOSE = 0.05
"""Of what a broker sends."""


@dataclass
class Rounds:
    """Writes, reads and measures."""

    brokers: EmbeddedCluster
    settings: Settings
    topic: str
    windows: MeasuredWindows
    consumers: dict[str, Consumer] = field(default_factory=dict)

    def connect(self) -> None:
        """Readers that ask the leaders where to read: librdkafka may stay with a broker that led before, or that the
        metadata of their first second names, until it asks for metadata again. By default that is after five minutes.
        """
        self.close()
        for name, rack in READERS.items():
            given = {"client.rack": rack} if rack else {}
            self.consumers[name] = Consumer(
                {
                    "bootstrap.servers": ",".join(self.brokers.bootstrap_servers), "group.id": f"{name}-{self.topic}",
                    "auto.offset.reset": "earliest", "enable.auto.commit": False,
                    "topic.metadata.refresh.interval.ms": LEADERS_AGE_MAX_MS, **given,
                }
            )  # fmt: skip
            self.consumers[name].subscribe([self.topic])

    def close(self) -> None:
        """End the readers."""
        while self.consumers:
            self.consumers.popitem()[1].close()

    def look(self) -> None:
        """One look at the brokers, as the collector's, which makes a window of the time since the one before."""
        until("a window is over", lambda: self.windows.write_if_due(now_ms()), pause_s=0.05)

    def counted(self) -> dict[int, float]:
        """Bytes of the topic that each broker has sent to consumers."""
        answers = scrape(self.brokers.jmx_endpoints, limit_s=DEADLINE_S).answers
        counters = {broker: parse_counters(text) for broker, text in answers.items()}
        return {broker: row.topic_bytes_out.get(self.topic, 0.0) for broker, row in sorted(counters.items()) if row}

    def play(self) -> dict[int, float]:
        """Write and read once; the bytes that each broker has sent to consumers for it."""
        self.look()
        before = self.counted()
        self._write()
        for name in READERS:
            self._read(name)
        after = self.counted()
        self.look()
        return {broker: after[broker] - before[broker] for broker in after}

    def _write(self) -> None:
        """Each record is acknowledged, or an error of Kafka's is raised."""
        producer = KafkaProducer(bootstrap_servers=self.brokers.bootstrap_servers, acks="all")
        sent = [
            producer.send(self.topic, VALUE, partition=partition)
            for partition, count in enumerate(RECORDS)
            for _ in range(count)
        ]
        for record in sent:
            record.get(timeout=DEADLINE_S)
        producer.close()

    def _read(self, name: str) -> None:
        """What one group has not read yet.

        Readers that get nothing for long are connected anew, which spoils the round: once, after a replica had left its
        broker, one got nothing for three minutes (2026-11-27, cause unknown).
        """
        read, errors = Counter[int](), list[str]()
        came_s = time.monotonic()

        def read_all() -> bool:
            nonlocal came_s
            for message in self.consumers[name].consume(sum(RECORDS) - read.total(), timeout=1.0):
                came_s = time.monotonic()
                if message.error() is None:
                    read[message.partition() or 0] += 1
                else:
                    errors.append(str(message.error()))
            if time.monotonic() - came_s > STALLED_S:
                errors.append(f"nothing for {STALLED_S:.0f} s after {dict(read)} by partition")
                self.connect()
                read.clear()
                came_s = time.monotonic()
            return read.total() >= sum(RECORDS)

        until(f"{name} has read all", read_all, pause_s=0.0, state=partial("{} by partition, {}".format, read, errors))
        self.consumers[name].commit(asynchronous=False)

    def settled(self, expected: Mapping[int, float]) -> dict[int, float]:
        """The first round in which each broker sends its part, and nothing twice: the clients know where to read."""
        whole = pytest.approx(len(READERS) * sum(RECORDS) * len(VALUE), rel=CLOSE)
        counted: list[dict[int, float]] = []

        def play() -> bool:
            counted.append(self.play())
            return is_close(counted[-1], expected) and sum(counted[-1].values()) == whole

        until(f"brokers send in parts like {expected}, {whole} together", play, pause_s=0.0, state=lambda: str(counted))
        return counted[-1]

    def model(self, cluster: Cluster) -> tuple[ClusterState, LiveCluster]:
        """What control would plan on after the newest round, and the cluster as it is."""
        live, planner, window_tables = cluster.describe(), self.settings.planner, window_tables_of(self.settings)
        request = PlanRequest(PlannerPolicy(), closed_windows(window_tables, now_ms=now_ms())[-1:], frozenset())
        return model_for(request, live, cluster, window_tables, planner, now_ms=now_ms()).cluster, live

    def predicted(self, cluster: ClusterState) -> dict[int, float]:
        """Bytes/s of the topic that each broker sends to consumers."""
        racks = {broker.broker_id: broker.rack for broker in cluster.brokers}
        totals = dict.fromkeys(sorted(racks), 0.0)
        for row in cluster.partitions:
            if row.topic == self.topic:
                assert isinstance(row.load.bytes_out_per_sec, float)
                parts = served_parts([racks[broker] for broker in row.replicas], row.reader_racks)
                for broker, part in zip(row.replicas, parts, strict=True):
                    totals[broker] += row.load.bytes_out_per_sec * part
        return totals


@pytest.fixture
def rounds(kafka_cluster: EmbeddedCluster, settings: Settings, admin: KafkaAdminClient) -> Iterator[Rounds]:
    mark = uuid.uuid4().hex[:8]
    topic = f"read-{mark}"
    admin.create_topics({topic: {"assignments": {number: list(row) for number, row in enumerate(PLACED)}}})
    wait_until_known(admin, [topic])
    settings = settings.model_copy(
        update={"pipeline": settings.pipeline.model_copy(update={"window_ms": 1_000, "watermark_ms": 1_000})}
    )
    played = Rounds(kafka_cluster, settings, topic, MeasuredWindows(BrokerReads(admin), settings))
    played.windows.write_if_due(now_ms())  # the first look makes no window
    played.connect()
    yield played
    played.close()
    admin.delete_topics([topic])


def parts_of(figures: Mapping[int, float]) -> dict[int, float]:
    """Of all of them together."""
    return {broker: figure / sum(figures.values()) for broker, figure in figures.items()}


def move(cluster: Cluster, targets: Mapping[PartitionKey, tuple[int, ...]]) -> None:
    """Give partitions these replicas, the first of which leads."""
    cluster.reassign(targets)
    settled(cluster, targets)
    cluster.elect_preferred(targets)
    until(
        "the preferred replicas lead",
        lambda: all(cluster.describe().partitions[key].leader == row[0] for key, row in targets.items()),
    )


def by_the_selector(placed: Mapping[PartitionKey, tuple[int, ...]]) -> dict[int, float]:
    """Bytes that brokers 1 to 3 of racks 1 to 3 send in a round, one reader after the other."""
    totals = dict.fromkeys((1, 2, 3), 0.0)
    for (_, number), replicas in placed.items():
        for rack in READERS.values():
            near = [broker for broker in replicas if rack == f"rack-{broker}"]
            totals[near[0] if near else replicas[0]] += RECORDS[number] * len(VALUE)
    return totals


def is_close(figures: Mapping[int, float], expected: Mapping[int, float]) -> bool:
    """Whether each broker has the same part of all bytes, but for 5 % of it."""
    return bool(parts_of(figures) == pytest.approx(parts_of(expected), rel=CLOSE))


def test_predicted_bytes_out_are_those_that_brokers_count(rounds: Rounds, admin: KafkaAdminClient) -> None:
    """As measured, after a plan that hands leaderships over between racks, and after a replica has left its rack."""
    cluster, topic = Cluster(admin), rounds.topic
    rounds.play()  # groups have committed from now on: what they read is the progress of that
    counted = rounds.settled(by_the_selector({(topic, number): row for number, row in enumerate(PLACED)}))
    observed, _ = rounds.model(cluster)
    assert is_close(rounds.predicted(observed), counted)
    assert {row.reader_racks != () for row in observed.partitions if row.topic == topic} == {True}

    plan = propose(observed, PlannerPolicy(only_topics=frozenset({topic})))
    after = rounds.predicted(apply_to(observed, plan))
    assert not is_close(after, counted)
    move(cluster, {(row.topic, row.partition): row.new_replicas for row in plan.movements})
    rounds.connect()
    rounds.settled(after)
    trigger = closed_windows(window_tables_of(rounds.settings), now_ms=now_ms())[-1].values(Resource.BYTES_OUT)
    assert is_close(plan.loads_after[Resource.BYTES_OUT], trigger)

    observed, live = rounds.model(cluster)
    leader, follower = live.partitions[topic, 1].replicas
    (other,) = {1, 2, 3} - {leader, follower}
    moved = tuple(
        replace(row, replicas=(leader, other)) if (row.topic, row.partition) == (topic, 1) else row
        for row in observed.partitions
    )
    after = rounds.predicted(replace(observed, partitions=moved))
    assert not is_close(after, rounds.predicted(observed))
    move(cluster, {(topic, 1): (leader, other)})
    rounds.connect()
    rounds.settled(after)
