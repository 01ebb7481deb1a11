"""`rebalancer check`: input topics that are missing, brokers that no collector reports, and brokers that two report."""

from collections.abc import Mapping
from pathlib import Path

from streaming.commands.check import input_topics, reports
from streaming.settings import Settings
from tests.serve.synthetic import NOW_MS, WINDOW_MS, Synthetic, settings_for

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
