"""A real Prometheus over embedded brokers: the counters that the collector reads there are those of a direct scrape."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition

from streaming.collect.counters import PrometheusSource, finding, parse_counters
from streaming.collect.sample import BrokerCounters
from streaming.demo.brokers import EmbeddedCluster
from tests.prometheus.live import needs_servers, now_ms
from tests.prometheus.scraping import scraping
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.prometheus, needs_servers]

BROKERS = (1, 2, 3)
TOPIC, VALUE, RECORDS = "watched", b"x" * 500, 400


@pytest.fixture
def source(kafka_cluster: EmbeddedCluster, tmp_path: Path) -> Iterator[PrometheusSource]:
    """What reads them in a Prometheus that scrapes all three."""
    targets = {row.broker_id: f"127.0.0.1:{row.jmx_port}" for row in kafka_cluster.brokers}
    with scraping(tmp_path, targets) as reading:
        yield reading


def traffic(brokers: EmbeddedCluster, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap_servers, acks="all")
    for number in range(RECORDS):
        producer.send(topic, VALUE, partition=number % 2)
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=brokers.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
    read = 0

    def reads() -> bool:
        nonlocal read
        read += sum(len(rows) for rows in consumer.poll(timeout_ms=500).values())
        return read >= RECORDS

    until("all records are read", reads)
    consumer.close()


def scraped(brokers: EmbeddedCluster) -> dict[int, BrokerCounters | None]:
    """The counters of each broker's own endpoint."""
    return {
        broker: parse_counters(httpx.get(url, timeout=DEADLINE_S).text) for broker, url in brokers.jmx_endpoints.items()
    }


def in_prometheus(source: PrometheusSource) -> dict[int, BrokerCounters]:
    """The newest counters that the collector gets."""
    return {broker: pair.later for broker, pair in source.read(BROKERS, now_ms=now_ms()).items()}


def test_counters_equal_a_direct_scrape_before_and_after_traffic(
    kafka_cluster: EmbeddedCluster, source: PrometheusSource, admin: KafkaAdminClient
) -> None:
    brokers = kafka_cluster
    admin.create_topics({TOPIC: {"num_partitions": 2, "replication_factor": 2}})
    wait_until_known(admin, [TOPIC])
    written = []
    for _ in range(2):
        traffic(brokers, TOPIC)
        until("Prometheus has what the brokers count", lambda: in_prometheus(source) == scraped(brokers), pause_s=0.5,
              state=lambda: f"{in_prometheus(source)} {scraped(brokers)}")  # fmt: skip
        written.append(sum(row.topic_bytes_in.get(TOPIC, 0.0) for row in in_prometheus(source).values()))
    assert written[0] > RECORDS * len(VALUE)
    assert written[1] == pytest.approx(2 * written[0], rel=0.05)
    admin.delete_topics([TOPIC])
    assert finding(source, BROKERS, now_s=now_ms() / 1000) == (True, "preset jmx_exporter: counters of 3 brokers")
