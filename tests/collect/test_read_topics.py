"""Last stable offsets and cleanup policies: which brokers and topics are asked about, and what records have of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from kafka.errors import KafkaError, RequestTimedOutError

from assignor_core.live import PartitionKey
from streaming.cluster.answer_columns import TopicRows
from streaming.cluster.broker_reads import BrokerReads
from streaming.collect import groups
from streaming.collect.group_table import GroupTable, GroupView
from streaming.collect.groups import ASKED_AGAIN_MS, CleanupPolicies, StableOffsets
from streaming.collect.partition_table import CONSUMER_OFFSETS, TRANSACTION_STATE, PartitionTable
from streaming.collect.reports import consumer_lag_records, due_groups
from streaming.collect.sample import ClusterSample, SampleState
from streaming.collect.shards import Shard
from tests.collect.by_row import PartitionView, partition_table, size_table

LOG_END = 100


@dataclass
class Brokers:
    """Brokers that answer with these last stable offsets, with the log end for all other partitions."""

    stable: Mapping[PartitionKey, int] = field(default_factory=dict)
    error: KafkaError | None = None
    asked: list[PartitionKey] = field(default_factory=list)

    def last_stable_offsets(self, _broker: int, led: Mapping[str, Sequence[int]]) -> TopicRows:
        keys = [(topic, number) for topic, numbers in led.items() for number in numbers]
        self.asked += keys
        if self.error is not None:
            raise self.error
        rows = np.array(
            [(number, 0, self.stable.get((topic, number), LOG_END)) for topic, number in keys],
            dtype=[("index", ">i4"), ("error", ">i2"), ("offset", ">i8")],
        )
        topics = tuple(led)
        return TopicRows(topics, np.array([topics.index(topic) for topic, _ in keys]), rows)


def partitions_of(*topics: str) -> PartitionTable:
    return partition_table(
        {
            (topic, number): PartitionView("id", 1 + number, (1 + number,), log_start_offset=0, log_end_offset=LOG_END)
            for topic in topics
            for number in (0, 1)
        }
    )


WITH_TRANSACTIONS = partitions_of("t", "u", CONSUMER_OFFSETS, TRANSACTION_STATE)


def committed(**groups: dict[PartitionKey, int]) -> GroupTable:
    return GroupTable({name: GroupView("Stable", rows, {}) for name, rows in groups.items()})


def read(
    stable: StableOffsets, brokers: Brokers, groups: GroupTable, partitions: PartitionTable = WITH_TRANSACTIONS
) -> dict[PartitionKey, int]:
    brokers.asked.clear()
    look = SampleState({1: None, 2: None}, began_ms=0, began_s=0.0, monotonic=lambda: 0.0, brokers_at_a_time=1)
    return stable.read(cast(BrokerReads, brokers), look, groups, partitions)


def test_only_partitions_on_which_a_group_is_behind_and_stands_are_asked_about() -> None:
    stable, brokers = StableOffsets(), Brokers({("t", 0): 40, ("u", 0): 40})
    first = committed(g={("t", 0): 40, ("t", 1): LOG_END, ("u", 0): 10}, h={("u", 1): 99}, i={("gone", 0): 1})
    assert (read(stable, brokers, first), brokers.asked) == ({}, [])
    then = committed(g={("t", 0): 40, ("t", 1): LOG_END, ("u", 0): 20}, h={("u", 1): 99}, i={("gone", 0): 1})
    assert read(stable, brokers, then) == {("t", 0): 40}
    assert sorted(brokers.asked) == [("t", 0), ("u", 1)]


def test_a_topic_that_had_an_open_transaction_is_asked_about_while_its_readers_advance() -> None:
    stable, brokers = StableOffsets(), Brokers({("t", 0): 40})
    read(stable, brokers, committed(g={("t", 0): 40}))
    read(stable, brokers, committed(g={("t", 0): 40}))
    brokers.stable = {("t", 0): 60}
    assert read(stable, brokers, committed(g={("t", 0): 50})) == {("t", 0): 60}
    brokers.stable = {}
    assert read(stable, brokers, committed(g={("t", 0): 60})) == {}
    assert brokers.asked == [("t", 0)]
    read(stable, brokers, committed(g={("t", 0): LOG_END}))
    assert brokers.asked == []


@pytest.mark.parametrize(
    ("topics", "is_asked"),
    [
        (("t", CONSUMER_OFFSETS), False),
        (("t", CONSUMER_OFFSETS, TRANSACTION_STATE), True),
        (("t",), True),
    ],
    ids=["nobody began a transaction", "somebody did", "internal topics are hidden"],
)
def test_without_the_topic_of_transactions_no_broker_is_asked(topics: tuple[str, ...], is_asked: bool) -> None:
    stable, brokers = StableOffsets(), Brokers()
    for _ in range(2):
        read(stable, brokers, committed(g={("t", 0): 40}), partitions_of(*topics))
    assert bool(brokers.asked) is is_asked


def test_a_collector_of_a_shard_asks_for_its_own_groups() -> None:
    brokers, groups = Brokers(), committed(g={("t", 0): 40}, h={("u", 0): 40})
    asked = set[PartitionKey]()
    for number in (1, 2):
        shard = Shard.of(f"{number}/2")
        own = {("t", 0)} if shard.takes_group("g") else set()
        own |= {("u", 0)} if shard.takes_group("h") else set()
        stable = StableOffsets(shard)
        for _ in range(2):
            read(stable, brokers, groups)
        assert set(brokers.asked) == own
        asked |= own
    assert asked == {("t", 0), ("u", 0)}


@pytest.mark.parametrize("error", [RequestTimedOutError(), KafkaError("too old")])
def test_a_broker_without_an_answer_leaves_it_unknown(error: KafkaError) -> None:
    stable, brokers = StableOffsets(), Brokers({("t", 0): 40}, error)
    for _ in range(2):
        assert read(stable, brokers, committed(g={("t", 0): 40})) == {}
    assert brokers.asked == [("t", 0)]


@dataclass
class Policies:
    """Brokers that know the policies of these topics, and hide all others."""

    policies: dict[str, str] = field(default_factory=dict)
    error: KafkaError | None = None
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def cleanup_policies(self, topics: Sequence[str]) -> dict[str, str]:
        self.asked.append(tuple(topics))
        if self.error:
            raise self.error
        return {name: self.policies[name] for name in topics if name in self.policies}


def compacted(policies: CleanupPolicies, brokers: Policies, *topics: str, now_ms: int = 0) -> dict[str, str]:
    return dict(policies.read(cast(BrokerReads, brokers), topics, now_ms=now_ms))


def test_topics_that_are_compacted_are_named_and_those_that_are_hidden_are_unknown() -> None:
    brokers = Policies({"a": "delete", "b": "compact", "c": "compact,delete", "d": "delete,compact"})
    found = compacted(CleanupPolicies(), brokers, "a", "b", "c", "d", "hidden")
    assert found == {"b": "compact", "c": "compact,delete", "d": "delete,compact"}


def test_a_topic_is_asked_about_when_it_is_first_read_and_once_an_hour() -> None:
    policies, brokers = CleanupPolicies(), Policies({"a": "delete", "b": "compact"})
    assert compacted(policies, brokers, "a") == {}
    assert compacted(policies, brokers, "a", "b", now_ms=1) == {"b": "compact"}
    brokers.policies = {"a": "compact", "b": "delete"}
    assert compacted(policies, brokers, "a", "b", now_ms=ASKED_AGAIN_MS - 1) == {"b": "compact"}
    assert compacted(policies, brokers, "a", "b", now_ms=ASKED_AGAIN_MS + 1) == {"a": "compact"}
    assert brokers.asked == [("a",), ("b",), ("a", "b")]
    assert compacted(policies, brokers, now_ms=ASKED_AGAIN_MS + 2) == {}
    compacted(policies, brokers, "a", now_ms=ASKED_AGAIN_MS + 3)
    assert brokers.asked[3:] == [("a",)], "a topic that nobody reads any more is forgotten"


def test_no_answer_changes_nothing_and_a_request_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    policies, brokers = CleanupPolicies(), Policies({"a": "compact"})
    compacted(policies, brokers, "a")
    brokers.error = RequestTimedOutError()
    assert compacted(policies, brokers, "a", now_ms=ASKED_AGAIN_MS) == {"a": "compact"}
    monkeypatch.setattr(groups, "TOPICS_AT_ONCE", 2)
    brokers.asked.clear()
    for now_ms in (0, 1, 2):
        compacted(CleanupPolicies() if not now_ms else policies, brokers, "x", "y", "z", now_ms=ASKED_AGAIN_MS + now_ms)
    assert brokers.asked == [("x", "y"), ("x", "y"), ("z",)]


def seen(time_ms: int, **shown: Any) -> ClusterSample:
    groups = committed(g={("t", 0): 40}, h={("u", 1): 40})
    return ClusterSample(time_ms, {}, WITH_TRANSACTIONS, size_table({}), {}, {}, groups, **shown)


@pytest.mark.parametrize(
    ("name", "field_name", "looks"),
    [
        ("last_stable", "last_stable_offset", [{}, {("t", 0): 40}, {("t", 0): 40}, {("t", 0): 50}, {}]),
        ("cleanup_policies", "cleanup_policy", [{}, {"t": "compact"}, {"t": "compact"}, {"t": "compact,delete"}, {}]),
    ],
    ids=["last stable offset", "cleanup policy"],
)
def test_a_record_has_it_and_a_group_is_reported_when_it_changes(
    name: str, field_name: str, looks: list[dict[Any, Any]]
) -> None:
    records: list[dict[str, Any]] = []
    held = None
    for number, shown in enumerate(looks):
        due, held = due_groups(held, seen(10 * number, **{name: shown}), window_ms=60_000, next_ms=10 * number + 10)
        records += [json.loads(value) for one in due for _, value in consumer_lag_records("c", one.seen, one.names)]
    of_group = {group: [row for row in records if row["group"] == group] for group in ("g", "h")}
    assert [(row["event_time_ms"], row.get(field_name)) for row in of_group["g"]] == [
        (10 * number, next(iter(shown.values()), None)) for number, shown in enumerate(looks)
    ]
    assert {row["lag_records"] for row in records} == {60}, "records behind are those behind the log end"
    assert [row["event_time_ms"] for row in of_group["h"]] == [0]
