"""Another cluster behind the address, on brokers. Topics made again and markers of other tables: `tests/control`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.answers import kafka_cluster_id
from streaming.cluster.clients import admin_client
from streaming.control.identity import lease_of
from streaming.control.wiring import journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import AnotherCluster
from streaming.runtime.clocks import now_ms
from streaming.settings import Settings
from tests.commands import run
from tests.control.noted_cluster import SKEW

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def other_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """One broker that is a cluster of its own."""
    with EmbeddedCluster(tmp_path_factory.mktemp("other"), 1) as cluster:
        yield cluster


@pytest.fixture
def led_away(settings: Settings, admin: KafkaAdminClient, other_cluster: EmbeddedCluster) -> Settings:
    """The tables know the right cluster; the address leads to the other one by now."""
    lease = lease_of(admin, settings)
    assert lease.try_acquire()
    lease.release()
    kafka = {**settings.kafka.model_dump(), "bootstrap_servers": other_cluster.bootstrap_servers}
    return Settings.model_validate({**settings.model_dump(), "kafka": kafka})


def test_another_cluster_behind_the_address_is_refused_by_every_role_and_command(
    led_away: Settings, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    right = kafka_cluster_id(admin)
    journal = journal_of(led_away)
    plan = Plan("test", (Movement("t", 0, (1,), (2,), 1.0),), SKEW, SKEW)
    journal.write_plan(ProposedPlan(plan, elapsed_ms=1.0), decision=None, now_ms=now_ms())
    execution = journal.approve(journal.plan(plan.plan_id), "a test", now_ms=now_ms())
    other_admin = admin_client(led_away.kafka)
    other = kafka_cluster_id(other_admin)
    for command in (
        ["plan"], ["drain", "1"], ["add", "1"],
        ["apply", plan.plan_id[:12], "--yes"], ["abort"], ["control"], ["collect"],
    ):  # fmt: skip
        refused = run(led_away, tmp_path, *command)
        message = refused.stderr
        assert refused.returncode == 3, (command, message)
        assert f"are Kafka cluster {other}, " in message, command
        assert f"as Kafka cluster {right}: " in message, command
    assert not set(other_admin.list_topics()) & {led_away.topics.byte_rate, led_away.topics.consumer_lag}
    assert journal.execution(execution.execution_id).last_event == "approved"
    with pytest.raises(AnotherCluster, match=f"are Kafka cluster {other}, expected is Kafka cluster {right}"):
        Cluster(other_admin, kafka_cluster_id=right).set_throttle_rates({1: 1_000_000})
    assert Cluster(other_admin).throttle_rates() == {}
    other_admin.close()
