"""Real groups that fall behind, each for a reason of its own and all at once: each is told its own and no other's."""

import re
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer
from kafka.partitioner.default import murmur2
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import TopicPartition

from assignor_core.lag.diagnosis import LagCause
from assignor_core.lag.figures import LagPolicy
from streaming.cluster.clients import admin_client
from streaming.commands.lag import read_lag
from streaming.consumer import Range
from streaming.demo.scenario import A_PER_BROKER, B_PER_BROKER, placement
from streaming.settings import Settings
from tests.lag.watch import Watch
from tests.topics import wait_until_known

pytestmark = pytest.mark.kafka

BROKERS, RACKS = (1, 2, 3), ("rack-1", "rack-2", "rack-3")
WINDOW_MS = 2_000
DEADLINE_S = 600
LOOK_S = 0.4
AFTERWARDS_S = 2 * WINDOW_MS / 1000
LOOK_BACK_S = LagPolicy().windows * WINDOW_MS / 1000
"""Until records have been written for so long, rates rest on a moment: brokers that answer a look a second apart then
seem to be written at different rates, and with windows as short as these a look takes a good part of that time.
"""
RECORD_S = 0.04
"""What a record costs a member: it reads 25 a second. Cheaper ones would cost a busy machine more than they cost it."""
SLOW_RECORD_S = 0.2
KEYED_PARTITIONS = 6
HOT_KEY = b"everybody"
ANY_PARTITION = -1
"""The key decides."""
BATCH = 5
FETCH_BYTES = 4_096
"""A few records of each partition at a time: long bursts would look like recoveries in windows as short as these."""


PROTOCOLS: dict[str, dict[str, Any]] = {
    "classic": {
        "partition.assignment.strategy": "range", "heartbeat.interval.ms": 500, "session.timeout.ms": 20_000,
    },
    "consumer": {"group.protocol": "consumer", "group.remote.assignor": "range"},
}  # fmt: skip


class NearBroker(Range):
    """Each partition to a member in its leader's rack, in turn, as some do to save traffic between racks."""

    name = "near-broker"

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Lead; a rack without a member is served by all."""
        everyone = sorted((member.metadata.rack_id, member.member_id) for member in members)
        turns = {rack: cycle([name for one, name in everyone if one == rack]) for rack, _ in everyone}
        anyone = cycle([name for _, name in everyone])
        given: dict[str, dict[str, list[int]]] = {name: {} for _, name in everyone}
        for topic in sorted({topic for member in members for topic in member.metadata.topics}):
            for partition in sorted(cluster.partitions_for_topic(topic) or ()):
                leader = cluster.broker_metadata(cluster.leader_for_partition(TopicPartition(topic, partition)))
                name = next(turns.get(leader.rack, anyone) if leader else anyone)
                given[name].setdefault(topic, []).append(partition)
        return {name: ConsumerProtocolAssignment(1, list(topics.items()), b"") for name, topics in given.items()}


@dataclass(frozen=True, slots=True)
class Member:
    """One consumer; `record_s` is what a record costs it."""

    name: str
    record_s: float = RECORD_S
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """Records a second to one partition, or with one key."""

    topic: str
    per_sec: float
    value_bytes: int
    partition: int | None = None
    key: bytes | None = None


@dataclass(slots=True)
class Scene:
    """Topics, who writes to them and which groups read them; writing begins once every group is complete."""

    settings: Settings
    mark: str
    protocol: str
    """Of the groups that librdkafka reads; kafka-python knows the classic one alone."""
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    groups: dict[str, tuple[list[str], list[Member]]] = field(default_factory=dict)
    """Group: topics and members."""
    ending: threading.Event = field(default_factory=threading.Event)
    begin: threading.Event = field(default_factory=threading.Event)

    def topic(self, name: str, per_broker: Sequence[int]) -> str:
        """Notes a topic with so many partitions led by each broker."""
        full = f"{name}-{self.mark}"
        self.topics[full] = {"assignments": placement(tuple(per_broker), BROKERS)}
        return full

    def group(self, name: str, topics: list[str], members: list[Member]) -> None:
        """Notes a group."""
        self.groups[f"{name}-{self.mark}"] = (topics, members)

    def write(self) -> None:
        """Evenly, and as much as it should be by now however late this thread gets to it."""
        sent = dict.fromkeys(self.flows, 0)
        self.begin.wait()
        began = time.monotonic()
        # Java's partitioner; and librdkafka's thread, which needs no turn among this process's threads of Python.
        producer = Producer({
            "bootstrap.servers": ",".join(self.settings.kafka.bootstrap_servers), "partitioner": "murmur2_random",
        })  # fmt: skip
        while not self.ending.wait(0.1):
            for flow, already in sent.items():
                due = int((time.monotonic() - began) * flow.per_sec)
                partition = ANY_PARTITION if flow.partition is None else flow.partition
                for _ in range(due - already):
                    producer.produce(flow.topic, b"x" * flow.value_bytes, key=flow.key, partition=partition)
                sent[flow] = due
            producer.poll(0)
        producer.flush()

    def read(self, group: str, topics: list[str], member: Member) -> None:
        """As a member that works on each record for a while."""
        assignor = NearBroker(rack_id=member.rack)
        reader = KafkaConsumer(
            *topics, bootstrap_servers=self.settings.kafka.bootstrap_servers, group_id=group, client_id=member.name,
            partition_assignment_strategy=[assignor], auto_offset_reset="earliest", auto_commit_interval_ms=300,
            max_poll_records=BATCH, max_partition_fetch_bytes=FETCH_BYTES, heartbeat_interval_ms=500,
            session_timeout_ms=20_000,
        )  # fmt: skip
        while not self.ending.is_set():
            polled = reader.poll(timeout_ms=200)
            self.ending.wait(member.record_s * sum(map(len, polled.values())))
        reader.close()

    def read_natively(self, group: str, topics: list[str], member: Member) -> None:
        """The same with librdkafka and its own assignor: a thread of Python's for each member would slow them all."""
        reader = Consumer({
            "bootstrap.servers": ",".join(self.settings.kafka.bootstrap_servers), "group.id": group,
            "client.id": member.name, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 300,
            **PROTOCOLS[self.protocol],
        })  # fmt: skip
        reader.subscribe(topics)
        while not self.ending.is_set():
            self.ending.wait(member.record_s * len(reader.consume(BATCH, timeout=0.2)))
        reader.close()


