"""Brokers of the oldest release that is supported: tests of the newest one run on them, and `check` names the release.

The tests that are imported cover what control asks of a cluster (the conformance suite without those of log dirs),
what the collector reads, and an execution.
"""

from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from streaming.cluster.releases import FEATURES, OLDEST, broker_releases
from streaming.settings import Settings
from tests.collect.test_on_brokers import (  # noqa: F401
    test_java_members_tell_the_generation,
    test_our_own_requests_give_what_kafka_pythons_give,
    test_partition_rates_sum_to_the_brokers_own_counters,
    test_the_topics_are_made_and_carry_the_contracts_records,
)
from tests.conformance.test_brokers import *  # noqa: F403
from tests.conformance.test_markers import *  # noqa: F403
from tests.conformance.test_placement import *  # noqa: F403
from tests.conformance.test_throttles import *  # noqa: F403
from tests.kafka.test_check import check, own  # noqa: F401
from tests.kafka.test_executor import (  # noqa: F401
    test_a_movement_is_made_and_leaves_no_throttle,
    test_a_throttle_slows_the_copy_and_an_abort_restores,
)

pytestmark = [pytest.mark.kafka, pytest.mark.apart]


def test_each_broker_is_known_by_its_release(admin: KafkaAdminClient) -> None:
    releases = broker_releases(admin)
    assert {broker: row.name for broker, row in releases.items()} == dict.fromkeys((1, 2, 3), OLDEST)


def test_check_names_the_release_and_what_it_does_not_show(own: Settings, tmp_path: Path) -> None:  # noqa: F811
    rows = check(own, tmp_path)
    assert rows["Kafka release"]["passed"], rows["Kafka release"]
    assert f"brokers run {OLDEST};" in str(rows["Kafka release"]["detail"])
    missing = ", ".join(f"{feature.name} (Kafka {feature.since})" for feature in FEATURES if feature.since > "4.0")
    assert rows["Kafka features"] == {"name": "Kafka features", "passed": True, "detail": f"not shown: {missing}"}
