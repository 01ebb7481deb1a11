"""Relief on real brokers with small disks: it goes as far as the reserve and names the bound; no disk fills."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from assignor_core.live import LiveCluster
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.deciding import Decider
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import decider_of, executor_of, journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.settings import KafkaSettings, Settings
from tests import waiting
from tests.control.windows import write_windows
from tests.kafka.volumes import MIB, create_filled_topic, fill, mounted, usable
from tests.waiting import DEADLINE_S

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

DISK = 100 * MIB
RESERVE = DISK // 10
REPLICA = 8 * MIB
REPLICAS = {number: [1 + number % 3, 4] for number in range(6)}
WINDOW_MS = 10_000


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Path]]:
    """Volumes of 100 MiB for brokers 1, 2 and 3."""
    folders = {broker: tmp_path_factory.mktemp("disks") / f"disk-{broker}" for broker in (1, 2, 3)}
    with mounted(*folders.values(), size_bytes=DISK):
        yield folders


@pytest.fixture(scope="module")
def brokers(disks: dict[int, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    # Below the mount: Kafka wants a folder that holds nothing but its own.
    log_dirs = {broker: (folder / "data",) for broker, folder in disks.items()}
    with EmbeddedCluster(tmp_path_factory.mktemp("four"), broker_count=4, log_dirs=log_dirs) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    create_filled_topic(client, brokers.bootstrap_servers, "t", REPLICAS, replica_bytes=REPLICA)
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "four", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            "trigger": {"broker_failure_grace_ms": WINDOW_MS, "cooldown_ms": 0},
            "control": {"mode": "apply"},
        }
    )


def decide_after_the_grace_time(own: Settings, cluster: Cluster, decider: Decider, now_ms: int) -> object:
    """Two evaluations, the second once the broker counts as failed; returns the second one's proposal."""
    live = cluster.describe()
    write_windows(own, live, end_ms=now_ms)
    decider.tick(now_ms=now_ms)
    later_ms = now_ms + own.trigger.broker_failure_grace_ms + WINDOW_MS
    write_windows(own, live, end_ms=later_ms)
    return decider.tick(now_ms=later_ms)


def wait_until_gone(cluster: Cluster, broker: int) -> LiveCluster:
    def gone() -> bool:
        try:
            live = cluster.describe()
        except ClusterUnreachable:  # the broker that was asked is the one that was killed
            return False
        return broker not in live.broker_racks and all(row.isr == (row.leader,) for row in live.partitions.values())

    waiting.until(f"broker {broker} is gone", gone)
    return cluster.describe()


def test_relief_ends_at_the_ceiling_of_small_disks_and_says_why(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster, disks: dict[int, Path]
) -> None:
    """Broker 4 held six replicas of 8 MiB. Each of three disks has room for one above its reserve of 10 MiB."""
    cluster = Cluster(admin)
    shown = cluster.log_dirs()
    for broker, folder in disks.items():
        fill(folder, usable_bytes=RESERVE + REPLICA + REPLICA // 2)
        (log_dir,) = shown[broker]
        assert log_dir.total_bytes == DISK
        assert log_dir.replica_bytes.keys() == {("t", number) for number, row in REPLICAS.items() if broker in row}
    brokers.kill_broker(4)
    lost = wait_until_gone(cluster, 4)
    journal = journal_of(own)
    decider = decider_of(cluster, journal, own)
    now_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
    proposal = decide_after_the_grace_time(own, cluster, decider, now_ms)
    decision = journal.last_decision()
    assert proposal is not None, decision
    assert decision is not None
    assert decision["reason"] == "broker_failed"
    assert "broker 4 is dead and keeps 3 replicas: " in decision["detail"]
    assert "left out: t-" in decision["detail"]
    assert decision["detail"].endswith("moving can't help, add brokers or disks")

    approved = journal.plan(decision["plan_id"])
    assert len(approved.plan.movements) == 3
    later_ms = now_ms + own.trigger.broker_failure_grace_ms + WINDOW_MS
    record = ExecutionRecord(journal.approve(approved, "a test", now_ms=later_ms))
    executor = executor_of(cluster, journal, own)
    assert executor.begin(record, approved, now_ms=later_ms)
    deadline = time.monotonic() + DEADLINE_S
    while not executor.tick(record, approved.plan, now_ms=later_ms):
        assert time.monotonic() < deadline, record.execution.last
        assert all(usable(folder) >= RESERVE for folder in disks.values()), "copies never touch the reserve"
        time.sleep(0.2)
    assert record.execution.last_event == "done"
    after = cluster.describe()
    assert after.broker_racks.keys() == {1, 2, 3}
    held_by_4 = [key for key, row in after.partitions.items() if 4 in row.replicas]
    assert len(held_by_4) == 3
    assert all(len(row.isr) == 2 for key, row in after.partitions.items() if key not in held_by_4)
    assert all(usable(folder) >= RESERVE for folder in disks.values())
    assert not any(row.is_offline for rows in cluster.log_dirs().values() for row in rows)

    # What is left has no place: the next decision holds and names the bound, and nothing is tried.
    much_later_ms = later_ms + 10 * WINDOW_MS
    assert decide_after_the_grace_time(own, cluster, decider, much_later_ms) is None
    decision = journal.last_decision()
    assert decision is not None
    assert (decision["verdict"], decision["reason"]) == ("hold", "no_room")
    assert decision["detail"].startswith("nothing can be re-created: broker 4 is dead and keeps 3 replicas: ")
    assert decision["detail"].endswith("moving can't help, add brokers or disks")
    assert lost.partitions.keys() == after.partitions.keys()
