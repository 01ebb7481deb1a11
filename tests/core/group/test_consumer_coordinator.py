"""The coordinator of the consumer protocol: each rule of KIP-848 by itself, and what must hold whatever members do."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assignor_core.errors import InvalidGroup
from assignor_core.group.consumer_protocol.coordinator import ConsumerGroupCoordinator
from assignor_core.group.consumer_protocol.member import ConsumerMember, ConsumerMemberState
from assignor_core.group.consumer_protocol.messages import (
    ConsumerGroupConfig,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    ConsumerGroupMember,
    HeartbeatResult,
)
from assignor_core.group.member import CONSUMER_PROTOCOL, ConsumerConfig
from assignor_core.group.states import ErrorCode
from tests.core.group.consumer_invariants import group_violations

AT_ONCE = ConsumerGroupConfig(session_timeout_ms=10_000, heartbeat_interval_ms=1_000, assignment_interval_ms=0)
REBALANCE_MS = 30_000
HEARTBEATS_TO_REST_MAX = 8
"""Of every member, from the last change on: one to hear of it, one to acknowledge, and so again for what was freed."""


class Group:
    """A coordinator, and clients whose messages arrive at once; `now_ms` is the test's."""

    def __init__(self, config: ConsumerGroupConfig = AT_ONCE, **partitions: int) -> None:
        self.partitions = partitions
        self.coordinator = ConsumerGroupCoordinator(partitions, config)
        self.now_ms = 0
        self.result = HeartbeatResult((), (), (), (), ())

    def member(
        self, name: str, *topics: str, static: bool = False, process: int = 1, assignor: str | None = None
    ) -> ConsumerMember:
        config = ConsumerConfig(
            (), name if static else None, max_poll_interval_ms=REBALANCE_MS, group_protocol=CONSUMER_PROTOCOL,
            server_assignor=assignor,
        )  # fmt: skip
        return ConsumerMember(f"{name}#{process}", f"{name}-{process}", config, topics or ("t",))

    def send(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatAnswer:
        self.result = self.coordinator.heartbeat(self.now_ms, request)
        assert group_violations(self.coordinator) == []
        ((_, answer),) = self.result.answers
        return answer

    def beat(self, member: ConsumerMember) -> ErrorCode:
        """One heartbeat, and its answer taken; nothing is revoked or taken over yet."""
        answer = self.send(member.heartbeat())
        member.answered(answer)
        return answer.error

    def leave(self, member: ConsumerMember) -> ConsumerGroupHeartbeatAnswer:
        leaves = member.leaving()
        assert leaves is not None
        return self.send(leaves)

    def two(self, *, static: bool = False) -> tuple[ConsumerMember, ConsumerMember]:
        """Members a and b, of which b has joined and a does not know it yet."""
        a, b = self.member("a", static=static), self.member("b", static=static)
        self.follow(a)
        self.follow(b)
        return a, b

    def follow(self, member: ConsumerMember) -> None:
        """A heartbeat, and whatever its answer asks for, acknowledged."""
        self.beat(member)
        self.finish(member)

    def finish(self, member: ConsumerMember) -> None:
        while member.state is ConsumerMemberState.RECONCILING:
            if not member.is_reconciling:
                member.begin_reconciling()
            member.end_reconciling()
            self.beat(member)

    def settle(self, *members: ConsumerMember) -> None:
        for _ in range(HEARTBEATS_TO_REST_MAX):
            if self.coordinator.is_at_rest:
                return
            for member in members:
                self.follow(member)
        raise AssertionError("the group has not come to rest")

    def known(self, member: ConsumerMember) -> ConsumerGroupMember:
        known = self.coordinator.members.get(member.member_id)
        assert known is not None
        return known

    def epochs(self) -> tuple[int, int]:
        return self.coordinator.group_epoch, self.coordinator.assignment_epoch


def numbers(member: ConsumerMember) -> list[int]:
    return [number for _, number in member.owned]


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    group = Group(t=3)
    a = group.member("a")
    assert a.heartbeat().is_full
    group.follow(a)
    assert (numbers(a), a.member_epoch, group.epochs(), group.coordinator.state.value) == (
        [0, 1, 2], 2, (2, 2), "Stable",
    )  # fmt: skip


def test_who_joins_waits_until_the_other_has_acknowledged_what_it_gave_up() -> None:
    group = Group(t=4)
    a, b = group.two()
    assert (numbers(b), b.member_epoch, group.known(b).state.value) == ([], 3, "UNRELEASED_PARTITIONS")
    group.beat(a)
    assert (a.member_epoch, group.known(a).state.value) == (2, "UNREVOKED_PARTITIONS"), "the old epoch until it gave up"
    a.begin_reconciling()
    group.follow(b)
    assert numbers(b) == [], "given up, and not acknowledged"
    a.end_reconciling()
    group.beat(a)
    assert (numbers(a), a.member_epoch) == ([0, 1], 3)
    assert not group.coordinator.is_at_rest
    group.follow(b)
    assert (numbers(b), group.coordinator.state.value) == ([2, 3], "Stable")


def test_a_heartbeat_without_partitions_acknowledges_nothing() -> None:
    group = Group(t=2)
    a, _ = group.two()
    group.beat(a)
    group.beat(a)
    assert group.known(a).state.value == "UNREVOKED_PARTITIONS"


def test_a_member_that_leaves_frees_its_partitions_and_a_static_one_keeps_them() -> None:
    for static, owners in ((False, [0, 1]), (True, [0])):
        group = Group(t=2)
        a, b = group.two(static=static)
        group.settle(a, b)
        assert group.leave(b).member_epoch == (-2 if static else -1)
        group.follow(a)
        assert numbers(a) == owners
        assert group.coordinator.is_at_rest


def test_a_static_member_that_returns_takes_its_partitions_over_without_a_new_epoch() -> None:
    group = Group(t=2)
    a, b = group.two(static=True)
    group.settle(a, b)
    before, had = group.epochs(), b.owned
    group.leave(b)
    assert group.coordinator.state.value == "Reconciling", "as Kafka shows a group while a static member is away"
    returned = group.member("b", static=True, process=2)
    group.follow(returned)
    assert (returned.owned, returned.member_epoch, group.epochs()) == (had, 3, before)
    assert [gone.member_id for gone in group.result.removals] == []


def test_an_instance_id_in_use_is_refused_until_its_session_ends() -> None:
    """Here a crash differs from a restart: nobody has released the instance id."""
    group = Group(t=2)
    first, second = group.member("a", static=True), group.member("a", static=True, process=2)
    group.follow(first)
    assert group.beat(second) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert second.state is ConsumerMemberState.FATAL
    group.coordinator.session_elapsed(AT_ONCE.session_timeout_ms, first.member_id)
    third = group.member("a", static=True, process=3)
    group.follow(third)
    assert numbers(third) == [0, 1]


def test_a_process_whose_instance_id_has_another_is_fenced() -> None:
    group = Group(t=2)
    old, new = group.member("a", static=True), group.member("a", static=True, process=2)
    group.follow(old)
    group.leave(old)
    group.follow(new)
    assert group.beat(old) is ErrorCode.FENCED_INSTANCE_ID


def test_epochs_that_do_not_fit_are_fenced() -> None:
    group = Group(t=2)
    a = group.member("a")
    group.follow(a)
    for epoch in (1, 3):
        assert group.send(ConsumerGroupHeartbeat("a#1", a.member_id, epoch)).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.send(ConsumerGroupHeartbeat("x#1", "x", 2)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.send(ConsumerGroupHeartbeat("x#1", "x", -1)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_epoch_before_is_accepted_from_a_member_that_has_no_more_than_it_is_counted_to_have() -> None:
    """The answer with the new epoch was lost."""
    group = Group(t=2)
    a, b = group.two()
    group.settle(a, b)
    assert group.known(a).previous_member_epoch == 2
    repeated = ConsumerGroupHeartbeat("a#1", a.member_id, 2, topic_partitions=frozenset(a.owned))
    assert group.send(repeated).error is ErrorCode.NONE
    for too_much in (None, frozenset({("t", 0), ("t", 1)})):
        asks = ConsumerGroupHeartbeat("a#1", a.member_id, 2, topic_partitions=too_much)
        assert group.send(asks).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_loses_everything_and_joins_again_with_the_same_id() -> None:
    group = Group(t=2)
    a = group.member("a")
    group.follow(a)
    (gone,) = group.coordinator.session_elapsed(AT_ONCE.session_timeout_ms, a.member_id).removals
    assert (gone.member_id, gone.reason, group.epochs()) == ("a-1", "session timed out", (3, 3))
    assert group.beat(a) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (a.state, a.lose_all()) == (ConsumerMemberState.FENCED, (("t", 0), ("t", 1)))
    a.rejoin()
    group.follow(a)
    assert (numbers(a), a.member_epoch, a.member_id) == ([0, 1], 4, "a-1")


def test_a_session_lasts_as_long_as_heartbeats_come() -> None:
    group = Group(t=1)
    a = group.member("a")
    group.follow(a)
    group.now_ms = 6_000
    group.beat(a)
    assert group.coordinator.session_end_ms(a.member_id) == 16_000
    assert not group.coordinator.session_elapsed(10_000, a.member_id).removals
    assert group.coordinator.session_elapsed(16_000, a.member_id).removals


def test_who_does_not_revoke_within_the_rebalance_timeout_is_removed() -> None:
    group = Group(t=2)
    a, b = group.two()
    group.now_ms = 5
    group.beat(a)
    (timer,) = group.result.timers
    assert timer.at_ms == 5 + REBALANCE_MS
    (gone,) = group.coordinator.timer_elapsed(timer).removals
    assert (gone.member_id, gone.reason) == ("a-1", "did not revoke in time")
    group.follow(b)
    assert numbers(b) == [0, 1]


def test_a_rebalance_timer_is_void_once_the_member_has_revoked() -> None:
    group = Group(t=2)
    a, _ = group.two()
    group.beat(a)
    (timer,) = group.result.timers
    group.finish(a)
    assert not group.coordinator.timer_elapsed(timer).removals


def test_between_two_target_assignments_lies_the_assignment_interval() -> None:
    """KIP-1263: who joins sooner is in the group and waits; only a heartbeat computes the target."""
    group = Group(ConsumerGroupConfig(assignment_interval_ms=1_000), t=2)
    a, b = group.member("a"), group.member("b")
    group.follow(a)
    group.now_ms = 999
    group.follow(b)
    assert (group.epochs(), b.member_epoch, group.coordinator.state.value) == ((3, 2), 2, "Assigning")
    group.now_ms = 1_000
    group.follow(a)
    assert (group.epochs(), numbers(a)) == ((3, 3), [0])
    group.follow(b)
    assert numbers(b) == [1]


def test_partitions_that_are_added_are_seen_with_the_next_heartbeat_and_other_topics_change_nothing() -> None:
    group = Group(t=1, u=1)
    a = group.member("a")
    group.follow(a)
    group.partitions["u"] = 5
    group.coordinator.topics_changed()
    group.follow(a)
    assert group.epochs() == (2, 2)
    group.partitions["t"] = 3
    group.coordinator.topics_changed()
    group.follow(a)
    assert (group.epochs(), numbers(a)) == ((3, 3), [0, 1, 2])


def test_a_subscription_that_changes_takes_topics_away_before_there_is_a_new_target() -> None:
    group = Group(ConsumerGroupConfig(assignment_interval_ms=1_000), t=1, u=1)
    a = group.member("a", "t", "u")
    group.follow(a)
    a.topics = ("u",)
    group.beat(a)
    assert (group.epochs(), group.known(a).state.value) == ((3, 2), "UNREVOKED_PARTITIONS")
    group.finish(a)
    assert a.owned == (("u", 0),)


def test_most_wishes_decide_on_the_assignor_and_unknown_ones_are_refused() -> None:
    group = Group(t=4, u=4)
    members = [
        group.member(name, "t", "u", assignor=wish) for name, wish in (("a", "range"), ("b", "range"), ("c", None))
    ]
    for member in members:
        group.follow(member)
    group.settle(*members)
    assert [list(member.owned) for member in members] == [
        [("t", 0), ("t", 1), ("u", 0), ("u", 1)], [("t", 2), ("u", 2)], [("t", 3), ("u", 3)],
    ]  # fmt: skip
    with pytest.raises(InvalidGroup, match="server_assignor is 'best', must be one of uniform, range"):
        group.send(group.member("d", assignor="best").heartbeat())


def test_what_a_static_member_had_to_revoke_is_free_once_it_has_left() -> None:
    group = Group(t=2)
    a, b = group.member("a", static=True), group.member("b")
    group.follow(a)
    group.follow(b)
    group.beat(a)
    (timer,) = group.result.timers
    group.leave(a)
    group.follow(b)
    assert (numbers(b), group.coordinator.is_at_rest) == ([1], True)
    assert not group.coordinator.timer_elapsed(timer).removals, "it has its session to come back"


def test_others_wait_for_partitions_of_a_static_member_that_is_away() -> None:
    group = Group(t=4)
    a, b = group.member("a", static=True), group.member("b")
    group.follow(a)
    group.leave(a)
    for _ in range(HEARTBEATS_TO_REST_MAX):
        group.follow(b)
    assert (numbers(b), group.coordinator.is_at_rest) == ([], False)
    group.coordinator.session_elapsed(AT_ONCE.session_timeout_ms, a.member_id)
    group.settle(b)
    assert numbers(b) == [0, 1, 2, 3]


def test_an_empty_group_has_nothing_to_assign_and_the_next_member_waits_for_no_interval() -> None:
    group = Group(ConsumerGroupConfig(10_000, 1_000, assignment_interval_ms=30_000), t=1)
    a = group.member("a")
    group.follow(a)
    group.leave(a)
    assert (group.coordinator.state.value, group.epochs(), group.coordinator.is_at_rest) == ("Empty", (3, 3), True)
    b = group.member("b")
    group.follow(b)
    assert (numbers(b), group.epochs()) == ([0], (4, 4))


class Walk:
    """A group to which anything happens, drawn from a seed, with messages that arrive at once."""

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)
        interval_ms = self.draws.choice([0, 1_000])
        self.group = Group(ConsumerGroupConfig(10_000, 1_000, interval_ms), t=self.draws.randint(1, 7), u=3)
        self.running: list[ConsumerMember] = []
        self.away: list[ConsumerMember] = []
        self.epochs: dict[str, int] = {}
        self.started = 0

    def steps(self) -> Iterator[None]:
        for _ in range(self.draws.randint(5, 60)):
            self.group.now_ms += self.draws.choice([0, 100, 1_000])
            kinds = [self.start, self.start, self.beat, self.beat, self.beat, self.part, self.leave, self.fence]
            self.draws.choice([*kinds, self.subscribe, self.grow])()
            yield

    def start(self) -> None:
        if self.away and self.draws.random() < 0.5:
            old = self.away.pop()
            name = old.client.partition("#")[0]
            self.running.append(self.group.member(name, *old.topics, static=True, process=self.next()))
        elif len(self.running) < 5:
            topics = self.draws.choice([("t",), ("t",), ("t", "u")])
            static = self.draws.random() < 0.4
            number = self.next()
            self.running.append(self.group.member(f"c{number}", *topics, static=static, process=number))
        self.beat()

    def next(self) -> int:
        self.started += 1
        return self.started

    def beat(self) -> None:
        if self.running:
            self.take(self.draws.choice(self.running))

    def part(self) -> None:
        """One step of a reconciliation at a time, so that others come between."""
        member = self.draws.choice(self.running) if self.running else None
        if member is None or member.state is not ConsumerMemberState.RECONCILING:
            return
        member.end_reconciling() if member.is_reconciling else member.begin_reconciling()

    def take(self, member: ConsumerMember) -> None:
        epoch = member.member_epoch
        self.group.beat(member)
        if member.state is ConsumerMemberState.FENCED:
            member.lose_all()
            member.rejoin()
        elif epoch > 0:
            assert member.member_epoch >= epoch, "the epoch of a member goes back"

    def leave(self) -> None:
        if not self.running:
            return
        member = self.running.pop(self.draws.randrange(len(self.running)))
        leaves = member.leaving()
        if leaves is not None and self.group.coordinator.members.get(member.member_id) is not None:
            self.group.send(leaves)
            if member.config.group_instance_id is not None:
                self.away.append(member)

    def fence(self) -> None:
        """A session ends, of a member that is there or away."""
        member = self.draws.choice([*self.running, *self.away]) if self.running or self.away else None
        if member is not None:
            self.group.coordinator.session_elapsed(self.group.now_ms + 1_000_000, member.member_id)
            self.away = [one for one in self.away if one is not member]

    def subscribe(self) -> None:
        if self.running:
            self.draws.choice(self.running).topics = self.draws.choice([("t",), ("u",), ("t", "u")])

    def grow(self) -> None:
        self.group.partitions[self.draws.choice("tu")] += 1
        self.group.coordinator.topics_changed()

    def to_rest(self) -> None:
        """Sessions of those that are away end, for others may wait for their partitions; everybody else beats on."""
        for member_id in [member.member_id for member in self.group.coordinator.members if member.has_left]:
            self.group.coordinator.session_elapsed(self.group.now_ms + 1_000_000, member_id)
        for _ in range(HEARTBEATS_TO_REST_MAX):
            self.group.now_ms += 1_000
            for member in self.running:
                self.take(member)
                while member.state is ConsumerMemberState.RECONCILING:
                    if not member.is_reconciling:
                        member.begin_reconciling()
                    member.end_reconciling()
                    self.take(member)


SEEDS = st.integers(min_value=0, max_value=2**32)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(SEEDS)
@example(200)  # a static member is away, and the process that was started in its place left before it joined
def test_no_partition_has_two_owners_and_every_member_converges(seed: int) -> None:
    walk = Walk(seed)
    group_epoch = 0
    for _ in walk.steps():
        owned = [
            tp for member in walk.running for tp in member.owned if walk.group.coordinator.members.get(member.member_id)
        ]
        assert len(owned) == len(set(owned)), "two members read a partition"
        assert walk.group.coordinator.group_epoch >= group_epoch
        group_epoch = walk.group.coordinator.group_epoch
        assert group_violations(walk.group.coordinator) == []
    walk.to_rest()
    coordinator = walk.group.coordinator
    assert coordinator.is_at_rest
    for member in walk.running:
        known = coordinator.members.get(member.member_id)
        assert known is not None
        assert known.assigned == frozenset(member.owned) == coordinator.members.target[member.member_id]
        assert not coordinator.has_news_for(member.member_id, member.client, member.member_epoch)
    if len(coordinator.members):
        given = {tp for target in coordinator.members.target.values() for tp in target}
        assert given == {(t, n) for t in coordinator.members.topics() for n in range(walk.group.partitions[t])}


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_who_keeps_its_partitions_never_stops_reading_them(seed: int) -> None:
    """What both the old and the new target give a member stays with it all the time."""
    walk = Walk(seed)
    for _ in walk.steps():
        pass
    walk.to_rest()
    if not walk.running:
        return
    before = {member.member_id: frozenset(member.owned) for member in walk.running}
    joins = walk.group.member("new", "t", process=walk.next())
    walk.running.append(joins)
    stays = {}
    for _ in range(HEARTBEATS_TO_REST_MAX):
        walk.group.now_ms += 1_000
        for member in walk.running:
            walk.take(member)
            target = walk.group.coordinator.members.target
            stays = {name: owned & target.get(name, frozenset()) for name, owned in before.items()}
            walk.group.finish(member)
            by_id = {one.member_id: frozenset(one.owned) for one in walk.running}
            assert all(kept <= by_id[name] for name, kept in stays.items())
    assert walk.group.coordinator.is_at_rest
