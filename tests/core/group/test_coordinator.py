"""The coordinator request by request: error codes, generations, leaders, timeouts."""

import pytest

from assignor_core.assignors.contract import MemberSpec
from assignor_core.group.coordinator import Coordinator
from assignor_core.group.messages import (
    Answer,
    CoordinatorResult,
    Heartbeat,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    SyncAnswer,
    SyncGroup,
    TimerKind,
)
from assignor_core.group.states import ErrorCode, GroupState

SESSION_MS, REBALANCE_MS = 10_000, 60_000
RANGE = {"range": MemberSpec(["t"])}


def join(client: str, member_id: str = "", *, instance: str | None = None, offers: object = None) -> JoinGroup:
    protocols = RANGE if offers is None else offers
    return JoinGroup(client, member_id, instance, protocols, SESSION_MS, REBALANCE_MS, f"{client} joins")  # type: ignore[arg-type]


def answers_to(result: CoordinatorResult, client: str) -> list[Answer]:
    return [answer for to, answer in result.answers if to == client]


def error_of(result: CoordinatorResult, client: str) -> ErrorCode:
    (answer,) = answers_to(result, client)
    return answer.error


class Group:
    """A coordinator and what its members know."""

    def __init__(self, delay_ms: int = 0) -> None:
        self.coordinator = Coordinator(initial_rebalance_delay_ms=delay_ms)
        self.ids: dict[str, str] = {}

    def enter(self, now_ms: int, client: str, *, instance: str | None = None) -> CoordinatorResult:
        """Join as a new member, with the second JoinGroup of dynamic ones."""
        result = self.coordinator.join(now_ms, join(client, instance=instance))
        if instance is None:
            (answer,) = answers_to(result, client)
            assert isinstance(answer, JoinAnswer)
            assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
            result = self.coordinator.join(now_ms, join(client, answer.member_id))
        self.ids[client] = next(member.member_id for member in self.coordinator.members if member.client == client)
        return result

    def state(self) -> GroupState:
        """A call, because mypy takes an attribute for what it was compared with before."""
        return self.coordinator.state

    def end_initial_delay(self, results: list[CoordinatorResult]) -> CoordinatorResult:
        """The delay runs down, as often as it was started again."""
        result = next(one for one in results if any(timer.kind is TimerKind.JOIN_PHASE for timer in one.timers))
        while not result.answers or self.coordinator.state is GroupState.PREPARING_REBALANCE:
            timer = next(timer for timer in result.timers if timer.kind is TimerKind.JOIN_PHASE)
            result = self.coordinator.timer_elapsed(timer)
        return result

    def sync(
        self, now_ms: int, client: str, assignment: dict[str, list[tuple[str, int]]] | None = None
    ) -> CoordinatorResult:
        by_id = None if assignment is None else {self.ids[name]: given for name, given in assignment.items()}
        return self.coordinator.sync(
            now_ms, SyncGroup(client, self.ids[client], None, self.coordinator.generation_id, by_id)
        )

    def beat(self, now_ms: int, client: str, *, generation: int | None = None) -> ErrorCode:
        current = self.coordinator.generation_id if generation is None else generation
        result = self.coordinator.heartbeat(now_ms, Heartbeat(client, self.ids[client], None, current))
        (answer,) = answers_to(result, client)
        assert isinstance(answer, HeartbeatAnswer)
        return answer.error


def stable_group(*clients: str, static: bool = False) -> Group:
    """Generation 1, every member one partition, at 100 ms; the first leads."""
    group = Group()
    group.end_initial_delay([group.enter(0, client, instance=client if static else None) for client in clients])
    for client in reversed(clients):
        group.sync(100, client, {name: [("t", number)] for number, name in enumerate(clients)})
    assert group.coordinator.state is GroupState.STABLE
    assert group.coordinator.generation_id == 1
    return group


def test_the_first_members_wait_for_more_up_to_the_initial_delay() -> None:
    group = Group(delay_ms=3_000)
    (timer,) = [timer for timer in group.enter(0, "a").timers if timer.kind is TimerKind.JOIN_PHASE]
    assert timer.at_ms == 3_000
    group.enter(1_000, "b")
    (again,) = group.coordinator.timer_elapsed(timer).timers
    assert (again.at_ms, group.coordinator.state) == (6_000, GroupState.PREPARING_REBALANCE)
    result = group.coordinator.timer_elapsed(again)
    assert [(to, answer.error.value, answer.leads) for to, answer in result.answers] == [  # type: ignore[union-attr]
        ("a", "NONE", True),
        ("b", "NONE", False),
    ]


