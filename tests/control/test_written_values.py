"""What the product writes to Kafka is within Kafka's bounds, whatever the settings and the names."""

import json

import pytest
from pydantic import ValidationError

from assignor_core.assignors.wire import Assignment, encode_assignment, encode_sticky_user_data
from assignor_core.live import PartitionKey
from assignor_core.marker import Marker
from assignor_core.throttles import VALUE_BYTES_MAX
from streaming.cluster.admin import client_id_of, marker_of, quotas_of
from streaming.cluster.described_groups import TEXT_MAX, DescribedGroup, DescribedMember, ShareOffsets
from streaming.collect.group_table import GroupTable, Owners, Reported, view_of
from streaming.collect.reports import consumer_lag_records
from streaming.collect.sample import ClusterSample
from streaming.contract.records import GROUP_STATES, OFFSET_MAX
from streaming.settings import Settings
from tests.collect.by_row import PartitionView, partition_table, size_table

LONG_MAX = 2**63 - 1
RECORD_BYTES_MAX = 40_000
HOST_NAME_MAX = 253
"""Of a full host name; Linux allows 64."""


@pytest.mark.parametrize(
    "setting", ["throttle_bytes_per_sec", "log_dir_throttle_bytes_per_sec", "throttle_min_bytes_per_sec"]
)
def test_no_rate_is_above_what_kafka_takes(setting: str) -> None:
    assert Settings.model_validate({"control": {setting: 10**15}})
    with pytest.raises(ValidationError, match=setting):
        Settings.model_validate({"control": {setting: LONG_MAX + 1}})


@pytest.mark.parametrize("setting", ["movements_in_flight_max", "elections_at_once_max"])
def test_a_request_names_no_more_partitions_than_a_controller_writes_at_once(setting: str) -> None:
    with pytest.raises(ValidationError, match=setting):
        Settings.model_validate({"control": {setting: 10_001}})


def test_a_marker_of_the_longest_names_is_a_short_value() -> None:
    marker = Marker("f" * 32, f"{'h' * HOST_NAME_MAX}/4194304", 10**15 - 1, 10**15 - 1, holder_id="f" * 32)
    quotas = {name: value for name, value in quotas_of(marker).items() if value is not None}
    assert marker_of(client_id_of(marker), quotas) == marker
    assert len(client_id_of(marker)) < 500 < VALUE_BYTES_MAX


def test_a_lag_record_of_the_longest_names_is_a_small_part_of_what_a_broker_takes() -> None:
    """Each character takes twelve bytes in JSON, and clients wrote names of 30 kB."""
    long, key = "\U0001f600" * 30_000, ("t" * TEXT_MAX, 999_999)
    member = DescribedMember(long, long, (key,), (key,), long, long, long, long)
    view = view_of(
        "g" * TEXT_MAX, "consumer", "PreparingRebalance", DescribedGroup(None, (member,), 2**31 - 1, long, 2**31 - 1),
        ShareOffsets({key: OFFSET_MAX}), reported=Reported({key[0]: 1_000_000}, 1), read_ms=1, known=Owners(),
    )  # fmt: skip
    table = partition_table({key: PartitionView("id", 1, (1,), frozenset(), OFFSET_MAX, OFFSET_MAX, OFFSET_MAX)})
    sizes: dict[tuple[int, PartitionKey], int] = {}
    groups = GroupTable({"\U0001f600" * TEXT_MAX: view})
    seen = ClusterSample(
        OFFSET_MAX, {1: None}, table, size_table(sizes), {}, {}, groups,
        last_stable={key: OFFSET_MAX}, cleanup_policies={key[0]: "compact,delete"},
    )  # fmt: skip
    record = max((value for _, value in consumer_lag_records("\U0001f600" * TEXT_MAX, seen)), key=len)
    assert {field.name for field in GROUP_STATES} - json.loads(record).keys() == {"share_start_offset"}
    assert len(record) < RECORD_BYTES_MAX


@pytest.mark.parametrize("change", [{"kafka": {"cluster_name": "c" * 250}}, {"topics": {"retention_ms": LONG_MAX}}])
def test_settings_that_are_written_are_bounded(change: dict[str, dict[str, object]]) -> None:
    with pytest.raises(ValidationError, match=next(iter(change))):
        Settings.model_validate(change)


def test_what_a_member_reports_of_itself_is_as_long_as_the_assignment_that_it_got() -> None:
    owned = tuple((f"topic-{number % 7}", number) for number in range(5_000))
    assignment = encode_assignment(Assignment(owned))
    assert len(encode_sticky_user_data(owned, 3)) <= len(assignment)
