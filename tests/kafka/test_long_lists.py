"""Hundreds of partitions of one topic leave a broker, beside entries of others that fill most of its lists."""

import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.plan import Movement
from assignor_core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS
from streaming.cluster.admin import Cluster
from streaming.control.wiring import executor_of, journal_of
from streaming.settings import Settings
from tests.kafka.test_executor import approve, ask_to_abort, carry_out
from tests.topics import set_settings, wait_until_known, wait_until_set
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.long]

TOPIC = "long-lists"
PARTITIONS = 600
IN_FLIGHT = 200
OTHERS = "7:".ljust(31_000, "0") + "7"
"""An entry of another tool. Beside it Kafka takes the entries of about 200 partitions."""
LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


def test_a_broker_is_drained_of_more_partitions_of_one_topic_than_its_lists_can_name(
    settings: Settings, admin: KafkaAdminClient
) -> None:
    """Most are drained; then a person aborts, and another plan drains the rest."""
    admin.create_topics({TOPIC: {"assignments": {number: [1] for number in range(PARTITIONS)}}})
    try:
        wait_until_known(admin, [TOPIC])
        set_settings(admin, ConfigResource(ConfigResourceType.TOPIC, TOPIC, dict.fromkeys(LISTS, ("SET", OTHERS))))
        for setting in LISTS:
            wait_until_set(admin, TOPIC, setting, OTHERS)
        caps = dict.fromkeys(("movements_in_flight_max", "movements_per_broker_max"), IN_FLIGHT)
        control = {**settings.model_dump()["control"], **caps}
        settings = Settings.model_validate({**settings.model_dump(), "control": control})
        cluster, journal = Cluster(admin), journal_of(settings)
        others = {(TOPIC, setting): OTHERS for setting in LISTS}
        for is_aborted in (True, False):
            held = [key for key, row in cluster.describe([TOPIC]).partitions.items() if row.replicas == (1,)]
            moves = [Movement(*key, (1,), (2 + key[1] % 2,), 1.0) for key in sorted(held)]
            record, approved = approve(journal, moves)
            executor = executor_of(cluster, journal, settings)
            assert executor.begin(record, approved, now_ms=time.time_ns() // 1_000_000)
            if is_aborted:
                while record.execution.figures.movements_done < PARTITIONS // 2:
                    has_ended = executor.tick(record, approved.plan, now_ms=time.time_ns() // 1_000_000)
                    assert not has_ended, record.execution.last
                    # Control waits between ticks, too: metadata of a broker has time to catch up.
                    time.sleep(0.5)
                ask_to_abort(journal, record)
            carry_out(executor, record, approved.plan)
            assert record.execution.last_event == ("aborted" if is_aborted else "done"), record.execution.last
            until("entries of others are left alone", lambda: cluster.throttled_replicas([TOPIC]) == others)
            until("no rate is left", lambda: cluster.throttle_rates() == {})
        assert all(row.replicas != (1,) for row in cluster.describe([TOPIC]).partitions.values())
    finally:
        admin.delete_topics([TOPIC])
