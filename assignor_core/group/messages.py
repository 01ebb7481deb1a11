"""What members and coordinator send to each other, as values. Owns the shapes; knows no rule of the protocol.

Times are logical ms. A `client` is the address of a process: one consumer from its start to its end.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from assignor_core.assignors.contract import MemberSpec, TopicPartition
from assignor_core.group.states import ErrorCode, GroupState

Protocols = Mapping[str, MemberSpec]
"""Strategies that a member offers, most wanted first, each with the subscription that goes with it."""


@dataclass(frozen=True, slots=True)
class JoinGroup:
    """`member_id` is empty for a process that has none yet. `reason` is for people (KIP-800)."""

    client: str
    member_id: str
    group_instance_id: str | None
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class JoinAnswer:
    """`subscriptions` of all members go to the leader only; with `skip_assignment` it must not assign (KIP-814)."""

    error: ErrorCode
    member_id: str
    generation_id: int = -1
    strategy: str = ""
    leads: bool = False
    subscriptions: Protocols | None = None
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncGroup:
    """`assignment` is the leader's, for all members; None from followers."""

    client: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    assignment: Mapping[str, Sequence[TopicPartition]] | None


@dataclass(frozen=True, slots=True)
class SyncAnswer:
    """SyncGroup's answer: the member's own part of the assignment."""

    error: ErrorCode
    assignment: Sequence[TopicPartition] = ()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat request of a member."""

    client: str
    member_id: str
    group_instance_id: str | None
    generation_id: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Whether the member still belongs to the current generation, and what to do if not."""

    error: ErrorCode


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """A dynamic member goes; it is not answered here, for the process ends anyway."""

    member_id: str
    reason: str


Request = JoinGroup | SyncGroup | Heartbeat | LeaveGroup
Answer = JoinAnswer | SyncAnswer | HeartbeatAnswer


class TimerKind(Enum):
    """Kinds of the coordinator's timers."""

    JOIN_PHASE = "join phase"
    SYNC_PHASE = "sync phase"
    PENDING_MEMBER = "a member id that was given out and not used"


@dataclass(frozen=True, slots=True)
class Timer:
    """To be handed back at `at_ms`; one that is no longer wanted is ignored then."""

    at_ms: int
    kind: TimerKind
    number: int = 0
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class StateChange:
    """The group has a new state or generation."""

    state: GroupState
    generation_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A member id, or its generation, is out of the group; its process may not know. Static ids keep their place."""

    member_id: str
    client: str
    reason: str


@dataclass(frozen=True, slots=True)
class CoordinatorResult:
    """Answers, timers and changes that one step of the coordinator led to, each kind in order."""

    answers: Sequence[tuple[str, Answer]]
    timers: Sequence[Timer]
    changes: Sequence[StateChange]
    removals: Sequence[Removal]
