"""Which topics are compacted: asked about seldom, unknown without the right, and in the records of groups."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kafka.errors import KafkaError, RequestTimedOutError

from streaming.cluster.broker_reads import BrokerReads
from streaming.collect import groups
from streaming.collect.group_table import GroupTable, GroupView
from streaming.collect.groups import ASKED_AGAIN_MS, CleanupPolicies
from streaming.collect.reports import consumer_lag_records, due_groups
from streaming.collect.sample import ClusterSample
from tests.collect.by_row import PartitionView, partition_table, size_table

KEYS = (("deleted", 0), ("table", 0), ("table", 1))


@dataclass
class Brokers:
    """As much of what brokers are asked for as is used; topics that are not named are hidden."""

    policies: dict[str, str] = field(default_factory=dict)
    error: KafkaError | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def cleanup_policies(self, topics: Sequence[str]) -> dict[str, str]:
        self.asked.append(tuple(topics))
        if self.error:
            raise self.error
        return {name: self.policies[name] for name in topics if name in self.policies}


def read(policies: CleanupPolicies, brokers: Brokers, *topics: str, now_ms: int = 0) -> dict[str, str]:
    return dict(policies.read(cast(BrokerReads, brokers), topics, now_ms=now_ms))


def test_topics_that_are_compacted_are_named_and_those_that_are_hidden_are_unknown() -> None:
    brokers = Brokers({"a": "delete", "b": "compact", "c": "compact,delete", "d": "delete,compact"})
    found = read(CleanupPolicies(), brokers, "a", "b", "c", "d", "hidden")
    assert found == {"b": "compact", "c": "compact,delete", "d": "delete,compact"}


def test_a_topic_is_asked_about_when_it_is_first_read_and_once_an_hour() -> None:
    policies, brokers = CleanupPolicies(), Brokers({"a": "delete", "b": "compact"})
    assert read(policies, brokers, "a") == {}
    assert read(policies, brokers, "a", "b", now_ms=1) == {"b": "compact"}
    brokers.policies = {"a": "compact", "b": "delete"}
    assert read(policies, brokers, "a", "b", now_ms=ASKED_AGAIN_MS - 1) == {"b": "compact"}
    assert read(policies, brokers, "a", "b", now_ms=ASKED_AGAIN_MS + 1) == {"a": "compact"}
    assert brokers.asked == [("a",), ("b",), ("a", "b")]
    assert read(policies, brokers, now_ms=ASKED_AGAIN_MS + 2) == {}
    read(policies, brokers, "a", now_ms=ASKED_AGAIN_MS + 3)
    assert brokers.asked[3:] == [("a",)], "a topic that nobody reads any more is forgotten"


def test_no_answer_changes_nothing_and_a_request_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    policies, brokers = CleanupPolicies(), Brokers({"a": "compact"})
    read(policies, brokers, "a")
    brokers.error = RequestTimedOutError()
    assert read(policies, brokers, "a", now_ms=ASKED_AGAIN_MS) == {"a": "compact"}
    monkeypatch.setattr(groups, "TOPICS_AT_ONCE", 2)
    brokers.asked.clear()
    for now_ms in (0, 1, 2):
        read(CleanupPolicies() if not now_ms else policies, brokers, "x", "y", "z", now_ms=ASKED_AGAIN_MS + now_ms)
    assert brokers.asked == [("x", "y"), ("x", "y"), ("z",)]


def seen(time_ms: int, policies: dict[str, str]) -> ClusterSample:
    groups = {name: GroupView("Stable", {key: 40 for key in KEYS if key[0] == topic}, {}) for name, topic in GROUPS}
    table = partition_table({key: PartitionView("id", 1, (1,), frozenset(), 0, 100) for key in KEYS})
    return ClusterSample(time_ms, {}, table, size_table({}), {}, {}, GroupTable(groups), cleanup_policies=policies)


GROUPS = (("g", "table"), ("h", "deleted"))


def test_a_record_has_the_policy_and_a_group_is_reported_when_it_changes() -> None:
    records: list[dict[str, Any]] = []
    held = None
    for time_ms, policies in [(0, {}), (10, {"table": "compact"}), (20, {"table": "compact"}), (30, {})]:
        due, held = due_groups(held, seen(time_ms, policies), window_ms=60_000, next_ms=time_ms + 10)
        records += [json.loads(value) for one in due for _, value in consumer_lag_records("c", one.seen, one.names)]
    shown = [
        (row["event_time_ms"], row["partition"], row.get("cleanup_policy")) for row in records if row["group"] == "g"
    ]
    assert shown == [
        (time_ms, number, policy)
        for time_ms, policy in ((0, None), (10, "compact"), (20, "compact"), (30, None))
        for number in (0, 1)
    ]
    assert [row["event_time_ms"] for row in records if row["group"] == "h"] == [0]
