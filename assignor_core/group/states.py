"""The states of a group and of its members, and the only ways from one to another: all transitions live here.

Names are Kafka's. This file knows neither requests nor time; a pair that is not in a table raises and changes nothing.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from assignor_core.errors import IllegalTransition


class Named(Enum):
    """Names that are looked up a thousand times a rebalance: by identity, not by the hash of their text."""

    __hash__ = object.__hash__


class GroupState(Named):
    """State of a group at its coordinator, as `kafka-consumer-groups --state` shows it."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    """A group that its coordinator has given up: brokers show it, and no simulated group comes to it."""


class GroupInput(Named):
    """What moves a group from state to state."""

    REBALANCE_NEEDED = "a member came, went or asks for a rebalance"
    MEMBERS_JOINED = "all members that will join have joined"
    NOBODY_JOINED = "the join phase has ended without members"
    LEADER_SYNCED = "the leader has sent the assignment"


class MemberState(Named):
    """State of a consumer, as the Java client calls it; the last two are ends."""

    UNJOINED = "UNJOINED"
    PREPARING_REBALANCE = "PREPARING_REBALANCE"
    COMPLETING_REBALANCE = "COMPLETING_REBALANCE"
    STABLE = "STABLE"
    FAILED = "FAILED"
    CLOSED = "CLOSED"


class MemberInput(Named):
    """What moves a consumer from state to state."""

    JOINS = "JoinGroup was sent"
    JOINED = "JoinGroup was answered with a generation"
    SYNCED = "SyncGroup was answered with an assignment"
    REFUSED = "JoinGroup or SyncGroup was answered with an error that a new JoinGroup removes"
    PUT_OUT = "the coordinator does not know this member or its generation any more"
    FAILS = "the coordinator refused this consumer for good"
    CLOSES = "the process ends"


class ErrorCode(Named):
    """Error codes by Kafka's names."""

    NONE = "NONE"
    ILLEGAL_GENERATION = "ILLEGAL_GENERATION"
    INCONSISTENT_GROUP_PROTOCOL = "INCONSISTENT_GROUP_PROTOCOL"
    UNKNOWN_MEMBER_ID = "UNKNOWN_MEMBER_ID"
    REBALANCE_IN_PROGRESS = "REBALANCE_IN_PROGRESS"
    MEMBER_ID_REQUIRED = "MEMBER_ID_REQUIRED"
    FENCED_INSTANCE_ID = "FENCED_INSTANCE_ID"
    FENCED_MEMBER_EPOCH = "FENCED_MEMBER_EPOCH"
    UNRELEASED_INSTANCE_ID = "UNRELEASED_INSTANCE_ID"


_EMPTY, _PREPARING, _COMPLETING = GroupState.EMPTY, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE

GROUP_TRANSITIONS: Mapping[tuple[GroupState, GroupInput], GroupState] = {
    (_EMPTY, GroupInput.REBALANCE_NEEDED): _PREPARING,
    (_STABLE, GroupInput.REBALANCE_NEEDED): _PREPARING,
    (_COMPLETING, GroupInput.REBALANCE_NEEDED): _PREPARING,
    (_PREPARING, GroupInput.MEMBERS_JOINED): _COMPLETING,
    (_PREPARING, GroupInput.NOBODY_JOINED): _EMPTY,
    (_COMPLETING, GroupInput.LEADER_SYNCED): _STABLE,
}

HEARTBEAT_ANSWERS: Mapping[GroupState, ErrorCode] = {
    _EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    _PREPARING: ErrorCode.REBALANCE_IN_PROGRESS,
    _COMPLETING: ErrorCode.NONE,
    _STABLE: ErrorCode.NONE,
}
"""Error code in the answer to a heartbeat of a member of the current generation, by state of the group."""

SYNC_ANSWERS: Mapping[GroupState, ErrorCode] = HEARTBEAT_ANSWERS
"""Error code in the answer to SyncGroup, by state of the group; in CompletingRebalance the answer waits for the leader.
"""

_MEMBER_PATH: Mapping[tuple[MemberState, MemberInput], MemberState] = {
    (MemberState.UNJOINED, MemberInput.JOINS): MemberState.PREPARING_REBALANCE,
    (MemberState.STABLE, MemberInput.JOINS): MemberState.PREPARING_REBALANCE,
    (MemberState.PREPARING_REBALANCE, MemberInput.JOINED): MemberState.COMPLETING_REBALANCE,
    (MemberState.PREPARING_REBALANCE, MemberInput.REFUSED): MemberState.UNJOINED,
    (MemberState.COMPLETING_REBALANCE, MemberInput.SYNCED): MemberState.STABLE,
    (MemberState.COMPLETING_REBALANCE, MemberInput.REFUSED): MemberState.UNJOINED,
    (MemberState.PREPARING_REBALANCE, MemberInput.PUT_OUT): MemberState.UNJOINED,
    (MemberState.COMPLETING_REBALANCE, MemberInput.PUT_OUT): MemberState.UNJOINED,
    (MemberState.STABLE, MemberInput.PUT_OUT): MemberState.UNJOINED,
    (MemberState.UNJOINED, MemberInput.PUT_OUT): MemberState.UNJOINED,
}
_ALIVE = (MemberState.UNJOINED, MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE, MemberState.STABLE)

MEMBER_TRANSITIONS: Mapping[tuple[MemberState, MemberInput], MemberState] = {
    **_MEMBER_PATH,
    **{(state, MemberInput.FAILS): MemberState.FAILED for state in _ALIVE},
    **{(state, MemberInput.CLOSES): MemberState.CLOSED for state in (*_ALIVE, MemberState.FAILED)},
}

State = TypeVar("State", GroupState, MemberState)
Input = TypeVar("Input", GroupInput, MemberInput)


def next_state(table: Mapping[tuple[State, Input], State], state: State, given: Input) -> State:
    """The state after an input; raises IllegalTransition.

    >>> next_state(GROUP_TRANSITIONS, GroupState.EMPTY, GroupInput.REBALANCE_NEEDED).value
    'PreparingRebalance'
    """
    try:
        return table[state, given]
    except KeyError:
        raise IllegalTransition(f"{given.name} can't happen in state {state.value}") from None
