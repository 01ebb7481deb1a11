"""What we show of groups of the newer protocols is what Kafka's own tools show, as members come and go."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from assignor_core.group.events import Cause, GroupSample, group_events
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client
from streaming.collect.group_table import GroupView
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.commands.status import read_groups_status
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import UsageProblem
from streaming.serve.snapshot import read_snapshot
from streaming.settings import Settings
from tests.kafka.newer_groups import (
    WITH_TOOLS,
    GroupTools,
    Row,
    broker_settings,
    number,
    partitions_in,
    shown,
    tasks_in,
)
from tests.kafka.real_groups import JavaMembers, JavaProcess, MemberEvent
from tests.lag.watch import Watch
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.java]

PARTITIONS = 3
WINDOW_MS = 2_000


@pytest.fixture(scope="module")
def newer_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """One broker whose groups have short sessions."""
    with EmbeddedCluster(tmp_path_factory.mktemp("newer"), 1, broker_settings=broker_settings()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tools(newer_cluster: EmbeddedCluster) -> Iterator[GroupTools]:
    with GroupTools(newer_cluster) as running:
        yield running


@pytest.fixture
def settings(newer_cluster: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": newer_cluster.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables"), "checkpoints": str(tmp_path / "checkpoints")},
        }
    )


@pytest.fixture
def topic(settings: Settings) -> str:
    """A topic with records in each partition; its name is that of the test's group, too."""
    name = f"newer-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({name: {"num_partitions": PARTITIONS, "replication_factor": 1}})
    wait_until_known(admin, [name])
    admin.close()
    write(settings, name, 30)
    return name


def write(settings: Settings, topic: str, records: int) -> None:
    with KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers) as producer:
        for sent in range(records):
            producer.send(topic, b"x", key=b"%d" % sent, partition=sent % PARTITIONS)


@dataclass
class Compared:
    """Our look at one group, written as tables and read by the commands, against Kafka's own tool."""

    kind: str
    group: str
    tools: GroupTools
    watch: Watch
    folder: Path
    written: int = 0
    report: Row = field(default_factory=dict)
    compared: Row = field(default_factory=dict)

    def ours(self) -> Row:
        """As `lag --group`, `status --groups`, the API and the metrics show it."""
        self.watch.look()
        self.written += 1
        settings = self.watch.write(self.folder / f"look-{self.written}")
        report = shown(settings, self.group)
        (status,) = read_groups_status(settings)
        snapshot = read_snapshot(settings, now_ms=report["newest_event_ms"])
        (membership,) = snapshot.memberships
        assert report["group_members"] == status["members"] == membership.members
        assert report["state"] == status["state"]
        (verdict,) = snapshot.groups.groups
        assert verdict.lag_records == total(row["lag_records"] for row in report["partitions"])
        self.report, self.compared = report, {}
        return report

    def is_same(self, expect: Callable[[Row], bool]) -> bool:
        """Whether both show the same, and that is as it should be by now."""
        try:
            report = self.ours()
        except (UsageProblem, ValueError):  # no sample of it yet
            return False
        return expect(report) and members_of(report) == self.members() and offsets_of(report) == self.offsets()

    def members(self) -> tuple[int, dict[str, Any]]:
        """(Members, (client id, what it owns, target, instance id) by member id of those that own something)."""
        rows = self.tools.describe(self.kind, self.group, "--members", "--verbose")
        if self.kind == "share":
            return len(rows), {}
        owners: dict[str, tuple[str, set[tuple[str, int]], set[tuple[str, int]], str | None]]
        if self.kind == "streams":
            owners = {row["MEMBER"]: self._of_streams(row) for row in rows}
        else:
            owners = {
                row["CONSUMER-ID"]: (
                    row["CLIENT-ID"],
                    partitions_in(row.get("CURRENT-ASSIGNMENT", "")),
                    partitions_in(row.get("TARGET-ASSIGNMENT", "")),
                    row.get("GROUP-INSTANCE-ID"),
                )
                for row in rows
            }
        return len(rows), {member_id: owner for member_id, owner in owners.items() if owner[1]}

    def _of_streams(self, row: dict[str, str]) -> tuple[str, set[tuple[str, int]], set[tuple[str, int]], str | None]:
        topics = {"0": self.group, "1": f"{self.group}-again-repartition"}
        active, target = (
            {(topics[subtopology], partition) for subtopology, partition in tasks_in(row["ASSIGNMENTS"], kind)}
            for kind in ("ACTIVE", "TARGET-ACTIVE")
        )
        return row["CLIENT-ID"], active, target, None

    def offsets(self) -> dict[tuple[str, int], tuple[int | None, ...]]:
        """(Committed, end, lag) by partition; of share groups (start, lag)."""
        names = {
            "consumer": ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
            "share": ("START-OFFSET", "LAG"),
            "streams": ("CURRENT-OFFSET", "LOG-END-OFFSET", "OFFSET-LAG"),
        }[self.kind]
        return {
            (row["TOPIC"], int(row["PARTITION"])): tuple(number(row.get(name)) for name in names)
            for row in self.tools.describe(self.kind, self.group, "--offsets", "--verbose")
        }

    def until_same(self, what: str, expect: Callable[[Row], bool]) -> Row:
        until(what, lambda: self.is_same(expect), state=lambda: str(self.compared or self.report))
        return self.report


