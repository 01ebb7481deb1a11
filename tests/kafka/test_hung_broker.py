"""A broker that is frozen and yet counts as alive: its disks are unknown, nothing goes to it, and the others go on."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.control.journal import ExecutionRecord
from streaming.control.planning import propose_live
from streaming.control.wiring import executor_of, journal_of, window_tables_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import ClusterUnreachable
from streaming.settings import KafkaSettings, Settings
from tests.control.windows import write_windows
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]

WINDOW_MS = 10_000
REPLICAS = {number: [1] for number in range(12)} | {12: [2], 13: [3]}
"""Broker 3 alone holds one of 14 partitions."""
FROZEN = 3


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """Three brokers whose sessions outlast the test: what hangs stays in metadata."""
    session = {"broker.session.timeout.ms": "600000"}
    with EmbeddedCluster(tmp_path_factory.mktemp("hung"), 3, broker_settings=session) as cluster:
        yield cluster


@pytest.fixture
def own(brokers: EmbeddedCluster, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"bootstrap_servers": brokers.bootstrap_servers, "request_timeout_ms": 3_000},
            "storage": {"tables": str(tmp_path / "tables")},
            "pipeline": {"window_ms": WINDOW_MS, "watermark_ms": 1_000},
            # As if its disks were bounded by hand: a broker that doesn't answer takes nothing all the same.
            "planner": {"windows": 3, "capacities": {FROZEN: {"disk_bytes": 10**12}}},
        }
    )


@pytest.fixture
def admin(own: Settings) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings.model_validate(own.kafka.model_dump()))
    client.create_topics({"t": {"assignments": REPLICAS}})
    wait_until_known(client, ["t"])
    yield client
    client.delete_topics(["t"])
    client.close()


@contextmanager
def frozen(brokers: EmbeddedCluster, cluster: Cluster) -> Iterator[None]:
    """Broker 3 stopped in the middle of whatever it does, while the other two answer."""
    process_id = brokers.process_ids()[FROZEN]
    os.kill(process_id, signal.SIGSTOP)
    try:
        until("the others answer", lambda: answers(cluster))
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)
        until("all answer", lambda: answers(cluster))


def answers(cluster: Cluster) -> bool:
    """Several times in a row: a client that has asked the frozen broker waits for it once."""
    with suppress(ClusterUnreachable):
        return all(cluster.describe().broker_racks.keys() == {1, 2, 3} for _ in range(3))
    return False


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_plan_is_made_that_leaves_the_frozen_broker_alone(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster
) -> None:
    cluster = Cluster(admin)
    live = cluster.describe()
    write_windows(own, live, end_ms=now_ms() // WINDOW_MS * WINDOW_MS)
    with frozen(brokers, cluster):
        proposed = propose_live(cluster, live, window_tables_of(own), own.planner, now_ms=now_ms() + WINDOW_MS)
        assert cluster.log_dirs().keys() == {1, 2}
    plan = proposed.plan
    assert plan.movements, plan.problems
    assert {(row.old_replicas, row.new_replicas) for row in plan.movements} == {((1,), (2,))}
    assert "brokers that take no replicas, as they did not answer when asked for their log dirs: 3" in plan.diagnosis
    assert cluster.log_dirs().keys() == {1, 2, 3}


def test_an_execution_goes_on_around_the_frozen_broker_and_submits_nothing_to_it(
    own: Settings, admin: KafkaAdminClient, brokers: EmbeddedCluster
) -> None:
    cluster, journal = Cluster(admin), journal_of(own)
    plan = Plan("test", tuple(Movement("t", number, (1,), (2,), 1.0) for number in range(4)))
    proposed = ProposedPlan(plan, Observed.of(plan, cluster.describe()))
    approved = journal.write_plan(proposed, decision=None, now_ms=now_ms())
    record = ExecutionRecord(journal.approve(approved, "a test", now_ms=now_ms()))
    executor = executor_of(cluster, journal, own)

    def begun() -> bool:
        with suppress(ClusterUnreachable):
            return executor.begin(record, approved, now_ms=now_ms())
        return False

    def ended() -> bool:
        with suppress(ClusterUnreachable):  # a request to any broker may go to the frozen one
            return executor.tick(record, plan, now_ms=now_ms())
        return False

    with frozen(brokers, cluster):
        until("the execution begins", begun)
        until("the execution ends", ended, state=lambda: str(record.execution.last))
        assert record.execution.last_event == "done"
        live = cluster.describe()
        assert {live.partitions["t", number].replicas for number in range(4)} == {(2,)}
        assert cluster.throttle_rates((1, 2)) == {}
