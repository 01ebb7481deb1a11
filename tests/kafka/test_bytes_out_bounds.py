"""Bytes out without counters, on three real brokers: what a broker counts lies within the bounds of the trigger.

One group commits what it reads from each broker. Another consumer reads a topic that broker 1 leads without commits.
"""

import uuid
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient, KafkaProducer

from assignor_core.resources import Resource
from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.metric_reads import scrape
from streaming.collect.counters import parse_counters
from streaming.control.deciding import BytesOutBounds
from streaming.control.windows import closed_windows
from streaming.control.wiring import window_tables_of
from streaming.demo.brokers import EmbeddedCluster
from streaming.runtime.clocks import now_ms
from streaming.settings import Settings
from tests.kafka.measured_windows import MeasuredWindows
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.apart]  # topics of others that nobody reads would count, too

RECORDS = {1: 60, 2: 40, 3: 20}
"""By broker, of the topic that a group reads."""
UNREAD = 30
VALUE = b"x" * 10_000
CLOSE = 0.05


def write(servers: list[str], records: Mapping[tuple[str, int], int]) -> None:
    producer = KafkaProducer(bootstrap_servers=servers, acks="all")
    sent = [producer.send(key[0], VALUE, partition=key[1]) for key, count in records.items() for _ in range(count)]
    for record in sent:
        record.get(timeout=DEADLINE_S)
    producer.close()


def read(consumer: Consumer, count: int) -> None:
    came = 0

    def read_all() -> bool:
        nonlocal came
        came += sum(message.error() is None for message in consumer.consume(count - came, timeout=1.0))
        return came >= count

    until("all is read", read_all, pause_s=0.0, state=lambda: f"{came} of {count} records")


def test_what_brokers_count_lies_within_the_bounds(
    kafka_cluster: EmbeddedCluster, settings: Settings, admin: KafkaAdminClient
) -> None:
    mark = uuid.uuid4().hex[:8]
    committed, unread = f"committed-{mark}", f"unread-{mark}"
    placed = {number: [broker, broker % 3 + 1] for number, broker in enumerate(RECORDS)}
    admin.create_topics({committed: {"assignments": placed}, unread: {"assignments": {0: [1, 2]}}})
    wait_until_known(admin, [committed, unread])
    pipeline = settings.pipeline.model_copy(update={"window_ms": 1_000, "watermark_ms": 1_000})
    collect = settings.collect.model_copy(update={"jmx_endpoints": {}})
    settings = settings.model_copy(update={"pipeline": pipeline, "collect": collect})
    windows = MeasuredWindows(BrokerReads(admin), settings)
    servers = kafka_cluster.bootstrap_servers
    own = {"bootstrap.servers": ",".join(servers), "auto.offset.reset": "earliest", "enable.auto.commit": False}
    group, silent = (Consumer({**own, "group.id": f"{name}-{mark}"}) for name in ("group", "silent"))
    group.subscribe([committed])
    silent.assign([TopicPartition(unread, 0, 0)])

    def look() -> None:
        until("a window is over", lambda: windows.write_if_due(now_ms()), pause_s=0.05)

    def counted() -> dict[int, float]:
        answers = scrape(kafka_cluster.jmx_endpoints, limit_s=DEADLINE_S).answers
        counters = {broker: parse_counters(text) for broker, text in answers.items()}
        return {
            broker: sum(row.topic_bytes_out.get(topic, 0.0) for topic in (committed, unread))
            for broker, row in counters.items()
            if row
        }

    def play() -> None:
        write(servers, {(committed, number): count for number, count in enumerate(RECORDS.values())})
        write(servers, {(unread, 0): UNREAD})
        read(group, sum(RECORDS.values()))
        read(silent, UNREAD)
        group.commit(asynchronous=False)

    windows.write_if_due(now_ms())  # the first look makes no window
    play()
    look()
    before = counted()
    play()
    after = counted()
    look()
    group.close()
    silent.close()

    window_tables = window_tables_of(settings)
    newest = closed_windows(window_tables, now_ms=now_ms())[-1]
    (window,) = BytesOutBounds(window_tables).added((newest,))
    seconds = windows.records[-1][0]["interval_ms"] / 1000
    sent = {broker: (after[broker] - before[broker]) / seconds for broker in after}
    assert window.reads_unknown == {1}
    least, most = window.bounds[Resource.BYTES_OUT][1]
    assert least == pytest.approx(RECORDS[1] * len(VALUE) / seconds, rel=CLOSE)
    assert least < sent[1] <= most
    known = window.values(Resource.BYTES_OUT)
    assert known == pytest.approx({broker: sent[broker] for broker in (2, 3)}, rel=CLOSE)
    admin.delete_topics([committed, unread])
