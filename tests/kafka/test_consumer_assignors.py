"""Python members with our assignors and a Java member with Kafka's in one group on real brokers."""

import subprocess
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from streaming.consumer import CooperativeLoadAware, CooperativeSticky, LoadAware, Sticky
from streaming.demo.brokers import EmbeddedCluster
from streaming.runtime.jars import class_path, java_command
from streaming.weights import WeightSource

pytestmark = [pytest.mark.kafka, pytest.mark.java]

PARTITIONS = 7
DEADLINE_S = 60.0
JAVA_PACKAGE = "org.apache.kafka.clients.consumer"


Changes = list[tuple[int, str, int]]
"""(ms since 1970, "+" gained or "-" given up, partition), in the order in which one member had them."""


class Noting(ConsumerRebalanceListener):
    """Writes down what a Python member gains and gives up."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        self.note("+", assigned)

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        self.note("-", revoked)

    def note(self, sign: str, partitions: Iterable[TopicPartition]) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._changes += [(now_ms, sign, tp.partition) for tp in partitions]


class PythonMember:
    """A consumer with one of our assignors, polling in a thread of its own."""

    def __init__(self, servers: list[str], group: str, topic: str, assignor: object) -> None:
        self.owned: set[int] = set()
        self.changes: Changes = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(servers, group, topic, assignor))
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.owned = set()

    def _poll(self, servers: list[str], group: str, topic: str, assignor: object) -> None:
        noting = Noting(self.changes)
        consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, partition_assignment_strategy=[assignor])
        consumer.subscribe([topic], listener=noting)
        try:
            while not self._stop.is_set():
                # kafka-python 3.0 forgets a join that a poll gave up waiting for, if what began it were new partitions.
                consumer.poll(timeout_ms=100 if consumer.assignment() else 2_000)
                self.owned = {tp.partition for tp in consumer.assignment()}
        finally:
            noting.note("-", consumer.assignment())
            consumer.close()


class JavaMember:
    """Kafka's consumer with Kafka's assignor in a JVM."""

    def __init__(self, servers: list[str], group: str, topic: str, assignor: str) -> None:
        self.owned: set[int] = set()
        self.changes: Changes = []
        source = str(Path(__file__).with_name("MixedConsumer.java"))
        command = [java_command(), "-Xmx200m", "-cp", class_path("broker"), source, servers[0], group, topic]
        self._process = subprocess.Popen(
            [*command, f"{JAVA_PACKAGE}.{assignor}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def leave(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        self._process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        self._process.stdout.close()
        self.owned = set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = line.split()
            if words[:1] in (["+"], ["-"]):
                self.changes += [(int(words[1]), words[0], int(word)) for word in words[2:]]
            elif all(word.isdigit() for word in words):
                self.owned = {int(word) for word in words}


Member = PythonMember | JavaMember


@contextmanager
def members_of_a_group() -> Iterator[list[Member]]:
    """Members that are in the group; whoever is still in it at the end leaves."""
    members: list[Member] = []
    try:
        yield members
    finally:
        for member in members:
            member.leave()


def wait_for_shares(members: list[Member], wanted: Callable[[list[set[int]]], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    shares: list[set[int]] = []
    while time.monotonic() < deadline:
        shares = [set(member.owned) for member in members]
        if wanted(shares):
            return
        time.sleep(0.05)
    pytest.fail(f"after {DEADLINE_S:.0f} s the members own {shares}")


def even(shares: list[set[int]]) -> bool:
    """Every partition has one owner, and shares differ by one at most."""
    sizes = [len(share) for share in shares]
    return sum(sizes) == PARTITIONS and len(set().union(*shares)) == PARTITIONS and max(sizes) - min(sizes) <= 1


def overlaps(members: Iterable[Member]) -> list[str]:
    """Where a member gained a partition while another still had it; a tie in time counts for the members."""
    told = [
        (at_ms, sign == "+", partition, place)
        for place, member in enumerate(members)
        for at_ms, sign, partition in member.changes
    ]
    holders: dict[int, set[int]] = defaultdict(set)
    found = []
    for at_ms, gained, partition, place in sorted(told):
        if gained:
            found += [f"{at_ms}: {place} has {partition} beside {other}" for other in holders[partition] - {place}]
            holders[partition].add(place)
        else:
            holders[partition].discard(place)
    return found


def test_an_overlap_is_seen() -> None:
    def member(*changes: tuple[int, str, int]) -> Member:
        python = PythonMember.__new__(PythonMember)
        python.changes = list(changes)
        return python

    assert overlaps([member((1, "+", 0), (5, "-", 0)), member((5, "+", 0))]) == []
    assert overlaps([member((1, "+", 0), (5, "-", 0)), member((4, "+", 0))]) == ["4: 1 has 0 beside 0"]


def new_topic(kafka_cluster: EmbeddedCluster) -> str:
    topic = f"shared-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap_servers)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    admin.close()
    return topic


@pytest.mark.parametrize("first", ["java", "python"])
@pytest.mark.parametrize(
    ("assignor", "java_assignor"), [(Sticky, "StickyAssignor"), (CooperativeSticky, "CooperativeStickyAssignor")]
)
def test_java_and_python_members_share_a_group(
    kafka_cluster: EmbeddedCluster, first: str, assignor: Callable[[], object], java_assignor: str
) -> None:
    """The first member leads; then others join, and the leader leaves."""
    servers, topic = kafka_cluster.bootstrap_servers, new_topic(kafka_cluster)
    group = f"group-{topic}"

    def java() -> Member:
        return JavaMember(servers, group, topic, java_assignor)

    def python() -> Member:
        return PythonMember(servers, group, topic, assignor())

    everybody: list[Member] = []
    with members_of_a_group() as members:
        for join in (java, python, python) if first == "java" else (python, java, python):
            everybody.append(join())
            members.append(everybody[-1])
            wait_for_shares(members, even)
        for leaving in (members[2], members[0]):
            members.remove(leaving)
            leaving.leave()
            wait_for_shares(members, even)
    assert overlaps(everybody) == []
    assert all(any(sign == "+" for _, sign, _ in member.changes) for member in everybody)


@pytest.mark.parametrize("assignor", [LoadAware, CooperativeLoadAware])
def test_members_share_by_weight_and_go_on_by_count_without(
    kafka_cluster: EmbeddedCluster, assignor: Callable[[WeightSource], object]
) -> None:
    """One partition as heavy as all others together is alone with its member, whoever joined first."""
    servers, topic = kafka_cluster.bootstrap_servers, new_topic(kafka_cluster)
    heaviest = PARTITIONS - 1
    known: dict[str, list[float]] = {topic: [1.0] * heaviest + [float(heaviest)]}

    def python() -> Member:
        return PythonMember(
            servers, f"group-{topic}", topic, assignor(lambda topics: {t: known[t] for t in topics if t in known})
        )

    with members_of_a_group() as members:
        for wanted in ([set(range(PARTITIONS))], [{heaviest}, set(range(heaviest))]):
            members.append(python())
            wait_for_shares(members, lambda shares, wanted=wanted: sorted(shares, key=len) == wanted)  # type: ignore[misc]
        known.clear()
        members.append(python())
        wait_for_shares(members, even)
