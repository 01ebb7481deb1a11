"""What the group sampler asks for: no more than needed, and of too many groups those that matter in turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    RequestTimedOutError,
)
from structlog.testing import capture_logs

from streaming.cluster.broker_reads import BrokerReads, Reads
from streaming.cluster.described_groups import DescribedGroup, DescribedMember
from streaming.collect.group_table import GroupTable, Owner
from streaming.collect.groups import (
    AHEAD_FACTOR,
    BATCH,
    FORGOTTEN_SAMPLES,
    IDLE_SAMPLES,
    ROUND_SHARE,
    TURN_SAMPLES,
    GroupChoice,
    GroupSampler,
    GroupsRead,
    listed_groups,
)
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


PLACES = 20
GOING_ROUND = PLACES // ROUND_SHARE


class ManyGroups:
    """ManyGroups with a lag each, that are looked at again and again; `committing` commit at every look."""

    def __init__(self, lags: Mapping[str, int], committing: frozenset[str] = frozenset()) -> None:
        self.lags = dict(lags)
        self.committing = committing
        self.choice = GroupChoice()
        self._looks = 0

    def look(self, *, silent: frozenset[str] = frozenset()) -> frozenset[str]:
        """The groups sampled; those of `silent` give no answer."""
        self._looks += 1
        chosen = self.choice.choose(self.lags.keys(), self.lags.keys(), PLACES)
        for name in chosen - silent:
            committed = self._looks if name in self.committing else 1
            self.choice.note(name, lag_records=self.lags[name], committed=committed)
        self.choice.note_unread(chosen & silent)
        return chosen

    def looks(self, count: int) -> list[frozenset[str]]:
        return [self.look() for _ in range(count)]


def idle(count: int, beginning: str = "idle") -> dict[str, int]:
    return {f"{beginning}-{number:03}": 0 for number in range(count)}


def test_all_are_sampled_where_they_are_no_more_than_allowed() -> None:
    groups = ManyGroups(idle(PLACES))
    assert groups.looks(3) == [frozenset(groups.lags)] * 3


def test_groups_with_lag_and_groups_that_commit_are_sampled_at_every_look_whatever_their_names() -> None:
    lagging = {f"z-lag-{number}": 1_000 + number for number in range(5)}
    committing = idle(5, "z-commits")
    groups = ManyGroups({**idle(60), **lagging, **committing}, frozenset(committing))
    groups.looks(70 // GOING_ROUND * TURN_SAMPLES)
    later = groups.looks(3 * TURN_SAMPLES)
    assert all(chosen >= lagging.keys() | committing.keys() for chosen in later)
    assert all(len(chosen) == PLACES for chosen in later)


def test_every_group_is_seen_within_a_bounded_number_of_looks() -> None:
    live = {f"live-{number:03}": 5 for number in range(40)}
    groups = ManyGroups({**idle(40), **live})
    bound = -(-len(groups.lags) // GOING_ROUND) * TURN_SAMPLES
    assert frozenset().union(*groups.looks(bound)) == groups.lags.keys()
    assert frozenset().union(*groups.looks(bound)) == groups.lags.keys(), "again and again"


def test_a_new_group_with_lag_is_seen_in_the_next_turn_and_stays() -> None:
    live = {f"live-{number:03}": 5 for number in range(40)}
    groups = ManyGroups({**live, **idle(40)})
    groups.looks(80 // GOING_ROUND * TURN_SAMPLES)
    groups.lags["new"] = 1_000
    looks = groups.looks(3 * TURN_SAMPLES)
    assert any("new" in chosen for chosen in looks[: TURN_SAMPLES + 1])
    assert all("new" in chosen for chosen in looks[TURN_SAMPLES:])


def test_a_turn_lasts_so_long_that_commits_show() -> None:
    groups = ManyGroups({**{f"live-{number:03}": 5 for number in range(40)}, **idle(20)})
    groups.looks(60)
    turns = [chosen & idle(20).keys() for chosen in groups.looks(5 * TURN_SAMPLES)]
    lengths = {
        name: sum(name in turn for turn in turns) for name in frozenset().union(*turns[TURN_SAMPLES:-TURN_SAMPLES])
    }
    assert lengths
    assert min(lengths.values()) >= TURN_SAMPLES


@pytest.mark.parametrize("factor", [AHEAD_FACTOR - 0.1, AHEAD_FACTOR + 0.1])
def test_a_group_keeps_its_place_unless_another_is_clearly_ahead(factor: float) -> None:
    lags = {f"lag-{number:03}": 1_000 for number in range(60)}
    groups = ManyGroups(lags)
    groups.looks(60 // GOING_ROUND * TURN_SAMPLES)
    kept = frozenset.intersection(*groups.looks(2 * TURN_SAMPLES))
    assert len(kept) == PLACES - GOING_ROUND
    challenger = next(name for name in lags if name not in kept)
    groups.lags[challenger] = round(1_000 * factor)
    groups.looks(60 // GOING_ROUND * TURN_SAMPLES)
    now_kept = frozenset.intersection(*groups.looks(2 * TURN_SAMPLES))
    assert (challenger in now_kept) == (factor > AHEAD_FACTOR)
    assert len(kept - now_kept) == (factor > AHEAD_FACTOR)


def test_groups_with_old_lag_leave_places_to_those_that_commit() -> None:
    dead = {f"dead-{number:03}": 10**9 for number in range(100)}
    live = idle(8, "live")
    groups = ManyGroups({**dead, **live}, frozenset(live))
    groups.looks(108 // GOING_ROUND * TURN_SAMPLES)
    assert groups.look() >= live.keys()


def test_a_group_that_gives_no_answer_does_not_hold_up_the_turns() -> None:
    groups = ManyGroups({**{f"live-{number:03}": 5 for number in range(40)}, **idle(10)})
    silent = frozenset(["idle-000", "idle-001"])
    seen = frozenset().union(*(groups.look(silent=silent) for _ in range(60 // GOING_ROUND * TURN_SAMPLES)))
    assert seen == groups.lags.keys()


def test_a_broker_that_does_not_list_its_groups_for_a_moment_costs_them_no_place() -> None:
    groups = ManyGroups({**{f"live-{number:03}": 1_000 for number in range(18)}, **idle(40)})
    groups.looks(60 // GOING_ROUND * TURN_SAMPLES)
    live = {name: lag for name, lag in groups.lags.items() if lag}
    for name in live:
        del groups.lags[name]
    groups.looks(FORGOTTEN_SAMPLES // 2)
    groups.lags |= live
    assert groups.look() >= live.keys()
    for name in live:
        del groups.lags[name]
    groups.looks(FORGOTTEN_SAMPLES + 1)
    assert not live.keys() & groups.choice._known.keys()


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=40), max_size=20), st.integers(1, 12)
)
def test_never_more_than_allowed_and_none_that_is_not_listed(looks: list[list[tuple[int, int]]], places: int) -> None:
    choice = GroupChoice()
    for listed in looks:
        lags = {f"g{number}": lag for number, lag in listed}
        chosen = choice.choose(lags.keys(), [], places)
        assert chosen <= lags.keys()
        assert len(chosen) == min(places, len(lags))
        for name in chosen:
            choice.note(name, lag_records=lags[name], committed=lags[name])
