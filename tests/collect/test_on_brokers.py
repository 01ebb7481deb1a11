"""The collector on real brokers: its rates sum to what the brokers count; a broker that is down is survived."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import OffsetSpec
from kafka.errors import (
    BrokerResponseError,
    NoError,
    NotLeaderForPartitionError,
)
from kafka.structs import OffsetAndMetadata, TopicPartition

from streaming.cluster.broker_reads import EARLIEST, LATEST, BrokerReads
from streaming.cluster.clients import admin_client, librdkafka_options
from streaming.collect.group_table import GroupView
from streaming.collect.groups import GroupSampler
from streaming.collect.observe import observe
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.run import Collector
from streaming.collect.sample import ClusterSample, Part
from streaming.demo.brokers import EmbeddedCluster
from streaming.settings import Settings
from tests.collect.by_row import partition_views, rates_of
from tests.kafka.real_groups import JavaMembers, MemberEvent
from tests.topics import wait_until_known
from tests.waiting import DEADLINE_S, until

pytestmark = pytest.mark.kafka


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_partition_rates_sum_to_the_brokers_own_counters(settings: Settings) -> None:
    topic = f"collect-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({topic: {"assignments": {0: [1], 1: [2], 2: [2]}}})
    wait_until_known(admin, [topic])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all", linger_ms=5)
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
        collector.sample(now_ms=now_ms())
        before = collector._reports._known.before
        for partition, count in ((0, 700), (1, 100), (2, 200)):
            for _ in range(count):
                producer.send(topic, b"x" * 500, partition=partition)
        producer.flush()
        producer.close()
        assert collector.sample(now_ms=now_ms()) > 0
        after = collector._reports._known.before
    assert before is not None
    assert after is not None
    replicas = replica_rates(before, after)
    totals = broker_rates(before, after, replicas)
    for broker, counted in totals.items():
        led = [
            r.bytes_in or 0.0 for (host, _), r in rates_of(replicas).items() if host == broker and r.role == "leader"
        ]
        assert counted["bytes_in_per_sec"] is not None
        # Each by the time between its own readings: what came in one burst differs as a rate, not as bytes. They are
        # some milliseconds apart, while our own topics are written.
        by_growth = sum(led) * seconds(before, after, "sizes", broker)
        by_counter = counted["bytes_in_per_sec"] * seconds(before, after, "counters", broker)
        assert by_growth == pytest.approx(by_counter, rel=0.03, abs=20_000)
    grown = {
        key[1]: (rates.bytes_in or 0.0) * seconds(before, after, "sizes", broker)
        for (broker, key), rates in rates_of(replicas).items()
        if key[0] == topic and rates.role == "leader"
    }
    assert grown[0] / grown[1] == pytest.approx(7.0, rel=0.1)  # the hot partition is told from its siblings


def seconds(before: ClusterSample, after: ClusterSample, part: Part, broker: int) -> float:
    return (after.when_ms(part, broker) - before.when_ms(part, broker)) / 1000


def test_the_topics_are_made_and_carry_the_contracts_records(settings: Settings) -> None:
    with Collector(settings.kafka, settings.topics, settings.collect, settings.storage.tables) as collector:
        collector.sample(now_ms=now_ms())
        collector.sample(now_ms=now_ms())
    reader = Consumer(librdkafka_options(settings.kafka) | {"group.id": "reads-once", "auto.offset.reset": "earliest"})
    reader.subscribe([settings.topics.byte_rate])
    read = reader.poll(DEADLINE_S)
    assert read is not None
    reader.close()
    assert read.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME  # a collector whose clock is ahead is told by the broker's
    record = json.loads(read.value() or b"")
    assert record["v"] == 1
    assert record["kafka_cluster"] == "test"
    assert {"broker", "topic", "partition", "role", "event_time_ms", "interval_ms", "bytes_in_per_sec"} <= record.keys()


def test_java_members_tell_the_generation(kafka_cluster: EmbeddedCluster, settings: Settings) -> None:
    group = f"generation-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({group: {"num_partitions": 4, "replication_factor": 1}})
    wait_until_known(admin, [group])
    reads, sampler, events = BrokerReads(admin), GroupSampler(), list[MemberEvent]()
    views: list[GroupView | None] = []
    members = JavaMembers(kafka_cluster.bootstrap_servers, events)

    def newest() -> int:
        return max((one.generation_id for one in events), default=0)

    def is_shown(name: str) -> bool:
        view = observe(reads, sampler, settings.collect, now_ms=0).groups.get(group)
        views.append(view)
        clients = {owner.client_id for owner in view.owners.values()} if view else set()
        return view is not None and name in clients and view.generation_id == (newest() if name == "b" else None)

    def state() -> str:
        return f"read {views[-1:]}, members told {events}"

    try:
        for name in ("a", "b"):
            members.start(group, name, group, "range", None)
            until(f"{name} is shown", lambda name=name: is_shown(name), state=state)  # type: ignore[misc]
        assert newest() > 1
    finally:
        members.close()
        admin.close()


def test_our_own_requests_give_what_kafka_pythons_give(kafka_cluster: EmbeddedCluster, settings: Settings) -> None:
    topic = f"requests-{uuid.uuid4().hex[:8]}"
    ours, theirs = admin_client(settings.kafka), KafkaAdminClient(bootstrap_servers=kafka_cluster.bootstrap_servers)
    ours.create_topics({topic: {"assignments": {0: [1], 1: [2], 2: [1]}}})
    wait_until_known(ours, [topic])
    producer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers, acks="all")
    for partition, count in ((0, 3), (1, 5), (2, 7)):
        for _ in range(count):
            producer.send(topic, b"x" * 500, partition=partition)
    producer.flush()
    producer.close()
    partitions = [TopicPartition(topic, index) for index in range(3)]
    stock = theirs.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    reads = BrokerReads(ours)
    rows = reads.leader_offsets(1, {topic: [0, 1, 2]}, LATEST).rows
    assert sorted(rows[["index", "error", "offset"]].tolist()) == [
        (0, 0, stock[partitions[0]].offset), (1, NotLeaderForPartitionError.errno, -1),
        (2, 0, stock[partitions[2]].offset),
    ]  # fmt: skip
    assert reads.leader_offsets(2, {topic: [1]}, EARLIEST).rows[["index", "offset"]].tolist() == [(1, 0)]
    sizes = {
        (broker, index): size
        for broker in (1, 2, 3)
        for log_dir in reads.log_dirs(broker)
        for place, index, size in zip(
            log_dir.replicas.topic, log_dir.replicas.rows["index"], log_dir.replicas.rows["size"], strict=True
        )
        if log_dir.replicas.topics[place] == topic
    }
    assert sizes == sizes_of(theirs, topic) != {}
    for client in (ours, theirs):
        client.close()


def sizes_of(admin: Any, topic: str) -> dict[tuple[int, int], int]:
    return {
        (answer["broker"], row["partition_index"]): row["partition_size"]
        for answer in admin.describe_log_dirs(brokers=[1, 2, 3])
        for log_dir in answer["log_dirs"]
        for topic_row in log_dir["topics"]
        if topic_row["name"] == topic
        for row in topic_row["partitions"]
    }


def test_a_broker_that_is_down_is_survived(kafka_cluster: EmbeddedCluster, settings: Settings) -> None:
    own = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"request_timeout_ms": 5_000})})
    groups = groups_on_all_brokers(own)
    with Collector(own.kafka, own.topics, own.collect, own.storage.tables) as collector:
        look_until(collector, lambda seen: seen.groups.keys() >= groups and lacking(seen, groups) == 0)
        addresses = {address.rpartition(":")[0] for address in seen(collector).addresses.values()}
        assert addresses == {server.rpartition(":")[0] for server in own.kafka.bootstrap_servers}
        kafka_cluster.kill_broker(3)
        try:
            # Those that it coordinated are read from who does now.
            look_until(collector, lambda seen: 3 not in seen.racks and seen.groups.keys() >= groups)
            look_until(collector, lambda seen: lacking(seen, groups) == 1)
        finally:
            kafka_cluster.start_broker(3)


def lacking(seen: ClusterSample, groups: set[str]) -> int:
    """Replicas of the topic of `groups_on_all_brokers` that are not in sync."""
    return partition_views(seen.partitions)[min(groups).rpartition("-")[0], 0].out_of_sync


def look_until(collector: Collector, condition: Callable[[ClusterSample], bool]) -> None:
    """Look again and again, until a look that gave records fulfils it."""
    until(
        "a look that fulfils it",
        lambda: collector.sample(now_ms=now_ms()) > 0 and condition(seen(collector)),
        state=lambda: str(seen(collector)),
    )


def groups_on_all_brokers(settings: Settings) -> set[str]:
    """Groups that have committed; with a dozen each of the three brokers coordinates one."""
    topic = f"read-{uuid.uuid4().hex[:8]}"
    groups = {f"{topic}-{number}" for number in range(12)}
    admin = admin_client(settings.kafka)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 3}})
    wait_until_known(admin, [topic])
    for group in sorted(groups):
        # The topic of offsets is being made, or its coordinator is loading.
        until("a coordinator comes up", lambda group=group: committed(admin, group, topic))  # type: ignore[misc]
    admin.close()
    return groups


def committed(admin: Any, group: str, topic: str) -> bool:
    """Whether an offset of the group could be committed: refusals are raised, or told per partition."""
    partition = TopicPartition(topic, 0)
    try:
        return admin.alter_group_offsets(group, {partition: OffsetAndMetadata(0, "", -1)})[partition] is NoError
    except BrokerResponseError:
        return False


def seen(collector: Collector) -> ClusterSample:
    """The newest observation."""
    assert collector._reports._known.before is not None
    return collector._reports._known.before
