"""Throttle rates of an execution that the tables no longer know, on real brokers: they go, and those of others stay."""

import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.marker import Marker
from assignor_core.plan import Movement
from assignor_core.throttles import LEADER_RATE
from streaming.cluster.admin import Cluster
from streaming.commands.check import _throttles
from streaming.control.sweeping import StrayRates
from streaming.control.wiring import executor_of, journal_of
from streaming.settings import Settings
from streaming.tables import ALL_ROWS, delete
from tests.kafka.test_executor import RECORDS, approve, make_topic, with_control
from tests.topics import set_settings
from tests.waiting import until

pytestmark = pytest.mark.kafka

LEASE_ID = "a" * 32


def test_rates_that_the_tables_forgot_are_removed_and_those_of_others_stay(
    settings: Settings, admin: KafkaAdminClient
) -> None:
    topic = make_topic(admin, settings, {0: [1]})
    slow = with_control(settings, throttle_bytes_per_sec=60_000)
    cluster, journal = Cluster(admin), journal_of(slow)
    executor = executor_of(cluster, journal, slow)
    record, approved = approve(journal, [Movement(topic, 0, (1,), (2,), RECORDS * 2_000.0)])
    executor.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
    assert not executor.tick(record, approved.plan, now_ms=time.time_ns() // 1_000_000)
    set_settings(admin, ConfigResource(ConfigResourceType.BROKER, "3", {LEADER_RATE: ("SET", "700000")}))
    until("rates are shown", lambda: cluster.throttle_rates().keys() == {1, 2, 3})
    try:
        delete(slow.storage.tables, "execution", ALL_ROWS)
        strays = StrayRates(cluster, LEASE_ID)
        strays.remove([])
        assert cluster.throttle_rates().keys() == {1, 2, 3}, "nothing shows that these tables have changed the cluster"
        marker = Marker(LEASE_ID, "host/1", 1_000, 2_000, is_released=True)
        cluster.write_marker(marker)
        until("the marker is shown", lambda: marker in cluster.markers())
        passed, detail = _throttles(cluster, slow)
        assert not passed
        assert "brokers [1, 2, 3]" in detail
        assert "A rebalancer has set the rates of brokers [1, 2]" in detail
        if cluster.describe().partitions[topic, 0].reassigning:
            strays.remove([])
            assert {1, 2} <= cluster.throttle_rates().keys() or not cluster.describe().reassigning()
        until("it is copied", lambda: not cluster.describe().partitions[topic, 0].reassigning)
        strays.remove([])
        until("only theirs is left", lambda: cluster.throttle_rates() == {3: {LEADER_RATE: 700_000}})
    finally:
        cluster.clear_throttle([1, 2, 3], {topic: frozenset({(0, 1)})}, {topic: frozenset({(0, 2)})}, untagged=True)
        until("no rate is left", lambda: cluster.throttle_rates() == {})
