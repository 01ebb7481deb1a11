"""What the group sampler asks a broker for: no more than needed, and one bad group spoils nobody else's figures."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from kafka.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    RequestTimedOutError,
)
from structlog.testing import capture_logs

from streaming.cluster.broker_reads import BrokerReads, Reads
from streaming.cluster.described_groups import DescribedGroup, DescribedMember
from streaming.collect.group_table import GroupTable, Owner
from streaming.collect.groups import BATCH, IDLE_SAMPLES, TURN_SAMPLES, GroupSampler, GroupsRead, listed_groups
from streaming.collect.partition_table import CONSUMER_OFFSETS
from streaming.collect.sample import SampleState
from streaming.settings import CollectSettings
from tests.collect.by_row import PartitionView, partition_table


@dataclass
class Brokers:
    """As much of what brokers are asked for as is used; `offsets` by group, all on partition 0 of one topic.

    Broker 1 coordinates all groups but those of `elsewhere`, which broker 2 does.
    """

    offsets: dict[str, int]
    states: dict[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    unlisted: dict[int, KafkaError] = field(default_factory=dict)
    """What a broker says when its groups are asked for, instead of an answer."""
    hung: bool = False
    """Whether broker 1 lists its groups and then answers nothing more."""
    described: list[list[str]] = field(default_factory=list)
    fetched: list[list[str]] = field(default_factory=list)

    def list_groups(self, broker: int) -> list[dict[str, Any]]:
        if broker in self.unlisted:
            raise self.unlisted[broker]
        other = [{"group_id": "workers", "protocol_type": "connect", "group_state": "Stable"}]
        return other + [
            {"group_id": name, "protocol_type": "consumer", "group_state": self.states.get(name, "Stable")}
            for name in self.offsets
            if (broker == 2) == (name in self.elsewhere)
        ]

    def describe_classic(self, broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
        self.described.append(list(names))
        self._hang(broker)
        return {name: DescribedGroup("Stable", (DescribedMember("m", "c", (("t", 0),)),)) for name in names}

    def cleanup_policies(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "delete")

    def committed_offsets(self, broker: int, names: Sequence[str]) -> Reads:
        self.fetched.append(list(names))
        self._hang(broker)
        assert {name in self.elsewhere for name in names} == {broker == 2}
        refused = dict.fromkeys(self.refused & set(names), "GroupAuthorizationFailedError")
        return {name: {("t", 0): self.offsets[name]} for name in names if name not in refused}, refused

    def _hang(self, broker: int) -> None:
        if self.hung and broker == 1:
            raise RequestTimedOutError


def read_now(
    sampler: GroupSampler, brokers: Brokers, look: SampleState, settings: CollectSettings, *, log_end: int | None = None
) -> GroupsRead:
    reads = cast(BrokerReads, brokers)
    rows = {broker: listed_groups(reads, look, broker) for broker in look.racks}
    listed = {broker: own for broker, own in rows.items() if own is not None}
    without_transactions = {(CONSUMER_OFFSETS, 0): PartitionView("id", 1, (1,))}
    partitions = partition_table(
        without_transactions | {("t", 0): PartitionView("id", 1, (1,), log_end_offset=log_end)}
    )
    return sampler.read(reads, settings, look, listed, partitions)


def read(sampler: GroupSampler, brokers: Brokers, **settings: Any) -> GroupTable:
    look = SampleState({1: None, 2: None}, began_ms=0, began_s=0.0, monotonic=lambda: 0.0, brokers_at_a_time=1)
    return read_now(sampler, brokers, look, CollectSettings(**settings)).views


def test_groups_are_asked_about_in_batches() -> None:
    brokers = Brokers({f"g{number:04}": number for number in range(2 * BATCH + 1)})
    groups = read(GroupSampler(), brokers)
    assert [len(names) for names in brokers.fetched] == [BATCH, BATCH, 1]
    assert groups["g0007"].committed == {("t", 0): 7}
    assert groups["g0007"].owners == {("t", 0): Owner("m", "c")}
    assert "workers" not in groups


def test_a_group_that_is_refused_is_missing_alone() -> None:
    brokers = Brokers({f"g{number}": 1 for number in range(20)}, refused=frozenset({"g13"}))
    assert read(GroupSampler(), brokers).keys() == brokers.offsets.keys() - {"g13"}
    assert len(brokers.fetched) == 1


def test_groups_without_members_are_not_described_and_once_still_rarely_fetched() -> None:
    brokers = Brokers({"idle": 5, "live": 5}, states={"idle": "Empty"})
    sampler = GroupSampler()
    looks = [read(sampler, brokers) for _ in range(2 + 2 * IDLE_SAMPLES)]
    assert all(look["idle"].committed == {("t", 0): 5} and look["idle"].state == "Empty" for look in looks)
    assert all(names == ["live"] for names in brokers.described)
    fetches = sum("idle" in names for names in brokers.fetched)
    assert fetches == 2 + 2  # twice to see that it stands still, then at every sixth look
    assert sum("live" in names for names in brokers.fetched) == len(looks)


def test_a_group_without_members_that_commits_is_fetched_at_every_look() -> None:
    brokers = Brokers({"assigns itself": 0}, states={"assigns itself": "Empty"})
    sampler = GroupSampler()
    for offset in range(10):
        brokers.offsets["assigns itself"] = offset
        assert read(sampler, brokers)["assigns itself"].committed == {("t", 0): offset}


def test_an_idle_group_that_comes_to_life_is_read_at_once() -> None:
    brokers = Brokers({"g": 5}, states={"g": "Empty"})
    sampler = GroupSampler()
    for _ in range(4):
        read(sampler, brokers)
    brokers.states["g"], brokers.offsets["g"] = "Stable", 9
    group = read(sampler, brokers)["g"]
    assert (group.state, group.committed) == ("Stable", {("t", 0): 9})


@pytest.mark.parametrize("settings", [{"groups_include": "^a"}, {"groups_exclude": "^b"}, {"groups_max": 1}])
def test_settings_choose_the_groups(settings: dict[str, Any]) -> None:
    assert read(GroupSampler(), Brokers({"a": 1, "b": 1}), **settings).keys() == {"a"}


def test_partitions_that_are_left_out_are_counted_by_coordinator_and_a_group_is_named_once() -> None:
    @dataclass
    class Claiming(Brokers):
        def describe_classic(self, _broker: int, names: Sequence[str]) -> dict[str, DescribedGroup]:
            owned = tuple(("not there", number) for number in range(50))
            return {name: DescribedGroup("Stable", (DescribedMember("m", "c", owned),)) for name in names}

    brokers = Claiming({"a": 1, "b": 1, "c": 1}, elsewhere=frozenset({"c"}), unlisted={3: RequestTimedOutError()})
    sampler, named = GroupSampler(), list[str]()
    for _ in range(2):
        look = SampleState({1: None, 2: None, 3: None}, began_ms=0, began_s=0.0, monotonic=lambda: 0.0)
        with capture_logs() as logs:
            seen = read_now(sampler, brokers, look, CollectSettings(), log_end=1)
        named += [row["group"] for row in logs if row["event"] == "group_partitions_left_out"]
        assert seen.partitions_left_out == {1: 100, 2: 50}
        assert all(keys == [("t", 0)] for keys in seen.views.keys_by_group)
    assert named == ["a", "b", "c"]


def test_a_group_with_an_id_beyond_all_bounds_is_left_out_and_one_without_a_name_is_not() -> None:
    long = "x" * 20_000
    brokers = Brokers({"": 4, long: 5})
    look = SampleState({1: None, 2: None}, began_ms=0, began_s=0.0, monotonic=lambda: 0.0)
    seen = read_now(GroupSampler(), brokers, look, CollectSettings(), log_end=9)
    assert (set(seen.views), seen.left_out) == ({""}, {1: 1, 2: 0})
    assert seen.views[""].committed == {("t", 0): 4}


def test_what_is_left_out_is_counted_by_coordinator_and_lag_decides_who_stays() -> None:
    names = [f"g{number}" for number in range(6)]
    brokers = Brokers(dict.fromkeys(names, 1), elsewhere=frozenset(names[3:]), unlisted={})
    sampler, settings = GroupSampler(), CollectSettings(groups_max=2)
    chosen: set[str] = set()
    for _ in range(12 * TURN_SAMPLES):
        look = SampleState({1: None, 2: None, 3: None}, began_ms=0, began_s=0.0, monotonic=lambda: 0.0)
        brokers.offsets["g5"] = 0
        seen = read_now(sampler, brokers, look, settings, log_end=1)
        assert len(seen.views) == 2
        assert sum(seen.left_out.values()) == 4
        assert seen.left_out.keys() == {1, 2, 3}, "of the others 0"
        chosen |= seen.views.keys()
    assert chosen == set(names)
    assert "g5" in seen.views, "the only one behind"


@pytest.mark.parametrize("error", [RequestTimedOutError(), CoordinatorLoadInProgressError()])
def test_a_broker_that_does_not_list_its_groups_costs_no_others(error: KafkaError) -> None:
    brokers = Brokers({"a": 1, "b": 2}, elsewhere=frozenset({"b"}), unlisted={1: error})
    assert read(GroupSampler(), brokers).keys() == {"b"}
    assert brokers.fetched == [["b"]]


def test_a_coordinator_that_hangs_is_waited_for_once_and_costs_no_others() -> None:
    brokers = Brokers({f"g{number:04}": 1 for number in range(BATCH + 2)}, elsewhere=frozenset({"g0007"}), hung=True)
    assert read(GroupSampler(), brokers).keys() == {"g0007"}
    assert [len(names) for names in brokers.described] == [BATCH, 1]  # not halved, and not asked the next batch
    assert brokers.fetched == [["g0007"]]