def played(settings: Settings, protocol: str) -> Scene:
    """The founding example's skew, a key that most records have, a member that is slow, and a group that is well."""
    scene = Scene(settings, uuid.uuid4().hex[:8], protocol)
    heavy, light = scene.topic("topic-A", A_PER_BROKER), scene.topic("topic-B", B_PER_BROKER)
    scene.flows += [Flow(heavy, 4.5, 1_000, partition) for partition in range(30)]
    scene.flows += [Flow(light, 0.05, 1_000, partition) for partition in range(30)]
    near = [Member(f"near-{rack}-{number}", rack=rack) for rack in RACKS for number in (1, 2)]
    scene.group("founding", [heavy, light], near)
    keyed = scene.topic("keyed", [KEYED_PARTITIONS // 3] * 3)
    scene.flows += [Flow(keyed, 50.0, 50, key=HOT_KEY)]
    scene.flows += [Flow(keyed, 0.25, 50, key=f"customer {number}".encode()) for number in range(60)]
    scene.group("keyed", [keyed], [Member(f"keyed-{number}") for number in range(3)])
    even = scene.topic("even", (3, 3, 3))
    scene.flows += [Flow(even, 3.75, 50, partition) for partition in range(9)]
    slow = [Member(f"even-{number}", SLOW_RECORD_S if number == 1 else RECORD_S) for number in range(3)]
    scene.group("slow", [even], slow)
    scene.group("well", [even], [Member("well-0", RECORD_S / 5)])
    return scene


@contextmanager
def playing(scene: Scene) -> Iterator[None]:
    """Everything runs inside, and is ended."""
    admin = admin_client(scene.settings.kafka)
    admin.create_topics(scene.topics)
    wait_until_known(admin, list(scene.topics))
    admin.close()
    threads = [threading.Thread(target=scene.write)]
    for group, (topics, members) in scene.groups.items():
        for member in members:
            read = scene.read if member.rack else scene.read_natively
            threads.append(threading.Thread(target=read, args=(group, topics, member)))
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        scene.ending.set()
        scene.begin.set()
        for thread in threads:
            thread.join(DEADLINE_S)


@dataclass(slots=True)
class NamedCauses:
    """Every cause that was ever named in a look that counts, by group, and those that are named now."""

    groups: list[str]
    ever: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    now: dict[str, set[tuple[str, str]]] = field(default_factory=dict)

    def read(self, settings: Settings, *, counted: bool) -> None:
        """What `rebalancer lag --group` says of each group on these tables."""
        for group in self.groups:
            causes = read_lag(settings, group_id=group, matches=re.compile(""))["causes"]
            self.now[group] = {(one["cause"], one["subject"].split(" (")[0]) for one in causes}
            if counted:
                self.ever.setdefault(group, set()).update(self.now[group])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_group_is_told_its_own_cause_and_no_other(settings: Settings, tmp_path: Path, protocol: str) -> None:
    scene = played(settings, protocol)
    with closing(Watch(settings, f"-{scene.mark}$", window_ms=WINDOW_MS)) as watch, playing(scene):
        deadline = time.monotonic() + DEADLINE_S
        while not _complete(watch.look(), scene):
            assert time.monotonic() < deadline, "the groups never came together"
            time.sleep(LOOK_S)
        scene.begin.set()
        look_back_is_full = time.monotonic() + LOOK_BACK_S
        named = NamedCauses(list(scene.groups))
        hot = (murmur2(HOT_KEY) & 0x7FFFFFFF) % KEYED_PARTITIONS
        expected = {
            f"founding-{scene.mark}": {(LagCause.HOT_BROKER, "broker 1")},
            f"keyed-{scene.mark}": {(LagCause.HOT_PARTITION, f"keyed-{scene.mark}-{hot}")},
            f"slow-{scene.mark}": {(LagCause.SLOW_MEMBER, "even-1")},
            f"well-{scene.mark}": set(),
        }
        until: float | None = None
        with watch.sampling(LOOK_S):
            for number in count():
                assert time.monotonic() < deadline, f"told {named.now}, ever {named.ever}"
                named.read(watch.write(tmp_path / f"look-{number}"), counted=time.monotonic() > look_back_is_full)
                if until is None and named.ever and named.now == expected:
                    until = time.monotonic() + AFTERWARDS_S
                # On a busy machine producers starve for a moment: then nothing is named, and nothing wrong.
                if until is not None and time.monotonic() > until and named.now == expected:
                    break
    assert named.now == expected
    assert named.ever == expected, "a wrong cause was named on the way"


def _complete(picture: dict[str, list[dict[str, Any]]], scene: Scene) -> bool:
    """Every member of every group owns something, and nothing is without an owner."""
    owners = {group: {row["client_id"] for row in rows} for group, rows in picture.items()}
    return owners == {group: {member.name for member in members} for group, (_, members) in scene.groups.items()}
