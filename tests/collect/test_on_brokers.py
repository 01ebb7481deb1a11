"""The collector on real brokers: its rates sum to what the brokers count; a broker that is down is survived."""

import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import BrokerResponseError, NoError
from kafka.structs import OffsetAndMetadata, TopicPartition

from streaming.collect.groups import GroupSampler
from streaming.collect.observation import Observation
from streaming.collect.rates import broker_rates, replica_rates
from streaming.collect.run import Collector
from streaming.demo.brokers import EmbeddedCluster
from streaming.kafka_clients import admin_client, consumer
from streaming.settings import Settings
from tests.kafka.real_groups import JavaMembers, Told

pytestmark = pytest.mark.kafka


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_partition_rates_sum_to_the_brokers_own_counters(settings: Settings) -> None:
    topic = f"collect-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({topic: {"assignments": {0: [1], 1: [2], 2: [2]}}})
    admin.wait_for_topics([topic])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all", linger_ms=5)
    with Collector(settings) as collector:
        collector.sample(now_ms=now_ms())
        before = collector._before
        for partition, count in ((0, 700), (1, 100), (2, 200)):
            for _ in range(count):
                producer.send(topic, b"x" * 500, partition=partition)
        producer.flush()
        producer.close()
        assert collector.sample(now_ms=now_ms()) > 0
        after = collector._before
    assert before is not None
    assert after is not None
    replicas = replica_rates(before, after)
    totals = broker_rates(before, after, replicas)
    for broker, counted in totals.items():
        led = [r.bytes_in or 0.0 for (host, _), r in replicas.items() if host == broker and r.role == "leader"]
        assert counted.bytes_in is not None
        # The two looks at log sizes and counters are some milliseconds apart, while our own topics are written.
        assert sum(led) == pytest.approx(counted.bytes_in, rel=0.03, abs=20_000)
    rates = {key[1]: r.bytes_in or 0.0 for (_, key), r in replicas.items() if key[0] == topic}
    assert rates[0] / rates[1] == pytest.approx(7.0, rel=0.1)  # the hot partition is told from its siblings


def test_the_topics_are_made_and_carry_the_contracts_records(settings: Settings) -> None:
    with Collector(settings) as collector:
        collector.sample(now_ms=now_ms())
        collector.sample(now_ms=now_ms())
    reader = consumer(settings.kafka, auto_offset_reset="earliest", consumer_timeout_ms=5_000, max_poll_records=5_000)
    reader.subscribe([settings.topics.byte_rate])
    record = json.loads(next(reader).value)
    reader.close()
    assert record["v"] == 1
    assert record["kafka_cluster"] == "test"
    assert {"broker", "topic", "partition", "role", "event_time_ms", "interval_ms", "bytes_in_per_sec"} <= record.keys()


def test_java_members_tell_the_generation(kafka_cluster: EmbeddedCluster, settings: Settings) -> None:
    group = f"generation-{uuid.uuid4().hex[:8]}"
    admin = admin_client(settings.kafka)
    admin.create_topics({group: {"num_partitions": 4, "replication_factor": 1}})
    admin.wait_for_topics([group])
    sampler, told = GroupSampler(), list[Told]()
    members = JavaMembers(kafka_cluster.bootstrap_servers, told)
    deadline = time.monotonic() + 90
    try:
        for name in ("a", "b"):
            members.start(group, name, group, "range", None)
            while True:
                view = sampler.read(admin, settings.collect).get(group)
                newest = max((one.generation_id for one in told), default=0)
                clients = {client for _, client in view.owners.values()} if view else set()
                if view and name in clients and view.generation_id == (newest if name == "b" else None):
                    break
                assert time.monotonic() < deadline, f"read {view}, members told {told}"
                time.sleep(0.3)
        assert newest > 1
    finally:
        members.close()
        admin.close()


def test_a_broker_that_is_down_is_survived(tmp_path_factory: pytest.TempPathFactory) -> None:
    with EmbeddedCluster(tmp_path_factory.mktemp("kafka-down")) as cluster:
        own = Settings.model_validate(
            {
                "kafka": {"bootstrap_servers": cluster.bootstrap_servers, "request_timeout_ms": 5_000},
                "collect": {"jmx_endpoints": cluster.jmx_endpoints},
            }
        )
        groups = groups_on_all_brokers(own)
        with Collector(own) as collector:
            look_until(collector, lambda seen: seen.groups.keys() == groups)
            cluster.kill_broker(3)
            # Those that it coordinated are read from who does now.
            look_until(collector, lambda seen: 3 not in seen.racks and seen.groups.keys() == groups)


def look_until(collector: Collector, condition: Callable[[Observation], bool]) -> None:
    """Look again and again, until a look that gave records fulfils it."""
    deadline = time.monotonic() + 60
    while collector.sample(now_ms=now_ms()) == 0 or not condition(seen(collector)):
        assert time.monotonic() < deadline, f"never seen in 60 s; the newest: {seen(collector)}"
        time.sleep(0.5)


def groups_on_all_brokers(settings: Settings) -> set[str]:
    """Groups that have committed; with a dozen each of the three brokers coordinates one."""
    groups = {f"group-{number}" for number in range(12)}
    admin = admin_client(settings.kafka)
    admin.create_topics({"read": {"num_partitions": 1, "replication_factor": 3}})
    admin.wait_for_topics(["read"])
    deadline = time.monotonic() + 60
    for group in sorted(groups):
        while not committed(admin, group):  # the topic of offsets is being made, or its coordinator is loading
            assert time.monotonic() < deadline, "no coordinator came up"
            time.sleep(0.2)
    admin.close()
    return groups


def committed(admin: Any, group: str) -> bool:
    """Whether an offset of the group could be committed: refusals are raised, or told per partition."""
    partition = TopicPartition("read", 0)
    try:
        return admin.alter_group_offsets(group, {partition: OffsetAndMetadata(0, "", -1)})[partition] is NoError
    except BrokerResponseError:
        return False


def seen(collector: Collector) -> Observation:
    """The newest observation."""
    assert collector._before is not None
    return collector._before
