"""A rolling restart: the rules one by one, which event may follow which, and the order of the brokers."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignor_core.errors import IllegalTransition
from assignor_core.live import NO_LEADER, LiveCluster, LivePartition
from assignor_core.roll import (
    SNAPSHOTS_CAUGHT_UP_MIN,
    Roll,
    RollAct,
    RollEvent,
    RollPolicy,
    TurnView,
    folded_roll,
    next_step,
    roll_order,
    standing_obstacle,
    turn_view,
)

BROKERS = {1: "a", 2: "b", 3: "c"}
WHOLE = LivePartition((1, 2, 3), 2, (1, 2, 3))
LED = LivePartition((1, 2, 3), 1, (1, 2, 3))
BEHIND = LivePartition((1, 2, 3), 2, (2, 3))
LEADERLESS = LivePartition((1,), NO_LEADER, (1,))
NOT_STARTED = Roll("r", (1, 2))
DEMOTING = NOT_STARTED.after(RollEvent.DEMOTING)
RESTARTING = DEMOTING.after(RollEvent.RESTARTING)
AWAY = RESTARTING.after(RollEvent.AWAY)
UNDEMOTING = AWAY.after(RollEvent.UNDEMOTING)
BY_PERSON, BY_COMMAND = False, True
WITH_MARGIN = Roll("r", (1, 2), RollPolicy(margin=1))


def seen(
    *rows: LivePartition, away: tuple[int, ...] = (), needed: int = 2, **of_turn: bool | int | str | None
) -> TurnView:
    """What a look shows of broker 1; `of_turn` goes to `turn_view`."""
    racks = {broker: rack for broker, rack in BROKERS.items() if broker not in away}
    live = LiveCluster("c", racks, {("t", number): row for number, row in enumerate(rows or (WHOLE,))})
    view = turn_view(1, live, {"t": needed}, **of_turn)  # type: ignore[arg-type]
    return replace(view, snapshots_caught_up=SNAPSHOTS_CAUGHT_UP_MIN)


def test_a_broker_counts_as_back_once_several_looks_in_a_row_show_it() -> None:
    """Looks are answered by any broker, and the second one by a broker that has not heard of the restart yet."""
    view, acts = None, []
    for racks in (BROKERS, BROKERS, {2: "b", 3: "c"}, BROKERS, BROKERS, BROKERS):
        view = turn_view(1, LiveCluster("c", racks, {("t", 0): WHOLE}), {"t": 2}, earlier=view)
        acts.append(next_step(AWAY, view, has_command=False).act)
    assert acts == [RollAct.WAIT] * 5 + [RollAct.UNDEMOTE]


@pytest.mark.parametrize(
    ("roll", "view", "has_command", "act", "why"),
    [
        (NOT_STARTED, seen(LED), BY_PERSON, RollAct.DEMOTE, "leadership is taken off"),
        (NOT_STARTED, seen(LED, executing="execution e"), BY_PERSON, RollAct.WAIT, "execution e is under way"),
        (NOT_STARTED, seen(BEHIND), BY_PERSON, RollAct.WAIT, "1 partition behind on this broker"),
        (NOT_STARTED, seen(away=(1,)), BY_PERSON, RollAct.WAIT, "the broker is away"),
        (NOT_STARTED, seen(away=(3,), needed=1), BY_PERSON, RollAct.WAIT, "another broker is away: broker 3"),
        (WITH_MARGIN, seen(LED), BY_PERSON, RollAct.WAIT, "1 partition without margin"),
        (WITH_MARGIN, seen(LED, needed=1), BY_PERSON, RollAct.DEMOTE, ""),
        (NOT_STARTED, seen(LED, is_out_of_use=True), BY_PERSON, RollAct.RESTART, "drained or demoted"),
        (DEMOTING, seen(LED, is_noted=True), BY_PERSON, RollAct.DEMOTE, "1 leader is still on the broker"),
        (DEMOTING, seen(), BY_PERSON, RollAct.DEMOTE, "still on the broker"),
        (DEMOTING, seen(BEHIND, is_noted=True), BY_PERSON, RollAct.WAIT, "behind on this broker"),
        (DEMOTING, seen(is_noted=True), BY_PERSON, RollAct.RESTART, ""),
        (RESTARTING, seen(is_noted=True), BY_PERSON, RollAct.WAIT, "restart the broker now"),
        (RESTARTING, seen(away=(3,), needed=1), BY_PERSON, RollAct.WAIT, "do not restart the broker yet"),
        (RESTARTING, seen(is_noted=True), BY_COMMAND, RollAct.RESTART, "not seen away yet"),
        (RESTARTING, seen(is_command_running=True), BY_COMMAND, RollAct.WAIT, "the command runs"),
        (RESTARTING, seen(command_code=0), BY_COMMAND, RollAct.WAIT, "the command has ended"),
        (RESTARTING, seen(command_code=7), BY_COMMAND, RollAct.STOP, "the command ended with 7"),
        (RESTARTING, seen(away=(1,), command_code=7), BY_COMMAND, RollAct.NOTE_AWAY, ""),
        (AWAY, seen(away=(1,)), BY_PERSON, RollAct.WAIT, "the broker is away"),
        (AWAY, seen(command_code=7), BY_COMMAND, RollAct.STOP, "the command ended with 7"),
        (AWAY, seen(is_command_running=True), BY_COMMAND, RollAct.WAIT, "the command still runs"),
        (AWAY, seen(BEHIND, WHOLE), BY_PERSON, RollAct.WAIT, "1 replica is not in sync on it"),
        (AWAY, seen(LEADERLESS), BY_PERSON, RollAct.WAIT, "1 partition has no leader"),
        (AWAY, seen(), BY_PERSON, RollAct.UNDEMOTE, "caught up"),
        (UNDEMOTING, seen(is_noted=True), BY_PERSON, RollAct.UNDEMOTE, ""),
        (UNDEMOTING, seen(), BY_PERSON, RollAct.NOTE_RESTARTED, ""),
    ],
)
def test_the_next_step(roll: Roll, view: TurnView, has_command: bool, act: RollAct, why: str) -> None:
    step = next_step(roll, view, has_command=has_command)
    assert (step.act, why in step.detail) == (act, True), step


def test_a_broker_that_others_have_taken_out_of_use_stays_so() -> None:
    roll = NOT_STARTED.after(RollEvent.RESTARTING).after(RollEvent.AWAY)
    assert next_step(roll, seen(is_noted=True, is_out_of_use=True), has_command=False).act is RollAct.NOTE_RESTARTED


@pytest.mark.parametrize(
    ("roll", "view", "act"),
    [
        (NOT_STARTED, seen(), RollAct.ABORT),
        (DEMOTING, seen(), RollAct.ABORT),
        (DEMOTING, seen(is_noted=True), RollAct.UNDEMOTE),
        (RESTARTING, seen(is_noted=True, is_command_running=True), RollAct.WAIT),
        (AWAY, seen(away=(1,), is_noted=True), RollAct.ABORT),
        (AWAY, seen(BEHIND, is_noted=True), RollAct.UNDEMOTE),
        (NOT_STARTED.after(RollEvent.RESTARTING), seen(is_noted=True), RollAct.ABORT),
    ],
)
def test_an_abort_ends_the_demotion_of_the_roll_alone(roll: Roll, view: TurnView, act: RollAct) -> None:
    assert next_step(roll.after(RollEvent.ABORT_REQUESTED), view, has_command=False).act is act


def test_a_whole_roll() -> None:
    turn = (RollEvent.DEMOTING, RollEvent.RESTARTING, RollEvent.AWAY, RollEvent.UNDEMOTING, RollEvent.RESTARTED)
    roll = folded_roll(Roll("r", (2, 1)), (*turn, *turn))
    assert (roll.restarted, roll.next_broker, roll.next_sequence) == ((2, 1), None, 11)
    assert next_step(roll, None, has_command=False).act is RollAct.FINISH
    ended = roll.after(RollEvent.DONE).after(RollEvent.ABORT_REQUESTED)
    assert (ended.end, ended.is_abort_requested) == (RollEvent.DONE, True), "a request may come just after the end"


def test_events_come_in_the_order_of_a_turn() -> None:
    """Each pair of events that may follow each other, from the beginning of a turn."""
    allowed = set[tuple[RollEvent, RollEvent]]()
    for first, second in itertools.permutations(set(RollEvent) - {RollEvent.STARTED, RollEvent.ABORT_REQUESTED}, 2):
        for path in ((), (RollEvent.DEMOTING,), (RollEvent.RESTARTING,), (RollEvent.RESTARTING, RollEvent.AWAY)):
            try:
                folded_roll(Roll("r", (1, 2, 3)), (*path, first, second))
            except IllegalTransition:
                continue
            allowed.add((first, second))
    assert not [pair for pair in allowed if pair[0] in (RollEvent.DONE, RollEvent.ABORTED)]
    assert {second for first, second in allowed if first is RollEvent.RESTARTING} == {
        RollEvent.AWAY, RollEvent.UNDEMOTING, RollEvent.ABORTED,
    }  # fmt: skip
    assert {second for first, second in allowed if first is RollEvent.AWAY} == {
        RollEvent.UNDEMOTING, RollEvent.RESTARTED, RollEvent.ABORTED,
    }  # fmt: skip


@given(st.dictionaries(st.integers(1, 30), st.sampled_from(["a", "b", "c", None]), min_size=1), st.integers(1, 30))
def test_racks_are_restarted_one_after_the_other_and_the_controller_last(
    racks: dict[int, str | None], controller: int
) -> None:
    order = roll_order(racks, racks, controller)
    assert sorted(order) == sorted(racks)
    assert len([rack for rack, _ in itertools.groupby(order, racks.get)]) == len(set(racks.values()))
    assert order == roll_order(tuple(reversed(order)), racks, controller)
    if controller in racks and racks[controller] is not None:
        assert order[-1] == controller


def test_what_waiting_does_not_make_safe_is_named() -> None:
    live = LiveCluster("c", BROKERS, {("t", 0): BEHIND, ("alone", 0): LivePartition((1,), 1, (1,))})
    needed = {"t": 2, "alone": 1}
    assert standing_obstacle(2, live, needed, RollPolicy()) is None, "broker 1 can catch up"
    assert standing_obstacle(2, live, needed, RollPolicy(margin=1)) == (
        "1 partition without margin: one more broker that fails stops their writes"
    )
    assert (
        standing_obstacle(1, live, needed, RollPolicy()) == "1 partition without a leader: no other replica is in sync"
    )
    assert standing_obstacle(1, live, needed, RollPolicy(accepts_single=True)) is None
    assert "too few replicas stay in sync" in (
        standing_obstacle(1, live, needed | {"t": 3}, RollPolicy(accepts_single=True)) or ""
    )
    assert "min.insync.replicas unknown" in (standing_obstacle(2, live, {}, RollPolicy()) or "")
