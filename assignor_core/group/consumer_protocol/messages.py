"""What members and coordinator of the consumer protocol send to each other, and what came of it, as values.

Owns the shapes; knows no rule of the protocol. Times are logical ms. A `client` is the address of a process.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from assignor_core.assignors.contract import TopicPartition
from assignor_core.group.messages import Removal
from assignor_core.group.states import ErrorCode, Named

JOIN_GROUP_MEMBER_EPOCH = 0
LEAVE_GROUP_MEMBER_EPOCH = -1
LEAVE_GROUP_STATIC_MEMBER_EPOCH = -2
"""Member epochs with a meaning of their own; -2 keeps the place of a static member."""

Partitions = frozenset[TopicPartition]
NO_PARTITIONS: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """What brokers set for groups of this protocol, by Kafka's names of group configurations (`consumer.*`).

    `assignment_interval_ms`: shortest time between two target assignments (KIP-1263); 0 in brokers before 4.3.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeat:
    """The request. Fields that are None have not changed since the last request; a join sends all of them."""

    client: str
    member_id: str
    member_epoch: int
    group_instance_id: str | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_topic_names: frozenset[str] | None = None
    server_assignor: str | None = None
    topic_partitions: Partitions | None = None

    @property
    def is_full(self) -> bool:
        """Whether the coordinator answers this heartbeat with the assignment even if that is the same."""
        parts = (self.rebalance_timeout_ms, self.subscribed_topic_names, self.topic_partitions)
        return self.member_epoch == JOIN_GROUP_MEMBER_EPOCH or None not in parts


@dataclass(frozen=True, slots=True)
class ConsumerGroupHeartbeatAnswer:
    """The response. `assignment` is None unless it has changed or was asked for."""

    error: ErrorCode
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None


class ConsumerGroupState(Named):
    """State of a group at its coordinator, as `kafka-consumer-groups --describe --state` shows it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberAssignmentState(Named):
    """State of a member's assignment at the coordinator."""

    STABLE = "STABLE"
    UNREVOKED_PARTITIONS = "UNREVOKED_PARTITIONS"
    UNRELEASED_PARTITIONS = "UNRELEASED_PARTITIONS"


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """A member as the coordinator knows it: what it reads, and which partitions are its own or still to be revoked."""

    member_id: str
    client: str
    group_instance_id: str | None = None
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberAssignmentState = MemberAssignmentState.STABLE
    subscribed_topic_names: frozenset[str] = frozenset()
    server_assignor: str | None = None
    rebalance_timeout_ms: int = 300_000
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    @property
    def has_left(self) -> bool:
        """Whether the member is a static one that is away for a while."""
        return self.member_epoch == LEAVE_GROUP_STATIC_MEMBER_EPOCH

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has what the target assignment of `epoch` gives it."""
        return self.state is MemberAssignmentState.STABLE and self.member_epoch == epoch


class GroupStep(Enum):
    """What the group as a whole did."""

    EPOCH_BUMPED = "group epoch bumped"
    TARGET_COMPUTED = "target assignment computed"
    RECONCILED = "all members have what the target assignment gives them"


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The group moved on. `reason` is why, for people; `client` is whose doing it is, if it is one member's."""

    step: GroupStep
    state: ConsumerGroupState
    group_epoch: int
    reason: str
    client: str = ""


@dataclass(frozen=True, slots=True)
class RebalanceTimer:
    """To be handed back at `at_ms`: the member has until then to give up what it must. Old ones are ignored."""

    at_ms: int
    member_id: str
    member_epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """What one step of the coordinator led to, each in order. `reconciled`: members whose assignment has moved."""

    answers: Sequence[tuple[str, ConsumerGroupHeartbeatAnswer]]
    timers: Sequence[RebalanceTimer]
    changes: Sequence[GroupChange]
    reconciled: Sequence[ConsumerGroupMember]
    removals: Sequence[Removal]
