"""A real broker of four is demoted and returns; two are drained together while topics are made. Records come and go.

Brokers of Kafka 4.4 refuse a reassignment that names a broker whose log dirs are all cordoned, and moves are staged.
"""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from assignor_core.live import PartitionKey
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.run import ControlLoop
from streaming.control.wiring import journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import KafkaSettings, Settings
from tests.commands import Process, finish, start
from tests.control.windows import write_windows
from tests.java_programs import tool
from tests.kafka.writing import Writer
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

WINDOW_MS = 10_000
PARTITIONS = 16
ROWS = ([3, 4], [4, 3], [1, 3], [2, 4], [1, 2])
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
    client.create_topics({"t": {"assignments": {number: ROWS[number % 5] for number in range(PARTITIONS)}}})
    wait_until_known(client, ["t"])
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "four", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "trigger": {"load_min_bytes_per_sec": 0},
            "control": {"mode": "apply", "staged_moves": True},
        }
    )


def done(own: Settings, tmp_path: Path, *arguments: str) -> None:
    ended(start(own, tmp_path, *arguments))


def ended(process: Process) -> None:
    code, _, errors = finish(process)
    assert code == 0, errors


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
    now_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    loop = ControlLoop(cluster, own, now_ms=now_ms)
    left = held(cluster)
    deadline = time.monotonic() + DEADLINE_S
    while held(cluster):
        now_ms += WINDOW_MS
        write_windows(own, cluster.describe(), end_ms=now_ms, windows=1)
        while loop.tick(now_ms=now_ms):
            now_ms += 200
            time.sleep(0.2)
        assert time.monotonic() < deadline, journal_of(own).last_decision()
    if left:
        reasons = {row.plan_id: row.last_event for row in journal_of(own).executions(now_ms=now_ms)}
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
    cluster = Cluster(admin)
    admin.create_topics({"single": {"assignments": {0: [3]}}})
    wait_until_known(admin, ["single"])
    now_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    write_windows(own, cluster.describe(), end_ms=now_ms)
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
    admin.delete_topics(["single"])


def test_two_brokers_are_emptied_together_and_stay_so(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, tmp_path: Path, log_dirs: tuple[Path, Path]
) -> None:
    cluster = Cluster(admin)
    cluster.cordon_log_dirs(3, [str(log_dirs[1])], cordoned=True)
    until("broker 3 shows the cordon of others", lambda: cordons(cluster)[3] == [False, True])
    now_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    write_windows(own, cluster.describe(), end_ms=now_ms)
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
            "the cordon of others stays", lambda: (cordons(cluster)[3], cordons(cluster)[4]) == ([False, True], [False])
        )
    assert writer.acknowledged.total() > 0
    assert writer.lost() == {}
    assert {partition for partition, _ in seen} == set(range(PARTITIONS))