def total(lags: Any) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def members_of(report: Row) -> tuple[int, dict[str, Any]]:
    owned: dict[str, set[tuple[str, int]]] = defaultdict(set)
    target: dict[str, set[tuple[str, int]]] = defaultdict(set)
    names: dict[str, tuple[str, str | None]] = {}
    for row in report["partitions"]:
        key = (row["topic"], row["partition"])
        if row["member_id"] is not None:
            owned[row["member_id"]].add(key)
            names[row["member_id"]] = (row["client_id"], row["group_instance_id"])
        if row["target_member_id"] is not None:
            target[row["target_member_id"]].add(key)
    return report["group_members"], {
        member_id: (names[member_id][0], partitions, target[member_id], names[member_id][1])
        for member_id, partitions in owned.items()
    }


def offsets_of(report: Row) -> dict[tuple[str, int], tuple[int | None, ...]]:
    is_share = report["group_type"] == "share"
    names = ("share_start_offset",) if is_share else ("committed_offset", "log_end_offset")
    return {
        (row["topic"], row["partition"]): tuple(row[name] for name in (*names, "lag_records"))
        for row in report["partitions"]
    }


def clients_of(report: Row) -> set[str]:
    return {row["client_id"] for row in report["partitions"] if row["client_id"] is not None}


def has(members: int, *clients: str) -> Callable[[Row], bool]:
    """So many members, of which these own something, and all settled; everything was read."""

    def expect(report: Row) -> bool:
        return (
            report["group_members"] == members
            and report["state"] == "Stable"
            and (not clients or clients_of(report) == set(clients))
            and all(row["lag_records"] == 0 for row in report["partitions"])
        )

    return expect


@pytest.fixture
def compared(tools: GroupTools, settings: Settings, topic: str, tmp_path: Path) -> Iterator[Callable[[str], Compared]]:
    watch = Watch(settings, f"^{topic}$", window_ms=WINDOW_MS)
    yield lambda kind: Compared(kind, topic, tools, watch, tmp_path)
    watch.close()


def test_a_consumer_group_is_shown_as_kafkas_tool_shows_it(
    newer_cluster: EmbeddedCluster, settings: Settings, topic: str, compared: Callable[[str], Compared]
) -> None:
    both = compared("consumer")
    events: list[MemberEvent] = []
    stays, crashes = (JavaMembers(newer_cluster.bootstrap_servers, events) for _ in range(2))
    try:
        stays.start(topic, "a", topic, "consumer", "static-a", "client.rack=r1", "commit=true")
        stays.start(topic, "b", topic, "consumer", None, "commit=true")
        stays.start(topic, "c", f"~{topic}", "consumer", None, "commit=true")
        report = both.until_same("three members", has(3, "a", "b", "c"))
        assert (report["group_type"], report["assignor"]) == ("consumer", "uniform")
        by_client = {row["client_id"]: row for row in report["partitions"]}
        assert (by_client["a"]["rack_id"], by_client["a"]["group_instance_id"]) == ("r1", "static-a")
        assert [by_client[name]["subscribed_topic_regex"] for name in "abc"] == [None, None, topic]
        crashes.start(topic, "d", topic, "consumer", None, "commit=true")
        idle = both.until_same("a member without partitions", has(4))
        assert len(clients_of(idle)) == 3
        assert idle["generation_id"] > report["generation_id"]
        stays.stop(topic, "b")
        both.until_same("d instead of b", has(3, "a", "c", "d"))
        crashes.kill()
        left = both.until_same("d is gone after its session", has(2, "a", "c"))
        write(settings, topic, 30)
        both.until_same("what was written is read", has(2, "a", "c"))
        before = {row["member_id"] for row in left["partitions"] if row["client_id"] == "a"}
        stays.stop(topic, "a")
        stays.start(topic, "a", topic, "consumer", "static-a", "client.rack=r1", "commit=true")
        again = both.until_same(
            "a is another process", lambda row: has(2, "a", "c")(row) and not before & member_ids(row)
        )
        assert again["generation_id"] == left["generation_id"], "a static member that returns is no rebalance"
    finally:
        stays.close()
        crashes.close()


def member_ids(report: Row) -> set[str]:
    return {row["member_id"] for row in report["partitions"]}


