"""Brokers that restart, are demoted, are drained and filled, and are lost, on four real brokers that all of it shares.

Brokers of Kafka 4.4 refuse a reassignment that names a broker whose log dirs are all cordoned, and moves are staged.
Each test has topics of its own, which go with it; windows are written by the test.
"""

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from assignor_core.live import LiveCluster, PartitionKey
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.cluster.topics import min_in_sync
from streaming.control.journal import ExecutionRecord
from streaming.control.run import ControlLoop
from streaming.control.wiring import decider_of, executor_of, journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.runtime.clocks import now_ms
from streaming.settings import KafkaSettings, Settings
from streaming.tables import TableReader
from streaming.views.intents import drained_brokers
from tests.commands import Process, finish, run, start
from tests.control.windows import write_windows
from tests.java_programs import tool
from tests.kafka.writing import Writer
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

SAFE, REFUSED, WRONG_USE = 0, 3, 2
WINDOW_MS = 10_000
PARTITIONS = 16
ROWS = ([3, 4], [4, 3], [1, 3], [2, 4], [1, 2])
OF_MANY = {"t": {"assignments": {number: ROWS[number % 5] for number in range(PARTITIONS)}}}
OF_FEW = {
    "u": {"assignments": {0: [1, 2], 1: [2, 3], 2: [3, 4], 3: [4, 1], 4: [1, 3], 5: [2, 4]}},
    "__internal": {"assignments": {0: [4, 2]}},
}
DRAINED = (3, 4)
TOPICS_MAX = 200


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The two log dirs of broker 3; a person has cordoned the second one."""
    root = tmp_path_factory.mktemp("disks")
    return root / "disk-1", root / "disk-2"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, log_dirs: tuple[Path, Path]) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("four"), broker_count=4, log_dirs={3: log_dirs}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "four", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "control": {"mode": "apply", "staged_moves": True},
        }
    )


@contextmanager
def topics(admin: KafkaAdminClient, made: Mapping[str, Any]) -> Iterator[None]:
    """Topics that all brokers know, and that are gone in the end."""
    admin.create_topics(made)
    wait_until_known(admin, list(made))
    try:
        yield
    finally:
        delete(admin, list(made))


def delete(admin: KafkaAdminClient, names: list[str]) -> None:
    admin.delete_topics(names)
    until("they are gone", lambda: not {key[0] for key in Cluster(admin).describe().partitions}.intersection(names))


def windows_now(own: Settings, admin: KafkaAdminClient) -> int:
    """Writes windows that have ended; returns the end of the newest one."""
    end_ms = now_ms() // WINDOW_MS * WINDOW_MS
    write_windows(own, Cluster(admin).describe(), end_ms=end_ms)
    return end_ms


def done(own: Settings, tmp_path: Path, *arguments: str) -> None:
    ended(start(own, tmp_path, *arguments))


def ended(process: Process) -> None:
    code, _, errors = finish(process)
    assert code == 0, errors


def test_a_broker_may_restart_unless_another_one_is_away_or_it_has_something_alone(
    own: Settings, brokers: EmbeddedCluster, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    two_in_sync = {"min.insync.replicas": "2"}
    safe = {"assignments": {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}, "configs": two_in_sync}
    asked = partial(run, own, tmp_path, "restart-check")

    def is_safe(broker: int) -> bool:
        return asked(str(broker)).returncode == SAFE

    with topics(admin, {"safe": safe, "alone": {"assignments": {0: [3]}}}):
        until("all replicas are in sync", lambda: is_safe(1))
        check = json.loads(asked("1", "--json").stdout)
        assert (check["is_safe"], check["stops"], check["at_edge"]["count"]) == (True, [], 3)
        assert min_in_sync(admin, ["safe", "deleted-a-moment-ago"]) == {"safe": 2}
        brokers.stop_broker(2)
        until("broker 1 may not go as well", lambda: not is_safe(1))
        refused = asked("1")
        assert refused.returncode == REFUSED
        assert "3 partitions refusing writes with acks=all: too few replicas stay in sync" in refused.stderr
        away = asked("2", "--json")
        assert away.returncode == REFUSED, "the next one has to wait until this one has caught up"
        assert json.loads(away.stdout)["is_alive"] is False
        waiting = start(own, tmp_path, "restart-check", "1", "--wait", "4m")
        brokers.start_broker(2)
        ended(waiting)
        until("the rest is in sync", lambda: asked("3", "--accept-single").returncode == SAFE)
        refused = asked("3")
        assert refused.returncode == REFUSED
        assert "offline: no other replica at all (alone-0)" in refused.stdout
        assert "error: broker 3 should not be restarted now: 1 partition without a leader" in refused.stderr
        wait_until_known(admin, ["safe"])  # a client that came first knows the brokers of then


@pytest.mark.parametrize("arguments", [("9",), ("1", "--wait", "soon"), ("1", "--wait", "25h")])
def test_a_restart_of_a_broker_that_is_not_there_or_no_duration_is_refused(
    own: Settings, admin: KafkaAdminClient, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    wrong = run(own, tmp_path, "restart-check", *arguments)
    assert wrong.returncode == WRONG_USE
    assert arguments[-1].replace("9", "broker 9") in wrong.stderr


def held(cluster: Cluster) -> set[PartitionKey]:
    """Partitions with a replica on a drained broker."""
    return {key for key, row in cluster.describe().partitions.items() if set(row.replicas).intersection(DRAINED)}


def cordons(cluster: Cluster) -> dict[int, list[bool | None]]:
    shown = cluster.log_dirs(None, ())
    return {
        broker: [row.is_cordoned for row in sorted(rows, key=lambda row: row.path)] for broker, rows in shown.items()
    }


@contextmanager
def topics_made(admin: KafkaAdminClient) -> Iterator[list[str]]:
    """A new topic a second, placed by Kafka."""
    stopping, names = threading.Event(), list[str]()

    def make() -> None:
        while not stopping.wait(1.0) and len(names) < TOPICS_MAX:
            admin.create_topics({f"new-{len(names)}": {"num_partitions": 2, "replication_factor": 2}})
            names.append(f"new-{len(names)}")

    maker = threading.Thread(target=make)
    maker.start()
    try:
        yield names
    finally:
        stopping.set()
        maker.join()


@contextmanager
def consumed(servers: list[str]) -> Iterator[set[tuple[int, int]]]:
    """Partitions and offsets that a consumer reads meanwhile."""
    stopping, seen = threading.Event(), set[tuple[int, int]]()

    def read() -> None:
        reader = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
        reader.assign([TopicPartition("t", number) for number in range(PARTITIONS)])
        while not stopping.is_set():
            for rows in reader.poll(200).values():
                seen.update((row.partition, row.offset) for row in rows)
        reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        stopping.set()
        thread.join()


def control_until_empty(own: Settings, cluster: Cluster) -> None:
    """What has arrived since the plan was made, control plans away by itself."""
    at_ms = now_ms() // WINDOW_MS * WINDOW_MS
    loop = ControlLoop(cluster, own, now_ms=at_ms)
    left = held(cluster)
    deadline = time.monotonic() + DEADLINE_S
    while held(cluster):
        at_ms += WINDOW_MS
        write_windows(own, cluster.describe(), end_ms=at_ms, windows=1)
        while loop.tick(now_ms=at_ms):
            at_ms += 200
            time.sleep(0.2)
        assert time.monotonic() < deadline, journal_of(own).last_decision()
    if left:
        reasons = {row.plan_id: row.last_event for row in journal_of(own).executions(now_ms=at_ms)}
        assert len(reasons) > 1, reasons


def kafka_tool(brokers: EmbeddedCluster, command: str, *arguments: str) -> str:
    """What one of Kafka's own tools prints."""
    called = tool(f"org.apache.kafka.tools.{command}", "--bootstrap-server", brokers.bootstrap_servers[0], *arguments)
    return subprocess.run(called, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def described(brokers: EmbeddedCluster, topic: str | None = None) -> list[tuple[str, str, str]]:
    """Topic, leader and replicas of each partition, by Kafka's own tool."""
    rows = kafka_tool(brokers, "TopicCommand", "--describe", *(["--topic", topic] if topic else []))
    words = [row.split() for row in rows.splitlines() if "Leader:" in row]
    return [(row[1], row[row.index("Leader:") + 1], row[row.index("Replicas:") + 1]) for row in words]


def led_by(brokers: EmbeddedCluster, broker: str) -> set[str]:
    """Topics of which the broker leads a partition."""
    return {topic for topic, leader, _ in described(brokers) if leader == broker}


def test_a_demoted_broker_leads_nothing_until_it_is_undemoted(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, tmp_path: Path
) -> None:
    with topics(admin, {**OF_MANY, "single": {"assignments": {0: [3]}}}):
        windows_now(own, admin)
        before = described(brokers, "t")
        with Writer(brokers.bootstrap_servers, "t", PARTITIONS) as writer:
            done(own, tmp_path, "demote", "3", "--apply", "--yes")
            until("broker 3 leads its single replica alone", lambda: led_by(brokers, "3") == {"single"})
            assert all(replicas.split(",")[0] != "3" for _, _, replicas in described(brokers, "t"))
            kafka_tool(brokers, "LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
            assert led_by(brokers, "3") == {"single"}, "Kafka's own tool elects others, too"
            done(own, tmp_path, "undemote", "3", "--apply", "--yes")
            until("all is as before", lambda: described(brokers, "t") == before)
        assert writer.acknowledged.total() > 0
        assert writer.lost() == {}


def test_two_brokers_are_emptied_together_and_stay_so(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, tmp_path: Path, log_dirs: tuple[Path, Path]
) -> None:
    own = Settings.model_validate({**own.model_dump(), "trigger": {"load_min_bytes_per_sec": 0}})
    cluster, of_others = Cluster(admin), [str(log_dirs[1])]
    with topics(admin, OF_MANY):
        cluster.cordon_log_dirs(3, of_others, cordoned=True)
        until("broker 3 shows the cordon of others", lambda: cordons(cluster)[3] == [False, True])
        windows_now(own, admin)
        with Writer(brokers.bootstrap_servers, "t", PARTITIONS) as writer, consumed(brokers.bootstrap_servers) as seen:
            with topics_made(admin) as names:
                drain = start(own, tmp_path, "drain", "3", "4", "--apply", "--yes")
                until("both are cordoned", lambda: (cordons(cluster)[3], cordons(cluster)[4]) == ([True, True], [True]))
                arrived = held(cluster)
                made = len(names)
                ended(drain)
                until("topics are made meanwhile", lambda: len(names) > made + 2)
                assert held(cluster) <= arrived, "nothing new comes"
            control_until_empty(own, cluster)
            assert {replicas for _, _, replicas in described(brokers)} == {"1,2", "2,1"}
            done(own, tmp_path, "undrain", "3", "4")
            until(
                "the cordon of others stays",
                lambda: (cordons(cluster)[3], cordons(cluster)[4]) == ([False, True], [False]),
            )
        assert writer.acknowledged.total() > 0
        assert writer.lost() == {}
        assert {partition for partition, _ in seen} == set(range(PARTITIONS))
        cluster.cordon_log_dirs(3, of_others, cordoned=False)
        delete(admin, names)


def held_by(live: LiveCluster, broker: int) -> set[tuple[str, int]]:
    return {key for key, row in live.partitions.items() if broker in row.replicas}


def wait_for(admin: KafkaAdminClient, broker: int, *, holds: bool) -> LiveCluster:
    def settled() -> LiveCluster | None:
        live = Cluster(admin).describe()
        return live if bool(held_by(live, broker)) == holds and not live.reassigning() else None

    return until(f"broker {broker} holds {'some' if holds else 'nothing'}", settled)


def wait_until_gone(admin: KafkaAdminClient, broker: int) -> LiveCluster:
    cluster = Cluster(admin)

    def without_it() -> LiveCluster | None:
        with suppress(ClusterUnreachable):  # the client has yet to find out which connections are gone
            cluster.log_dirs()
            live = cluster.describe()
            if broker not in live.broker_racks and all(row.leader != broker for row in live.partitions.values()):
                return live
        return None

    return until(f"broker {broker} is gone", without_it)


@pytest.fixture(scope="module")
def few(admin: KafkaAdminClient) -> None:
    """Topics of which each broker holds some: what one test leaves, the next one begins with."""
    admin.create_topics(OF_FEW)
    wait_until_known(admin, list(OF_FEW))


@pytest.mark.usefixtures("few")
def test_drain_shows_then_empties_and_add_fills_again(own: Settings, admin: KafkaAdminClient, tmp_path: Path) -> None:
    windows_now(own, admin)
    before = Cluster(admin).describe()
    shown = run(own, tmp_path, "drain", "4", "--json")
    plan = json.loads(shown.stdout)
    assert {(row["topic"], row["partition"]) for row in plan["movements"]} == held_by(before, 4)
    assert "to carry it out: rebalancer drain 4 --apply" in shown.stderr
    assert Cluster(admin).describe() == before
    assert drained_brokers(TableReader(own.storage.tables), own.kafka.cluster_name) == set()

    assert run(own, tmp_path, "drain", "4", "--apply", "--yes").returncode == 0
    drained = wait_for(admin, 4, holds=False)
    assert drained_brokers(TableReader(own.storage.tables), own.kafka.cluster_name) == {4}
    assert all(len(row.replicas) == len(before.partitions[key].replicas) for key, row in drained.partitions.items())
    # Control leaves the empty broker alone: its skew doesn't count.
    later_ms = windows_now(own, admin) + 40_000  # windows that began after the broker was emptied
    write_windows(own, drained, end_ms=later_ms)
    assert decider_of(Cluster(admin), journal_of(own), own).tick(now_ms=later_ms) is None
    assert journal_of(own).last_decision()["reason"] == "balanced"  # type: ignore[index]

    assert run(own, tmp_path, "add", "4", "--apply", "--yes").returncode == 0
    filled = wait_for(admin, 4, holds=True)
    assert drained_brokers(TableReader(own.storage.tables), own.kafka.cluster_name) == set()
    changed = {
        key for key, row in filled.partitions.items() if set(row.replicas) != set(drained.partitions[key].replicas)
    }
    assert changed == held_by(filled, 4)


def test_a_broker_that_is_not_there_is_named(own: Settings, admin: KafkaAdminClient, tmp_path: Path) -> None:
    refused = run(own, tmp_path, "drain", "9")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == "error: broker 9: is not there, allowed are 1, 2, 3, 4\n"
    assert run(own, tmp_path, "add", "9").returncode == 2
    assert tables.open_table(own.storage.tables, "plan") is None


@pytest.mark.usefixtures("few")
def test_what_a_lost_broker_held_is_planned_elsewhere_after_the_grace_time(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster
) -> None:
    cluster = Cluster(admin)
    assert held_by(cluster.describe(), 4)
    brokers.kill_broker(4)
    lost = wait_until_gone(admin, 4)
    at_ms = windows_now(own, admin)
    decider = decider_of(cluster, journal_of(own), own)
    assert decider.tick(now_ms=at_ms) is None
    # Evaluated all the time: a gap would start the grace time again.
    for ahead_ms in range(100_000, own.trigger.broker_failure_grace_ms, 100_000):
        write_windows(own, lost, end_ms=at_ms + ahead_ms, windows=1)
        assert decider.tick(now_ms=at_ms + ahead_ms) is None
    later_ms = at_ms + own.trigger.broker_failure_grace_ms
    write_windows(own, lost, end_ms=later_ms)
    proposal = decider.tick(now_ms=later_ms)
    assert proposal is not None
    assert journal_of(own).last_decision()["reason"] == "broker_failed"  # type: ignore[index]
    movements = {(row.topic, row.partition): row.new_replicas for row in proposal.plan.movements}
    assert movements.keys() == held_by(lost, 4)
    journal = journal_of(own)
    approved = journal.plan(proposal.plan.plan_id)
    record = ExecutionRecord(journal.approve(approved, "a test", now_ms=later_ms))
    executor = executor_of(cluster, journal, own)
    assert executor.begin(record, approved, now_ms=later_ms)
    until(
        "the execution ends", lambda: executor.tick(record, approved.plan, now_ms=later_ms),
        state=lambda: str(record.execution.last),
    )  # fmt: skip
    assert record.execution.last_event == "done"
    replaced = wait_for(admin, 4, holds=False)
    assert all(len(row.isr) == len(row.replicas) for row in replaced.partitions.values())
