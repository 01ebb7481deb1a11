"""Transactions and compacted topics on real brokers: what the collector sees of both."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streaming.cluster.broker_reads import BrokerReads
from streaming.cluster.clients import admin_client, librdkafka_options
from streaming.collect.group_table import GroupView
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.sample import ClusterSample
from streaming.settings import Settings
from tests.collect.by_row import partition_views
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.kafka

RECORDS = 5


@pytest.fixture
def admin(settings: Settings) -> Iterator[Any]:
    client = admin_client(settings.kafka)
    yield client
    client.close()


def commit(settings: Settings, group: str, topic: str, offset: int) -> None:
    """What a reader of committed records commits once it has read all that it may."""
    reader = Consumer(librdkafka_options(settings.kafka) | {"group.id": group})
    reader.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    reader.close()


def test_an_open_transaction_shows_where_it_holds_readers_back_and_one_that_is_over_does_not(
    settings: Settings, admin: Any
) -> None:
    topic = f"transactions-{uuid.uuid4().hex[:8]}"
    key = (topic, 0)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    wait_until_known(admin, [topic])
    producer = Producer(librdkafka_options(settings.kafka) | {"transactional.id": topic})
    producer.init_transactions(DEADLINE_S)

    def write() -> None:
        producer.begin_transaction()
        for _ in range(RECORDS):
            producer.produce(topic, b"x")
        assert producer.flush(DEADLINE_S) == 0

    write()
    producer.commit_transaction(DEADLINE_S)
    reads, sampler = BrokerReads(admin), GroupSampler()

    def look() -> ClusterSample:
        return observe(reads, sampler, settings.collect, now_ms=time.time_ns() // 1_000_000)

    def end(seen: ClusterSample) -> int | None:
        return partition_views(seen.partitions)[key].log_end_offset

    # The marker of the commit stands behind the records, and librdkafka's consumers would commit an offset after it.
    commit(settings, topic, topic, RECORDS)
    until("a marker", lambda: end(look()) == RECORDS + 1)
    seen = look()
    assert (seen.groups[topic].committed[key], seen.last_stable) == (RECORDS, {}), "nothing is open: one marker is left"

    write()
    until("records of an open transaction", lambda: end(look()) == 2 * RECORDS + 1)
    until("a last stable offset", lambda: look().last_stable == {key: RECORDS + 1})

    commit(settings, topic, topic, RECORDS + 1)
    until("a commit", lambda: look().groups[topic].committed[key] == RECORDS + 1)
    assert look().last_stable == {key: RECORDS + 1}, "the topic is known to have transactions"
    producer.commit_transaction(DEADLINE_S)
    until("the end of the transaction", lambda: not look().last_stable)


def test_which_of_the_topics_that_groups_read_are_compacted(settings: Settings, admin: Any) -> None:
    topics = {f"policy-{uuid.uuid4().hex[:8]}": policy for policy in ("compact", "delete", "compact,delete")}
    for topic, policy in topics.items():
        configs = {"cleanup.policy": policy}
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1, "configs": configs}})
    wait_until_known(admin, list(topics))
    group = f"policies-{uuid.uuid4().hex[:8]}"
    for topic in topics:
        commit(settings, group, topic, 0)
    reads, sampler = BrokerReads(admin), GroupSampler()

    def look() -> ClusterSample:
        return observe(reads, sampler, settings.collect, now_ms=time.time_ns() // 1_000_000)

    def committed() -> set[str]:
        return {topic for topic, _ in look().groups.get(group, GroupView("", {}, {})).committed}

    until("all commits", lambda: committed() == set(topics))
    shown = {topic: policy for topic, policy in look().cleanup_policies.items() if topic in topics}
    assert shown == {topic: policy for topic, policy in topics.items() if policy != "delete"}
