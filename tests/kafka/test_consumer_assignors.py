"""Python members with our assignors and a Java member with Kafka's in one group on real brokers."""

import queue
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import MemberToRemove, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from streaming.client.claims import keep_joining
from streaming.consumer import CooperativeLoadAware, CooperativeSticky, LoadAware, Sticky
from streaming.demo.brokers import EmbeddedCluster
from streaming.weights import WeightSource
from tests.kafka.real_groups import JavaProcess
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.java]

PARTITIONS = 7
POLL_MS = 100
"""Shorter than a rebalance, so that polls time out while their member joins."""

JAVA_PACKAGE = "org.apache.kafka.clients.consumer"


Changes = list[tuple[int, str, int]]
"""(ms since 1970, "+" gained or "-" given up, partition), in the order in which one member had them."""


class Noting(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types here
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


class KafkaPythonsRange(RangePartitionAssignor):  # type: ignore[misc]  # kafka-python has no types here
    """kafka-python's own, with the mend that ours have: else a join that outlasts its poll may be lost, and the brokers
    expel the member, which never notices. A busy machine makes joins last.
    """

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        keep_joining()
        return super().metadata(topics)


class PythonMember:
    """A consumer with one of our assignors, or a list of assignors, polling in a thread of its own."""

    def __init__(
        self, servers: list[str], group: str, topics: list[str], assignor: object, name: str = "python"
    ) -> None:
        self.owned: set[int] = set()
        self.owned_partitions: set[tuple[str, int]] = set()
        self.changes: Changes = []
        self.polls = 0
        self._stop = threading.Event()
        self._calls: queue.SimpleQueue[Callable[[KafkaConsumer], object]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._poll, args=(servers, group, topics, assignor, name))
        self._thread.start()

    def call(self, change: Callable[[KafkaConsumer], object]) -> None:
        """Call `change` with the consumer before its next poll."""
        self._calls.put(change)

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        self.owned, self.owned_partitions = set(), set()

    @staticmethod
    def _listed(assignor: object) -> list[object]:
        return assignor if isinstance(assignor, list) else [assignor]

    def _poll(self, servers: list[str], group: str, topics: list[str], assignor: object, name: str) -> None:
        noting = Noting(self.changes)
        consumer = KafkaConsumer(
            bootstrap_servers=servers, group_id=group, client_id=name,
            partition_assignment_strategy=self._listed(assignor),
            heartbeat_interval_ms=500, metadata_max_age_ms=1_000,
        )  # fmt: skip
        consumer.subscribe(topics, listener=noting)
        try:
            while not self._stop.is_set():
                while not self._calls.empty():
                    self._calls.get()(consumer)
                consumer.poll(timeout_ms=POLL_MS)
                self.polls += 1
                self.owned_partitions = {(tp.topic, tp.partition) for tp in consumer.assignment()}
                self.owned = {partition for _, partition in self.owned_partitions}
        finally:
            noting.note("-", consumer.assignment())
            consumer.close()


class JavaMember(JavaProcess):
    """Kafka's consumer with Kafka's assignor in a JVM."""

    def __init__(self, servers: list[str], group: str, topic: str, assignor: str) -> None:
        super().__init__("MixedConsumer.java", servers[0], group, topic, f"{JAVA_PACKAGE}.{assignor}", heap="200m")
        self.owned: set[int] = set()
        self.changes: Changes = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def leave(self) -> None:
        self.send()
        self.close()
        self.owned = set()

    def _finish(self) -> None:
        self._process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        super()._finish()

    def _read(self) -> None:
        for line in self.lines:
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
    def shares() -> list[set[int]]:
        return [set(member.owned) for member in members]

    until("the shares", lambda: wanted(shares()), pause_s=0.05, state=lambda: f"the members own {shares()}")


def even(shares: list[set[int]]) -> bool:
    """Every partition has one owner, and shares differ by one at most."""
    sizes = [len(share) for share in shares]
    return sum(sizes) == PARTITIONS and len(set().union(*shares)) == PARTITIONS and max(sizes) - min(sizes) <= 1


def overlaps(members: Iterable[Member]) -> list[str]:
    """Where a member gained a partition while another still had it; a tie in time counts for the members."""
    spans = [
        (at_ms, sign == "+", partition, place)
        for place, member in enumerate(members)
        for at_ms, sign, partition in member.changes
    ]
    holders: dict[int, set[int]] = defaultdict(set)
    overlapping = []
    for at_ms, gained, partition, place in sorted(spans):
        if gained:
            overlapping += [
                f"{at_ms}: {place} has {partition} beside {other}" for other in holders[partition] - {place}
            ]
            holders[partition].add(place)
        else:
            holders[partition].discard(place)
    return overlapping


def test_an_overlap_is_seen() -> None:
    def member(*changes: tuple[int, str, int]) -> Member:
        python = PythonMember.__new__(PythonMember)
        python.changes = list(changes)
        return python

    assert overlaps([member((1, "+", 0), (5, "-", 0)), member((5, "+", 0))]) == []
    assert overlaps([member((1, "+", 0), (5, "-", 0)), member((4, "+", 0))]) == ["4: 1 has 0 beside 0"]


def new_topic(kafka_cluster: EmbeddedCluster, partitions: int = PARTITIONS) -> str:
    topic = f"shared-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap_servers)
    admin.create_topics([NewTopic(topic, partitions, 1)])
    admin.close()
    return topic


@pytest.mark.parametrize(
    ("first", "assignor", "java_assignor"),
    [("java", Sticky, "StickyAssignor"), ("python", CooperativeSticky, "CooperativeStickyAssignor")],
    ids=["eager, Java leads", "cooperative, Python leads"],
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
        return PythonMember(servers, group, [topic], assignor())

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
            servers, f"group-{topic}", [topic], assignor(lambda topics: {t: known[t] for t in topics if t in known})
        )

    with members_of_a_group() as members:
        for wanted in ([set(range(PARTITIONS))], [{heaviest}, set(range(heaviest))]):
            members.append(python())
            wait_for_shares(members, lambda shares, wanted=wanted: sorted(shares, key=len) == wanted)  # type: ignore[misc]
        known.clear()
        members.append(python())
        wait_for_shares(members, even)


ROLLING = [
    (lambda: KafkaPythonsRange, LoadAware),
    (lambda: CooperativeSticky(), CooperativeLoadAware),
]
"""What a group has, and what it gets by one rolling restart: eager to eager, cooperative to cooperative."""


@pytest.mark.parametrize(("old", "new"), ROLLING, ids=["eager", "cooperative"])
def test_a_rolling_restart_switches_a_group_to_load_aware(
    kafka_cluster: EmbeddedCluster, old: Callable[[], object], new: Callable[[WeightSource], object]
) -> None:
    """Members that are new name the old assignor second: the group shares by count until the last one is new."""
    servers, topic = kafka_cluster.bootstrap_servers, new_topic(kafka_cluster)
    heaviest = PARTITIONS - 1
    weights = [1.0] * heaviest + [float(heaviest)]

    def member(*assignors: object) -> Member:
        return PythonMember(servers, f"group-{topic}", [topic], list(assignors))

    everybody: list[Member] = []
    with members_of_a_group() as members:
        everybody = [member(old()), member(old())]
        members += everybody
        for wait in (even, lambda shares: sorted(shares, key=len) == [{heaviest}, set(range(heaviest))]):
            wait_for_shares(members, even)
            members.pop(0).leave()
            everybody.append(member(new(lambda _: {topic: weights}), old()))
            members.append(everybody[-1])
            wait_for_shares(members, wait)
    assert overlaps(everybody) == []


def wait_for_members(admin: KafkaAdminClient, group: str, names: list[str]) -> dict[str, str]:
    """Member ids by client id, once these are the members that the brokers know."""

    def ids() -> dict[str, str]:
        members = admin.describe_groups([group])[group]["members"]
        by_name = {member["client_id"]: member["member_id"] for member in members}
        return by_name if sorted(member["client_id"] for member in members) == sorted(names) else {}

    return until(f"members of {group} are {names}", ids, state=lambda: str(admin.describe_groups([group])))


@pytest.mark.parametrize("first", ["java", "python"])
def test_a_topic_that_a_member_drops_is_read_by_the_others(kafka_cluster: EmbeddedCluster, first: str) -> None:
    """`a` reads two topics and drops the one that `b`, who leads, reads too."""
    servers, topic, other = kafka_cluster.bootstrap_servers, new_topic(kafka_cluster), new_topic(kafka_cluster, 1)
    group = f"group-{topic}"
    with members_of_a_group() as members:
        if first == "java":
            members.append(JavaMember(servers, group, topic, "CooperativeStickyAssignor"))
        else:
            members.append(PythonMember(servers, group, [topic], CooperativeSticky(), "b"))
        wait_for_shares(members, even)
        a = PythonMember(servers, group, [topic, other], CooperativeSticky(), "a")
        members.append(a)
        until("a has half of all partitions", lambda: len(a.owned_partitions) == (PARTITIONS + 1) // 2)
        a.call(lambda consumer: consumer.subscribe([other], listener=Noting(a.changes)))
        until(
            "b reads all of the topic", lambda: members[0].owned == set(range(PARTITIONS)),
            state=lambda: f"a owns {sorted(a.owned_partitions)}, b owns {sorted(members[0].owned)}",
        )  # fmt: skip


def _stop_until(opened: threading.Event, stopped: threading.Event, _: KafkaConsumer) -> None:
    stopped.set()
    opened.wait(DEADLINE_S)


def test_what_a_member_lost_with_its_membership_is_read_by_somebody(kafka_cluster: EmbeddedCluster) -> None:
    """`a` alone reads the topic, loses its membership, and is back in the generation in which `c` joins.

    `gate` reads another topic: until it joins again, the brokers hold the others' joins.
    """
    servers, topic, other = kafka_cluster.bootstrap_servers, new_topic(kafka_cluster), new_topic(kafka_cluster)
    group, opened, stopped = f"group-{topic}", threading.Event(), threading.Event()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    with members_of_a_group() as members:
        gate = PythonMember(servers, group, [other], CooperativeSticky(), "gate")
        a = PythonMember(servers, group, [topic], CooperativeSticky(), "a")
        members += [gate, a]
        wait_for_shares([a], even)
        wait_for_shares([gate], even)  # one that stops before it has joined is no member
        gate.call(partial(_stop_until, opened, stopped))
        assert stopped.wait(DEADLINE_S)
        left = wait_for_members(admin, group, ["gate", "a"])["a"]
        admin.remove_group_members(group, [MemberToRemove(left)])
        until("a is back", lambda: wait_for_members(admin, group, ["gate", "a"])["a"] != left)
        c = PythonMember(servers, group, [topic], CooperativeSticky(), "c")
        members.append(c)
        wait_for_members(admin, group, ["gate", "a", "c"])
        opened.set()
        wait_for_shares([a, c], even)
    admin.close()


def _read_too(topic: str, member: PythonMember, consumer: KafkaConsumer) -> None:
    consumer.subscribe([*consumer.subscription(), topic], listener=Noting(member.changes))


@pytest.mark.parametrize(("change", "assignor"), [("another topic", Sticky), ("new partitions", CooperativeSticky)])
def test_a_join_outlasts_the_poll_that_began_it(
    kafka_cluster: EmbeddedCluster, change: str, assignor: Callable[[], object]
) -> None:
    """`a`, who leads, begins to join for what changed. Its polls time out until `gate` joins too."""
    servers, topic, gates, other = kafka_cluster.bootstrap_servers, *(new_topic(kafka_cluster) for _ in range(3))
    group, opened, stopped = f"group-{topic}", threading.Event(), threading.Event()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    with members_of_a_group() as members:
        a = PythonMember(servers, group, [topic], assignor(), "a")
        members.append(a)
        wait_for_shares([a], even)
        gate = PythonMember(servers, group, [gates], assignor(), "gate")
        members.append(gate)
        wait_for_shares([gate], even)
        gate.call(partial(_stop_until, opened, stopped))
        assert stopped.wait(DEADLINE_S)
        if change == "another topic":
            a.call(partial(_read_too, other, a))
        else:
            admin.create_partitions({topic: PARTITIONS + 1})
        until(
            "the brokers hold the join of a",
            lambda: admin.describe_groups([group])[group]["group_state"] == "PreparingRebalance",
        )
        polls = a.polls
        until("polls of a have timed out", lambda: a.polls > polls + 5)
        opened.set()
        wanted = {(topic, number) for number in range(PARTITIONS)}
        wanted |= (
            {(other, number) for number in range(PARTITIONS)} if change == "another topic" else {(topic, PARTITIONS)}
        )
        until("a reads what changed", lambda: a.owned_partitions == wanted, state=lambda: str(a.owned_partitions))
    admin.close()
