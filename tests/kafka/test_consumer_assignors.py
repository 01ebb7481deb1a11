"""Python members with our assignors and a Java member with Kafka's in one group on real brokers."""

import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.admin import NewTopic

from streaming.consumer import CooperativeSticky, Sticky
from streaming.demo.brokers import EmbeddedCluster
from streaming.jars import class_path, java_command

pytestmark = [pytest.mark.kafka, pytest.mark.java]

PARTITIONS = 7
DEADLINE_S = 60.0
JAVA_PACKAGE = "org.apache.kafka.clients.consumer"


class PythonMember:
    """A consumer with one of our assignors, polling in a thread of its own."""

    def __init__(self, servers: list[str], group: str, topic: str, assignor: object) -> None:
        self.owned: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, args=(servers, group, topic, assignor))
        self._thread.start()

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.owned = set()

    def _poll(self, servers: list[str], group: str, topic: str, assignor: object) -> None:
        consumer = KafkaConsumer(
            topic, bootstrap_servers=servers, group_id=group, partition_assignment_strategy=[assignor]
        )
        try:
            while not self._stop.is_set():
                consumer.poll(timeout_ms=100)
                self.owned = {tp.partition for tp in consumer.assignment()}
        finally:
            consumer.close()


class JavaMember:
    """Kafka's consumer with Kafka's assignor in a JVM."""

    def __init__(self, servers: list[str], group: str, topic: str, assignor: str) -> None:
        self.owned: set[int] = set()
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
            if all(word.isdigit() for word in line.split()):
                self.owned = {int(word) for word in line.split()}


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


def wait_for_even_shares(members: list[Member]) -> None:
    """Until every partition has one owner and shares differ by one at most."""
    deadline = time.monotonic() + DEADLINE_S
    shares: list[set[int]] = []
    while time.monotonic() < deadline:
        shares = [set(member.owned) for member in members]
        sizes = [len(share) for share in shares]
        if sum(sizes) == PARTITIONS and len(set().union(*shares)) == PARTITIONS and max(sizes) - min(sizes) <= 1:
            return
        time.sleep(0.05)
    pytest.fail(f"after {DEADLINE_S:.0f} s the members own {shares}")


@pytest.mark.parametrize("first", ["java", "python"])
@pytest.mark.parametrize(
    ("assignor", "java_assignor"), [(Sticky, "StickyAssignor"), (CooperativeSticky, "CooperativeStickyAssignor")]
)
def test_java_and_python_members_share_a_group(
    kafka_cluster: EmbeddedCluster, first: str, assignor: Callable[[], object], java_assignor: str
) -> None:
    """The first member leads; then others join, and the leader leaves."""
    servers, topic = kafka_cluster.bootstrap_servers, f"shared-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    admin.close()
    group = f"group-{topic}"

    def java() -> Member:
        return JavaMember(servers, group, topic, java_assignor)

    def python() -> Member:
        return PythonMember(servers, group, topic, assignor())

    with members_of_a_group() as members:
        for join in (java, python, python) if first == "java" else (python, java, python):
            members.append(join())
            wait_for_even_shares(members)
        members[2].leave()
        del members[2]
        wait_for_even_shares(members)
        members[0].leave()
        del members[0]
        wait_for_even_shares(members)
