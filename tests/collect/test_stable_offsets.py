"""Which partitions brokers are asked about for their last stable offsets, and what a record of a group has of them."""

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
from streaming.collect.group_table import GroupTable, GroupView
from streaming.collect.groups import StableOffsets
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


def seen(time_ms: int, last_stable: dict[PartitionKey, int]) -> ClusterSample:
    groups = committed(g={("t", 0): 40}, h={("t", 1): 40})
    return ClusterSample(time_ms, {}, WITH_TRANSACTIONS, size_table({}), {}, {}, groups, last_stable=last_stable)


def test_a_record_has_it_and_a_group_is_reported_when_it_changes() -> None:
    records: list[dict[str, Any]] = []
    held = None
    for time_ms, last_stable in [(0, {}), (10, {("t", 0): 40}), (20, {("t", 0): 40}), (30, {("t", 0): 50}), (40, {})]:
        due, held = due_groups(held, seen(time_ms, last_stable), window_ms=60_000, next_ms=time_ms + 10)
        records += [json.loads(value) for one in due for _, value in consumer_lag_records("c", one.seen, one.names)]
    shown = {name: [row for row in records if row["group"] == name] for name in ("g", "h")}
    assert [(row["event_time_ms"], row.get("last_stable_offset")) for row in shown["g"]] == [
        (0, None), (10, 40), (20, 40), (30, 50), (40, None)
    ]  # fmt: skip
    assert {row["lag_records"] for row in records} == {60}, "records behind are those behind the log end"
    assert [row["event_time_ms"] for row in shown["h"]] == [0]
