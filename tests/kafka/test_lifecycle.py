"""Taking a broker out of use and into it, and losing one, on four real brokers; windows are written by the test."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from assignor_core.live import LiveCluster
from streaming import tables
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import decider_of, executor_of, journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.settings import KafkaSettings, Settings
from streaming.tables import TableReader
from streaming.views.intents import drained_brokers
from tests.commands import run
from tests.control.windows import write_windows
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

REPLICAS = {0: [1, 2], 1: [2, 3], 2: [3, 4], 3: [4, 1], 4: [1, 3], 5: [2, 4]}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("four"), broker_count=4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    client.create_topics({"t": {"assignments": REPLICAS}, "__internal": {"assignments": {0: [4, 2]}}})
    wait_until_known(client, ["t", "__internal"])
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "four", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": 10_000, "watermark_ms": 1_000},
            "control": {"mode": "apply"},
        }
    )


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


def windows_now(own: Settings, admin: KafkaAdminClient) -> int:
    now_ms = time.time_ns() // 1_000_000 // 10_000 * 10_000
    write_windows(own, Cluster(admin).describe(), end_ms=now_ms)
    return now_ms


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


def test_what_a_lost_broker_held_is_planned_elsewhere_after_the_grace_time(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster
) -> None:
    cluster = Cluster(admin)
    assert held_by(cluster.describe(), 4)
    brokers.kill_broker(4)
    lost = wait_until_gone(admin, 4)
    now_ms = windows_now(own, admin)
    decider = decider_of(cluster, journal_of(own), own)
    assert decider.tick(now_ms=now_ms) is None
    # Evaluated all the time: a gap would start the grace time again.
    for ahead_ms in range(100_000, own.trigger.broker_failure_grace_ms, 100_000):
        write_windows(own, lost, end_ms=now_ms + ahead_ms, windows=1)
        assert decider.tick(now_ms=now_ms + ahead_ms) is None
    later_ms = now_ms + own.trigger.broker_failure_grace_ms
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
    deadline = time.monotonic() + DEADLINE_S
    while not executor.tick(record, approved.plan, now_ms=later_ms):
        assert time.monotonic() < deadline, record.execution.last
        time.sleep(0.3)
    assert record.execution.last_event == "done"
    replaced = wait_for(admin, 4, holds=False)
    assert all(len(row.isr) == len(row.replicas) for row in replaced.partitions.values())
