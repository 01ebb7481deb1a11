"""Another cluster behind the address, a topic made again, a marker of other tables: on brokers."""

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from assignor_core.live import LiveCluster
from assignor_core.plan import Movement, Plan
from assignor_core.proposed_plan import Observed, ProposedPlan
from streaming.cluster.admin import Cluster
from streaming.cluster.answers import kafka_cluster_id
from streaming.cluster.clients import admin_client
from streaming.control.carrier import Carrier
from streaming.control.cluster_marker import ClusterMarker
from streaming.control.identity import lease_of, leased_cluster
from streaming.control.journal import ExecutionRecord
from streaming.control.wiring import executor_of, journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.errors import AnotherCluster, AnotherControl
from streaming.settings import Settings
from tests.commands import run
from tests.control.noted_cluster import SKEW
from tests.topics import wait_until_known
from tests.waiting import until

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


def make_topic(admin: KafkaAdminClient, topic: str) -> None:
    """One partition on broker 1, empty."""
    admin.create_topics({topic: {"assignments": {0: [1]}}})
    wait_until_known(admin, [topic])


def approve(settings: Settings, cluster: Cluster, *topics: str) -> ExecutionRecord:
    """A plan that moves partition 0 of these topics from broker 1 to 2, made on the live cluster."""

    def shown() -> LiveCluster | None:
        live = cluster.describe()  # a broker may not know a topic that was just made
        return live if all((topic, 0) in live.partitions for topic in topics) else None

    live = until("every topic is shown", shown)
    plan = Plan("test", tuple(Movement(topic, 0, (1,), (2,), 1.0) for topic in topics), SKEW, SKEW)
    journal = journal_of(settings)
    proposed = ProposedPlan(plan, Observed.of(plan, live), elapsed_ms=1.0)
    kept = journal.write_plan(proposed, decision=None, now_ms=now_ms())
    return ExecutionRecord(journal.approve(kept, "a test", now_ms=now_ms()))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


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


def test_a_topic_that_is_made_again_on_the_way_is_not_moved(settings: Settings, admin: KafkaAdminClient) -> None:
    kept, again = (f"identity-{uuid.uuid4().hex[:8]}" for _ in range(2))
    for topic in (kept, again):
        make_topic(admin, topic)
    own = Settings.model_validate({**settings.model_dump(), "control": {"movements_in_flight_max": 1}})
    cluster, journal = Cluster(admin), journal_of(own)
    record = approve(own, cluster, kept, again)
    carrier = Carrier(executor_of(cluster, journal, own), journal)
    carrier.tick(now_ms=now_ms())  # the first of the two
    admin.delete_topics([again])
    until("it is gone", lambda: (again, 0) not in cluster.describe().partitions)
    make_topic(admin, again)

    def has_ended() -> bool:
        carrier.tick(now_ms=now_ms())
        record.execution = journal.execution(record.execution.execution_id)
        return record.execution.ended

    until("the execution ends", has_ended)
    assert record.execution.last_event == "done"
    assert record.execution.last.detail == (
        f"1 movement made, 1 partition is gone; deleted and made again, so no topics of this plan any more: {again}"
    )
    live = cluster.describe()
    assert (live.partitions[kept, 0].replicas, live.partitions[again, 0].replicas) == ((2,), (1,))
    assert cluster.throttled_replicas([kept, again]) == {}


def test_two_folders_of_tables_never_change_one_cluster_together(
    settings: Settings, admin: KafkaAdminClient, tmp_path: Path
) -> None:
    topics = [f"identity-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    carriers, records, leases = [], [], []
    for topic, folder in zip(topics, ("one", "two"), strict=True):
        make_topic(admin, topic)
        own = Settings.model_validate({**settings.model_dump(), "storage": {"tables": str(tmp_path / folder)}})
        lease = lease_of(admin, own)
        assert lease.try_acquire()
        cluster, journal = leased_cluster(admin, lease), journal_of(own)
        carriers.append(Carrier(executor_of(cluster, journal, own), journal, ClusterMarker(cluster, lease)))
        records.append(approve(own, cluster, topic))
        leases.append(lease)
    carriers[0].tick(now_ms=now_ms())
    until("the marker is seen", lambda: [row.lease_id for row in cluster.markers()] == [leases[0].lease_id])
    until("the second is held", lambda: "changes this cluster: it has other tables than" in refusal(carriers[1]))
    assert cluster.describe().partitions[topics[1], 0].replicas == (1,)
    until("the first ends", lambda: ended(carriers[0]))
    until("its marker is released", lambda: [row.is_released for row in cluster.markers()] == [True])
    until("the second ends", lambda: ended(carriers[1]))
    assert {cluster.describe().partitions[topic, 0].replicas for topic in topics} == {(2,)}
    until("one marker stays", lambda: [row.lease_id for row in cluster.markers()] == [leases[1].lease_id])
    for lease in leases:
        lease.renew()
        lease.release()


def refusal(carrier: Carrier) -> str:
    """Why this turn changes nothing. A marker just written may not be seen yet: then, too, it only waits."""
    try:
        carrier.tick(now_ms=now_ms())
    except AnotherControl as error:
        return str(error)
    return ""


def ended(carrier: Carrier) -> bool:
    """Whether its execution ended with this turn: another broker may show the release of a marker a moment later."""
    try:
        record = carrier.tick(now_ms=now_ms())
    except AnotherControl:
        return False
    return record is not None and record.execution.ended
