"""`rebalancer check`: each finding, what it names, and when it passes."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from assignor_core.disks import LogDirDescription
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from streaming.commands.check import (
    _log_dirs,
    _throttles,
    brokers_alive,
    input_topics,
    partitions_healthy,
    reached,
    reports,
)
from streaming.settings import PlannerSettings, Settings
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for
from tests.simulated_cluster import SimulatedClient, SimulatedCluster

RACKS = {1: None, 2: None}
IN_SYNC = LivePartition((1, 2), 1, (1, 2))


def live(*partitions: LivePartition) -> LiveCluster:
    return LiveCluster("c", RACKS, {("t", number): row for number, row in enumerate(partitions)})


def test_where_all_is_well_nothing_is_named() -> None:
    assert brokers_alive(live(IN_SYNC)) == (True, "all that hold replicas, 2 brokers")
    assert partitions_healthy(live(IN_SYNC)) == (True, "every replica is in sync")


def test_partitions_without_a_leader_are_told_from_those_with_too_few_replicas_in_sync() -> None:
    alone, behind = LivePartition((3,), NO_LEADER, (3,)), LivePartition((1, 3), 1, (1,))
    assert partitions_healthy(live(IN_SYNC, alone, behind)) == (
        False, "1 partition is offline, first t-1; 1 partition is under-replicated, first t-2",
    )  # fmt: skip
    assert partitions_healthy(live(alone)) == (False, "1 partition is offline, first t-0")
    assert partitions_healthy(live(behind)) == (False, "1 partition is under-replicated, first t-0")


def test_brokers_that_are_down_are_named() -> None:
    rows = LivePartition((3,), NO_LEADER, (3,)), LivePartition((1, 3), 1, (1,))
    assert brokers_alive(live(IN_SYNC, *rows)) == (False, "broker 3 is down, with replicas of 2 partitions")
    assert brokers_alive(live(*rows, LivePartition((4, 1), 1, (1,)))) == (
        False, "brokers 3, 4 are down, with replicas of 3 partitions",
    )  # fmt: skip


def test_brokers_without_a_rack_beside_others_that_have_one_are_named() -> None:
    assert reached(live(IN_SYNC)) == (True, "2 brokers, 0 racks, 1 partition")
    assert reached(LiveCluster("c", {1: "a", 2: "b"}, {})) == (True, "2 brokers, 2 racks, 0 partitions")
    _, detail = reached(LiveCluster("c", {1: "a", 2: None, 3: "a"}, {}))
    assert detail.startswith("3 brokers, 1 rack, 0 partitions; broker 2 has no rack while others have one")


BY_HAND = PlannerSettings.model_validate({"capacities": {2: {"disk_bytes": 1e12}}})


def test_log_dirs_that_are_online_and_show_what_is_free_pass() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None})
    cluster.create_topic("t", {0: (1, 2), 1: (1, 2)})
    assert _log_dirs(SimulatedClient(cluster), PlannerSettings()) == (True, "4 replicas have a size")


def test_a_log_dir_that_is_offline_is_named() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None}, log_dir_bytes=(10**9, 10**9))
    cluster.fail_log_dir(2, 1)
    assert _log_dirs(SimulatedClient(cluster), PlannerSettings()) == (
        False,
        "log dirs are offline on broker 2 (/disk-1)",
    )


def test_a_broker_that_does_not_answer_is_named() -> None:
    cluster = SimulatedCluster.of({1: None, 2: None})
    cluster.freeze_broker(2)
    assert _log_dirs(SimulatedClient(cluster), BY_HAND) == (
        False,
        "brokers that do not answer get no replicas: 2",
    )


@pytest.mark.parametrize("rows", [(), (LogDirDescription("/d"),)], ids=["refused", "before Kafka 3.3"])
def test_a_broker_that_does_not_show_what_is_free_is_named(
    rows: tuple[LogDirDescription, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = SimulatedClient(SimulatedCluster.of({1: None, 2: None}))
    shown = client.log_dirs() | {2: rows}
    monkeypatch.setattr(client, "log_dirs", lambda: shown)
    named = "brokers that do not show what is free get no replicas: 2"
    assert _log_dirs(client, PlannerSettings()) == (False, named)
    assert _log_dirs(client, BY_HAND)[0]


def test_a_rate_of_movements_within_a_broker_that_is_left_is_named(tmp_path: Path) -> None:
    settings = Settings.model_validate({"storage": {"tables": str(tmp_path / "tables")}})
    client = SimulatedClient(SimulatedCluster.of({1: None, 2: None}))
    assert _throttles(client, settings) == (True, "none")
    client.set_log_dir_rates({2: 1_000})
    left = "brokers [2] and topics [] are throttled, and no execution of ours is under way"
    assert _throttles(client, settings) == (False, left)


START_MS = NOW_MS - WINDOW_MS
WINDOWS_LATER = 60


def windows(tmp_path: Path, brokers: Mapping[int, int], shard: str = "1/1") -> Settings:
    """Settings of tables with one closed window: samples of each broker, each of 10 s."""
    settings = settings_for(tmp_path, collect={"shard": shard})
    synthetic = Synthetic(settings.storage.tables)
    with synthetic.together():
        for broker, count in brokers.items():
            synthetic.broker_load(START_MS, {broker: 10.0}, covered_ms=count * 10_000, sample_count=count)
    return settings


BOTH = ("rebalancer.byte-rate", "rebalancer.consumer-lag")


def test_before_the_first_run_the_collector_has_yet_to_make_its_topics(tmp_path: Path) -> None:
    detail = "not there yet: rebalancer.byte-rate, rebalancer.consumer-lag (`rebalancer collect` makes them)"
    assert input_topics((), settings_for(tmp_path)) == (True, detail)
    assert input_topics(BOTH, settings_for(tmp_path)) == (True, "all there")


def test_a_topic_that_is_gone_after_the_first_window_fails(tmp_path: Path) -> None:
    settings = windows(tmp_path, {1: 6})
    assert input_topics(BOTH, settings) == (True, "all there")
    missing = "missing: rebalancer.consumer-lag (`rebalancer collect` makes it)"
    assert input_topics(BOTH[:1], settings) == (False, missing)


def test_a_topic_of_another_tool_fails_before_the_first_run_too(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, topics={"foreign": {"agents": "otlp-json"}})
    assert input_topics(BOTH, settings) == (False, "missing: agents (of topics.foreign)")
    passed, detail = input_topics((), settings)
    assert not passed
    assert detail.endswith("rebalancer.consumer-lag (`rebalancer collect` makes it), agents (of topics.foreign)")


def test_each_broker_is_reported_once(tmp_path: Path) -> None:
    settings = windows(tmp_path, {1: 6, 2: 7})
    assert reports((1, 2), settings, now_ms=NOW_MS) == (True, "one collector reports each of 2 brokers")


def test_before_the_first_window_and_long_after_the_last_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert reports((1,), settings_for(tmp_path), now_ms=NOW_MS) == (True, "no window of load has closed yet")
    settings = windows(tmp_path, {1: 6})
    passed, detail = reports((1, 2), settings, now_ms=NOW_MS + WINDOWS_LATER * WINDOW_MS)
    assert passed
    assert detail == "nothing to compare: the newest window ended 3,600 s ago"


def test_brokers_of_a_shard_that_nobody_takes_are_named_with_the_shard(tmp_path: Path) -> None:
    settings = windows(tmp_path, {1: 6, 3: 6}, shard="1/2")
    assert reports((1, 2, 3, 4), settings, now_ms=NOW_MS) == (
        False, "no collector reports brokers 2, 4: does a collector run with collect.shard 2/2?",
    )  # fmt: skip


def test_a_single_silent_broker_is_no_shard(tmp_path: Path) -> None:
    settings = windows(tmp_path, {1: 6, 2: 6, 3: 6}, shard="1/2")
    assert reports((1, 2, 3, 4), settings, now_ms=NOW_MS) == (False, "no collector reports broker 4")


def test_brokers_that_two_collectors_report_are_named(tmp_path: Path) -> None:
    settings = windows(tmp_path, {1: 12, 2: 6, 3: 12}, shard="1/2")
    passed, detail = reports((1, 2, 3), settings, now_ms=NOW_MS)
    assert not passed
    assert detail == "more than one collector reports brokers 1, 3: collect.shard must differ"
