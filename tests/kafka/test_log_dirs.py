"""Movements within a broker on real brokers with small log dirs, under a producer whose records are all read again.

Broker 1 has two log dirs, each on a volume of its own. Control and the broker are killed in the middle.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from assignor_core.disks import LogDirDescription
from assignor_core.throttles import tagged
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.wiring import journal_of
from streaming.demo.brokers import BrokerStartFailed, EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.settings import KafkaSettings, Settings
from tests import waiting
from tests.commands import command
from tests.control.windows import write_windows
from tests.kafka.volumes import (
    DELETED_AT_ONCE,
    MIB,
    create_filled_topic,
    empty,
    fill,
    mounted,
    remove_second_copies,
    usable,
)
from tests.kafka.writing import Writer

pytestmark = pytest.mark.kafka

DISK = 120 * MIB
RESERVE = DISK // 10
REPLICA = 8 * MIB
PARTITIONS = 6
WINDOW_MS = 10_000
RATE = 500_000
"""So that a copy takes some seconds: time to kill somebody."""
DRAIN_RATE = 4 * RATE
"""A drain copies all replicas of a log dir: it lasts long enough at this rate, too."""
DEADLINE_S = 600


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    folders = [tmp_path_factory.mktemp("disks") / f"volume-{number}" for number in (0, 1)]
    with mounted(*folders, size_bytes=DISK):
        yield folders


@pytest.fixture(scope="module")
def brokers(volumes: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    log_dirs = {1: tuple(folder / "data" for folder in volumes)}
    home = tmp_path_factory.mktemp("three")
    with EmbeddedCluster(home, broker_count=3, log_dirs=log_dirs, broker_settings=DELETED_AT_ONCE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    """Topic t: six partitions, each with a replica of 8 MiB on broker 1."""
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    assignments = {number: [1, 2 + number % 2] for number in range(PARTITIONS)}
    create_filled_topic(client, brokers.bootstrap_servers, "t", assignments, replica_bytes=REPLICA)
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "three", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "control": {
                "mode": "apply",
                "lease_ms": 3_000,
                "tick_interval_ms": 500,
                "log_dir_throttle_bytes_per_sec": RATE,
                "throttle_min_bytes_per_sec": RATE,
            },
        }
    )


def log_dirs(cluster: Cluster) -> list[LogDirDescription]:
    """Those of broker 1, in the order of their volumes; none while it does not answer."""
    try:
        return sorted(cluster.log_dirs([1]).get(1, ()), key=lambda row: row.path)
    except ClusterUnreachable:
        return []


def copying(cluster: Cluster) -> bool:
    return any(row.future_replicas for row in log_dirs(cluster))


def at_rest(cluster: Cluster) -> bool:
    rows = log_dirs(cluster)
    return bool(rows) and not any(row.future_replicas for row in rows) and cluster.log_dir_rates() == {}


@contextmanager
def running(own: Settings, folder: Path, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A command of ours as a process of its own, which is killed in the end."""
    with (folder / f"{arguments[0]}.log").open("ab") as log:
        process = subprocess.Popen(command(own, folder, *arguments), stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


def until(what: str, condition: Callable[[], bool], folder: Path) -> None:
    def state() -> str:
        return "".join(file.read_text()[-3_000:] for file in sorted(folder.glob("*.log")))

    waiting.until(what, condition, DEADLINE_S, state=state)


def last_execution(own: Settings) -> Any:
    found = journal_of(own).executions(now_ms=time.time_ns() // 1_000_000)
    return found[-1] if found else None


def ended(own: Settings) -> bool:
    execution = last_execution(own)
    return execution is not None and execution.ended


def test_a_full_log_dir_is_relieved_unasked_though_control_and_broker_are_killed(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, volumes: list[Path], tmp_path: Path
) -> None:
    cluster = Cluster(admin)
    journal_of(own).make_tables()
    full = volumes[0]
    assert {len(row.replica_bytes) for row in log_dirs(cluster)} == {PARTITIONS // 2}
    fill(full, usable_bytes=DISK // 12)
    with Writer(brokers.bootstrap_servers, "t", PARTITIONS, filling=b"") as writer:
        now_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        write_windows(own, cluster.describe(), end_ms=now_ms)
        with running(own, tmp_path, "control"):
            until("the first copy is made", lambda: copying(cluster), tmp_path)
            assert cluster.log_dir_rates() == {1: tagged(RATE)}
        # Killed by a signal 9. The copy goes on without it; then the broker is killed, too.
        assert not ended(own)
        brokers.kill_broker(1)
        with running(own, tmp_path, "control"):
            waiting.until("the broker is gone", lambda: 1 not in described(cluster))
            remove_second_copies(full / "data", volumes[1] / "data")
            brokers.start_broker(1)
            until("it has ended", lambda: ended(own), tmp_path)
        until("nothing is left of it", lambda: at_rest(cluster), tmp_path)
    execution = last_execution(own)
    assert execution.end.event == "done", execution.end.detail
    assert execution.end.detail == "every movement has been made"
    assert execution.figures.movements_done == execution.figures.movements_total == 2
    decision = journal_of(own).last_decision()
    assert decision is not None
    waiting.until("what has left is deleted", lambda: usable(full) > DISK * 0.19)
    assert usable(volumes[1]) > RESERVE
    waiting.until("all replicas are in sync", lambda: all(len(row.isr) == 2 for row in described_partitions(cluster)))
    assert writer.acknowledged.total() > 0
    assert writer.lost() == {}
    empty(full)


def test_a_log_dir_is_drained_and_stays_empty_until_it_is_undrained(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, volumes: list[Path], tmp_path: Path
) -> None:
    own = own.model_copy(
        update={"control": own.control.model_copy(update={"log_dir_throttle_bytes_per_sec": DRAIN_RATE})}
    )
    cluster = Cluster(admin)
    path = str(volumes[1] / "data")
    assert log_dirs(cluster)[1].replica_bytes
    with Writer(brokers.bootstrap_servers, "t", PARTITIONS, filling=b"") as writer:
        with running(own, tmp_path, "drain", "1", "--log-dir", path, "--apply", "--yes") as drain:
            until("the first copy is made", lambda: copying(cluster), tmp_path)
            assert log_dirs(cluster)[1].is_cordoned
            brokers.kill_broker(1)
            waiting.until("the broker is gone", lambda: 1 not in described(cluster))
            two_copies(left=volumes[1] / "data", kept=volumes[0] / "data")
            with pytest.raises(BrokerStartFailed):
                brokers.start_broker(1)
            assert "Duplicate log directories for t-" in (brokers.brokers[0].folder / "broker.log").read_text()
            assert remove_second_copies(volumes[1] / "data", volumes[0] / "data")
            brokers.start_broker(1)
            until("drain has ended", lambda: drain.poll() is not None, tmp_path)
            assert drain.returncode == 0, (tmp_path / "drain.log").read_text()
        until("nothing is left of it", lambda: at_rest(cluster), tmp_path)
        assert log_dirs(cluster)[1].replica_bytes == {}
        admin.create_topics({"u": {"assignments": {0: [1], 1: [1]}}})
        waiting.until(
            "new replicas lie in the other log dir",
            lambda: {("u", 0), ("u", 1)} <= set(log_dirs(cluster)[0].replica_bytes),
        )
        assert log_dirs(cluster)[1].replica_bytes == {}, "it is cordoned"
        with running(own, tmp_path, "undrain", "1", "--log-dir", path) as undrain:
            assert undrain.wait(timeout=waiting.DEADLINE_S) == 0, (tmp_path / "undrain.log").read_text()
    assert not log_dirs(cluster)[1].is_cordoned
    waiting.until("all replicas are in sync", lambda: all(row.isr for row in described_partitions(cluster)))
    assert writer.acknowledged.total() > 0
    assert writer.lost() == {}


def two_copies(*, left: Path, kept: Path) -> None:
    """What a broker leaves that is killed while a copy takes the place of its partition: both with the same name."""
    replica = min(left.glob("t-[0-9]"))
    for unfinished in kept.glob(f"{replica.name}.*-future"):
        shutil.rmtree(unfinished)
    shutil.copytree(replica, kept / replica.name, dirs_exist_ok=True)


def described(cluster: Cluster) -> set[int]:
    """Brokers that are alive; all of them where the one that is asked does not answer."""
    try:
        return set(cluster.describe().broker_racks)
    except ClusterUnreachable:
        return {1, 2, 3}


def described_partitions(cluster: Cluster) -> list[Any]:
    return [row for (topic, _), row in cluster.describe().partitions.items() if topic == "t"]
