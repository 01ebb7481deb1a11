"""The tables: every pair that is in them, and that all others raise and change nothing."""

from itertools import product
from typing import Any

import pytest

from assignor_core.errors import IllegalTransition
from assignor_core.group.member import ConsumerConfig, Member
from assignor_core.group.messages import JoinAnswer, SyncAnswer
from assignor_core.group.states import (
    GROUP_TRANSITIONS,
    MEMBER_TRANSITIONS,
    ErrorCode,
    GroupInput,
    GroupState,
    MemberInput,
    MemberState,
    next_state,
)


@pytest.mark.parametrize(
    ("table", "states", "inputs"),
    [(GROUP_TRANSITIONS, GroupState, GroupInput), (MEMBER_TRANSITIONS, MemberState, MemberInput)],
    ids=["groups", "members"],
)
def test_a_pair_that_is_not_in_the_table_raises(table: Any, states: Any, inputs: Any) -> None:
    for state, event in product(states, inputs):
        if (state, event) not in table:
            with pytest.raises(IllegalTransition, match=f"{event.name} can't happen in state {state.value}"):
                next_state(table, state, event)


def test_the_ways_between_group_states_are_kafkas() -> None:
    """Previous states as ClassicGroupState lists them."""
    before = {state: {old for (old, _), new in GROUP_TRANSITIONS.items() if new is state} for state in GroupState}
    empty, preparing, completing, stable, _dead = GroupState
    assert before[preparing] == {stable, completing, empty}
    assert before[completing] == {preparing}
    assert before[stable] == {completing}
    assert before[empty] == {preparing}


def test_what_does_not_fit_a_members_state_changes_nothing() -> None:
    member = Member("c", ConsumerConfig(("range",)), ["t"])
    before = {name: getattr(member, name) for name in ("state", "member_id", "generation_id", "owned")}
    with pytest.raises(IllegalTransition):
        member.synced(SyncAnswer(ErrorCode.NONE, [("t", 0)]))
    with pytest.raises(IllegalTransition):
        member.joined(JoinAnswer(ErrorCode.NONE, "c-1", 3), lambda *_: pytest.fail("nothing to assign"))
    assert {name: getattr(member, name) for name in before} == before


def test_a_closed_member_sends_nothing_any_more() -> None:
    member = Member("c", ConsumerConfig(("range",)), ["t"])
    member.close()
    with pytest.raises(IllegalTransition):
        member.join("again")
    assert member.state is MemberState.CLOSED