def test_the_leader_alone_gets_the_subscriptions_and_all_get_their_parts() -> None:
    group = Group()
    result = group.end_initial_delay([group.enter(0, "a"), group.enter(0, "b")])
    to_a, to_b = (answers_to(result, client)[0] for client in ("a", "b"))
    assert isinstance(to_a, JoinAnswer)
    assert isinstance(to_b, JoinAnswer)
    assert set(to_a.subscriptions or ()) == {group.ids["a"], group.ids["b"]}
    assert to_b.subscriptions is None
    assert answers_to(group.sync(1, "b"), "b") == []
    result = group.sync(2, "a", {"a": [("t", 0)], "b": [("t", 1)]})
    assert dict(result.answers) == {
        "a": SyncAnswer(ErrorCode.NONE, [("t", 0)]),
        "b": SyncAnswer(ErrorCode.NONE, [("t", 1)]),
    }


def test_errors_by_state_generation_and_id() -> None:
    group = stable_group("a", "b")
    coordinator = group.coordinator
    assert group.beat(200, "a") is ErrorCode.NONE
    assert group.beat(200, "a", generation=0) is ErrorCode.ILLEGAL_GENERATION
    group.ids["nobody"] = "nobody-1"
    assert group.beat(200, "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(coordinator.join(200, join("nobody", "nobody-1")), "nobody") is ErrorCode.UNKNOWN_MEMBER_ID
    sticky = {"sticky": MemberSpec(["t"])}
    assert error_of(coordinator.join(200, join("c", offers=sticky)), "c") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.state() is GroupState.STABLE
    group.enter(300, "c")
    assert group.state() is GroupState.PREPARING_REBALANCE
    assert group.beat(400, "a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert error_of(group.sync(400, "a"), "a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert error_of(group.sync(400, "nobody"), "nobody") is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_join_phase_ends_with_the_last_member_or_with_its_time() -> None:
    group = stable_group("a", "b")
    timer = next(timer for timer in group.enter(1_000, "c").timers if timer.kind is TimerKind.JOIN_PHASE)
    assert timer.at_ms == 1_000 + REBALANCE_MS
    assert group.coordinator.join(2_000, join("a", group.ids["a"])).answers == []
    result = group.coordinator.timer_elapsed(timer)
    assert group.coordinator.generation_id == 2
    assert [removal.client for removal in result.removals] == ["b"]
    assert {to for to, _ in result.answers} == {"a", "c"}


def test_a_member_that_comes_while_the_assignment_is_awaited_starts_over() -> None:
    group = stable_group("a", "b")
    group.coordinator.leave(1_000, LeaveGroup(group.ids["b"], "leaves"))
    group.coordinator.join(2_000, join("a", group.ids["a"]))
    assert group.state() is GroupState.COMPLETING_REBALANCE
    group.ids["b"] = ""
    result = group.enter(3_000, "b")
    assert group.state() is GroupState.PREPARING_REBALANCE
    assert result.answers == []
    assert error_of(group.sync(3_001, "a", {}), "a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_last_one_to_leave_empties_the_group() -> None:
    group = stable_group("a")
    result = group.coordinator.leave(1_000, LeaveGroup(group.ids["a"], "leaves"))
    assert [(change.state.value, change.generation_id) for change in result.changes] == [
        ("PreparingRebalance", 1),
        ("Empty", 2),
    ]


def test_sessions_end_after_silence_and_not_before() -> None:
    group = stable_group("a", "b")
    group.beat(5_000, "b")
    assert group.coordinator.session_end_ms(group.ids["b"]) == 15_000
    assert group.coordinator.session_elapsed(14_999, group.ids["b"]).removals == []
    result = group.coordinator.session_elapsed(15_000, group.ids["b"])
    assert [(removal.client, removal.reason) for removal in result.removals] == [("b", "session timed out")]
    assert group.coordinator.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_joins_again_starts_a_rebalance_and_a_follower_does_not() -> None:
    group = stable_group("a", "b")
    result = group.coordinator.join(1_000, join("b", group.ids["b"]))
    (answer,) = answers_to(result, "b")
    assert isinstance(answer, JoinAnswer)
    assert (answer.generation_id, group.coordinator.state) == (1, GroupState.STABLE)
    group.coordinator.join(1_000, join("a", group.ids["a"]))
    assert group.coordinator.state is GroupState.PREPARING_REBALANCE


def test_a_follower_whose_subscription_changed_starts_a_rebalance() -> None:
    group = stable_group("a", "b")
    group.coordinator.join(1_000, join("b", group.ids["b"], offers={"range": MemberSpec(["t", "u"])}))
    assert group.coordinator.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_restarts_gets_what_it_had_without_a_rebalance() -> None:
    group = stable_group("a", "b", static=True)
    result = group.coordinator.join(5_000, join("b-again", instance="b"))
    (answer,) = answers_to(result, "b-again")
    assert isinstance(answer, JoinAnswer)
    assert (answer.error, answer.generation_id, answer.leads) == (ErrorCode.NONE, 1, False)
    sync = SyncGroup("b-again", answer.member_id, "b", 1, None)
    assert group.coordinator.sync(5_001, sync).answers == [("b-again", SyncAnswer(ErrorCode.NONE, [("t", 1)]))]
    assert group.coordinator.state is GroupState.STABLE


def test_a_static_leader_that_restarts_leads_on_and_must_not_assign() -> None:
    group = stable_group("a", "b", static=True)
    (answer,) = answers_to(group.coordinator.join(5_000, join("a-again", instance="a")), "a-again")
    assert isinstance(answer, JoinAnswer)
    assert (answer.leads, answer.skip_assignment, len(answer.subscriptions or ())) == (True, True, 2)


@pytest.mark.parametrize("request_name", ["join", "sync", "heartbeat"])
def test_the_first_of_two_processes_with_an_instance_id_is_fenced(request_name: str) -> None:
    group = stable_group("a", "b", static=True)
    group.coordinator.join(5_000, join("b-again", instance="b"))
    old_id, coordinator = group.ids["b"], group.coordinator
    result = {
        "join": lambda: coordinator.join(6_000, join("b", old_id, instance="b")),
        "sync": lambda: coordinator.sync(6_000, SyncGroup("b", old_id, "b", 1, None)),
        "heartbeat": lambda: coordinator.heartbeat(6_000, Heartbeat("b", old_id, "b", 1)),
    }[request_name]()
    assert error_of(result, "b") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_join_keeps_its_place() -> None:
    group = stable_group("a", "b", static=True)
    timer = next(timer for timer in group.enter(1_000, "c", instance="c").timers)
    group.coordinator.join(2_000, join("a", group.ids["a"], instance="a"))
    group.coordinator.timer_elapsed(timer)
    assert {member.client for member in group.coordinator.members} == {"a", "b", "c"}
    assert group.coordinator.generation_id == 2


def test_members_vote_for_their_first_common_strategy() -> None:
    group = Group()
    both = {"cooperative-sticky": MemberSpec(["t"]), "range": MemberSpec(["t"])}
    for client, offers in (("a", both), ("b", RANGE), ("c", both)):
        (answer,) = answers_to(group.coordinator.join(0, join(client, offers=offers)), client)
        assert isinstance(answer, JoinAnswer)
        group.coordinator.join(0, join(client, answer.member_id, offers=offers))
    assert group.coordinator.members.select_strategy() == "range"
    group.coordinator.leave(1, LeaveGroup("b-2", "leaves"))
    assert group.coordinator.members.select_strategy() == "cooperative-sticky"


def test_ids_that_are_not_used_do_not_hold_a_rebalance_up_for_ever() -> None:
    group = stable_group("a")
    (timer,) = group.coordinator.join(1_000, join("lost")).timers
    group.coordinator.join(2_000, join("a", group.ids["a"]))
    assert group.state() is GroupState.PREPARING_REBALANCE
    group.coordinator.timer_elapsed(timer)
    assert group.state() is GroupState.COMPLETING_REBALANCE