@pytest.fixture
def java(newer_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[JavaProcess]:
    with newer_members(newer_cluster, tmp_path / "state") as running:
        yield running


@pytest.fixture
def crashing(newer_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[JavaProcess]:
    """A process beside `java`, to be killed."""
    with newer_members(newer_cluster, tmp_path / "state-of-crashing") as running:
        yield running


def newer_members(cluster: EmbeddedCluster, state: Path) -> JavaProcess:
    return JavaProcess("NewerMembers.java", cluster.bootstrap_servers[0], str(state), **WITH_TOOLS)


def test_a_share_group_is_shown_as_kafkas_tool_shows_it(
    java: JavaProcess, crashing: JavaProcess, settings: Settings, topic: str, compared: Callable[[str], Compared]
) -> None:
    both = compared("share")
    for name in ("a", "b", "c", "d"):
        java.send("share", topic, name, topic)
    report = both.until_same("four members of three partitions", has(4))
    assert (report["group_type"], report["generation_id"] is not None) == ("share", True)
    assert clients_of(report) == set(), "nobody owns a partition alone"
    assert all(row["committed_offset"] == 10 for row in report["partitions"])
    java.send("stop", topic, "a")
    both.until_same("three members", has(3))
    crashing.send("share", topic, "e", topic)
    both.until_same("four members again", has(4))
    crashing.kill()
    both.until_same("e is gone after its session", has(3))
    for name in ("b", "c", "d"):
        java.send("hang", topic, name)
    write(settings, topic, 30)
    both.until_same("nothing is read any more", lambda row: lags(row) == [10, 10, 10])
    for name in ("b", "c", "d"):
        java.send("stop", topic, name)
    empty = both.until_same("nobody is left", lambda row: row["state"] == "Empty")
    assert empty["group_members"] == 0


def lags(report: Row) -> list[int | None]:
    return [row["lag_records"] for row in report["partitions"]]


def test_a_streams_group_is_shown_as_kafkas_tool_shows_it(
    java: JavaProcess, crashing: JavaProcess, topic: str, compared: Callable[[str], Compared]
) -> None:
    both = compared("streams")
    java.send("streams", topic, "a", topic)
    report = both.until_same("one member", has(1, "a-StreamThread-1-consumer"))
    assert (report["group_type"], report["topology_epoch"]) == ("streams", 0)
    assert {row["topic"] for row in report["partitions"]} == {topic, f"{topic}-again-repartition"}
    java.send("streams", topic, "b", topic)
    both.until_same("two members", has(2, "a-StreamThread-1-consumer", "b-StreamThread-1-consumer"))
    java.send("stop", topic, "a")
    both.until_same("the other one", has(1, "b-StreamThread-1-consumer"))
    crashing.send("streams", topic, "c", topic)
    both.until_same("c beside it", has(2, "b-StreamThread-1-consumer", "c-StreamThread-1-consumer"))
    crashing.kill()
    both.until_same("c is gone after its session", has(1, "b-StreamThread-1-consumer"))


UPGRADE: tuple[tuple[str, str, set[str], str], ...] = (
    ("a", "range", {"a"}, "classic"), ("b", "range", {"a", "b"}, "classic"),
    ("a", "stop", {"b"}, "classic"), ("a", "consumer", {"a", "b"}, "consumer"),
    ("b", "stop", {"a"}, "consumer"), ("b", "consumer", {"a", "b"}, "consumer"),
    ("a", "stop", {"b"}, "consumer"), ("a", "range", {"a", "b"}, "consumer"),
    ("b", "stop", {"a"}, "classic"), ("b", "range", {"a", "b"}, "classic"),
)  # fmt: skip
"""Member, what is done, who owns something then, and the type of the group."""


def test_a_group_that_changes_its_protocol_and_goes_back_keeps_its_history(
    newer_cluster: EmbeddedCluster, settings: Settings, topic: str
) -> None:
    admin, sampler, events = admin_client(settings.kafka), GroupSampler(), list[MemberEvent]()
    reads = BrokerReads(admin)
    seen: list[GroupSample] = []

    def is_settled(owners: set[str], group_type: str) -> bool:
        view = observe(reads, sampler, settings.collect, now_ms=0).groups.get(topic)
        if view is None:
            return False
        seen.append(look(len(seen), view))
        clients = {owner.client_id for owner in view.owners.values()}
        return (view.state, view.group_type, clients) == ("Stable", group_type, owners)

    members = JavaMembers(newer_cluster.bootstrap_servers, events)
    try:
        for name, done, owners, group_type in UPGRADE:
            if done == "stop":
                members.stop(topic, name)
            else:
                members.start(topic, name, topic, done, None, "commit=true")
            settled = partial(is_settled, owners, group_type)
            until(f"{name}: {done}", settled, state=lambda: str(seen[-3:]))
    finally:
        members.close()
        admin.close()
    assert [kind for kind, _ in groupby(one.group_type for one in seen)] == ["classic", "consumer", "classic"]
    causes = [event.cause for event in group_events(seen)]
    assert causes.count(Cause.FORMED) <= 1
    assert Cause.EMPTIED not in causes
    generations = [one.generation_id for one in seen if one.generation_id is not None]
    assert generations == sorted(generations), "epochs go on from generations, and generations from epochs"


def look(place: int, view: GroupView) -> GroupSample:
    owners = {key: owner.member_id for key, owner in view.owners.items()}
    names = {owner.member_id: owner.client_id for owner in view.owners.values()}
    everything = dict.fromkeys(view.committed, None) | owners
    return GroupSample(place * 60_000, view.state, everything, view.generation_id, view.group_type, names, view.members)
