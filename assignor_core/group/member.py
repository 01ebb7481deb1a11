"""A consumer of the classic protocol: what it sends, gives up and takes over, answer by answer.

Owns the rules of the Java client's ConsumerCoordinator, eager and cooperative (KIP-429). Knows no clock, no network
and no other member; when its requests are sent is up to whoever runs it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assignor_core.assignors.contract import NO_GENERATION, GroupAssignment, MemberSpec, TopicPartition
from assignor_core.group.messages import (
    Heartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    Protocols,
    SyncAnswer,
    SyncGroup,
)
from assignor_core.group.states import MEMBER_TRANSITIONS, ErrorCode, MemberInput, MemberState, next_state

EAGER_ONLY = frozenset({"range", "roundrobin", "sticky", "load-aware"})
STICKY_BY_USER_DATA = frozenset({"sticky", "load-aware"})
"""Strategies whose members send in their user data what they had last, though they have given it up."""

CLASSIC_PROTOCOL, CONSUMER_PROTOCOL = "classic", "consumer"
"""Values of `group.protocol`."""

Assign = Callable[[str, Protocols], GroupAssignment]
"""Strategy and subscriptions of all members to an assignment; what the leader calls."""


def is_cooperative(strategies: Sequence[str]) -> bool:
    """Whether a consumer with these strategies gives up only what moves: as soon as one is eager, it is eager.

    >>> is_cooperative(["cooperative-sticky"]), is_cooperative(["cooperative-sticky", "range"])
    (True, False)
    """
    return not EAGER_ONLY.intersection(strategies)


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """What the protocols need of a consumer's configuration, by Kafka's names; `strategies` most wanted first.

    With `group_protocol` "consumer" (KIP-848) brokers assign, with `server_assignor` (group.remote.assignor) if it is
    given. They also set the session timeout and the heartbeat interval; strategies don't matter.
    """

    strategies: tuple[str, ...]
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    group_protocol: str = CLASSIC_PROTOCOL
    server_assignor: str | None = None


@dataclass(frozen=True, slots=True)
class Synced:
    """What changed with an assignment. With `revoked` partitions the consumer has to join again to hand them over."""

    error: ErrorCode
    revoked: Sequence[TopicPartition] = ()
    assigned: Sequence[TopicPartition] = ()


class Member:
    """One consumer from its start to its end. Calls that don't fit its state raise IllegalTransition.

    >>> member = Member("c", ConsumerConfig(("range",)), ["t"])
    >>> member.give_up_before_joining(), member.join("starts").member_id, member.state.value
    ((), '', 'PREPARING_REBALANCE')
    """

    def __init__(self, client: str, config: ConsumerConfig, topics: Sequence[str]) -> None:
        self.client = client
        self.config = config
        self.topics = tuple(topics)
        self.state = MemberState.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.owned: Sequence[TopicPartition] = ()
        self.leads = False
        self.withheld = 0
        self._cooperative = is_cooperative(config.strategies)
        self._claim: Sequence[TopicPartition] = ()

    def give_up_before_joining(self) -> Sequence[TopicPartition]:
        """Partitions to revoke before JoinGroup: all if eager, else those of topics that are read no more."""
        if not self._cooperative:
            given_up, self.owned = self.owned, ()
            return given_up
        given_up = tuple(tp for tp in self.owned if tp[0] not in self.topics)
        if given_up:
            self.owned = self._claim = tuple(tp for tp in self.owned if tp[0] in self.topics)
        return given_up

    def join(self, reason: str) -> JoinGroup:
        """The JoinGroup to send now."""
        self._move(MemberInput.JOINS)
        config = self.config
        return JoinGroup(
            self.client, self.member_id, config.group_instance_id, self._protocols(), config.session_timeout_ms,
            config.max_poll_interval_ms, reason,
        )  # fmt: skip

    def joined(self, answer: JoinAnswer, assign: Assign) -> SyncGroup | None:
        """Take JoinGroup's answer; the SyncGroup to send, or None if it has to join again or has failed."""
        if answer.error is not ErrorCode.NONE:
            self._refused(answer.error)
            if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            return None
        self._move(MemberInput.JOINED)
        self.member_id, self.generation_id, self.leads = answer.member_id, answer.generation_id, answer.leads
        self.withheld = 0
        assignment = None
        if answer.subscriptions is not None and not answer.skip_assignment:
            assignment = self._assign(answer, assign)
        return SyncGroup(self.client, self.member_id, self.config.group_instance_id, self.generation_id, assignment)

    def synced(self, answer: SyncAnswer) -> Synced:
        """Take SyncGroup's answer: what stops and what starts."""
        if answer.error is not ErrorCode.NONE:
            self._refused(answer.error)
            return Synced(answer.error)
        self._move(MemberInput.SYNCED)
        before, self._claim = self.owned, answer.assignment
        self.owned = tuple(answer.assignment)
        if not self._cooperative:
            return Synced(ErrorCode.NONE, (), self.owned)
        if self.owned == before:
            return Synced(ErrorCode.NONE)
        kept = set(before).intersection(self.owned)
        return Synced(
            ErrorCode.NONE,
            tuple(tp for tp in before if tp not in kept),
            tuple(tp for tp in self.owned if tp not in kept),
        )

    def put_out(self, error: ErrorCode) -> Sequence[TopicPartition]:
        """The coordinator does not know this member or its generation any more: the partitions that are lost."""
        self._move(MemberInput.PUT_OUT)
        member_id = self.member_id if error is ErrorCode.ILLEGAL_GENERATION else ""
        lost = self._forget()
        self.member_id = member_id
        return lost

    def failed(self) -> Sequence[TopicPartition]:
        """The coordinator will never take this consumer: the partitions that are lost."""
        if self.state is not MemberState.FAILED:
            self._move(MemberInput.FAILS)
        return self._forget()

    def heartbeat(self) -> Heartbeat:
        """A sign of life of this generation."""
        return Heartbeat(self.client, self.member_id, self.config.group_instance_id, self.generation_id)

    def leaving(self, reason: str) -> LeaveGroup | None:
        """The LeaveGroup to send, if any: static members keep their place for a while."""
        if self.config.group_instance_id is not None or not self.member_id:
            return None
        return LeaveGroup(self.member_id, reason)

    def close(self) -> None:
        """Moves the member to its end state, because its process ends."""
        self._move(MemberInput.CLOSES)

    def _assign(self, answer: JoinAnswer, assign: Assign) -> Mapping[str, Sequence[TopicPartition]]:
        assert answer.subscriptions is not None, "only leaders assign"
        result = assign(answer.strategy, answer.subscriptions)
        self.withheld = len(result.transferring)
        return result.assignment

    def _refused(self, error: ErrorCode) -> None:
        """An error that is not for good makes it join again."""
        if error in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL):
            self._move(MemberInput.FAILS)
            return
        self._move(MemberInput.REFUSED)

    def _forget(self) -> Sequence[TopicPartition]:
        lost, self.owned, self._claim = self.owned, (), ()
        self.member_id, self.generation_id, self.leads, self.withheld = "", NO_GENERATION, False, 0
        return lost

    def _protocols(self) -> Protocols:
        return {strategy: self._subscription(strategy) for strategy in self.config.strategies}

    def _subscription(self, strategy: str) -> MemberSpec:
        claims = self._cooperative or strategy in STICKY_BY_USER_DATA
        return MemberSpec(self.topics, self._claim if claims else (), self.generation_id, self.config.group_instance_id)

    def _move(self, given: MemberInput) -> None:
        self.state = next_state(MEMBER_TRANSITIONS, self.state, given)
