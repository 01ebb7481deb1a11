"""What a producer with acks=all notices of a broker's restart, with its leadership taken off before and without."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.commands.demotion import reorder
from streaming.control.carrier import RETRIED_ERRORS
from streaming.control.wiring import journal_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import KafkaSettings, Settings
from tests.kafka.producer_errors import NOT_LEADER, NotingProducer
from tests.topics import wait_until_known
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.apart, pytest.mark.long, pytest.mark.story]

TOPIC, PARTITIONS, BROKERS = "t", 24, 3
RESTARTED = 3
REORDER_S = 120.0
RESTARTS_WITHOUT_MAX = 4
PHASES = ("usual", "leadership leaves", "restart", "leadership returns")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("three"), broker_count=BROKERS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: EmbeddedCluster) -> Iterator[KafkaAdminClient]:
    client = admin_client(KafkaSettings(bootstrap_servers=brokers.bootstrap_servers))
    rows = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    assignments = {number: rows[number % BROKERS] for number in range(PARTITIONS)}
    client.create_topics({TOPIC: {"assignments": assignments, "configs": {"min.insync.replicas": "2"}}})
    wait_until_known(client, [TOPIC])
    yield client
    client.close()


@pytest.fixture
def own(brokers: EmbeddedCluster, admin: KafkaAdminClient, tmp_path: Path) -> Settings:
    settings = Settings.model_validate(
        {
            "kafka": {"cluster_name": "three", "bootstrap_servers": brokers.bootstrap_servers},
            "storage": {"tables": str(tmp_path / "tables")},
            "control": {"mode": "observe", "lease_ms": 3_000},
        }
    )
    journal_of(settings).make_tables()
    until_preferred(admin)
    return settings


def until_preferred(admin: KafkaAdminClient) -> None:
    """Until all replicas are in sync and the first of each list leads, as Kafka elects it."""
    cluster = Cluster(admin)

    def is_preferred() -> bool:
        with suppress(*RETRIED_ERRORS):
            rows = cluster.describe([TOPIC]).partitions
            if any(len(row.isr) < BROKERS for row in rows.values()):
                return False
            cluster.elect_preferred(key for key, row in rows.items() if row.leader != row.replicas[0])
            return all(row.leader == row.replicas[0] for row in cluster.describe([TOPIC]).partitions.values())
        return False

    until("preferred replicas lead and all are in sync", is_preferred)


def restarted(brokers: EmbeddedCluster, admin: KafkaAdminClient, own: Settings, *, is_demoted: bool) -> NotingProducer:
    """The producer that wrote during one restart of the broker, in order."""
    with NotingProducer(brokers.bootstrap_servers, TOPIC, PARTITIONS) as producer:
        producer.until_all_are_written()
        if is_demoted:
            producer.begin("leadership leaves")
            assert reorder(own, "demote", RESTARTED, REORDER_S) is None
            producer.until_all_are_written()
        producer.begin("restart")
        brokers.stop_broker(RESTARTED)
        producer.until_all_are_written()
        brokers.start_broker(RESTARTED)
        until("all replicas are in sync", lambda: is_whole(admin))
        producer.until_all_are_written()
        producer.begin("leadership returns")
        if is_demoted:
            assert reorder(own, "undemote", RESTARTED, REORDER_S) is None
        until_preferred(admin)
        producer.until_all_are_written()
    for phase in PHASES:
        counts = producer.count(phase), producer.count(phase, error=NOT_LEADER), producer.count(phase, from_s=1.0)
        print(f"{is_demoted=} {phase}: {counts[0]} retried, {counts[1]} not leader, {counts[2]} after the first second")
    print(f"{producer.sent} records, {producer.failed} failed, {sorted({row.error for row in producer.retried})}")
    return producer


def is_whole(admin: KafkaAdminClient) -> bool:
    with suppress(*RETRIED_ERRORS):
        live = Cluster(admin).describe([TOPIC])
        return len(live.broker_racks) == BROKERS and all(len(row.isr) == BROKERS for row in live.partitions.values())
    return False


def test_a_producer_notices_the_restart_of_a_broker_only_if_the_broker_leads(
    brokers: EmbeddedCluster, admin: KafkaAdminClient, own: Settings
) -> None:
    """Once the leaders have moved, and each partition is written to, no broker refuses a batch, as usual."""
    with_demotion = restarted(brokers, admin, own, is_demoted=True)
    refused = {phase: with_demotion.count(phase, error=NOT_LEADER) for phase in ("usual", "restart")}
    assert refused == {"usual": 0, "restart": 0}
    assert with_demotion.failed == 0
    for _ in range(RESTARTS_WITHOUT_MAX):  # on a busy machine none of its batches may have been under way
        without = restarted(brokers, admin, own, is_demoted=False)
        assert without.failed == 0
        if without.count("restart", error=NOT_LEADER):
            return
    pytest.fail("the producer writes too little to notice anything")
